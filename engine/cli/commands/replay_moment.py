"""A run as it stood after one of its facts: what each call waited for, and all that was open.

Reads a replay; feeds `replay`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from laneway.calls import Edge
from laneway.engine.cli.commands.replay_lanes import LanesThen, claims_of, has_joined, in_lanes
from laneway.engine.cli.commands.replay_shown import (
    ShownBudget,
    ShownMoment,
    ShownQuestion,
    ShownStanding,
    ShownTurnThen,
    shown_fact,
)
from laneway.engine.cli.shown import ShownWait
from laneway.facts import (
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    TurnSubmitted,
)
from laneway.ids import CallId
from laneway.journal.fold import CallView, RunView, TurnView
from laneway.journal.replay import Replay
from laneway.outcomes import Outcome, succeeded
from laneway.states import State


def shown_moment(
    replay: Replay, seq: int, *, all_calls: bool = True, folder: str = ""
) -> ShownMoment:
    """Show a run as it stood after a fact, from 1.

    Args:
        replay: of the run.
        seq: the fact.
        all_calls: of all turns; else those calls that are not over.
        folder: left out of the names of resources, in words.

    Raises:
        UsageError: there is no such fact.
    """
    step = replay.step(seq)
    view = replay.at(seq)
    calls = {
        turn.number: [call for call in turn.calls if all_calls or not is_over(call, turn)]
        for turn in view.turns
    }
    moment = _Moment(replay, seq, [call for some in calls.values() for call in some])
    return ShownMoment(
        run=replay.run,
        seq=seq,
        facts=len(replay.rows),
        damage="" if replay.damage is None else str(replay.damage),
        fact=shown_fact(step, view, folder),
        driver=view.driver,
        mode=view.mode,
        turns=tuple(
            ShownTurnThen(
                turn=turn.number,
                closed=turn.closed,
                calls=tuple(moment.call(call) for call in calls[turn.number]),
            )
            for turn in view.turns
            if all_calls or calls[turn.number] or not turn.closed
        ),
        lanes=tuple(moment.lanes.shown()),
        approvals=tuple(_questions(view)),
        budgets={
            name: ShownBudget(settled=one.settled, reserved=one.used - one.settled)
            for name, one in view.budgets.items()
        },
        tasks={name: _task_state(one.outcome) for name, one in view.tasks.items()},
    )


def is_over(call: CallView, turn: TurnView) -> bool:
    """Whether nothing can come of a call any more."""
    return not (call.open or call.stuck or (call.state is State.UNCERTAIN and not turn.closed))


class _Moment:
    """What is known of the calls at a moment."""

    def __init__(self, replay: Replay, seq: int, calls: Iterable[CallView]) -> None:
        self.view = view = replay.at(seq)
        names = {*(call.id for call in calls), *in_lanes(view)}
        self._entered = _entered(replay, seq, names)
        self._elapsed = replay.elapsed
        self.lanes = LanesThen(view, self._entered)
        self._edges: defaultdict[CallId, list[Edge]] = defaultdict(list)
        for turn in view.turns:
            if not turn.closed:
                for edge in turn.edges:
                    self._edges[edge.target].append(edge)

    def call(self, call: CallView) -> ShownStanding:
        record = call.record
        return ShownStanding(
            call=call.id,
            id=record.provider_id,
            tool=record.tool,
            arguments=record.arguments,
            state=call.state,
            since_seconds=self._elapsed[self._entered[call.id] - 1],
            attempt=call.attempt,
            token=call.token,
            rule=call.rule,
            claims=tuple(map(str, claims_of(call))),
            waits_for=tuple(self._waits(call)),
            stuck=call.stuck,
            outcome=call.outcome,
        )

    def _waits(self, call: CallView) -> Iterator[ShownWait]:
        match call.state:
            case State.PENDING:
                yield from self._dependencies(call)
            case State.AWAITING_APPROVAL if call.approval is not None:
                yield ShownWait("", "approval", call.approval.id)
            case State.QUEUED if has_joined(call, self.view):
                yield ShownWait(call.joined, "same call", "")
            case State.QUEUED:
                yield from self.lanes.waits(call.id)
            case State.UNCERTAIN if not self.view.turns[call.turn - 1].closed:
                yield ShownWait("", "settlement", "")
            case _:
                pass

    def _dependencies(self, call: CallView) -> Iterator[ShownWait]:
        for edge in self._edges[call.id]:
            source = self.view.calls[edge.source]
            unsettled = source.state is State.UNCERTAIN and edge.reason.carries_failure
            if source.open or unsettled:
                yield ShownWait(edge.source, edge.reason, edge.detail)


_MOVES = (CallQueued, CallStarted, CallEnded, AttemptEnded, ApprovalAsked, CallReopened)


def _entered(replay: Replay, seq: int, calls: Iterable[CallId]) -> dict[CallId, int]:
    """Find the facts that brought calls into the states that they are in after a fact."""
    view = replay.at(seq)
    wanted = set(calls)
    found: dict[CallId, int] = {}
    for row in reversed(replay.rows[:seq]):
        if not wanted:
            break
        fact = row.fact
        if isinstance(fact, TurnSubmitted):
            here = wanted.intersection(call.id for call in fact.calls)
        elif isinstance(fact, _MOVES) or (
            isinstance(fact, CallSettled) and view.calls[fact.call].since == row.mono
        ):
            here = wanted & {fact.call}
        else:
            continue
        found.update(dict.fromkeys(here, row.seq))
        wanted -= here
    return found


def _questions(view: RunView) -> Iterator[ShownQuestion]:
    for one in view.approvals.values():
        call = view.calls[one.call]
        if one.answer is None and call.state is State.AWAITING_APPROVAL and call.approval is one:
            yield ShownQuestion(
                approval=one.id,
                call=one.call,
                rule=one.rule,
                reason=one.reason,
                expires_wall=one.asked.expires_wall,
            )


def _task_state(outcome: Outcome | None) -> str:
    if outcome is None:
        return "running"
    return "succeeded" if succeeded(outcome) else "failed"
