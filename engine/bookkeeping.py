"""Opening the books of a run: what the host gave, what earlier drivers and the tree have used.

Reads budgets, the facts of the run, and where a budget covers a tree those of the runs below it;
feeds the scheduler, which asks the books before it queues.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from laneway.engine.accounts import Account
from laneway.engine.budget_status import stored
from laneway.engine.nesting import holder
from laneway.engine.tally import active_seconds
from laneway.errors import JournalError, UsageError
from laneway.facts import Row, Setting
from laneway.ids import RunId
from laneway.journal.fold import RunView, fold
from laneway.outcomes import StopReason
from laneway.policies.budgets import Budget, Budgets, limits
from laneway.policies.stopping import Through
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.services import Services
    from laneway.engine.tools import Toolset
    from laneway.lanes.names import Names

CLOCK = "the driver's monotonic clock, to its last fact"
"""Of what a driver did after that before it died, nothing is known, and nothing counted."""


def checked(budgets: Budgets, tools: "Toolset", names: "Names") -> Budgets:
    """See that tools and lanes with budgets can be, and give the lanes by canonical name.

    Raises:
        UsageError: there is no such tool, or two spellings of one lane.
        BadResourceError: a lane has no name that a resource can have.
    """
    for name in budgets.tools:
        if name not in tools:
            known = ", ".join(tools.names[:8]) or "none"
            raise UsageError(f"Budgets.tools names {name!r}, which is no tool (tools: {known})")
    if not budgets.lanes:
        return budgets
    lanes: dict[str, Budget] = {}
    for name, budget in budgets.lanes.items():
        resource = names.canonical(name if ":" in name else f"lane:{name}")
        if resource in lanes:
            raise UsageError(f"Budgets.lanes names {resource} twice, the second time as {name!r}")
        lanes[resource] = budget
    return Budgets(
        **{field: getattr(budgets, field) for field in budgets.__slots__ if field != "lanes"},
        lanes=lanes,
    )


def setting_with(setting: Setting, services: "Services", budget: Budgets | None) -> Setting:
    """What a driver brings along to a run, with the limits that the host gave."""
    given = stored(limits(services.budgets, budget, nested=False))
    if not given:
        return setting
    return msgspec.structs.replace(
        setting, budgets=given, clock=CLOCK if "seconds" in given else ""
    )


async def open_account(scheduler: "Scheduler", budget: Budgets | None, rows: Sequence[Row]) -> None:
    """Open the books of a run that is being entered.

    Args:
        scheduler: of the run.
        budget: what was given to this run.
        rows: its facts, before this driver came.
    """
    services, view = scheduler.services, scheduler.log.view
    call = holder(services)
    above = None if call is None else call.scheduler.account
    given = [services.budgets] if budget is None else [budget, services.budgets]
    account = Account(
        log=scheduler.log,
        services=services,
        budgets=_counting(given),
        given=limits(services.budgets, budget, nested=above is not None),
        above=above,
        spent_seconds=active_seconds(rows) if rows else 0.0,
        on_over=scheduler.time_over,
        on_end=scheduler.budget_ended,
        last=has_ended(scheduler),
    )
    if account.wide:
        await _count_below(account, view)
    scheduler.account = account
    scheduler.gate = account if account.gates else None
    if has_ended(scheduler):
        _go_on_with_more(scheduler, account)


def has_ended(scheduler: "Scheduler") -> bool:
    """Whether the run has stopped because a budget has ended."""
    stopped = scheduler.stopped
    return stopped is not None and stopped.reason is StopReason.BUDGET_EXCEEDED


def _go_on_with_more(scheduler: "Scheduler", account: Account) -> None:
    """Let a run go on that a budget had ended of which there is more by now."""
    assert scheduler.stopped is not None
    account.keep_back(last=False)
    if scheduler.stopped.budget and not account.exhausted()[0]:
        scheduler.go_on(Through.BUDGET)
    else:  # Or the host has stopped it, who knows of budgets of its own.
        account.keep_back(last=True)


def _counting(given: Sequence[Budgets]) -> Budgets:
    """How models are priced and tokens counted: as the run says, else as the engine does."""
    prices = {name: price for one in reversed(given) for name, price in one.prices.items()}
    counters = (one.count_tokens for one in given if one.count_tokens is not None)
    return Budgets(prices=prices, count_tokens=next(counters, None))


async def _count_below(account: Account, view: RunView) -> None:
    """Count what the runs within the run's calls have used, at any depth, while nobody drove it."""
    services = account.services
    pending, seen = list(_children(view)), {view.run}
    while pending:
        run = pending.pop()
        if run in seen:
            continue
        seen.add(run)
        services.clock.hold()
        try:
            below = fold(run, await services.journal.store.read(run))
        except JournalError:
            continue  # It cannot be read, or is gone: nothing is known of it.
        finally:
            services.clock.release()
        account.count_below(below)
        pending += _children(below)


def _children(view: RunView) -> Iterable[RunId]:
    return (child for call in view.calls.values() for child in call.children)


def hold_again(scheduler: "Scheduler") -> None:
    """Set aside again what was set aside for calls that an earlier driver had queued."""
    turn, gate = scheduler.turn, scheduler.gate
    if turn is not None and gate is not None:
        for call in turn.calls:
            if call.state is State.QUEUED:
                gate.hold(call)


def account_of(scheduler: "Scheduler") -> Account:
    """The books of a run that has been entered."""
    assert scheduler.account is not None, "the books are opened when the run is entered"
    return scheduler.account
