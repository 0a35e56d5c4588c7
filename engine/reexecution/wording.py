"""A decision in words, which are the same if and only if the decision is.

Leaves out what is no decision: values and messages of tools, times, tokens, the versions of tools,
and the names of links to files, which come and go.
"""

from collections.abc import Hashable, Iterable, Mapping

from laneway.calls import CallRecord, Edge
from laneway.claims import Claim
from laneway.engine.reexecution.ends import unveiled
from laneway.engine.reexecution.events import NOT_STARTED
from laneway.engine.reexecution.rules import rule_name, verdict_of
from laneway.engine.serialise import canonical
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallJoined,
    CallProbed,
    CallQueued,
    CallReopened,
    CallSettled,
    CallStarted,
    Fact,
    HolderStopped,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import CallId
from laneway.lanes.names import is_alias
from laneway.outcomes import Code, Failure, Happened, succeeded
from laneway.states import State

NOTHING = "nothing"
_SHOWN = 200


def key_of(fact: Fact) -> Hashable | None:
    """What a fact is about, so that its like is found; None for what is no decision at all."""
    match fact:
        case CallStarted(call=call, attempt=attempt) | AttemptEnded(call=call, attempt=attempt):
            return type(fact), call, attempt
        case (
            CallQueued(call=call)
            | CallJoined(call=call)
            | CallEnded(call=call)
            | CallSettled(call=call)
            | CallProbed(call=call)
            | CallReopened(call=call)
            | ApprovalAsked(call=call)
            | ApprovalAnswered(call=call)
            | HolderStopped(call=call)
        ):
            return type(fact), call
        case TurnSubmitted(turn=turn) | TurnClosed(turn=turn):
            return type(fact), turn
        case _:
            return None


def told(fact: Fact, records: Mapping[CallId, CallRecord]) -> str:  # noqa: C901, PLR0911, PLR0912 - one arm a fact
    """Say what was decided by a fact."""
    match fact:
        case CallQueued(call=call, rule=rule, claims=claims):
            final = claims or records[call].claims
            return f"let pass by {_rule(rule)}, with {claims_told(final)}"
        case ApprovalAsked(rule=rule, arguments=arguments):
            return f"put to a human by {_rule(rule)}: {_shown(arguments)}"
        case CallJoined(leader=leader):
            return f"left to {leader}, the same call"
        case CallStarted(attempt=attempt):
            return f"started, attempt {attempt}"
        case AttemptEnded(attempt=attempt):
            return f"to be tried again after attempt {attempt}"
        case CallEnded():
            return _ended(fact)
        case TurnSubmitted(turn=turn):
            return f"turn {turn} taken in"
        case TurnClosed(turn=turn):
            return f"turn {turn} closed"
        case CallSettled(outcome=outcome):
            return f"settled as {'a success' if succeeded(outcome) else 'a failure'}"
        case CallReopened():
            return "to be run again, as it did nothing"
        case CallProbed(found=found):
            return f"probed: {found}"
        case ApprovalAnswered(granted=granted):
            return "granted" if granted else "refused by a human"
        case HolderStopped():
            return "stopped at last"
        case _:
            return type(fact).__name__


def record_told(record: CallRecord, edges: Iterable[Edge]) -> str:
    """Say how a call was taken in, edges that lead to it included."""
    waits = sorted({f"{edge.source} ({edge.reason})" for edge in edges if edge.target == record.id})
    again = ", may be repeated" if record.idempotent and not record.effect.changes_nothing else ""
    part = f", part of {record.parent}" if record.parent else ""
    behind = f", behind {', '.join(waits)}" if waits else ""
    return (
        f"taken in as {record.effect} {record.tool} {_shown(record.arguments)}{again}, with "
        f"{claims_told(record.claims)}{part}{behind}"
    )


def claims_told(claims: Iterable[Claim]) -> str:
    """List claims, but for other names of files, in one order."""
    found = sorted({str(claim) for claim in claims if not is_alias(claim.resource)})
    return f"claims on {', '.join(found)}" if found else "no claims"


def _ended(fact: CallEnded) -> str:
    failure = fact.outcome
    if not isinstance(failure, Failure):
        return f"ended {fact.state}"
    if failure.code is Code.POLICY_DENIED:
        return f"denied by {_rule(verdict_of(failure, fact.rule).rule)}"
    cause = f", for {failure.cause}" if failure.cause else ""
    effect = "" if failure.happened is Happened.NOTHING else f", its effect {failure.happened}"
    begun = ", never begun" if failure.message.endswith(NOT_STARTED) else ""
    return f"ended {fact.state} ({failure.code}{cause}){effect}{begun}"


def stops(fact: Fact | None) -> bool:
    """Whether this keeps a call from running, for the moment or for good."""
    if isinstance(fact, CallEnded):
        return fact.state in (State.DENIED, State.SKIPPED, State.FAILED, State.CANCELLED)
    return isinstance(fact, ApprovalAsked)


def lets_go_on(fact: Fact | None) -> bool:
    """Whether this moves a call towards its start."""
    return isinstance(fact, CallQueued | CallStarted)


def _rule(rule: str) -> str:
    return f"rule {rule_name(rule)!r}"


def _shown(arguments: object) -> str:
    if arguments is None:
        return "(arguments that could not be read)"
    text = unveiled(canonical(arguments).decode())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
