"""The slots of a group lane, some of them kept for a part of those who come.

Whoever claims a resource for which slots are reserved has a share in the lane: its own slots first,
then those that are open to all. The others have the open ones alone, so never fewer than the
reserved are left. Reads claims; feeds the lanes with room, share by share.
"""

from collections.abc import Iterable, Mapping, Sequence

from laneway.claims import Claim
from laneway.lanes.names import covers


class Pool:
    """How many of each share are in a lane, and who may come in. Share 0 is all others."""

    __slots__ = ("_kept", "_resources", "limit", "used")

    def __init__(self, limit: int, reserved: Mapping[str, int]) -> None:
        """Start with no one in.

        Args:
            limit: `max_concurrent` of the lane.
            reserved: Slots by resource; less in all than there are.
        """
        self.limit = limit
        self._resources = tuple(reserved)
        self._kept = (0, *reserved.values())
        self.used = [0] * len(self._kept)

    @property
    def kept(self) -> int:
        """How many slots are reserved in all."""
        return sum(self._kept)

    def share_of(self, claims: Iterable[Claim]) -> int:
        """Say for whom a call counts: for the first resource that it claims, or part of it."""
        claims = tuple(claims)
        for share, wide in enumerate(self._resources, 1):
            if any(covers(wide, claim.resource) for claim in claims):
                return share
        return 0

    def has_room(self, share: int, used: Sequence[int] | None = None) -> bool:
        """Whether one more of a share may come in.

        Args:
            share: Of the newcomer.
            used: How many of each share are in; those who are, if left out.
        """
        used = self.used if used is None else used
        if sum(used) >= self.limit:
            return False
        return used[share] < self._kept[share] or self._open(used) > 0

    def takes_open(self, share: int) -> bool:
        """Whether the last one of a share that came in has one of the open slots."""
        return self.used[share] > self._kept[share]

    def must_hand_back(self, share: int) -> bool:
        """Whether a waiter of a share may not keep its slot, after the lane was made narrower.

        The open slots go first; then the reserved ones, where holders are too many already.
        """
        if self.takes_open(share):
            return self._open(self.used) < 0
        return sum(self.used) > self.limit

    def _open(self, used: Sequence[int]) -> int:
        beyond = sum(max(n - kept, 0) for n, kept in zip(used, self._kept, strict=True))
        return self.limit - self.kept - beyond
