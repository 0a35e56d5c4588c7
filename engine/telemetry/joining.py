"""Where a run that is entered meets whoever listens; nothing happens where nobody does.

Imports nothing of OpenTelemetry. Read by `Run`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from laneway.journal.fold import RunView
from laneway.journal.writer import RunLog

if TYPE_CHECKING:
    from laneway.engine.budget_status import BudgetStatus
    from laneway.engine.live import LiveCall
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.services import Services


def task_class_of(view: RunView, given: str, above: "Scheduler | None") -> str:
    """What kind of task a run is: as it was, as its host says, or as that of the run above it."""
    inherited = "" if above is None or view.seq else above.log.view.task_class
    return view.task_class or given or inherited


def join(
    services: "Services",
    log: RunLog,
    mode: str,
    task_class: str,
    agents: Sequence[str],
    within: "LiveCall | None",
) -> str:
    """Begin to listen to a run, before anything is written of it; see `Listener.join`."""
    if services.telemetry is None:
        return ""
    return services.telemetry.join(
        log, mode=mode, task_class=task_class, agents=agents, within=within
    )


def count_budgets(
    services: "Services", log: RunLog, statuses: "Callable[[], dict[str, BudgetStatus]]"
) -> None:
    """Say how the budgets of a run are found, to be counted when it is left."""
    if services.telemetry is not None:
        services.telemetry.count_budgets(log, statuses)
