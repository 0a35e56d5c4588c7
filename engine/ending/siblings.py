"""A call that failed and takes the others of its turn along, where its tool says so."""

import asyncio
from typing import TYPE_CHECKING

from laneway.engine.failures import cancelled
from laneway.outcomes import StoppedBy, succeeded
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall


def stop_siblings(call: "LiveCall") -> None:
    """Stop the other open calls of a turn, if this one's failure makes them useless.

    Of a plan's call, the other calls of its plan.
    """
    tool = call.tool
    if tool is None or not tool.spec.stops_siblings:
        return
    if call.outcome is not None and not succeeded(call.outcome) and call.state in _FAILED:
        # Once what follows from this end has been decided.
        asyncio.get_running_loop().call_soon(_stop, call)


_FAILED = (State.FAILED, State.TIMED_OUT, State.UNCERTAIN)


def _stop(call: "LiveCall") -> None:
    among = call.turn.calls if call.part_of is None else call.part_of.calls
    others = [one for one in among if one is not call and one.outcome is None and not one.plan]
    told = cancelled(
        f"{call.name} ({call.record.tool}) ended {call.state}, and the others are of no use then",
        StoppedBy.SIBLING,
    )
    call.scheduler.cancel(others, told)
