"""From what the model asked for to calls that can be scheduled, in a graph.

Reads the parsed reply; gives a turn with its edges, the fact that announces it, and the outcomes
that are known before anything runs. Where references stand in the arguments, `complete` finishes
the work once what they refer to is known: schema, claims and verdict are computed again.
"""

import asyncio
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.claims import Access, Claim, exclusive, shared
from laneway.engine.checking import Checked
from laneway.engine.failures import earlier_failed, outgrown
from laneway.engine.graph import CallGraph, Node, analyse
from laneway.engine.intake import Taken, claims_of, take_in
from laneway.engine.live import LiveCall, LivePlan, LiveTurn
from laneway.engine.planning import PlanTool, refused
from laneway.engine.providers.reply import Asked, Reply
from laneway.engine.references import NOTHING, resolve
from laneway.engine.sealing import LOST, differing, marked
from laneway.engine.secrets.losses import not_kept
from laneway.engine.step import Step
from laneway.engine.tools import Tool
from laneway.facts import TurnSubmitted
from laneway.ids import RunId, call_id, inner_id
from laneway.journal.fold import CallView
from laneway.lanes.names import covers, is_alias, is_lane
from laneway.outcomes import Ended, Failure, succeeded
from laneway.policies.questions import Decision, denied
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

SLICE = 500
"""Calls looked at in a stretch, between which the event loop's other users get their turn."""


class Admission:
    """A turn on its way in."""

    __slots__ = ("faults", "graph", "nodes", "opening", "turn")

    def __init__(self, turn: LiveTurn) -> None:
        """Start with an empty turn."""
        self.turn = turn
        self.faults: dict[int, Ended] = {}
        """Outcomes known before anything runs, by position."""
        self.graph: CallGraph
        self.opening: TurnSubmitted
        self.nodes: list[Node] = []

    def take(self, taken: Taken) -> None:
        """Put a call into the turn."""
        call = taken.call
        if taken.failure is not None:
            self.faults[len(self.turn.calls)] = Ended(State.FAILED, taken.failure)
        self.turn.calls.append(call)
        self.nodes.append(taken.node)
        names = self.turn.by_name if call.part_of is None else call.part_of.by_name
        names[call.name] = call
        if call.part_of is not None:
            call.part_of.calls.append(call)


async def admit(reply: Reply, number: int, scheduler: "Scheduler", *, key: str = "") -> Admission:
    """Analyse a reply; nothing is written and nothing runs yet.

    Args:
        reply: as a provider's format has parsed it.
        number: of the turn, from 1.
        scheduler: whose turn it will be.
        key: the host's name for the reply; the provider's message id if empty.
    """
    turn = LiveTurn(number, scheduler, referring=reply.referring)
    admission = Admission(turn)
    turn.names = known_names(reply, scheduler)
    if scheduler.secrets is not None:
        reply = scheduler.secrets.meet(reply, turn)
    for at, asked in enumerate(reply.calls):
        if at and not at % SLICE:
            await asyncio.sleep(0)
        taken = take_in(asked, call_id(number, at + 1), turn)
        admission.take(taken)
        if isinstance(taken.call.tool, PlanTool) and taken.failure is None:
            await _open(admission, asked)
    if any(_alone(call) for call in turn.calls):
        _meet_in_run(admission.nodes, turn.calls, scheduler.log.view.run)
    graph = admission.graph = analyse(admission.nodes, scheduler.earlier)
    _wire(turn, graph)
    for at, failure in graph.faults.items():
        admission.faults.setdefault(at, Ended(State.FAILED, failure))
    for at, needed in graph.earlier.items():
        failed = _failed(needed, scheduler.earlier)
        if failed is not None:
            admission.faults.setdefault(at, Ended(State.SKIPPED, earlier_failed(failed)))
    admission.opening = TurnSubmitted(
        turn=number,
        provider=reply.provider,
        message=reply.message,
        calls=tuple(call.record for call in turn.calls),
        edges=tuple(graph.edges),
        key=key or reply.key,
        referring=reply.referring,
    )
    return admission


def known_names(reply: Reply, scheduler: "Scheduler") -> Collection[str]:
    """What a reference in a reply can name: its own calls, and those of earlier turns."""
    # A view of both: a copy of the earlier names would make each turn dearer than the last.
    own: dict[str, Any] = dict.fromkeys(asked.id for asked in reply.calls)
    return ChainMap[str, Any](own, scheduler.earlier)


async def _open(admission: Admission, asked: Asked) -> None:
    """Put the calls of a plan into the turn, behind the call that holds them; or refuse it.

    Of a plan that is refused nothing is put in but its own call.
    """
    turn = admission.turn
    at, call = len(turn.calls) - 1, turn.calls[-1]
    tool = call.tool
    assert isinstance(tool, PlanTool)
    verdict = Step(turn.scheduler).judge(call)
    if verdict.decision is Decision.DENY:
        call.rule = verdict.rule
        admission.faults[at] = Ended(State.DENIED, denied(verdict))
        return
    calls = tool.read(call.arguments if call.sealed is None else call.sealed)
    if isinstance(calls, Failure):
        secrets = turn.scheduler.secrets
        told = calls if secrets is None else secrets.told(calls, asked, turn)
        admission.faults[at] = Ended(State.FAILED, asked.cut or told)
        return
    earlier = turn.scheduler.earlier
    plan = LivePlan(call=call, names={*(one.id for one in calls), *earlier})
    taken: list[Taken] = []
    for n, one in enumerate(calls, 1):
        if not n % SLICE:
            await asyncio.sleep(0)
        taken.append(take_in(one, inner_id(call.id, n), turn, plan))
    faults = _faults(taken, earlier) if tool.whole else ()
    if faults:
        admission.faults[at] = Ended(State.FAILED, asked.cut or refused(faults, len(calls)))
        return
    call.plan, call.checked = plan, None
    for each in taken:
        admission.take(each)


def _faults(
    taken: Sequence[Taken], earlier: Mapping[str, CallView]
) -> list[tuple[str, str, Failure]]:
    """Name everything that is wrong with the calls of a plan."""
    # Only what is declared matters here: a conflict is no fault.
    graph = analyse([msgspec.structs.replace(one.node, claims=()) for one in taken], earlier)
    faults: list[tuple[str, str, Failure]] = []
    for at, one in enumerate(taken):
        failed = _failed(graph.earlier.get(at, ()), earlier)
        found = (one.failure, graph.faults.get(at), failed and earlier_failed(failed))
        faults += [(one.call.name, one.call.record.tool, fault) for fault in found if fault]
    return faults


def _failed(needed: Iterable[str], earlier: Mapping[str, CallView]) -> CallView | None:
    """Find a call of an earlier turn that is needed and did not succeed."""
    views = (earlier[name] for name in needed)
    return next((view for view in views if not succeeded(view.outcome)), None)


def run_resource(run: RunId) -> str:
    """The resource that every call of a run shares, or has alone."""
    return f"run:{run}"


def beside(run: RunId) -> Claim:
    """The claim of a call that runs beside others of its run."""
    return shared(run_resource(run))


def alone(run: RunId) -> Claim:
    """The claim of a call that overlaps nothing in its run."""
    return exclusive(run_resource(run))


def _alone(call: LiveCall) -> bool:
    return bool(call.claims) and (
        call.claims[0].access is Access.EXCLUSIVE and call.claims[0].resource.startswith("run:")
    )


def _meet_in_run(nodes: list[Node], calls: Sequence[LiveCall], run: RunId) -> None:
    """Let the calls of the run meet in it: somebody wants it alone, in request order."""
    for at, node in enumerate(nodes):
        if calls[at].plan is None:
            claim = alone(run) if _alone(calls[at]) else beside(run)
            nodes[at] = msgspec.structs.replace(node, claims=(*node.claims, claim))


def _wire(turn: LiveTurn, graph: CallGraph) -> None:
    calls = turn.calls
    for at, edges in enumerate(graph.successors):
        if edges:
            calls[at].successors = [(calls[target], reason) for target, reason in edges]
    for at, count in enumerate(graph.waits):
        if count:
            calls[at].waits = count


def complete(call: LiveCall) -> Failure | None:
    """Resolve a ready call's references and compute again what depends on them.

    Returns:
        Why it can't run: a field that is not there, arguments that the schema refuses, claims that
        go beyond what was foreseen when the order of the turn was made, or a tool that is gone
        since an earlier driver took the call in.
    """
    tool = call.tool
    scheduler = call.scheduler
    if tool is None:
        return scheduler.services.tools.unknown(call.record.tool)
    if call.plan is not None:
        call.checked = _gathered(call, call.plan)
        return None
    resolved = resolved_arguments(call, tool)
    if isinstance(resolved, Failure):
        return resolved
    checked = tool.check(resolved)
    if isinstance(checked, Failure):
        return checked if scheduler.secrets is None else _told(checked, call, resolved)
    arguments, secret = checked.arguments, frozenset[str]()
    if scheduler.secrets is not None:
        shown = told_arguments(call, tool)
        arguments = scheduler.secrets.settled(tool.spec.name, checked.arguments, resolved, shown)
        secret = differing(arguments, checked.arguments)
    claims = claims_of(tool, arguments, NOTHING, scheduler, secret)
    if isinstance(claims, Failure):
        return claims
    # A lane makes no edges, so another one than was foreseen disturbs no order; a run that is
    # taken up may be serial now.
    wider = [
        claim
        for claim in claims
        if not is_lane(claim.resource)
        and not is_alias(claim.resource)  # its path was foreseen, and links come and go
        and claim is not scheduler.alone_in_run
        and not _foreseen(claim, call.claims)
    ]
    if wider:
        return outgrown(wider, call.claims)
    call.arguments = arguments
    call.checked = checked
    call.claims = claims
    return None


def resolved_arguments(call: LiveCall, tool: Tool[..., Any]) -> dict[str, Any] | Failure:
    """Put the results that a ready call refers to into its arguments, which are not checked yet."""
    if call.sealed is LOST:
        return not_kept(call.record.tool, marked(call.edited or call.record.arguments))
    if call.edited is not None:
        return deepcopy(call.edited)
    return _resolved(call, tool, call.record.arguments if call.sealed is None else call.sealed)


def told_arguments(call: LiveCall, tool: Tool[..., Any]) -> dict[str, Any] | Failure:
    """The recorded arguments with the results that they refer to, as the journal tells them."""
    if call.edited is not None:
        secrets = call.scheduler.secrets
        return call.edited if secrets is None else secrets.shown(tool.spec.name, call.edited)
    return _resolved(call, tool, call.record.arguments, marks=True)


def _resolved(
    call: LiveCall, tool: Tool[..., Any], arguments: Any, *, marks: bool = False
) -> dict[str, Any] | Failure:
    """Resolve arguments, with marks in place of all secrets that references bring if they may be.

    Else with the secrets themselves, as far as they are known.
    """
    scope = call.part_of or call.turn
    scheduler = call.scheduler
    secrets = None if marks else scheduler.secrets

    def value(name: str) -> Any:
        told = value_of(name, scope.by_name, scheduler.earlier)
        if secrets is None:
            return told
        source = scope.by_name.get(name) or scheduler.earlier[name]
        return secrets.value(f"{scheduler.log.view.run}/{source.id}", told)

    return resolve(
        arguments, scope.names, value, scope.referring, literal=tool.spec.literal, marks=marks
    )


def _told(failure: Failure, call: LiveCall, resolved: dict[str, Any]) -> Failure:
    """The failure of a call whose resolved arguments do not fit, without the secrets in them."""
    secrets = call.scheduler.secrets
    assert secrets is not None
    asked = Asked(id=call.name, name=call.record.tool, arguments=resolved)
    return secrets.told(failure, asked, None)


def _gathered(call: LiveCall, plan: LivePlan) -> Checked:
    """What the call of a plan is entered with: what the calls that it holds came to."""
    assert isinstance(call.tool, PlanTool)
    ended = [(one.name, one.outcome) for one in plan.calls if one.outcome is not None]
    assert len(ended) == len(plan.calls), "the call of a plan comes after all that it holds"
    if call.scheduler.secrets is not None:
        call.scheduler.secrets.gathered(call, plan.calls)
    return call.tool.gather(call.arguments, ended)


def value_of(name: str, by_name: Mapping[str, LiveCall], earlier: Mapping[str, CallView]) -> Any:
    """The value of a call that has succeeded, of this turn or plan or of an earlier turn."""
    call = by_name.get(name)
    outcome = call.outcome if call is not None else earlier[name].outcome
    assert succeeded(outcome), "a data edge lets a call through only when its source succeeded"
    return deepcopy(outcome.value)  # A host may have got hold of the recorded one.


def _foreseen(claim: Claim, foreseen: Sequence[Claim]) -> bool:
    return any(
        covers(wide.resource, claim.resource)
        and (wide.access is Access.EXCLUSIVE or claim.access is Access.SHARED)
        for wide in foreseen
    )
