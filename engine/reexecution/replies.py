"""A recorded turn as the reply that it was: what the model asked for goes the same way again.

What readers of replies found out before the engine saw it (arguments that could not be read, a call
that was cut off) is part of what came from outside.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from laneway.calls import CallRecord, Reason
from laneway.engine.providers import format_named
from laneway.engine.providers.reply import Asked, Reply
from laneway.errors import LanewayError
from laneway.facts import TurnSubmitted
from laneway.ids import CallId
from laneway.outcomes import Code, Failure

UNREADABLE = frozenset({Code.MALFORMED_ARGUMENTS, Code.TRUNCATED_CALL})
"""Found out by a reader: nothing of the engine's own can come to it."""
NAMED_TWICE = "Give each call an id of its own."
"""The hint of a reader of plans for a second call of one id."""


UNREAD = Failure(code=Code.MALFORMED_ARGUMENTS, message="The arguments cannot be read.")
"""In place of a reader's fault that is not recorded."""


def reply_of(fact: TurnSubmitted, faults: Mapping[CallId, Failure], own: Collection[str]) -> Reply:
    """Write a turn as a reply.

    Args:
        fact: that announced it.
        faults: how calls failed before they were queued.
        own: names of tools that check arguments anew, and so want them as the model wrote them.
    """
    written: dict[str, Asked] = {}
    with suppress(LanewayError):  # What was mended in a message may be read otherwise now.
        written = {one.id: one for one in format_named(fact.provider).parse(fact.message).calls}
    return Reply(
        provider=fact.provider,
        message=fact.message,
        calls=tuple(
            _asked(record, fact, written.get(record.provider_id), faults, own)
            for record in fact.calls
            if record.parent is None
        ),
        key=fact.key,
        referring=fact.referring,
    )


def _asked(
    record: CallRecord,
    fact: TurnSubmitted,
    written: Asked | None,
    faults: Mapping[CallId, Failure],
    own: Collection[str],
) -> Asked:
    arguments = record.arguments
    if written is not None and arguments is not None and record.tool in own:
        arguments = written.arguments
    fault = faults.get(record.id)
    if fault is not None and not _is_of_reader(fault, record):
        fault = None
    if fault is None and arguments is None:
        fault = UNREAD
    return Asked(
        id=record.provider_id,
        name=record.tool,
        arguments=arguments,
        text=record.text,
        fault=fault,
        needs=_declared(Reason.NEEDS, record, fact) if written is None else written.needs,
        after=_declared(Reason.AFTER, record, fact) if written is None else written.after,
    )


def _is_of_reader(fault: Failure, record: CallRecord) -> bool:
    return (
        record.arguments is None
        or not record.tool
        or fault.code in UNREADABLE
        or fault.hint == NAMED_TWICE
    )


def _declared(reason: Reason, record: CallRecord, fact: TurnSubmitted) -> tuple[str, ...]:
    names = {one.id: one.provider_id for one in fact.calls}
    return tuple(
        names[edge.source]
        for edge in fact.edges
        if edge.target == record.id and edge.reason is reason
    )
