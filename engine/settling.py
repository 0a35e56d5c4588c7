"""What somebody found out about a call whose effect is unknown: as an outcome, as facts, in words.

Reads the view of a run and what a human says; feeds `Run.settle`, the command line and the probes.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from laneway.engine.failures import found_failed
from laneway.engine.plain import NotPlainError, plain, whole_text
from laneway.engine.results import text_of
from laneway.engine.turn import host_name
from laneway.errors import SHOWN, UnknownCallError, UsageError
from laneway.facts import CallReopened, CallSettled, Fact, MessageSaid
from laneway.journal.fold import CallView, RunView
from laneway.outcomes import Failure, Happened, Outcome, Success
from laneway.states import State

UNSAID = msgspec.UNSET
"""In place of a value that was not given: None is one."""


def finding(name: str, *, value: Any, failure: str, again: bool) -> Outcome | None:
    """Read what somebody says of a call.

    Returns:
        What it came to; None if it did not happen and is to run again.

    Raises:
        UsageError: not exactly one of the three was said, or the value cannot be told in JSON.
    """
    said = [value is not UNSAID, bool(failure), again]
    if sum(said) != 1:
        met = "none of them was given" if not any(said) else f"{sum(said)} of them were given"
        raise UsageError(
            f"say one thing of {name!r}: value= if it happened, failure= if it went wrong, "
            f"again=True if it did nothing and is to run again ({met})"
        )
    if again:
        return None
    if failure:
        return found_failed(whole_text(failure))
    return Success(value=as_json(value, f"what {name} came to"))


def settlement(view: RunView, name: str, found: Outcome | None, by: str) -> list[Fact]:
    """Put what was found out into facts, as far as the facts so far let it be said.

    Args:
        view: of a run in which nothing moves.
        name: Laneway's own name of the call, or what a host calls it.
        found: None if it is to run again.
        by: who says so.

    Raises:
        UnknownCallError: the run has no such call whose effect is unknown and not settled.
        UsageError: it is to run again, and cannot.
    """
    if found is None:
        call = to_run_again(view, name)
        return [CallReopened(call=call.id, by=by)]
    call = unsettled_call(view, name)
    facts: list[Fact] = [CallSettled(call=call.id, outcome=found, by=by)]
    if not may_move(view, call) or _is_told(view, call):
        path = host_name(call, view.calls)
        note = settlement_note(path, call.record.tool, found)
        facts.append(MessageSaid(message=note, noted=True))
    return facts


def unsettled(view: RunView) -> list[CallView]:
    """The calls of a run whose effect is unknown, and is not settled yet, the last first."""
    return [
        call
        for call in reversed(view.calls.values())
        if isinstance(call.outcome, Failure)
        and call.outcome.happened is Happened.UNKNOWN
        and call.settled is None
    ]


def unsettled_call(view: RunView, name: str) -> CallView:
    """Find the last call of that name whose effect is unknown, and is not settled yet.

    Raises:
        UnknownCallError: there is none; names those that there are.
    """
    found = unsettled(view)
    for call in found:
        if name in (call.id, host_name(call, view.calls)):
            return call
    raise UnknownCallError(view.run, name, f"whose effect is unknown ({_listed(view, found)})")


def to_run_again(view: RunView, name: str) -> CallView:
    """Find the call of that name that may run again, since nobody saw its end.

    Raises:
        UnknownCallError: there is no such call whose effect is unknown; names those there are.
        UsageError: its outcome is final.
    """
    call = unsettled_call(view, name)
    if not may_move(view, call):
        ended = f"ended {call.state}" if call.state is not State.UNCERTAIN else "is UNCERTAIN"
        raise UsageError(
            f"call {name!r} of run {view.run!r} {ended} for good, and is not run again: only one "
            "that is UNCERTAIN in an open turn is; say what it came to (value=, failure=), and let "
            "the model ask for it again"
        )
    parent = call.record.parent
    if parent is not None and view.calls[parent].state is not State.PENDING:
        raise told_already(view.run, name, parent)
    return call


def told_already(run: str, name: str, plan: str) -> UsageError:
    """Refuse to run a call again whose plan has ended, or is about to."""
    return UsageError(
        f"call {name!r} of run {run!r} is part of the plan {plan}, which has told already what "
        "became of it; say what it came to (value=, failure=) instead"
    )


def may_move(view: RunView, call: CallView) -> bool:
    """Whether a call that was found out about moves on; else that is a fact of its own."""
    return call.state is State.UNCERTAIN and not view.turns[call.turn - 1].closed


def settlement_note(name: str, tool: str, found: Outcome) -> str:
    """Tell the model what an unknown effect came to, when its result has been settled already."""
    told = f"it did happen, with the result: {text_of(found)}"
    if isinstance(found, Failure):
        told = found.message
    return f"[Note on the call {name} of {tool}: {told}]"


def as_json(value: object, what: str) -> Any:
    """A host's value as the JSON that the journal keeps.

    Raises:
        UsageError: it cannot be told in JSON; `what` says what it is.
    """
    try:
        return plain(value)
    except NotPlainError as error:
        raise UsageError(f"{what} cannot be kept as JSON: {error}") from None


def _is_told(view: RunView, call: CallView) -> bool:
    parent = call.record.parent
    return parent is not None and view.calls[parent].outcome is not None


def _listed(view: RunView, found: Sequence[CallView]) -> str:
    if not found:
        return "nothing in it is left to be settled"
    names = [
        f"{call.id} = {host_name(call, view.calls)} of {call.record.tool}" for call in found[:SHOWN]
    ]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"could be settled: {', '.join(names)}{more}"
