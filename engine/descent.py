"""Where a run stands in its tree: whose call it is below, how deep, and what has begun besides.

Which call the running code is part of is known from a context variable that all engines share, so
that neither another engine nor another thread or event loop begins a tree anew, as long as the
context goes along (`asyncio.to_thread` takes it along, a bare `threading.Thread` does not). What
was begun is written into the run at the top, and where a run stands into its own first fact, so
that both outlive the process.
"""

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

import msgspec

from laneway.engine.nesting import inside
from laneway.errors import DamagedJournalError, JournalError
from laneway.facts import Below, LevelEntered
from laneway.ids import RunId
from laneway.journal.fold import RunView, fold
from laneway.outcomes import Failure
from laneway.policies.lately import Lately
from laneway.policies.recursion import Descent, refusal
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveTurn
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.services import Services
    from laneway.engine.step import Step

RULE = "recursion"
"""What is named as the rule that denied a call."""

INVOKED = object()
_entering: ContextVar["object | str"] = ContextVar("laneway_entering", default="")
"""What the next run is entered as: an agent's name, or `INVOKED` for a call of a body."""


@contextmanager
def entered_as(what: object | str) -> Generator[None]:
    """Say what the run is that is entered within: `INVOKED`, or the name of an agent."""
    token = _entering.set(what)
    try:
        yield
    finally:
        _entering.reset(token)


class Tree:
    """What has begun below one run: shared by all runs below it, over engines and threads."""

    def __init__(self, root: RunId, levels: dict[RunId, str]) -> None:
        """Start with what the facts of the root tell."""
        self.root = root
        self.levels = levels
        self.lock = threading.Lock()
        self.home: Scheduler | None = None
        """Who writes into the run at the top; None until it is entered."""


class Place(msgspec.Struct, frozen=True, eq=False):
    """Where a run stands."""

    tree: Tree
    chain: tuple[str, ...]
    """The levels down to it, the root first, its own name last."""
    agents: tuple[str, ...] = ()
    """The named agents among them."""
    refused: Failure | None = None
    """Why none of its calls may run."""
    lately: Lately | None = None
    """What the calls of the whole tree were lately; None for the run at the top."""
    began: float | None = None
    """When the body at the top was entered that it is within, in monotonic seconds."""

    def below(self) -> Below | None:
        """What the run's first fact tells of it."""
        if len(self.chain) == 1 and not self.agents:
            return None
        return Below(root=self.tree.root, chain=self.chain[:-1], agents=self.agents)


def top(run: RunId, view: RunView) -> Place:
    """Where a run stands that is below no other."""
    return Place(Tree(run, dict(view.levels)), (run,))


async def descend(run: RunId, view: RunView, services: "Services") -> Place:
    """Find where a run stands that is being entered, and count it.

    Args:
        run: its name.
        view: of it, before this driver has written anything.
        services: of the engine that enters it.
    """
    call = inside.get()
    what = _entering.get()
    if call is None:
        return await _taken_up(run, view, services)
    above = call.scheduler.place
    watch = call.scheduler.watch
    lately = None if watch is None else watch.widen()
    if what is INVOKED:
        began = call.began if above.began is None else above.began
        return msgspec.structs.replace(above, lately=lately, began=began)
    agent = what if isinstance(what, str) else ""
    tree = above.tree
    own = view.below
    chain = (*above.chain, agent or run)
    if own is not None and len(own.chain) >= len(chain):  # It cannot be raised by entering it.
        chain = (*own.chain, agent or run)
    began = call.began if above.began is None else above.began
    with tree.lock:
        known = run in tree.levels
        asked = Descent(
            chain=chain,
            agents=above.agents,
            agent=agent,
            known=known,
            runs=1 + len(tree.levels),
            calls=sum(one == agent for one in tree.levels.values()) if agent else 0,
            seconds=call.scheduler.services.clock.monotonic() - began,
        )
        refused = above.refused or refusal(asked, services.recursion)
        if refused is None and not known:
            tree.levels[run] = agent
            _note(tree, run, agent)
    agents = (*above.agents, agent) if agent else above.agents
    return Place(tree, chain, agents, refused, lately, began)


async def _taken_up(run: RunId, view: RunView, services: "Services") -> Place:
    """Where a run stands that is entered from outside: where it was begun, if below another."""
    own = view.below
    if own is None:
        return top(run, view)
    levels = dict(view.levels)
    services.clock.hold()
    try:
        root = fold(own.root, await services.journal.store.read(own.root))
        levels |= root.levels
    except DamagedJournalError:
        pass  # What it tells no more counts no more.
    finally:
        services.clock.release()
    chain = (*own.chain, run)
    known = Descent(chain=chain, known=True)
    return Place(Tree(own.root, levels), chain, own.agents, refusal(known, services.recursion))


def _note(tree: Tree, run: RunId, agent: str) -> None:
    """Write into the run at the top that another has begun, before anything of that is."""
    home = tree.home
    assert home is not None, "a body runs only in a run that was entered"
    fact = LevelEntered(run=run, agent=agent)

    def post() -> None:
        with suppress(JournalError):  # Of a run that has been left nothing more is written.
            home.services.journal.post(home.log, [fact])

    if home.bodies.loop is _running_loop():
        post()
    else:
        with suppress(RuntimeError):  # Its loop is closed.
            home.bodies.loop.call_soon_threadsafe(post)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


def refuse_all(place: Place, turn: "LiveTurn", step: "Step") -> None:
    """End all calls of a turn whose run may not begin: each of them is told why."""
    if place.refused is None:
        return
    for call in turn.calls:
        call.rule = RULE
        step.end(call, State.DENIED, place.refused)
