"""The failures that the engine itself words, and what an exception of a tool amounts to."""

# A group that a tool raises may hold anything.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import errno
from collections.abc import Sequence

import msgspec

from laneway.claims import Claim
from laneway.effects import Effect
from laneway.engine.failing import (
    NestedCallFailed,
    PartialEffect,
    ToolFailed,
    TransportClosed,
)
from laneway.engine.plain import whole_text
from laneway.ids import CallId
from laneway.journal.fold import CallView
from laneway.outcomes import Code, Failure, Happened, StoppedBy
from laneway.policies.questions import Verdict, denied
from laneway.states import State

TRANSIENT = (ConnectionError, TimeoutError, InterruptedError)
"""The answer did not arrive; the tool's own logic did not refuse."""
NEVER_SENT = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL}

POSSIBLE_EFFECT = "It may have had its effect, or part of it."

SAID_OF_BOTH = frozenset(
    {
        Code.CONFLICT,
        Code.RATE_LIMITED,
        Code.PARTIAL_EFFECT,
        Code.LANE_DEADLOCK,
        Code.DEPTH_EXCEEDED,
        Code.ALREADY_RUNNING,
    }
)
"""Codes of a nested call that fit the call that made it, too."""

LONGEST = 4000
"""Characters of an exception's own text that a model is told."""
SHOWN = 8
"""Claims, or faults of references, that one message lists."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call is to stop, and what it ends as."""

    state: State
    code: Code
    message: str
    hint: str = ""
    by: StoppedBy = StoppedBy.DEADLINE


def cancelled(reason: str, by: StoppedBy = StoppedBy.USER) -> Told:
    """Stop because somebody said so; `reason` says who, for the model."""
    return Told(
        by=by,
        state=State.CANCELLED,
        code=Code.CANCELLED,
        message=f"The call was cancelled: {reason}.",
    )


def timed_out(limit_seconds: float) -> Told:
    """Stop because the call's own limit has passed."""
    return Told(
        state=State.TIMED_OUT,
        code=Code.TIMEOUT,
        message=f"The call did not end within its limit of {limit_seconds:g} s.",
        hint="Ask for less at once, or for the same again if it changes nothing.",
    )


def turn_timed_out(limit_seconds: float) -> Told:
    """Stop because the turn as a whole took too long."""
    return Told(
        state=State.TIMED_OUT,
        code=Code.TIMEOUT,
        message=f"The turn did not end within its limit of {limit_seconds:g} s.",
    )


def stopped(told: Told, *, effect: Effect, entered: bool, still_running: bool) -> Failure:
    """The failure of a call that was told to stop.

    Args:
        told: why.
        effect: the tool's class.
        entered: whether the body was ever entered.
        still_running: whether it has not stopped yet.
    """
    happened = Happened.NOTHING
    message = told.message
    if entered and not effect.changes_nothing:
        happened = Happened.UNKNOWN
    if still_running:
        message += " The tool has not stopped: it may still be working."
    if happened is Happened.UNKNOWN:
        message += f" {POSSIBLE_EFFECT}"
    elif not entered:
        message += " It had not been started."
    return Failure(
        code=told.code,
        message=message,
        retry=happened is Happened.NOTHING and told.code is Code.TIMEOUT,
        happened=happened,
        hint=told.hint
        or ("Find out what happened before asking again." if happened is Happened.UNKNOWN else ""),
    )


def raised(
    error: BaseException, *, tool: str, effect: Effect, idempotent: bool
) -> tuple[State, Failure]:
    """What an exception out of a tool's body amounts to."""
    harmless = effect.changes_nothing
    if isinstance(error, NestedCallFailed):
        told = shortened(whole_text(str(error)))
        return State.FAILED, Failure(
            code=error.code if error.code in SAID_OF_BOTH else Code.TOOL_ERROR,
            message=f"{tool}: {told}" + ("" if harmless else f" {POSSIBLE_EFFECT}"),
            retry=error.retry and (harmless or idempotent),
            happened=Happened.NOTHING if harmless else Happened.UNKNOWN,
            hint=whole_text(error.hint),
        )
    if isinstance(error, PartialEffect):
        return State.FAILED, _partial(error, tool)
    if isinstance(error, ToolFailed):
        ended = State.TIMED_OUT if error.code is Code.TIMEOUT else State.FAILED
        return ended, Failure(
            code=error.code,
            message=f"{tool}: {shortened(whole_text(str(error)))}",
            retry=error.retry,
            happened=Happened.NOTHING if harmless else error.happened,
            hint=whole_text(error.hint),
        )
    if isinstance(error, TransportClosed):
        return _cut_off(error, tool=tool, harmless=harmless, idempotent=idempotent)
    text = exception_text(error)
    transient = is_transient(error)
    lost = transient and not was_never_sent(error)
    if lost and not harmless and not idempotent:
        return State.UNCERTAIN, Failure(
            code=Code.OUTCOME_UNKNOWN,
            message=f"{tool} lost its connection ({text}). {POSSIBLE_EFFECT}",
            happened=Happened.UNKNOWN,
            hint="Find out whether it happened before asking again.",
        )
    nothing = harmless or was_never_sent(error)
    return State.FAILED, Failure(
        code=Code.TOOL_ERROR,
        message=f"{tool} raised {text}" + ("" if nothing else f". {POSSIBLE_EFFECT}"),
        retry=transient and (nothing or idempotent),
        happened=Happened.NOTHING if nothing else Happened.UNKNOWN,
    )


def _partial(error: PartialEffect, tool: str) -> Failure:
    done = tuple(shortened(whole_text(str(one))) for one in error.done)
    left = tuple(shortened(whole_text(str(one))) for one in error.left)
    met = shortened(whole_text(str(error)))
    return Failure(
        code=Code.PARTIAL_EFFECT,
        message=f"{tool}: {met}{'' if met.endswith('.') else '.'}{_parts(done, left)}",
        happened=Happened.PARTLY,
        hint=whole_text(error.hint),
        done=done,
        left=left,
    )


def _parts(done: Sequence[str], left: Sequence[str]) -> str:
    told = f" Done: {_listed('; ', done)}." if done else ""
    return told + (f" Not done: {_listed('; ', left)}." if left else "")


def owned_up(failure: Failure, error: BaseException, *, tool: str) -> Failure:
    """The failure of a call that was told to stop, with what its body said of it on the way out."""
    if not isinstance(error, ToolFailed) or isinstance(error, NestedCallFailed):
        return failure
    found = _partial(error, tool) if isinstance(error, PartialEffect) else None
    said = found.message if found is not None else f"{tool}: {shortened(whole_text(str(error)))}"
    message = failure.message.replace(f" {POSSIBLE_EFFECT}", "")
    return msgspec.structs.replace(
        failure,
        message=f"{message} {said}",
        happened=error.happened if failure.happened is Happened.UNKNOWN else failure.happened,
        hint=whole_text(error.hint) or failure.hint,
        done=() if found is None else found.done,
        left=() if found is None else found.left,
    )


def _cut_off(
    error: TransportClosed, *, tool: str, harmless: bool, idempotent: bool
) -> tuple[State, Failure]:
    """Whoever does the work is gone."""
    nothing = harmless or not error.sent
    again = nothing or idempotent
    told = f"{tool}: {shortened(whole_text(str(error)))}."
    return State.FAILED if again else State.UNCERTAIN, Failure(
        code=Code.TRANSPORT_CLOSED,
        message=told if nothing else f"{told} {POSSIBLE_EFFECT}",
        retry=again,
        happened=Happened.NOTHING if nothing else Happened.UNKNOWN,
        hint="" if again else "Find out whether it happened before asking again.",
    )


def is_transient(error: BaseException) -> bool:
    """Whether the same call may well succeed a little later."""
    return isinstance(error, TRANSIENT)


def was_never_sent(error: BaseException) -> bool:
    """Whether the other side cannot have seen the request."""
    return isinstance(error, OSError) and isinstance(error.errno, int) and error.errno in NEVER_SENT


def core(error: BaseException) -> BaseException:
    """What a group of one holds, as task groups raise it; a KeyboardInterrupt out of any group."""
    held = _leaves(error)
    interrupts = (one for one in held if isinstance(one, KeyboardInterrupt))
    return next(interrupts, held[0] if len(held) == 1 else error)


def _leaves(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    pending = [error]
    while pending:
        one = pending.pop()
        if isinstance(one, BaseExceptionGroup):
            pending += reversed(one.exceptions)
        else:
            found.append(one)
    return found


def exception_text(error: BaseException) -> str:
    """Name the class of an exception and what it says, as far as its own code lets it be read.

    Of a group, what it holds is told, not what it says.
    """
    if isinstance(error, BaseExceptionGroup):
        held = _leaves(error)
        told = [_said(one) for one in held[:SHOWN]]
        told += [f"and {len(held) - SHOWN} more"] if len(held) > SHOWN else []
        return shortened(whole_text(f"{type(error).__name__} of {'; '.join(told)}"))
    return whole_text(_said(error))


def _said(error: BaseException) -> str:
    kind = type(error).__name__
    try:
        said = str(error)
    except BaseException as fault:  # noqa: BLE001 - the tool's own code runs here, and may raise anything
        said = f"(what it says cannot be read: that raised {type(fault).__name__})"
    return f"{kind}: {shortened(said)}" if said else kind


def shortened(text: str) -> str:
    """The first 4,000 characters of a text, and how many more there are."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"


def lost(tool: str, why: str) -> Failure:
    """The engine did not see the end of a call that must not be repeated unasked."""
    return Failure(
        code=Code.OUTCOME_UNKNOWN,
        message=(
            f"{why} while {tool} was running, so nobody saw its end. It may or may not have "
            "happened."
        ),
        happened=Happened.UNKNOWN,
        hint="Find out whether it happened before asking again.",
    )


def deadlocked(ring: Sequence[str]) -> Failure:
    """The failure of a nested call that could only wait for itself.

    Args:
        ring: what each is called that waits for the next, and the last for the first.
    """
    told = " → ".join([*ring, ring[0]])
    return Failure(
        code=Code.LANE_DEADLOCK,
        message=f"The call would wait for itself, since each of these waits for the next: {told}.",
        retry=True,
        hint="Ask for the same again when the other calls have ended.",
    )


def skipped(cause: CallId, names: str, told: str) -> Failure:
    """Something that the call needs did not succeed."""
    return Failure(
        code=Code.DEPENDENCY_FAILED,
        message=f"Not started, because {names} {told}.",
        cause=cause,
        hint="Mend that first, then ask for this again.",
    )


def earlier_failed(view: CallView) -> Failure:
    """Something of an earlier turn that the call needs did not succeed."""
    return skipped(view.id, view.record.provider_id, f"of an earlier turn ended {view.state}")


def rejected(by: str, reason: str) -> Failure:
    """A human said no."""
    who = f" by {by}" if by else ""
    return Failure(
        code=Code.APPROVAL_REJECTED,
        message=f"A human refused this call{who}" + (f": {reason}" if reason else "."),
        hint="Do not ask for the same again; tell the user, or find another way.",
    )


def lane_full(lane: str, holders: int, waiters: int, most: int) -> Failure:
    """As many wait in a lane as may.

    Args:
        lane: its name.
        holders: how many are in it.
        waiters: how many wait, nested calls included.
        most: how many may wait.
    """
    return Failure(
        code=Code.LANE_FULL,
        message=(
            f"Not started, because {lane} is full: {holders} at work, {waiters} waiting, and no "
            f"more than {most} may wait."
        ),
        retry=True,
        hint="Ask for it again later, or for fewer at once.",
    )


APPROVAL_STALE = Failure(
    code=Code.APPROVAL_EXPIRED,
    message="The tool has changed since a human was asked about this call, so it is not what "
    "they were asked about that would run now.",
    hint="Ask for it again if it is still wanted: then a human is asked.",
)


APPROVAL_EXPIRED = Failure(
    code=Code.APPROVAL_EXPIRED,
    message="Nobody answered in time whether this call may run.",
    hint="Tell the user that it needs an approval, then ask again.",
)


WITHDRAWN = cancelled("the turn was closed before a human answered")


def asks_now(verdict: Verdict) -> Failure:
    """The policy let the call pass once, and wants a human to be asked by now."""
    return msgspec.structs.replace(
        denied(verdict),
        hint="Ask for it again if it is still wanted: then a human is asked.",
    )


def after_attempts(attempts: int, effect: Effect, failure: Failure) -> Failure:
    """The failure of a call that may not go on; earlier attempts may have had their effect."""
    if not attempts or effect.changes_nothing:
        return failure
    return msgspec.structs.replace(
        failure,
        message=f"{failure.message} It had been started before. {POSSIBLE_EFFECT}",
        retry=False,
        happened=Happened.UNKNOWN,
    )


def found_failed(what: str) -> Failure:
    """Somebody found out that a call whose end nobody saw did not happen."""
    return Failure(
        code=Code.TOOL_ERROR,
        message=f"It was found out afterwards that the call failed: {what}",
        retry=True,
    )


def unread_references(faults: Sequence[str]) -> Failure:
    """References that lead nowhere."""
    return Failure(
        code=Code.BAD_REFERENCE,
        message=_listed("; ", faults) + ".",
        hint="Refer to a call of this turn by its id, or write $${ for a literal ${.",
    )


def bad_claims(fault: str) -> Failure:
    """The arguments name a resource that cannot be."""
    return Failure(
        code=Code.INVALID_ARGUMENTS,
        message=f"The call names a resource that cannot be used: {fault}",
        hint="Name another one.",
    )


def outgrown(wider: Sequence[Claim], foreseen: Sequence[Claim]) -> Failure:
    """Once its references were resolved, the call wanted more than its place in the turn allows."""
    return Failure(
        code=Code.BAD_REFERENCE,
        message=(
            f"Now that all is known of it the call claims {_listed(', ', wider)}, which goes "
            f"beyond {_listed(', ', foreseen)}, for which its place was chosen."
        ),
        hint="Ask for it in a turn of its own, with the values written out.",
    )


def _listed(between: str, things: Sequence[object]) -> str:
    more = [f"and {len(things) - SHOWN} more"] if len(things) > SHOWN else []
    return between.join([*map(str, things[:SHOWN]), *more])
