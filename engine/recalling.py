"""What a run has asked for, found again in its facts: the watch for loops that goes on from there.

Reads the view of a run that is taken up; gives its watch as it was in the driver before. It forgets
nothing by a restart, and everything when the user says something.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from laneway.calls import Referring
from laneway.engine.kinds import is_list, is_object
from laneway.engine.looping import Watch
from laneway.engine.references import resolve
from laneway.engine.secrets.marks import holds_mark
from laneway.facts import MessageSaid
from laneway.journal.fold import CallView, RunView, TurnView
from laneway.outcomes import Code, Failure, succeeded
from laneway.policies.sameness import key_of
from laneway.states import State

if TYPE_CHECKING:
    from laneway.engine.scheduler import Scheduler
    from laneway.engine.tools import Toolset


def watch_of(scheduler: "Scheduler") -> Watch | None:
    """Make the watch of a run that is being entered; None if nobody looks for loops."""
    services = scheduler.services
    if services.loops is None:
        return None
    watch = Watch(services.loops, scheduler.place.lately)
    view = scheduler.log.view
    if view.conversation:
        recall(watch, view, services.tools)
    return watch


def is_of_user(message: object) -> bool:
    """Whether a message that the host says is its user's: a text, or one of that role or type."""
    if not is_object(message):
        return isinstance(message, str)
    return message.get("role") == "user" or message.get("type") == "user_input"


def recall(watch: Watch, view: RunView, tools: "Toolset") -> None:
    """Let a watch see again what its run has asked for since the user said something last."""
    tree, watch.tree = watch.tree, None  # What others of the tree asked for is known there.
    earlier: dict[str, CallView] = {}
    begins = _begin(view)
    for at, part in enumerate(view.conversation):
        if isinstance(part, MessageSaid):
            continue
        if at >= begins and part.referring is not Referring.LITERAL:
            for call, arguments in _seen(part, earlier, tools):
                _see(watch, view, part, call, arguments, tools)
        earlier |= {call.record.provider_id: call for call in part.calls if not call.record.parent}
    watch.tree = tree


def _begin(view: RunView) -> int:
    for at in range(len(view.conversation) - 1, -1, -1):
        said = view.conversation[at]
        if isinstance(said, MessageSaid) and not said.noted and is_of_user(said.message):
            return at
    return 0


def _seen(
    turn: TurnView, earlier: Mapping[str, CallView], tools: "Toolset"
) -> Iterator[tuple[CallView, Any]]:
    """The calls that were looked at, in the order of the answer, with their final arguments."""
    holders = {call.record.parent for call in turn.calls}
    for call in turn.calls:
        looked_at = call.queued is not None or call.approval is not None or _is_loop(call)
        if not looked_at or call.id in holders or holds_mark(call.record.arguments):
            continue
        arguments = call.record.arguments
        if may_refer(arguments):
            arguments = resolved(turn, call, earlier, tools)
        if arguments is not None:
            yield call, arguments


def _see(
    watch: Watch, view: RunView, turn: TurnView, call: CallView, arguments: Any, tools: "Toolset"
) -> None:
    watch.enter(turn)
    if _is_loop(call):
        if isinstance(call.outcome, Failure) and not call.outcome.retry:
            watch.refused()
        return
    tool = tools.get(call.record.tool)
    key = key_of(call.record.tool, arguments)
    known = watch.lately.latest.get(key)
    spec = None if tool is None else tool.spec
    watch.passed(key, known, call.record, spec, view.calls, call.note)


def _is_loop(call: CallView) -> bool:
    return (
        call.state is State.DENIED
        and isinstance(call.outcome, Failure)
        and call.outcome.code is Code.LOOP_DETECTED
    )


def may_refer(value: Any) -> bool:
    """Whether a text of it could refer to another call, or escape that."""
    if isinstance(value, str):
        return "$" in value
    if is_object(value):
        return any("$" in name or may_refer(one) for name, one in value.items())
    return is_list(value) and any(may_refer(one) for one in value)


def resolved(
    turn: TurnView, call: CallView, earlier: Mapping[str, CallView], tools: "Toolset"
) -> Any:
    """What the arguments of a call were once its references were; None if that cannot be told."""
    tool = tools.get(call.record.tool)
    if tool is None or not is_object(call.record.arguments):
        return None
    parent = call.record.parent
    siblings = {one.record.provider_id: one for one in turn.calls if one.record.parent == parent}
    scope = {**earlier, **siblings}

    def value(name: str) -> Any:
        outcome = scope[name].outcome
        return outcome.value if succeeded(outcome) else None

    referring = turn.referring if parent is None else Referring.STRICT
    found = resolve(
        call.record.arguments, scope.keys(), value, referring, literal=tool.spec.literal
    )
    if isinstance(found, Failure):
        return None
    checked = tool.check(found)
    return None if isinstance(checked, Failure) else checked.arguments
