"""Tells calls and lanes as they move, a line for each thing that happened.

Reads batches of rows right after they have been kept, so it never tells what may still be lost.
"""

from collections.abc import Callable, Iterator, Sequence

from laneway.calls import Reason
from laneway.claims import Claim
from laneway.engine.cli.tree import shortened
from laneway.engine.cli.wording import MARKS, brief, call_text, outcome_text, said_in, seconds_text
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetNeared,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    ChildEntered,
    CompensationEnded,
    CompensationStarted,
    GrantRevoked,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LevelEntered,
    LossAccepted,
    MessageSaid,
    ModeChanged,
    ProcessStarted,
    Row,
    RunAbandoned,
    RunForked,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    TaskEnded,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import CallId, RunId
from laneway.journal.fold import CallView, RunView, fold

_OWN_LANES = ("run:", "lane:engine/")
"""What every call holds of the engine itself: it tells nobody anything."""


class Progress:
    """Keeps a view of each run beside the engine's, and says what changes."""

    def __init__(self, say: Callable[[str], None], *, folder: str = "") -> None:
        """Tell it line by line.

        Args:
            say: takes a line.
            folder: left out of the names of resources.
        """
        self._say = say
        self._folder = folder
        self._views: dict[RunId, RunView] = {}

    def taken(self, run: RunId, rows: Sequence[Row]) -> None:
        """A run is taken up; what happened before is told nobody again."""
        self._views[run] = fold(run, rows)

    def kept(self, batch: Sequence[Row]) -> None:
        """A batch is kept."""
        at_once = {row.fact.call for row in batch if isinstance(row.fact, CallStarted)}
        for row in batch:
            view = self._views[row.run]
            view.apply(row)
            for line in self._lines(view, row, at_once):
                self._say(line)

    def _lines(  # noqa: C901, PLR0912, PLR0915 - one case for each kind of fact
        self, view: RunView, row: Row, at_once: set[CallId]
    ) -> Iterator[str]:
        match row.fact:
            case RunOpened(run=run):
                yield f"run {run}"
            case RunTaken(driver=driver):
                yield f"run {view.run}, taken up by process {driver.pid}"
            case MessageSaid():
                pass
            case TurnSubmitted() as fact:
                yield from self._asked(view, fact)
            case CallQueued(call=call) if call not in at_once:
                yield self._line(
                    "·", view.calls[call], f"waits for {self._lanes(view.calls[call])}"
                )
            case CallQueued():
                pass
            case CallJoined(call=call, leader=leader):
                yield self._line("·", view.calls[call], f"waits for the same call {leader}")
            case CallStarted(call=call, attempt=attempt):
                again = f"attempt {attempt}, " if attempt > 1 else ""
                yield self._line(
                    "▶", view.calls[call], f"{again}holds {self._lanes(view.calls[call])}"
                )
            case AttemptEnded(call=call, cause=cause):
                yield self._line("↻", view.calls[call], f"will run again: {cause}")
            case CallEnded(call=call):
                yield self._ended(view.calls[call])
            case ApprovalAsked(call=call, rule=rule):
                yield self._line("?", view.calls[call], f"waits for a human ({rule})")
            case ApprovalAnswered(call=call, granted=granted, by=by, edit=edit):
                told = f"{'approved' if granted else 'refused'}{f' by {by}' if by else ''}"
                if edit is not None:
                    told += f", to run with {brief(edit.arguments, 160)}"
                yield self._line("?", view.calls[call], told)
            case CallSettled(call=call, outcome=outcome):
                yield self._line("?", view.calls[call], f"settled: {outcome_text(outcome)}")
            case HolderStopped(call=call):
                yield self._line("·", view.calls[call], "has stopped at last; its lanes are free")
            case RunForked(source=source, seq=seq):
                yield f"run {view.run}, forked from {source} at fact {seq}"
            case LaneChanged(lane=lane, change=change):
                yield f"  · {lane} {change}"
            case ModeChanged(mode=mode, by=by):
                yield f"  · mode {mode}{f', says {by}' if by else ''}"
            case RunStopped(reason=reason, detail=detail):
                yield f"  ■ stopped: {reason}{f' ({brief(detail, 160)})' if detail else ''}"
            case RunReopened(through=through):
                yield f"  ▶ goes on ({through})"
            case CallProbed(call=call, found=found):
                yield self._line("?", view.calls[call], f"its probe says: {found}")
            case CallReopened(call=call, by=by):
                told = f", says {by}" if by else ""
                yield self._line("↻", view.calls[call], f"will run again: it did nothing{told}")
            case GrantRevoked(grant=grant, by=by):
                yield f"  · what was granted with {grant} was revoked{f' by {by}' if by else ''}"
            case RunAbandoned(by=by):
                yield f"  ■ the run was given up{f' by {by}' if by else ''}; it is to be undone"
            case CompensationStarted(call=call):
                yield self._line("↩", view.calls[call], "is being undone")
            case CompensationEnded(call=call, outcome=outcome):
                yield self._line("↩", view.calls[call], f"undone: {outcome_text(outcome)}")
            case LossAccepted(lost=lost):
                yield f"  ! {lost} damaged facts were given up"
            case TaskStarted(task=task, run=run):
                yield f"  ▶ background task {task} in run {run}"
            case TaskEnded(task=task, outcome=outcome):
                yield f"  · background task {task}: {outcome_text(outcome)}"
            case (
                TurnClosed()
                | HostNoted()
                | ChildEntered()
                | LevelEntered()
                | ProcessStarted()
                | BudgetReserved()
                | BudgetSettled()
                | BudgetNeared()
            ):
                pass

    def _asked(self, view: RunView, fact: TurnSubmitted) -> Iterator[str]:
        count = len(fact.calls)
        calls = f"{count or 'no'} call{'' if count == 1 else 's'}"
        said = brief(said_in(fact.message), 160)
        yield f"turn {fact.turn}, {calls}{f': {said}' if said else ''}"
        for edge in fact.edges:
            about = f" over {shortened(edge.detail, self._folder)}" if edge.detail else ""
            why = (
                f"both touch {about[6:]}" if edge.reason is Reason.CONFLICT else edge.reason + about
            )
            yield self._line("·", view.calls[edge.target], f"waits for {edge.source}: {why}")

    def _ended(self, call: CallView) -> str:
        took = None
        if call.started is not None and call.ended is not None:
            took = max(call.ended - call.started, 0.0)
        told = "" if call.outcome is None else outcome_text(call.outcome)
        state = "" if MARKS[call.state] == "✓" else f"{call.state} "
        return self._line(MARKS[call.state], call, f"{state}{seconds_text(took)}  {told}")

    def _lanes(self, call: CallView) -> str:
        claims = call.claims or call.record.claims
        told = [self._claim(claim) for claim in claims if not claim.resource.startswith(_OWN_LANES)]
        return ", ".join(told) or "no lane"

    def _claim(self, claim: Claim) -> str:
        resource = shortened(claim.resource, self._folder)
        return resource if resource.startswith("lane:") else f"{resource} {claim.access}"

    def _line(self, mark: str, call: CallView, told: str) -> str:
        return f"  {mark} {call.id} {call_text(call.record.tool, call.record.arguments)}  {told}"
