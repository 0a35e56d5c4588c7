"""Random turns, killed at random commits and taken up again: the effect log is the judge.

Deaths are simulated in this process, many of them, and made real in children that are killed, a
few. LANEWAY_DEATHS sets how many of both are tried; a night's worth is some thousands.
"""

import asyncio
import importlib
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from laneway import Effect, Engine, Limits, State, Success, Tool, ToolContext, Turn
from laneway.engine.run import Run
from laneway.errors import JournalError
from laneway.facts import Row
from laneway.ids import RunId
from laneway.journal.fold import RunView, fold
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.journal.sqlite import SqliteStore
from laneway.journal.store import JournalStore
from laneway.testing.clock import run_virtual
from laneway.testing.dying import DyingStore
from laneway.testing.scripted import Stage
from laneway.testing.watched import WatchedStore

NAME = RunId("case")

# A child is forked from a parent in which no import is under way.
importlib.import_module("networkx")
DEATHS = int(os.environ.get("LANEWAY_DEATHS", "25"))


def tries(count: int) -> settings:
    """So many random turns, however long each takes."""
    return settings(
        max_examples=max(count, 1),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


REPEATABLE = {"pure", "read", "put", "flaky", "bad"}
WRITERS = {"write", "put"}
ON_A_PATH = {"read", "write", "put"}


@dataclass(frozen=True)
class Call:
    """One call of a random turn."""

    name: str
    tool: str
    path: str
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    refers: str = ""

    @property
    def sources(self) -> set[str]:
        """What it cannot do without."""
        return {*self.needs, self.refers} - {""}

    def meets(self, other: "Call") -> bool:
        """Whether the two must never run at the same time."""
        if self.tool in ON_A_PATH and other.tool in ON_A_PATH and self.path == other.path:
            return bool({self.tool, other.tool} & WRITERS)
        return self.tool == other.tool and self.tool in {"pay", "mail", "ask", "lose"}

    def asked(self) -> dict[str, Any]:
        """As a plan says it."""
        arguments = {"id": self.name, "path": self.path, "more": ""}
        if self.refers:
            arguments["more"] = f"${{{self.refers}}}"
        return {
            "id": self.name,
            "tool": self.tool,
            "arguments": arguments,
            "needs": list(self.needs),
            "after": list(self.after),
        }


TOOLS = ("pure", "read", "write", "put", "pay", "mail", "ask", "lose", "flaky", "bad")


@st.composite
def turns(draw: st.DrawFn, most: int = 9) -> tuple[Call, ...]:
    calls: list[Call] = []
    for n in range(draw(st.integers(1, most))):
        earlier = [call.name for call in calls]
        few = (
            st.lists(st.sampled_from(earlier), max_size=2, unique=True) if earlier else st.just([])
        )
        calls.append(
            Call(
                name=f"c{n}",
                tool=draw(st.sampled_from(TOOLS)),
                path=draw(st.sampled_from("ab")),
                needs=tuple(draw(few)),
                after=tuple(draw(few)),
                refers=draw(st.sampled_from(["", *earlier])),
            )
        )
    return tuple(calls)


deaths = st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=3)
"""At which commit of its life a process dies, and whether right before or right after it."""


@dataclass
class World:
    """What outlives every process: the effect log. Effects after a death do not happen."""

    stage: Stage = field(default_factory=Stage)
    alive: bool = True

    def happen(self, text: str) -> None:
        if self.alive:
            self.stage.note(text)

    def tools(self) -> list[Tool[..., Any]]:
        def body(kind: str) -> Any:
            async def work(id: str, path: str, more: str, context: ToolContext) -> str:  # noqa: A002
                self.happen(f"start {id}")
                await asyncio.sleep(0.01 if path == "a" else 0)
                self.happen(f"end {id}")
                if kind == "lose" or (kind == "flaky" and context.attempt % 2):
                    raise ConnectionResetError("the reply did not come")
                if kind == "bad":
                    raise ValueError("no")
                return f"{id} after {len(more)}"

            return work

        def made(kind: str, effect: Effect, **declared: Any) -> Tool[..., Any]:
            return Tool.of(body(kind), name=kind, effect=effect, **declared)

        return [
            made("pure", Effect.PURE),
            made("read", Effect.READ, claims=["read file:{path}"]),
            made("write", Effect.WRITE, claims=["write file:{path}"]),
            made("put", Effect.WRITE, idempotent=True, claims=["write file:{path}"]),
            made("pay", Effect.EXTERNAL, claims=["lane:bank"]),
            made("mail", Effect.EXTERNAL),
            made("ask", Effect.EXTERNAL, approval=True),
            made("lose", Effect.EXTERNAL),
            made("flaky", Effect.READ, retries=9),
            made("bad", Effect.READ),
        ]


async def host(run: Run, calls: Sequence[Call], world: World) -> Turn:
    """Finish what a crash left, else submit; say yes to whatever is asked; note what it is told."""

    async def work() -> Turn:
        if not run.view.conversation:
            await run.say("do it")
            world.happen("told do it")
        left = await run.finish()
        if left is not None:
            return left
        if run.turns:
            return run.turns[-1]
        return await run.submit({"calls": [call.asked() for call in calls]})

    working = asyncio.create_task(work())
    shown: set[str] = set()
    try:
        while not working.done():
            await asyncio.wait([working], timeout=0.001)
            for call in run.turns[-1].calls if run.turns else ():
                if call.outcome is not None and call.id not in shown:
                    shown.add(call.id)
                    world.happen(f"shown {call.record.provider_id} {call.state}")
            for approval in run.approvals:
                name = run.view.calls[approval.call].record.provider_id
                world.happen(f"yes {name}")
                await run.approve(approval.id)
                world.happen(f"told yes {name}")
    finally:
        working.cancel()
        await asyncio.wait([working])
    return working.result()


def live(store: JournalStore, calls: Sequence[Call], world: World) -> Mapping[str, Any]:
    """One life of the process, to its end or its death."""

    async def main() -> Mapping[str, Any]:
        world.happen("life")
        engine = Engine(
            world.tools(),
            journal=store,
            clock=world.stage.make_clock,
            limits=Limits(back_off_seconds=0.01),
        )
        async with engine, engine.run(NAME) as run:
            turn = await host(run, calls, world)
            assert run.history()[0] == {"role": "user", "content": "do it"}
            assert run.history()[1:] == turn.messages
            return {
                call.record.provider_id: (call.state, call.outcome, call.attempt)
                for call in turn.calls
            }

    return run_virtual(main)


def outcomes_in(view: RunView) -> dict[str, Any]:
    return {
        call.record.provider_id: (call.state, call.outcome)
        for call in view.calls.values()
        if call.outcome is not None
    }


class Death(Exception):
    """The process is no more."""


def die_in_mind(
    journal: MemoryJournal, calls: Sequence[Call], world: World, at: int, *, before: bool
) -> bool:
    """Live until a commit, after which nothing that happens counts; return whether it came."""

    def die(number: int, _rows: Sequence[Row]) -> None:
        if number == at:
            world.alive = False
            raise Death

    store = WatchedStore(
        MemoryStore(journal), before=die if before else None, after=None if before else die
    )
    try:
        live(store, calls, world)
    except JournalError as error:
        if not isinstance(error.__cause__, Death):
            raise
    died = not world.alive
    world.alive = True
    return died


def check(
    calls: Sequence[Call],
    log: Sequence[str],
    known: Sequence[Mapping[str, Any]],
    lives: Sequence[Mapping[str, Any]],
) -> None:
    """The promises, on the effect log and the outcomes of the last lives."""
    ended = lives[0]
    by_name = {call.name: call for call in calls}
    starts = Counter(line[6:] for line in log if line.startswith("start"))
    died = log.count("life") - len(lives)

    assert list(ended) == [call.name for call in calls], "one outcome each, in request order"
    assert all(life == ended for life in lives), "taking it up again changes nothing"
    for before in known:
        for name, outcome in before.items():
            assert ended[name][:2] == outcome, "a recorded outcome never changes"
    for name, (state, outcome, attempt) in ended.items():
        call = by_name[name]
        sources = {ended[source][0] for source in call.sources}
        if call.tool in REPEATABLE:
            assert starts[name] <= attempt
            assert state is not State.UNCERTAIN
        else:
            assert starts[name] <= 1, "a tool that is not idempotent is entered once"
        assert attempt <= 2 + 2 * died
        if state is State.SKIPPED:
            assert sources - {State.SUCCEEDED}
            assert not starts[name]
        else:
            assert sources <= {State.SUCCEEDED}
        if state is State.SUCCEEDED:
            assert isinstance(outcome, Success)
            assert f"end {name}" in log
            assert call.tool not in {"lose", "bad"}
        if state is State.FAILED:
            assert call.tool == "bad"
        if state is State.UNCERTAIN and call.tool != "lose":
            assert died, "the end of a call is unknown only after a death"
    check_order(by_name, log)
    check_what_was_told(ended, log)


def check_what_was_told(ended: Mapping[str, Any], log: Sequence[str]) -> None:
    """Nothing that was acknowledged to the host is lost by a death."""
    answered: set[str] = set()
    said = 0
    for line in log:
        word, *rest = line.split()
        if word == "shown":
            assert ended[rest[0]][0] == rest[1], "what was shown has changed"
        elif word == "yes":
            assert rest[0] not in answered, "what was answered is asked again"
        elif word == "told" and rest[0] == "yes":
            answered.add(rest[1])
        elif word == "told":
            said += 1
    assert said <= 1, "what was said is not there any more"


def check_order(by_name: Mapping[str, Call], log: Sequence[str]) -> None:
    running: set[str] = set()
    last: dict[str, int] = {}
    first: dict[str, int] = {}
    allowed: set[str] = set()
    for at, line in enumerate(log):
        word, _, name = line.partition(" ")
        if word == "life":
            running.clear()
        elif word == "yes":
            allowed.add(name)
        elif word == "start":
            for other in running:
                assert not by_name[name].meets(by_name[other]), (name, other)
            assert by_name[name].tool != "ask" or name in allowed
            running.add(name)
            first.setdefault(name, at)
            last[name] = at
        elif word == "end":
            running.discard(name)
            last[name] = at
    for name, call in by_name.items():
        for source in call.sources | set(call.after):
            if name in first and source in last:
                assert last[source] < first[name], f"{name} started before {source} was over"


@tries(3 * DEATHS)
@given(calls=turns(), dying=deaths)
def test_a_turn_that_dies_in_mind_keeps_every_promise(
    calls: tuple[Call, ...], dying: list[tuple[int, bool]]
) -> None:
    journal = MemoryJournal()
    world = World()
    known = []
    for at, before in dying:
        die_in_mind(journal, calls, world, at, before=before)
        known.append(outcomes_in(fold(NAME, journal.facts.get(NAME, ()))))

    lives = [live(WatchedStore(MemoryStore(journal)), calls, world) for _ in range(2)]

    note("\n".join(world.stage.log))
    check(calls, world.stage.log, known, lives)


def test_a_turn_that_dies_in_mind_at_each_of_its_commits_keeps_every_promise() -> None:
    calls = every_tool()
    for before in (True, False):
        at, died = 0, True
        while died:
            at += 1
            journal, world = MemoryJournal(), World()
            died = die_in_mind(journal, calls, world, at, before=before)
            known = [outcomes_in(fold(NAME, journal.facts.get(NAME, ())))]
            lives = [live(WatchedStore(MemoryStore(journal)), calls, world) for _ in range(2)]
            check(calls, world.stage.log, known, lives)
        assert at > 10


def every_tool() -> tuple[Call, ...]:
    """A call of each kind, and for each one that needs it."""
    firsts = [Call(name=f"a_{tool}", tool=tool, path="a") for tool in TOOLS]
    return (
        *firsts,
        *(Call(f"b_{one.tool}", "write", "b", refers=one.name) for one in firsts),
        *(Call(f"c_{one.tool}", "pay", "b", after=(one.name,)) for one in firsts[:3]),
    )


def die_in_a_child(folder: Path, calls: Sequence[Call], at: int, *, before: bool) -> None:
    """Live in a child that is killed at a commit."""
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return
    try:
        store = DyingStore(SqliteStore(folder / "runs.db"), at=at, before=before)
        live(store, calls, World(Stage(folder / "log")))
    except BaseException:  # noqa: BLE001 - a child must not go on as a second pytest
        os._exit(3)
    os._exit(0)


@tries(DEATHS // 2)
@given(calls=turns(), dying=deaths)
def test_a_turn_whose_process_is_killed_keeps_every_promise(
    calls: tuple[Call, ...], dying: list[tuple[int, bool]]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = World(Stage(folder / "log"))
        known = []
        for at, before in dying:
            die_in_a_child(folder, calls, at, before=before)
            known.append(outcomes_in(asyncio.run(read(folder))))

        lives = [live(SqliteStore(folder / "runs.db"), calls, world) for _ in range(2)]

        note("\n".join(world.stage.log))
        check(calls, world.stage.log, known, lives)


async def read(folder: Path) -> RunView:
    store = SqliteStore(folder / "runs.db")
    await store.open()
    try:
        return fold(NAME, await store.read(NAME))
    finally:
        await store.close()


# The fold


def told(view: RunView) -> Any:
    """All that a view holds, as plain data."""
    return msgspec.to_builtins(
        {
            "run": (view.run, view.seq, view.mode, view.driver, view.token),
            "turns": view.turns,
            "calls": view.calls,
            "approvals": view.approvals,
            "conversation": view.conversation,
        }
    )


@tries(DEATHS)
@given(calls=turns(), data=st.data())
def test_a_fold_of_the_rows_is_the_live_view(calls: tuple[Call, ...], data: st.DataObject) -> None:
    """Also after a host has cancelled, denied, settled, closed and left at random moments."""
    world, journal = World(), MemoryJournal()
    doing = st.lists(
        st.tuples(
            st.sampled_from(["cancel", "deny", "approve", "settle", "say", "close", "sleep"]),
            st.sampled_from([call.name for call in calls]),
            st.sampled_from([0.0, 0.005, 0.02]),
        ),
        max_size=8,
    )
    script = data.draw(doing)
    leave_open = data.draw(st.booleans())

    async def do(run: Run, turn: Turn) -> None:
        for what, name, seconds in script:
            await asyncio.sleep(seconds)
            try:
                await act(run, turn, what, name)
            except LookupError:
                continue
            check_views(run)

    async def main() -> list[Any]:
        engine = Engine(
            world.tools(),
            journal=WatchedStore(MemoryStore(journal)),
            clock=world.stage.make_clock,
            limits=Limits(back_off_seconds=0.01),
        )
        async with engine, engine.run(NAME) as run:
            reply = {"calls": [call.asked() for call in calls]}
            turn = await run.submit(reply, wait=False)
            await do(run, turn)
            if not leave_open:
                await turn.close()
                assert turn.ready
            await run.say("enough")
            check_views(run)
        async with engine, engine.run(NAME) as again:
            view = told(again.view)
            assert view == told(fold(NAME, journal.facts[NAME]))
            await again.finish() if not again.approvals else None
            check_views(again)
            return [again.view.seq, len(journal.facts[NAME])]

    def check_views(run: Run) -> None:
        assert told(run.view) == told(fold(NAME, journal.facts[NAME][: run.view.seq]))
        scheduler = run._scheduler
        assert scheduler is not None
        if scheduler.turn is not None and run.view.seq == scheduler.log.seq:
            view = run.view.turns[-1]
            assert [call.state for call in scheduler.turn.calls] == [
                call.state for call in view.calls
            ]
            assert [call.outcome for call in scheduler.turn.calls] == [
                call.outcome for call in view.calls
            ]

    seq, rows = run_virtual(main)

    assert seq == rows


async def act(run: Run, turn: Turn, what: str, name: str) -> None:
    """What a host might do; LookupError where it makes no sense now."""
    state = turn.call(name).state
    match what:
        case "cancel":
            await run.cancel(name)
        case "deny" | "approve" if state is State.AWAITING_APPROVAL:
            await (run.deny if what == "deny" else run.approve)(name)
        case "settle" if state is State.UNCERTAIN and not turn.ready:
            await run.settle(name, value="found")
        case "say":
            await run.say(f"about {name}")
        case "close":
            await turn.close()
        case "sleep":
            pass
        case _:
            raise LookupError(what)
