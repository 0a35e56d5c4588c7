"""The same answer submitted once more under the host's key for it: is it the same?

Reads the reply and the turn that is recorded under the key; raises where their calls differ, since
the host would take the outcomes of one for those of the other. Texts beside the calls may differ,
and so may the ids of calls: a model that is asked again makes new ones.
"""

from typing import TYPE_CHECKING

from laneway.calls import Reason
from laneway.engine.admission import known_names
from laneway.engine.intake import take_in
from laneway.engine.live import LiveTurn
from laneway.engine.providers.reply import Reply
from laneway.engine.secrets.alike import alike
from laneway.engine.turn import asked_for
from laneway.errors import ChangedReplyError
from laneway.ids import CallId, call_id
from laneway.journal.fold import CallView, TurnView

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler


def see_that_same(reply: Reply, turn: TurnView, scheduler: "Scheduler") -> None:
    """See that the calls of a reply are those of the turn that is recorded for it.

    Raises:
        ChangedReplyError: they are not; names the first difference.
    """
    if reply.message == turn.message:
        return
    recorded = asked_for(turn)
    difference = (
        _calls_differ(reply, turn, recorded, scheduler)
        or _edges_differ(reply, turn, recorded)
        or _number_differs(reply, recorded)
    )
    if difference:
        raise ChangedReplyError(scheduler.log.view.run, turn.key, turn.number, difference)


def _calls_differ(
    reply: Reply, turn: TurnView, recorded: list[CallView], scheduler: "Scheduler"
) -> str:
    live = LiveTurn(turn.number, scheduler, referring=reply.referring)
    live.names = known_names(reply, scheduler)
    for at, (asked, call) in enumerate(zip(reply.calls, recorded, strict=False), 1):
        was = call.record
        if asked.name != was.tool:
            return f"call {at} is one of {asked.name!r} and was one of {was.tool!r}"
        now = take_in(asked, call_id(turn.number, at), live).call.record
        # Another version of the tool may make other canonical arguments of the same.
        comparable = now.tool_version == was.tool_version
        same = alike(was.arguments, now.arguments) and alike(was.text, now.text)
        if comparable and not same:
            return f"call {at}, of {was.tool!r}, has other arguments"
    return ""


def _edges_differ(reply: Reply, turn: TurnView, recorded: list[CallView]) -> str:
    """Compare what was declared: other edges follow from arguments and tools."""
    place: dict[CallId, int] = {call.id: at for at, call in enumerate(recorded, 1)}
    drawn = {
        (place[edge.source], place[edge.target], edge.reason)
        for edge in turn.edges
        if edge.source in place and edge.target in place and edge.reason in _DECLARED
    }
    named = {asked.id: at for at, asked in enumerate(reply.calls, 1)}
    declared = {
        (named[source], named[asked.id], reason)
        for asked in reply.calls
        for reason, sources in ((Reason.NEEDS, asked.needs), (Reason.AFTER, asked.after))
        for source in sources
        if source in named
    }
    for edge in sorted(drawn ^ declared):
        source, target, reason = edge
        if edge in declared:
            return f"call {target} waits for call {source} ({reason}) and did not"
        return f"call {target} does not wait for call {source} ({reason}) and did"
    return ""


_DECLARED = (Reason.NEEDS, Reason.AFTER)


def _number_differs(reply: Reply, recorded: list[CallView]) -> str:
    now, was = len(reply.calls), len(recorded)
    return f"it has {now} call{'s' if now != 1 else ''} and had {was}" if now != was else ""
