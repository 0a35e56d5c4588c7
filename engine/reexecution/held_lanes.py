"""The lanes of a re-execution: the real ones, in front of which some calls wait for other runs.

Reads which calls waited for something that is not of their run; serves the scheduler.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from laneway.claims import Claim, exclusive
from laneway.engine.live import LiveCall
from laneway.engine.reexecution.standing_in import Attempt
from laneway.engine.services import OWN
from laneway.ids import CallId
from laneway.lanes.lane import Lane
from laneway.lanes.requests import Request
from laneway.lanes.table import LaneTable
from laneway.outcomes import Code, Failure


class HeldLanes(LaneTable[LiveCall]):
    """The real lanes, in which some calls wait for something that is not of this run.

    Another run of the engine that held a lane, a pause, a rate or a thread is a place of its own in
    front of each of these calls: they keep their places in all lanes meanwhile, as they did then.
    """

    def __init__(
        self, lanes: Mapping[str, int | Lane], held: Collection[Attempt], *, aside: bool
    ) -> None:
        """Open the lanes.

        Args:
            lanes: as for a lane table.
            held: attempts that wait until `let_in`.
            aside: whether those among them that want a wide lane have no place in it meanwhile:
                the turn's places there are its own to fill, and it filled them otherwise.
        """
        super().__init__(lanes)
        self.sent_away: Mapping[CallId, Failure] = {}
        """Calls that other runs leave no place to, or would wait for through them."""
        self._held = held
        self._aside = aside
        self._holders: dict[Attempt, Request[LiveCall]] = {}
        self._late: dict[Attempt, Callable[[], Request[LiveCall]]] = {}
        """How those ask that stand aside."""

    def request(
        self,
        claims: Iterable[Claim],
        owner: LiveCall,
        *,
        now: float = 0.0,
        priority: int = 0,
        parent: Request[LiveCall] | None = None,
        refusable: bool = True,
    ) -> Request[LiveCall]:
        """Ask for all of the claims; see LaneTable.request."""
        claims = tuple(claims)
        failure = self.sent_away.get(owner.id)
        if failure is not None:
            deadlock = failure.code is Code.LANE_DEADLOCK
            return Request(
                owner,
                claims,
                (),
                (),
                0,
                (),
                cycle=(owner,) if deadlock else (),
                full="" if deadlock else ELSEWHERE,
            )
        attempt = (owner.id, owner.attempt + 1)
        if attempt in self._held:
            place = exclusive(f"{OWN}outside/{owner.id}/{owner.attempt + 1}")
            self._holders[attempt] = super().request((place,), owner, now=now)
            if self._aside and any(map(self.is_wide, claims)):
                self._late[attempt] = partial(
                    super().request, claims, owner, now=now, priority=priority
                )
                claims = ()
            claims = (*claims, place)
        return super().request(
            claims, owner, now=now, priority=priority, parent=parent, refusable=refusable
        )

    def let_in(self, attempt: Attempt) -> Sequence[Request[LiveCall]]:
        """What the call waited for is over; gives whoever holds its claims now."""
        holder = self._holders.pop(attempt, None)
        if holder is None:
            return ()
        asks = self._late.pop(attempt, None)
        if asks is None:
            return self.release(holder)
        call = holder.owner
        stands_aside = call.request
        if stands_aside is None or any(not _is_own(one) for one in stands_aside.claims):
            return ()  # It has left, or changed places with one that has a place.
        self.withdraw(stands_aside)
        self.release(holder)
        call.request = asks()
        return (call.request,) if call.request.granted else ()

    def lets_several_in(self, request: Request[LiveCall]) -> bool:
        """Whether all that a request wants in this run can be held by several at once."""
        claims = [one for one in request.claims if not _is_own(one)]
        if len(claims) == len(request.claims):
            return super().lets_several_in(request)
        nodes = request.nodes
        slots = [slot for slot in request.slots if not slot.startswith(OWN)]
        plain = Request(request.owner, tuple(claims), nodes, tuple(slots), 0, ())
        return super().lets_several_in(plain)

    def crowd(self, lane: str) -> tuple[int, int, int]:
        """Count who is in a lane; of one that others have filled nothing is known."""
        return (0, 0, 0) if lane == ELSEWHERE else super().crowd(lane)


ELSEWHERE = "the lane"


def _is_own(claim: Claim) -> bool:
    return claim.resource.startswith(OWN)
