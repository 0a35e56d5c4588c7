"""Dry run: what would become of an answer, with nothing executed and nothing journalled.

Reads a reply; gives its graph, the conflicts with their reason, the faults and the verdicts, and a
schedule from what the calls are expected to take.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from laneway.calls import Edge, Reason
from laneway.claims import Access, Claim
from laneway.engine import admission
from laneway.engine.critical import CriticalPath
from laneway.engine.forecast import Forecast, Planned, forecast
from laneway.engine.foreseen import Conflict, Preview, PreviewCall
from laneway.engine.graph import CallGraph
from laneway.engine.live import LiveCall
from laneway.engine.providers.reply import Reply
from laneway.engine.ranks import critical_path
from laneway.engine.scheduler import Scheduler
from laneway.engine.services import Services
from laneway.engine.step import Step
from laneway.ids import CallId, RunId
from laneway.journal.fold import RunView
from laneway.journal.writer import RunLog
from laneway.lanes.lane import Lane
from laneway.lanes.names import covers, is_lane
from laneway.outcomes import Ended
from laneway.policies.questions import Decision, Verdict
from laneway.policies.rules import Policy


async def preview(
    reply: Reply, services: Services, *, mode: str, bound: dict[str, Any], policy: Policy
) -> Preview:
    """Analyse and judge a reply as a turn of its own, and forget it."""
    nobody = RunLog(RunView(RunId("preview")), lambda _: None)
    scheduler = Scheduler(services, nobody, mode=mode, bound=bound, policy=policy)
    coming = await admission.admit(reply, 1, scheduler)
    calls, graph, faults = coming.turn.calls, coming.graph, coming.faults
    step = Step(scheduler)
    verdicts = {at: step.judge(call) for at, call in enumerate(calls) if at not in faults}
    planned = [_planned(call, verdicts.get(at), services) for at, call in enumerate(calls)]
    found = forecast(graph.successors, planned, lanes_of(services))
    return Preview(
        calls=tuple(
            _shown(at, call, faults.get(at), verdicts.get(at), found)
            for at, call in enumerate(calls)
        ),
        edges=tuple(graph.edges),
        conflicts=tuple(_conflicts(graph.edges, calls)),
        rounds=_rounds(graph, planned),
        makespan_seconds=found.seconds,
        critical_path=_critical(graph, planned, found),
    )


def lanes_of(services: Services) -> Mapping[str, Lane]:
    """How many the lanes of an engine let in now, how often, and whom."""
    return {
        lane.resource: Lane(
            max_concurrent=lane.max_concurrent,
            rate=lane.rate,
            over=lane.over,
            reserved=lane.reserved,
        )
        for lane in services.lanes.snapshot(lambda _: "")
        if lane.max_concurrent is not None or is_lane(lane.resource)
    }


def _planned(call: LiveCall, verdict: Verdict | None, services: Services) -> Planned:
    return Planned(
        seconds=services.durations.expect(call.record.tool),
        claims=call.claims,
        thread=call.tool is not None and call.tool.spec.sync,
        faulty=verdict is None,
        refused=verdict is not None and verdict.decision is Decision.DENY,
    )


def _shown(
    at: int, call: LiveCall, fault: Ended | None, verdict: Verdict | None, found: Forecast
) -> PreviewCall:
    span = found.spans.get(at)
    root = found.skipped.get(at)
    return PreviewCall(
        id=call.id,
        name=call.name,
        tool=call.record.tool,
        arguments=call.record.arguments,
        claims=call.claims,
        outcome=None if fault is None else fault.outcome,
        decision="" if verdict is None else verdict.decision,
        rule="" if verdict is None else verdict.rule,
        reason="" if verdict is None else verdict.reason,
        skipped_for=None if root is None else call.turn.calls[root].id,
        ready_seconds=None if span is None else span.ready,
        start_seconds=None if span is None else span.start,
        end_seconds=None if span is None else span.end,
    )


def _conflicts(edges: Iterable[Edge], calls: Sequence[LiveCall]) -> Iterable[Conflict]:
    claims = {call.id: call.claims for call in calls}
    for edge in edges:
        if edge.reason is Reason.CONFLICT:
            first = _does(claims[edge.source], edge.detail)
            second = _does(claims[edge.target], edge.detail)
            yield Conflict(
                first=edge.source,
                second=edge.target,
                resource=edge.detail,
                reason=f"{edge.source} {first}, {edge.target} {second}",
            )


def _does(claims: Iterable[Claim], resource: str) -> str:
    """What claims do to a resource where they meet it: the strongest, nearest to its root."""
    met = [
        (claim.access is not Access.EXCLUSIVE, claim.resource)
        for claim in claims
        if covers(claim.resource, resource) or covers(resource, claim.resource)
    ]
    shared, where = min(met, default=(True, resource))
    return f"{'reads' if shared else 'writes'} {where}"


def _critical(graph: CallGraph, planned: Sequence[Planned], found: Forecast) -> CriticalPath:
    """The longest chain over what would run, or would be refused once it is ready."""
    counts = [at in found.spans or call.refused for at, call in enumerate(planned)]
    successors = [
        [edge for edge in edges if counts[edge[0]]] if counts[at] else []
        for at, edges in enumerate(graph.successors)
    ]
    seconds = [call.seconds if at in found.spans else 0.0 for at, call in enumerate(planned)]
    chain = critical_path(successors, seconds)
    return CriticalPath(
        calls=tuple(graph.ids[at] for at in chain.calls if at in found.spans),
        seconds=chain.seconds,
        running_seconds=chain.seconds,
        estimated=True,
    )


def _rounds(graph: CallGraph, planned: Sequence[Planned]) -> tuple[tuple[CallId, ...], ...]:
    alike = [Planned(faulty=call.faulty, refused=call.refused) for call in planned]
    starts = sorted(
        (span.start, at) for at, span in forecast(graph.successors, alike).spans.items()
    )
    return tuple(
        tuple(graph.ids[at] for _, at in together)
        for _, together in groupby(starts, key=lambda started: started[0])
    )
