"""Letting go of bodies that do not stop: the last resort of an operator.

Reads who holds a lane and who of them is stuck; gives their claims back. What such a body comes to
later is written down, and changes nothing.
"""

from typing import TYPE_CHECKING

from laneway.engine.live import LiveCall
from laneway.engine.step import Step
from laneway.errors import SHOWN, UsageError
from laneway.lanes.requests import Request

if TYPE_CHECKING:
    from laneway.engine.services import Services


def let_go(resource: str, services: "Services") -> tuple[str, ...]:
    """Give back all that the stuck holders of a resource hold.

    Args:
        resource: canonical.
        services: of the engine.

    Returns:
        The calls, as `run/t1.2`.

    Raises:
        UsageError: somebody holds it who is not stuck; nothing was done.
    """
    table = services.lanes
    found: dict[Request[LiveCall], None] = {}
    for request in table.concerned(resource):
        if request.granted:
            # What a stuck call has called in its turn goes first.
            parts = table.parts(request) if request.children else ()
            found |= dict.fromkeys((*parts, request))
    # A call that is over holds only for those that it has called.
    held = [one for one in found if one not in services.leaving]
    alive = [one.owner.called for one in held if not _is_stuck(one.owner)]
    if alive:
        more = f" and {len(alive) - SHOWN} more" if len(alive) > SHOWN else ""
        raise UsageError(
            f"{resource} cannot be reset: {', '.join(alive[:SHOWN])}{more} would go on as if "
            "nothing had happened; cancel them first, and wait for the grace"
        )
    for request in held:
        step = Step(request.owner.scheduler)
        step.let_go(request.owner)
        request.owner.scheduler.post(step)
    return tuple(one.owner.called for one in held)


def _is_stuck(call: LiveCall) -> bool:
    return call in call.scheduler.bodies.stuck
