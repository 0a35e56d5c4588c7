"""One call as it was asked for, checked and ready to be put into a turn.

Reads what a format has parsed; feeds admission, which puts calls into their turn and draws the
graph, and asks for the claims again once references are resolved.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.calls import LITERAL, CallRecord
from laneway.claims import Claim
from laneway.effects import Effect
from laneway.engine.failures import bad_claims, unread_references
from laneway.engine.graph import Node
from laneway.engine.live import LiveCall, LivePlan, LiveTurn
from laneway.engine.planning import NESTED, PlanTool
from laneway.engine.providers.reply import Asked
from laneway.engine.references import NOTHING, Unresolved, find, unescaped
from laneway.engine.sealing import differing
from laneway.engine.services import OWN
from laneway.engine.tools import Checked, Tool
from laneway.ids import CallId
from laneway.lanes.names import BadResourceError
from laneway.outcomes import Failure

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler


class Taken(msgspec.Struct, frozen=True, gc=False):
    """A call on its way into a turn."""

    call: LiveCall
    node: Node
    failure: Failure | None
    """A fault of its own, for which it will not run."""


def take_in(asked: Asked, own: CallId, turn: LiveTurn, plan: LivePlan | None = None) -> Taken:
    """Check one call.

    Args:
        asked: as the model wrote it.
        own: Laneway's name for it.
        turn: that it will belong to.
        plan: that it is part of, if it is.
    """
    scheduler = turn.scheduler
    tools = scheduler.services.tools
    tool = tools.get(asked.name)
    scope = turn if plan is None else plan
    secrets = scheduler.secrets
    failure = asked.fault
    if failure is None and secrets is not None:
        failure = secrets.refused(asked)
    if failure is None and tool is None:
        failure = tools.unknown(asked.name)
    if failure is None and plan is not None and isinstance(tool, PlanTool):
        failure = NESTED
    read = _Read(asked.arguments, tool.spec.effect if tool is not None else Effect.EXTERNAL)
    if failure is None and tool is not None:
        failure = _read(read, asked, tool, scope, scheduler)
    written, text = _as_written(read.arguments, asked, read.references, read.secret), asked.text
    if failure is not None and secrets is not None:
        failure, text = secrets.told(failure, asked, scope), secrets.text(asked)
        written = read.arguments = secrets.shown(asked.name, written, scope)
    effect, claims = read.effect, read.claims
    record = CallRecord(
        id=own,
        provider_id=asked.id,
        tool=asked.name,
        arguments=written,
        text=text,
        effect=effect,
        idempotent=effect.changes_nothing or (tool is not None and tool.spec.idempotent),
        tool_version=tool.spec.version if tool is not None else "",
        claims=claims,
        parent=None if plan is None else plan.call.id,
    )
    call = LiveCall(
        record=record,
        name=asked.id,
        tool=tool,
        turn=turn,
        scheduler=scheduler,
        claims=claims,
        arguments=read.arguments,
        checked=read.checked,
        sealed=read.sealed,
        part_of=plan,
    )
    node = Node(
        id=own,
        name=asked.id,
        needs=asked.needs,
        after=asked.after,
        data=tuple((one.source, one.path) for one in read.references.references),
        claims=_conflicting(claims),
        out=failure is not None,
        inside=record.parent,
    )
    return Taken(call, node, failure)


class _Read(msgspec.Struct):
    """What the check of one call has come to."""

    arguments: Any
    """Canonical, without secrets; as they were asked for until they have passed."""
    effect: Effect
    claims: tuple[Claim, ...] = ()
    references: Unresolved = NOTHING
    checked: Checked | None = None
    """None while something in them refers to a result."""
    secret: frozenset[str] = frozenset()
    """Parameters that are not shown as they are."""
    sealed: dict[str, Any] | None = None
    """The arguments as they are, where some are not shown so."""


def _read(
    read: _Read,
    asked: Asked,
    tool: Tool[..., Any],
    scope: LiveTurn | LivePlan,
    scheduler: "Scheduler",
) -> Failure | None:
    """Check the arguments of a call, and see what they claim; say what is wrong with them."""
    known = asked.arguments
    assert known is not None
    references = NOTHING
    if scope.referring is not LITERAL:
        literal = tool.spec.literal
        references = read.references = find(known, scope.names, scope.referring, literal=literal)
    if references.escaped:
        known = unescaped(known, references, scope.names, scope.referring)
    outcome = tool.check(known) if references is NOTHING else _check_known(tool, known, references)
    if isinstance(outcome, Failure):
        return asked.cut or outcome
    read.arguments = outcome.arguments
    if scheduler.secrets is not None:
        read.arguments = scheduler.secrets.shown(asked.name, outcome.arguments, scope)
        read.secret = differing(read.arguments, outcome.arguments)
        if read.secret:
            read.sealed = _as_written(outcome.arguments, asked, references)
    if not references.references:
        read.checked = outcome
        if tool.spec.effect_of:
            read.effect = tool.effect_of(read.arguments)
    found = claims_of(tool, read.arguments, references, scheduler, read.secret)
    if isinstance(found, Failure):
        return found
    read.claims = found
    return None


def claims_of(
    tool: Tool[..., Any],
    arguments: Mapping[str, Any],
    references: Unresolved,
    scheduler: "Scheduler",
    secret: frozenset[str] = frozenset(),
) -> tuple[Claim, ...] | Failure:
    """All that a call takes: its run, the lanes of its tool, the resources that it names.

    A tool of which nothing was said holds its run alone; so does every call of a run that the host
    has made serial. The call of a plan takes nothing: only the calls that it holds do.

    Claims are shown and kept, so where a secret parameter names one it is as wide as it may become.
    """
    if isinstance(tool, PlanTool):
        return ()
    run = scheduler.alone_in_run if scheduler.serial else scheduler.beside_in_run
    spec = tool.spec
    if not spec.declared:
        run = scheduler.alone_in_run
    own: tuple[Claim, ...] = ()
    joined = scheduler.services.joined
    if joined:
        own = joined.claims(spec.name, scheduler.log.view.run, spec.risk)
    if tool.claims is not None:
        names = scheduler.services.names
        try:
            said = (
                tool.claims.claims(arguments, names)
                if not references.references and not secret
                else tool.claims.widened(arguments, references.parameters | secret, names)
            )
            own = tuple(dict.fromkeys((*said, *own))) if own else said
        except BadResourceError as error:
            return bad_claims(str(error))
        for claim in said:
            if claim.resource.startswith(OWN):  # A call that took a thread so might wait for one.
                return bad_claims(f"{claim.resource} is a lane of the engine's own")
    return (run, *own) if own else (run,)


def _as_written(
    arguments: Any, asked: Asked, references: Unresolved, secret: frozenset[str] = frozenset()
) -> Any:
    """The arguments for the record, in which escapes stay: whoever resumes reads them again."""
    if not references.escaped or asked.arguments is None:
        return arguments
    return {
        name: asked.arguments[name] if name in references.escaped - secret else value
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


def _conflicting(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """Keep the claims that make edges: lanes only queue, and the run only matters to the lonely."""
    if len(claims) <= 1:
        return ()
    return tuple(claim for claim in claims if not claim.resource.startswith(("lane:", "run:")))
