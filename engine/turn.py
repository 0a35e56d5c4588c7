"""One answer of the model and what became of its calls, as the host sees it."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.engine.critical import CriticalPath, path_of
from laneway.engine.graph import digraph
from laneway.engine.kinds import is_object
from laneway.engine.providers import format_named
from laneway.engine.providers.reply import Answer
from laneway.engine.results import note_of
from laneway.errors import TurnNotReadyError, UnknownCallError
from laneway.ids import CallId
from laneway.journal.fold import CallView, RunView, TurnView, open_calls
from laneway.outcomes import Outcome
from laneway.states import State

if TYPE_CHECKING:
    import networkx as nx

    from laneway.engine.run import Run
    from laneway.engine.shaping.showing import Shown


class Turn:
    """A turn of a run. Everything it tells has been written to the journal before."""

    def __init__(self, run: "Run", view: TurnView) -> None:
        """Show a turn of the run."""
        self._run = run
        self._view = view

    @property
    def number(self) -> int:
        """From 1, in the order of submission."""
        return self._view.number

    @property
    def key(self) -> str:
        """The host's name for the answer; the provider's message id where it gave none."""
        return self._view.key

    @property
    def calls(self) -> Sequence[CallView]:
        """The calls in request order, each with state, outcome and times; not to be changed.

        Those of a plan stand behind the call that holds them, which is their record's `parent`.
        """
        return self._view.calls

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """The outcomes so far, by the provider's ids of the calls; copies, yours to change.

        Those of a plan's calls are in the result of the call that holds them.
        """
        return {
            call.record.provider_id: deepcopy(call.outcome)
            for call in asked_for(self._view)
            if call.outcome is not None
        }

    @property
    def ready(self) -> bool:
        """Whether every outcome is final, so that the messages can be shown."""
        return self._view.closed

    @property
    def open_calls(self) -> list[str]:
        """What stands in the way of the messages: the provider's ids of calls, in request order.

        A call of a plan has that of the plan before its own: `call_7/a`.
        """
        return open_names(self._view)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The assistant's message and the results, in the provider's form and in request order.

        Raises:
            TurnNotReadyError: some calls have no final outcome yet.
        """
        if not self._view.closed:
            raise TurnNotReadyError(self.number, self.open_calls)
        return rendered(self._view, self._run.shown)

    @property
    def graph(self) -> "nx.DiGraph[CallId]":
        """The DAG: nodes are Laneway's call ids, edges carry `reason` and `detail`."""
        return digraph([call.id for call in self._view.calls], self._view.edges)

    def critical_path(self) -> CriticalPath:
        """What the end of the turn waits for: measured once all calls have ended, else estimated.

        Times are of the driver's clock: those of a turn that was begun on another machine, or
        before this one was restarted, are not comparable.
        """
        return path_of(self._view, self._run.expect)

    def call(self, name: str) -> CallView:
        """Find a call by Laneway's own name or by the provider's id; `call_7/a` is in a plan.

        Raises:
            UnknownCallError: the turn has no such call.
        """
        found = self._find(name)
        if found is None:
            raise UnknownCallError(self._run.id, name)
        return found

    def has(self, name: str) -> bool:
        """Whether the turn has a call of this name, Laneway's own or the provider's."""
        return self._find(name) is not None

    def _find(self, name: str) -> CallView | None:
        calls = {call.id: call for call in self._view.calls}
        if name in calls:
            return calls[CallId(name)]
        named = [call for call in calls.values() if name == host_name(call, calls)]
        return named[0] if len(named) == 1 else None

    async def wait(self) -> None:
        """Wait until no call moves by itself any more; humans are waited for.

        What needs an UNCERTAIN call stays open: settle it, or `close` the turn. Cancelling the
        wait cancels the turn, and returns when its calls have stopped.
        """
        await self._run.wait(self)

    async def close(self) -> None:
        """Make every outcome final.

        Questions to humans are withdrawn, what runs is waited for, UNCERTAIN stays, and what needs
        it is skipped.
        """
        await self._run.close(self)

    def __repr__(self) -> str:
        """Name the turn and how far it is."""
        state = "ready" if self.ready else f"open: {', '.join(self.open_calls)}"
        count = len(asked_for(self._view))
        return f"<Turn {self.number} of run {self._run.id!r}, {count} calls, {state}>"


def unfinished(turn: TurnView) -> list[CallView]:
    """The calls whose outcome is missing or may still change."""
    if turn.closed:
        return []
    uncertain = [call for call in turn.calls if call.state is State.UNCERTAIN]
    return open_calls(turn) or uncertain


def open_names(turn: TurnView) -> list[str]:
    """What a host calls the unfinished calls."""
    calls = {call.id: call for call in turn.calls}
    return [host_name(call, calls) for call in unfinished(turn)]


def asked_for(turn: TurnView) -> list[CallView]:
    """The calls that the model asked for by themselves: each of them is answered."""
    return [call for call in turn.calls if call.record.parent is None]


def host_name(call: CallView, calls: Mapping[CallId, CallView]) -> str:
    """What a host calls a call: the provider's id, below that of the call that it is part of."""
    name, parent = call.record.provider_id, call.record.parent
    return name if parent is None else f"{host_name(calls[parent], calls)}/{name}"


def rendered(turn: TurnView, shown: "Shown") -> list[dict[str, Any]]:
    """A closed turn's messages in its provider's form, the host's own to change.

    Hosts do change them, to mark what a provider is to cache; what is recorded stays as it is.
    """
    calls = [call for call in asked_for(turn) if call.outcome is not None]
    notes = [note_of(call.edit) for call in calls]
    beside = [len(note) + len(call.note) for note, call in zip(notes, calls, strict=True)]
    answers = [
        Answer(
            id=call.record.provider_id,
            name=call.record.tool,
            outcome=outcome,
            note=note,
            warning=call.note,
        )
        for call, note, outcome in zip(calls, notes, shown.outcomes(calls, beside), strict=True)
    ]
    return format_named(turn.provider).render(_COPY(_ENCODE(turn.message)), answers)


_ENCODE = msgspec.json.Encoder().encode
_COPY = msgspec.json.Decoder().decode


def said_before(view: RunView) -> list[Any]:
    """The host's own messages, as they are recorded."""
    return [part.message for part in view.conversation if not isinstance(part, TurnView)]


def conversation(view: RunView, shown: "Shown", provider: str = "") -> list[dict[str, Any]]:
    """All closed turns and the host's own messages, joined as the last provider wants them.

    Args:
        view: of the run.
        shown: how results are shown to the model.
        provider: whose form is wanted where there is no turn yet.
    """
    joined: list[dict[str, Any]] = []
    provider = view.turns[-1].provider if view.turns else provider
    for part in view.conversation:
        if isinstance(part, TurnView):
            if part.closed:
                joined += rendered(part, shown)
        elif provider:
            joined.append(format_named(provider).say(part.message))
        else:
            message = part.message
            joined.append(message if is_object(message) else {"role": "user", "content": message})
    return format_named(provider).join(joined) if provider else joined
