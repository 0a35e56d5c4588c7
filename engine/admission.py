"""From what the model asked for to calls that can be scheduled, in a graph.

Reads the parsed reply; gives a turn with its edges, the fact that announces it, and the outcomes
that are known before anything runs. Where references stand in the arguments, `complete` finishes
the work once what they refer to is known: schema, claims and verdict are computed again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from laneway.calls import CallRecord
from laneway.claims import Access, Claim, exclusive, shared
from laneway.effects import Effect
from laneway.engine.failures import bad_claims, earlier_failed, outgrown, unread_references
from laneway.engine.graph import CallGraph, Node, analyse
from laneway.engine.live import LiveCall, LiveTurn
from laneway.engine.providers.reply import Asked, Reply
from laneway.engine.references import NOTHING, Unresolved, find, resolve, unescaped
from laneway.engine.services import Services
from laneway.engine.tools import Checked, Tool
from laneway.facts import TurnSubmitted
from laneway.ids import RunId, call_id
from laneway.journal.fold import CallView
from laneway.lanes.names import BadResourceError, covers, is_lane
from laneway.outcomes import Ended, Failure, succeeded
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler

SLICE = 500
"""Calls looked at in a stretch, between which the event loop's other users get their turn."""


class Admission:
    """A turn on its way in."""

    __slots__ = ("faults", "graph", "opening", "turn")

    def __init__(self, turn: LiveTurn) -> None:
        """Start with an empty turn."""
        self.turn = turn
        self.faults: dict[int, Ended] = {}
        """Outcomes known before anything runs, by position."""
        self.graph: CallGraph
        self.opening: TurnSubmitted


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
    names = {*(asked.id for asked in reply.calls), *scheduler.earlier}
    turn.names = names
    nodes: list[Node] = []
    for at, asked in enumerate(reply.calls):
        if at and not at % SLICE:
            await asyncio.sleep(0)
        nodes.append(_take_in(admission, at, asked, names))
    if any(_alone(call) for call in turn.calls):
        _meet_in_run(nodes, turn.calls, scheduler.log.view.run)
    graph = admission.graph = analyse(nodes, scheduler.earlier)
    _wire(turn, graph)
    for at, failure in graph.faults.items():
        admission.faults.setdefault(at, Ended(State.FAILED, failure))
    for at, needed in graph.earlier.items():
        failed = next((view for name in needed if not _did(view := scheduler.earlier[name])), None)
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


def _take_in(admission: Admission, at: int, asked: Asked, names: set[str]) -> Node:
    """Check one call, and put it into the turn."""
    turn = admission.turn
    scheduler = turn.scheduler
    services = scheduler.services
    tool = services.tools.get(asked.name)
    references = NOTHING
    checked: Checked | None = None
    failure = asked.fault
    arguments: Any = asked.arguments
    claims: tuple[Claim, ...] = ()
    effect = tool.spec.effect if tool is not None else Effect.EXTERNAL
    if failure is None and tool is None:
        failure = services.tools.unknown(asked.name)
    if failure is None and tool is not None:
        assert asked.arguments is not None
        references = find(asked.arguments, names, turn.referring, literal=tool.spec.literal)
        known = asked.arguments
        if references.escaped:
            known = unescaped(known, references, names, turn.referring)
        outcome = (
            tool.check(known) if references is NOTHING else _check_known(tool, known, references)
        )
        if isinstance(outcome, Failure):
            failure = asked.cut or outcome
        else:
            arguments = outcome.arguments
            if not references.references:
                checked = outcome
                if tool.spec.effect_of:
                    effect = tool.effect_of(arguments)
            found = claims_of(tool, arguments, references, services, scheduler)
            if isinstance(found, Failure):
                failure = found
            else:
                claims = found
    record = CallRecord(
        id=call_id(turn.number, at + 1),
        provider_id=asked.id,
        tool=asked.name,
        arguments=_as_written(arguments, asked, references),
        text=asked.text,
        effect=effect,
        idempotent=effect.changes_nothing or (tool is not None and tool.spec.idempotent),
        tool_version=tool.spec.version if tool is not None else "",
        claims=claims,
    )
    call = LiveCall(
        record=record,
        name=asked.id,
        tool=tool,
        turn=turn,
        scheduler=scheduler,
        claims=claims,
        arguments=arguments,
        checked=checked,
    )
    turn.calls.append(call)
    turn.by_name[asked.id] = call
    if failure is not None:
        admission.faults[at] = Ended(State.FAILED, failure)
    return Node(
        id=record.id,
        name=asked.id,
        needs=asked.needs,
        after=asked.after,
        data=tuple((one.source, one.path) for one in references.references),
        claims=_conflicting(claims),
        out=failure is not None,
    )


def _as_written(arguments: Any, asked: Asked, references: Unresolved) -> Any:
    """The arguments for the record, in which escapes stay: whoever resumes reads them again."""
    if not references.escaped or asked.arguments is None:
        return arguments
    return {
        name: asked.arguments[name] if name in references.escaped else value
        for name, value in arguments.items()
    }


def _check_known(
    tool: Tool[..., Any], arguments: dict[str, Any], references: Unresolved
) -> Checked | Failure:
    if references.faults:
        return unread_references(references.faults)
    if not references.references:
        return tool.check(arguments)
    return tool.check_unresolved(arguments, references.parameters)


def claims_of(
    tool: Tool[..., Any],
    arguments: Mapping[str, Any],
    references: Unresolved,
    services: Services,
    scheduler: "Scheduler",
) -> tuple[Claim, ...] | Failure:
    """All that a call takes: its run, the lanes of its tool, the resources that it names.

    A tool of which nothing was said holds its run alone; so does every call of a run that the host
    has made serial.
    """
    run = scheduler.alone_in_run if scheduler.serial else scheduler.beside_in_run
    spec = tool.spec
    if not spec.declared:
        run = scheduler.alone_in_run
    own: tuple[Claim, ...] = ()
    if tool.claims is not None:
        try:
            own = (
                tool.claims.claims(arguments, services.names)
                if not references.references
                else tool.claims.widened(arguments, references.parameters, services.names)
            )
        except BadResourceError as error:
            return bad_claims(str(error))
    return (run, *own) if own else (run,)


def run_resource(run: RunId) -> str:
    """The resource that every call of a run shares, or has alone."""
    return f"run:{run}"


def beside(run: RunId) -> Claim:
    """The claim of a call that runs beside others of its run."""
    return shared(run_resource(run))


def alone(run: RunId) -> Claim:
    """The claim of a call that overlaps nothing in its run."""
    return exclusive(run_resource(run))


def _conflicting(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Keep the claims that make edges: lanes only queue, and the run only matters to the lonely."""
    if len(claims) <= 1:
        return ()
    return tuple(claim for claim in claims if not claim.resource.startswith(("lane:", "run:")))


def _alone(call: LiveCall) -> bool:
    return bool(call.claims) and (
        call.claims[0].access is Access.EXCLUSIVE and call.claims[0].resource.startswith("run:")
    )


def _meet_in_run(nodes: list[Node], calls: Sequence[LiveCall], run: RunId) -> None:
    """Let the calls of the run meet in it: somebody wants it alone, in request order."""
    for at, node in enumerate(nodes):
        claim = alone(run) if _alone(calls[at]) else beside(run)
        nodes[at] = Node(
            id=node.id,
            name=node.name,
            needs=node.needs,
            after=node.after,
            data=node.data,
            claims=(*node.claims, claim),
            out=node.out,
        )


def _wire(turn: LiveTurn, graph: CallGraph) -> None:
    calls = turn.calls
    for at, edges in enumerate(graph.successors):
        if edges:
            calls[at].successors = [(calls[target], reason) for target, reason in edges]
    for at, count in enumerate(graph.waits):
        if count:
            calls[at].waits = count


def _did(view: CallView) -> bool:
    return succeeded(view.outcome)


def complete(call: LiveCall) -> Failure | None:
    """Resolve a ready call's references and compute again what depends on them.

    Returns:
        Why it can't run: a field that is not there, arguments that the schema refuses, claims that
        go beyond what was foreseen when the order of the turn was made, or a tool that is gone
        since an earlier driver took the call in.
    """
    tool = call.tool
    scheduler = call.scheduler
    turn = call.turn
    if tool is None:
        return scheduler.services.tools.unknown(call.record.tool)
    resolved = resolve(
        call.record.arguments,
        turn.names,
        lambda name: value_of(name, turn, scheduler.earlier),
        turn.referring,
        literal=tool.spec.literal,
    )
    if isinstance(resolved, Failure):
        return resolved
    checked = tool.check(resolved)
    if isinstance(checked, Failure):
        return checked
    claims = claims_of(tool, checked.arguments, NOTHING, scheduler.services, scheduler)
    if isinstance(claims, Failure):
        return claims
    # A lane makes no edges, so another one than was foreseen disturbs no order; a run that is
    # taken up may be serial now.
    wider = [
        claim
        for claim in claims
        if not is_lane(claim.resource)
        and claim is not scheduler.alone_in_run
        and not _foreseen(claim, call.claims)
    ]
    if wider:
        return outgrown(wider, call.claims)
    call.arguments = checked.arguments
    call.checked = checked
    call.claims = claims
    return None


def value_of(name: str, turn: LiveTurn, earlier: Mapping[str, CallView]) -> Any:
    """The value of a call that has succeeded, of this turn or an earlier one."""
    call = turn.by_name.get(name)
    outcome = call.outcome if call is not None else earlier[name].outcome
    assert succeeded(outcome), "a data edge lets a call through only when its source succeeded"
    return deepcopy(outcome.value)  # A host may have got hold of the recorded one.


def _foreseen(claim: Claim, foreseen: Sequence[Claim]) -> bool:
    return any(
        covers(wide.resource, claim.resource)
        and (wide.access is Access.EXCLUSIVE or claim.access is Access.SHARED)
        for wide in foreseen
    )
