"""A run that another driver left: what its running calls came to, and its open turn made live.

A recorded outcome stays. What was running is run again only where that is safe: it changes
nothing, or is idempotent. Otherwise nobody saw its end, and it is UNCERTAIN, until a probe of its
tool or a human says what became of it.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from laneway.calls import CallRecord, Reason
from laneway.claims import Access
from laneway.effects import Effect
from laneway.engine.edits import keep
from laneway.engine.failures import lost
from laneway.engine.handing_on import hand_on_again
from laneway.engine.live import LiveCall, LivePlan, LiveTurn
from laneway.engine.planning import PlanTool, plan_tool
from laneway.engine.sealing import LOST
from laneway.engine.secrets.marks import holds_mark
from laneway.engine.streaming.left import given_up, half_written
from laneway.engine.tool import Tool
from laneway.engine.tools import Toolset
from laneway.facts import AttemptEnded, CallEnded, Fact, HolderStopped
from laneway.ids import CallId
from laneway.journal.fold import CallView, RunView, TurnView
from laneway.outcomes import Code, Failure, Happened
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

DIED = "the process that drove the run ended"


def found_out(
    view: RunView, held: Collection[CallId] = (), tools: Toolset | None = None
) -> list[Fact]:
    """What a new driver knows of the old one's running calls, as facts.

    Args:
        view: of the run.
        held: calls of which processes are still running, and hold their claims.
        tools: that the new driver has, if it is to go on; what they declare by now counts, too.
    """
    facts: list[Fact] = []
    unfinished = half_written(view)
    for call in view.calls.values():
        if call.stuck and call.id not in held:
            facts.append(HolderStopped(call=call.id, late=DIED))
        if call.state is not State.RUNNING or call.turn == unfinished:
            continue
        record = call.record
        safe = is_safe(record if tools is None else as_declared(record, tools.get(record.tool)))
        if safe and (call.id not in held or _excludes_itself(call)):
            facts.append(AttemptEnded(call=call.id, attempt=call.attempt, cause=DIED))
        else:
            failure = lost(record.tool, DIED[0].upper() + DIED[1:])
            stopped = call.id not in held
            facts.append(
                CallEnded(call=call.id, state=State.UNCERTAIN, outcome=failure, stopped=stopped)
            )
    if unfinished:
        facts += given_up(view.turns[unfinished - 1], held)
    elif view.lossy and view.open_turn is not None:
        facts += _given_up(view.open_turn)
    return facts


def is_safe(record: CallRecord) -> bool:
    """Whether it makes no difference if a call is run twice."""
    return record.effect.changes_nothing or record.idempotent


def as_declared(record: CallRecord, tool: Tool[..., Any] | None) -> CallRecord:
    """A recorded call, as far-reaching as its tool says by now, if that has another version."""
    if tool is None or tool.spec.version == record.tool_version:
        return record
    now = tool.effect_of(record.arguments)
    return replace(
        record,
        effect=max(record.effect, now, key=list(Effect).index),
        idempotent=record.idempotent and (now.changes_nothing or tool.spec.idempotent),
    )


def _excludes_itself(call: CallView) -> bool:
    """Whether a second body of a call would have to wait for what is left of the first."""
    claims = call.claims or call.record.claims
    return call.record.effect.changes_nothing or any(
        claim.access is Access.EXCLUSIVE for claim in claims
    )


def _given_up(turn: TurnView) -> list[Fact]:
    """End what may have run, behind the last fact that is left, and must not run twice."""
    return [
        CallEnded(call=call.id, state=State.FAILED, outcome=_may_have_run(call.record.tool))
        for call in turn.calls
        if call.outcome is None and call.state is not State.RUNNING and not is_safe(call.record)
    ]


def _may_have_run(tool: str) -> Failure:
    return Failure(
        code=Code.OUTCOME_UNKNOWN,
        message=(
            f"A part of the journal is lost, so nobody knows whether {tool} was run. It may or may "
            "not have happened."
        ),
        happened=Happened.UNKNOWN,
        hint="Find out whether it happened before asking again.",
    )


def revive(view: TurnView, scheduler: "Scheduler") -> LiveTurn:
    """Make an open turn live again, as its facts tell; nothing moves before it is resumed."""
    turn = LiveTurn(view.number, scheduler, referring=view.referring)
    turn.parked = True
    by_id: dict[CallId, LiveCall] = {}
    for call in view.calls:
        live = _revive_call(call, turn, scheduler)
        turn.calls.append(live)
        if call.record.parent is None:
            turn.by_name[live.name] = live
        else:
            _put_into_plan(live, by_id[call.record.parent])
        by_id[call.id] = live
    for live in turn.calls:
        if live.plan is not None:
            live.plan.names = {*live.plan.by_name, *scheduler.earlier}
    _wire(view, by_id, overtake=scheduler.services.overtake)
    hand_on_again(turn, ((by_id[e.source], by_id[e.target], e.reason) for e in view.edges))
    turn.names = {*turn.by_name, *scheduler.earlier}
    turn.open = sum(call.outcome is None for call in turn.calls)
    turn.active = sum(
        call.outcome is None and call.state is not State.PENDING for call in turn.calls
    )
    turn.humans = sum(call.state is State.AWAITING_APPROVAL for call in turn.calls)
    turn.uncertain = sum(call.state is State.UNCERTAIN for call in turn.calls)
    turn.seq = scheduler.log.seq
    return turn


def _revive_call(view: CallView, turn: LiveTurn, scheduler: "Scheduler") -> LiveCall:
    services = scheduler.services
    tool = services.tools.get(view.record.tool)
    record = as_declared(view.record, tool)
    call = LiveCall(
        record=record,
        name=record.provider_id,
        tool=tool,
        turn=turn,
        scheduler=scheduler,
        claims=view.claims or record.claims,
        arguments=record.arguments,
        state=view.state,
        outcome=view.outcome,
        attempt=view.attempt,
        origin=view.origin,
        sealed=LOST if holds_mark(record.arguments) else None,
        cleared=view.cleared,
        rule=view.rule,
    )
    approvals = scheduler.log.view.approvals
    if approvals:
        call.asked = sum(one.asked.call == view.id for one in approvals.values())
    edit = view.edit
    if view.approval is not None:
        edit = view.approval.edit or edit
        call.approval = view.approval.id
        call.answers = view.approval.answers
        left = view.approval.asked.expires_wall - services.clock.wall()
        call.due = services.clock.monotonic() + max(left, 0.0)
    if edit is not None:
        keep(call, edit)
    return call


def _put_into_plan(call: LiveCall, holder: LiveCall) -> None:
    if holder.plan is None:
        holder.plan = LivePlan(call=holder, names=())
        if not isinstance(holder.tool, PlanTool):  # The host has no plan tool any more.
            holder.tool = plan_tool(holder.record.tool)
    call.part_of = holder.plan
    holder.plan.calls.append(call)
    holder.plan.by_name[call.name] = call


def _wire(view: TurnView, by_id: Mapping[CallId, LiveCall], *, overtake: bool) -> None:
    for edge in view.edges:
        source, target = by_id[edge.source], by_id[edge.target]
        over = source.outcome is not None and not (
            source.state is State.UNCERTAIN and edge.reason.carries_failure
        )
        passed = (
            overtake and edge.reason is Reason.CONFLICT and source.state is State.AWAITING_APPROVAL
        )
        if over and edge.reason.carries_failure and source.state is not State.SUCCEEDED:
            over = target.outcome is not None  # Else it is skipped once somebody resumes.
        if not (over or passed):
            target.waits += 1
            source.successors = [*source.successors, (target, edge.reason)]
