"""What a run has used, told from its facts alone.

Tool calls, attempts, model turns, what answers told of tokens, and the time at work follow from the
facts that are written anyway: a call that is QUEUED has something set aside, one that was started
has used it. So a run that is taken up has the figures of the live one, and a run without such
budgets writes nothing for them. Reads views and rows; feeds the books.
"""

from collections.abc import Collection, Iterable

from laneway.calls import Referring
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallQueued,
    CallReopened,
    CallStarted,
    Fact,
    LossAccepted,
    Row,
    RunForked,
    RunOpened,
    RunTaken,
)
from laneway.journal.fold import CallView, RunView
from laneway.policies.budgets import MICROS, Limit, Unit
from laneway.policies.ledger import concerns
from laneway.states import State


def used(view: RunView, limit: Limit) -> tuple[int, int]:
    """How much of a budget a run has settled, and has set aside; the clock apart."""
    match limit.unit:
        case Unit.MODEL_TURNS:
            taken_in = (turn for turn in view.turns if not (turn.provisional or turn.abandoned))
            return sum(is_model_turn(turn.referring, turn.refused) for turn in taken_in), 0
        case Unit.TOKENS:
            told = (turn.usage for turn in view.turns if turn.usage is not None)
            settled = sum(usage.input_tokens + usage.output_tokens for usage in told)
            return _with_requests(view, "tokens", settled, 1)
        case Unit.COST:
            told = (turn.usage for turn in view.turns if turn.usage is not None)
            return _with_requests(view, "cost", sum(round(u.cost * MICROS) for u in told), MICROS)
        case _:
            return _of_calls(view, limit)


def is_model_turn(referring: Referring, refused: str) -> bool:
    """Whether a turn is an answer of the model that was let in; a body's own call is none."""
    return referring is not Referring.LITERAL and not refused


def _with_requests(view: RunView, key: str, settled: int, scale: int) -> tuple[int, int]:
    budget = view.budgets.get(key)
    if budget is None:
        return settled, 0
    aside = sum(round(amount * scale) for amount in budget.reserved.values())
    return settled + round(budget.settled * scale), aside


def _of_calls(view: RunView, limit: Limit) -> tuple[int, int]:
    plans = {call.record.parent for call in view.calls.values()}
    each = limit.unit is Unit.TOOL_CALLS
    settled = aside = 0
    for call in view.calls.values():
        queued = call.state is State.QUEUED
        if not (call.attempt or queued) or call.id in plans:
            continue
        if concerns(limit, call.record.tool, resources(call)):
            settled += min(call.attempt, 1) if each else call.attempt
            aside += queued and not (each and call.attempt)
    return settled, aside


def resources(call: CallView) -> Collection[str]:
    """What a call claims, by name."""
    return {claim.resource for claim in call.claims or call.record.claims}


def left_open(view: RunView, limit: Limit) -> int:
    """What requests that a dead driver left open will be settled with."""
    budget = view.budgets.get(limit.unit.value)
    if budget is None or limit.unit not in (Unit.TOKENS, Unit.COST):
        return 0
    scale = MICROS if limit.unit is Unit.COST else 1
    return sum(round(budget.least[name] * scale) for name in budget.reserved)


def settlements(view: RunView) -> list[Fact]:
    """Settle what a dead driver had set aside for requests: nobody knows what they took."""
    return [
        BudgetSettled(reservation=name, amount=budget.least[name])
        for budget in view.budgets.values()
        for name in budget.reserved
    ]


def active_seconds(rows: Iterable[Row]) -> float:
    """How long a run has been at work, by the monotonic clocks of its drivers.

    That is while a call of it was queued, running or backing off, or a request to the model was
    open. Of a driver that died, the time since its last fact is not known, and not counted.
    """
    seconds = 0.0
    moving: set[str] = set()
    last: float | None = None
    for row in rows:
        fact = row.fact
        if isinstance(fact, _ELSEWHERE):
            moving.clear()  # By another clock; and nothing moves before the turn is resumed.
        if moving and last is not None:
            seconds += max(row.mono - last, 0.0)
        last = row.mono
        match fact:
            case CallQueued(call=call) | CallStarted(call=call) | CallReopened(call=call):
                moving.add(call)
            case CallEnded(call=call) | ApprovalAsked(call=call):
                moving.discard(call)
            case ApprovalAnswered(edges=edges):  # What an edit comes before waits once more.
                moving.difference_update(edge.target for edge in edges)
            case BudgetReserved(reservation=name):
                moving.add(f"request {name}")
            case BudgetSettled(reservation=name):
                moving.discard(f"request {name}")
            case _:
                pass
    return seconds


_ELSEWHERE = (RunOpened, RunTaken, RunForked, LossAccepted)
"""Facts that are not of the driver of those before them."""
