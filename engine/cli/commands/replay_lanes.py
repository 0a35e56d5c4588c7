"""Who held what, and who waited for whom, at a moment of one run.

Reads a folded run; feeds `replay_moment`. What other runs held then is in their journals.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from laneway.claims import Access, Claim
from laneway.engine.cli.commands.replay_shown import ShownLaneThen
from laneway.engine.cli.shown import ShownWait
from laneway.ids import CallId
from laneway.journal.fold import CallView, RunView
from laneway.lanes.names import is_lane
from laneway.lanes.table import LaneTable
from laneway.states import State


class LanesThen:
    """Who held what, and who waited for whom, among the calls of one run: put into a table again.

    It knows the limits that the driver brought along, and that a lane had room for all it let in.
    """

    def __init__(self, view: RunView, entered: Mapping[CallId, int]) -> None:
        """Look at a run.

        Args:
            view: of the run.
            entered: by call, the fact that brought it into its state.
        """
        names = [] if view.driver is None else sorted(in_lanes(view), key=lambda one: entered[one])
        calls = [view.calls[name] for name in names]
        self._holders = [call for call in calls if call.state is not State.QUEUED]
        self._waiters = [call for call in calls if call.state is State.QUEUED]
        inside = Counter(
            claim.resource
            for call in self._holders
            for claim in claims_of(call)
            if is_lane(claim.resource)
        )
        limits = dict(view.setting.lanes)
        limits.update({lane: max(limits.get(lane, 1), count) for lane, count in inside.items()})
        table = LaneTable[CallView](limits)
        for call in (*self._holders, *self._waiters):
            table.request(claims_of(call), call)
        self._waits: dict[CallId, tuple[ShownWait, ...]] = {
            request.owner.id: tuple(
                ShownWait(blocker.owner.id, "lane", blocker.resource)
                for blocker in blockers
                if blocker.owner is not None
            )
            for request, blockers in table.waits()
        }

    def waits(self, call: CallId) -> tuple[ShownWait, ...]:
        """What a queued call waits for; nothing where it is in another run, or starts next."""
        return self._waits.get(call, ())

    def shown(self) -> Iterator[ShownLaneThen]:
        """The resources, but for a run that its calls merely share."""
        holders, waiters = _by_resource(self._holders), _by_resource(self._waiters)
        for resource in sorted(holders.keys() | waiters.keys()):
            inside, outside = holders.get(resource, {}), waiters.get(resource, {})
            accesses = {*inside.values(), *outside.values()}
            if resource.startswith("run:") and Access.EXCLUSIVE not in accesses:
                continue
            yield ShownLaneThen(resource=resource, holders=tuple(inside), waiters=tuple(outside))


def _by_resource(calls: Sequence[CallView]) -> dict[str, dict[CallId, Access]]:
    found: dict[str, dict[CallId, Access]] = {}
    for call in calls:
        for claim in claims_of(call):
            found.setdefault(claim.resource, {})[call.id] = claim.access
    return found


def claims_of(call: CallView) -> tuple[Claim, ...]:
    """What a call claims: finally, if it is known yet."""
    return call.claims or call.record.claims


def in_lanes(view: RunView) -> list[CallId]:
    """The calls that held their claims or waited for them."""
    return [
        call.id
        for call in view.calls.values()
        if call.stuck
        or call.state is State.RUNNING
        or (call.state is State.QUEUED and not has_joined(call, view))
    ]


def has_joined(call: CallView, view: RunView) -> bool:
    """Whether it waits for one that is the same, and so for no lane."""
    leader = view.calls.get(CallId(call.joined.removeprefix(f"{view.run}/")))
    return bool(call.joined) and (leader is None or leader.open)
