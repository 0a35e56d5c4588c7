"""Arguments that a human changed: checked again from the start, bound, and put in place.

What the model asked for stays in the record and in the conversation; what runs is the edit, from
which claims, effect, idempotency key and digest are made anew. If it claims more, the order of the
request is kept with what has not been started: see `conflicts`. Reads answers; feeds answering and
recovery, which put the same edit in place from its fact.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec

from laneway.calls import Edge, Reason
from laneway.engine.handing_on import meet
from laneway.engine.intake import claims_of
from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import NotPlainError, plain
from laneway.engine.providers.reply import Asked
from laneway.engine.references import NOTHING
from laneway.engine.sealing import LOST, differing
from laneway.engine.secrets.marks import MARK, holds_mark
from laneway.engine.step import bound_of
from laneway.errors import UsageError
from laneway.facts import Edit
from laneway.outcomes import Failure
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall


def edited(call: "LiveCall", given: Mapping[str, Any]) -> tuple[Edit, dict[str, Any]]:
    """Check arguments that a human wrote for a call; nothing is changed.

    Args:
        call: that waits for the answer.
        given: all of its arguments; a mark where a secret stood keeps that secret.

    Returns:
        What the answer binds, and the arguments with their secrets.

    Raises:
        UsageError: they do not fit the tool, or name what cannot be claimed.
    """
    tool, scheduler = call.tool, call.scheduler
    assert tool is not None
    try:
        real = plain(dict(given))
    except (NotPlainError, TypeError, ValueError) as error:
        raise _unfit(call, f"they cannot be told in JSON ({error})") from None
    secrets = scheduler.secrets
    if holds_mark(real):
        if call.checked is not None:
            real = _with_secrets(real, call.arguments, call.checked.arguments)
        if holds_mark(real):
            raise _unfit(
                call,
                f"{MARK} stands where no secret is known that it could mean; write the value",
            )
    checked = tool.check(real)
    if isinstance(checked, Failure):
        raise _unfit(call, checked.message)
    shown = checked.arguments
    if secrets is not None:
        shown = secrets.written(Asked(id=call.name, name=call.record.tool, arguments=shown))
    hidden = differing(shown, checked.arguments)
    claims = claims_of(tool, shown, NOTHING, scheduler, hidden)
    if isinstance(claims, Failure):
        raise _unfit(call, claims.message)
    effect = tool.effect_of(shown)
    edit = Edit(
        arguments=shown,
        digest=bound_of(call, shown, claims),
        claims=claims,
        effect=effect,
        idempotent=effect.changes_nothing or tool.spec.idempotent,
    )
    return edit, checked.arguments


def put_in(call: "LiveCall", edit: Edit, real: dict[str, Any] | None = None) -> Failure | None:
    """Let a call run with other arguments than it was asked for.

    Args:
        call: that has not been started.
        edit: as it is, or will be, recorded.
        real: the arguments with their secrets, for whoever knows them.

    Returns:
        Why it cannot run: the tool, or a secret, is another one or gone by now.
    """
    keep(call, edit, real)
    return call.scheduler.complete(call)


def keep(call: "LiveCall", edit: Edit, real: dict[str, Any] | None = None) -> None:
    """Let a call have other arguments, to be completed later."""
    call.edited = edit.arguments if real is None else real
    call.sealed = LOST if real is None and holds_mark(edit.arguments) else None
    call.checked = None
    call.arguments = edit.arguments
    call.claims = edit.claims
    call.record = msgspec.structs.replace(
        call.record, effect=edit.effect, idempotent=edit.idempotent
    )


def conflicts(call: "LiveCall") -> tuple[Edge, ...]:
    """Draw the order between an edited call and those of its turn that have not been started.

    In request order, as for the turn as a whole: it waits for what comes before it, and what comes
    after it waits for it; but nothing is drawn against an order that there is already, since of two
    calls the later one may be needed by the earlier.
    """
    calls = call.turn.calls
    at = calls.index(call)
    met = {other: found for other in calls if (found := _met(call, other))}
    behind = _reached(call, {one: [to for to, _ in one.successors] for one in calls})
    before = [
        other
        for other in calls[:at]
        if other in met and other not in behind and not _lets_pass(other)
    ]
    sources: dict[LiveCall, list[LiveCall]] = {call: list(before)}
    for one in calls:
        for target, _ in one.successors:
            sources.setdefault(target, []).append(one)
    ahead = _reached(call, sources)
    linked = {target for target, _ in call.successors}
    after = [
        other
        for other in calls[at + 1 :]
        if other in met and other not in ahead and other not in linked
    ]
    drawn = [(other, call, met[other]) for other in before]
    drawn += [(call, other, met[other]) for other in after]
    return tuple(Edge(one.id, two.id, Reason.CONFLICT, over) for one, two, over in drawn)


def _met(call: "LiveCall", other: "LiveCall") -> str:
    """Over what an edited call conflicts with one that has not been started; empty for nothing."""
    if other is call or not is_unstarted(other):
        return ""
    return next(
        (
            min(mine.resource, theirs.resource, key=len)
            for mine in call.claims
            for theirs in other.claims
            if not mine.resource.startswith("run:") and meet(mine, theirs)
        ),
        "",
    )


def is_unstarted(call: "LiveCall") -> bool:
    """Whether a call has begun nothing and holds nothing that another one could wait for."""
    if call.state is State.QUEUED:
        free = call.request is None or not call.request.granted
        return free and call.flight is None and call.attempt == call.cleared and call.told is None
    return call.state in (State.PENDING, State.AWAITING_APPROVAL)


def _lets_pass(call: "LiveCall") -> bool:
    return call.state is State.AWAITING_APPROVAL and call.scheduler.services.overtake


def _reached(start: "LiveCall", steps: "Mapping[LiveCall, list[LiveCall]]") -> "set[LiveCall]":
    found: set[LiveCall] = set()
    pending = [start]
    while pending:
        for one in steps.get(pending.pop(), ()):
            if one not in found and one.outcome is None:
                found.add(one)
                pending.append(one)
    return found


def _with_secrets(given: Any, shown: Any, real: Any) -> Any:
    """Put the secrets back that are still where they were shown as marks."""
    if given == MARK and shown == MARK:
        return deepcopy(real)
    if is_object(given) and is_object(shown) and is_object(real):
        return {
            name: _with_secrets(value, shown.get(name), real.get(name))
            for name, value in given.items()
        }
    if is_list(given) and is_list(shown) and is_list(real):
        kept = [
            _with_secrets(given[at], shown[at], real[at])
            for at in range(min(len(given), len(shown), len(real)))
        ]
        return [*kept, *given[len(kept) :]]
    return given


def _unfit(call: "LiveCall", why: str) -> UsageError:
    return UsageError(
        f"the changed arguments of {call.id} ({call.record.tool}) cannot be used: {why}; the "
        "question is still open"
    )
