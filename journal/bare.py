"""Facts without what is another in each run for no reason: what is left can be compared.

Reads the rows of one run. Left out are times, drivers, fencing tokens and process ids; the name of
the run and the provider's ids of calls are put in a form that two runs share. Facts are sorted into
streams, one for each call and turn, since which of two calls beside each other is written first is
chance. Feeds `compare`.
"""

# Values of any type are told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    BudgetNeared,
    BudgetReserved,
    BudgetSettled,
    CallEnded,
    CallSettled,
    CallStarted,
    Fact,
    GrantRevoked,
    HostNoted,
    LaneChanged,
    LevelEntered,
    LossAccepted,
    MessageSaid,
    ModeChanged,
    ProcessStarted,
    Row,
    RunAbandoned,
    RunForked,
    RunOpened,
    RunReopened,
    RunStopped,
    RunTaken,
    TaskEnded,
    TaskStarted,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import RunId
from laneway.journal.fork import copied_fact
from laneway.outcomes import Failure, Outcome

Ids = Mapping[str, str]
"""Laneway's own name of a call, by the provider's id."""

_QUOTED = re.compile(r'(?<=["{])[^"{}.\[\]\\]+(?=["}.\[])')
"""In a text, what may be the id of a call: `"call_7"` in JSON, `${call_7.path}`."""
_WORD = re.compile(r"[\w:-]+")
_SHOWN = 60


class Bare(NamedTuple):
    """A fact and where it stands."""

    row: Row
    fact: Fact


Stream = tuple[str, str]
"""`call` and its id, `turn` and its number, and so on."""


def streams(rows: Iterable[Row]) -> dict[Stream, list[Bare]]:
    """Sort the facts of a run into streams; who drove it, and what the host noted, is left out."""
    found: dict[Stream, list[Bare]] = {}
    ids: dict[str, str] = {}
    for row in rows:
        fact = row.fact
        if isinstance(fact, (RunOpened, RunTaken, RunForked, HostNoted)):
            continue
        if isinstance(fact, TurnSubmitted):
            ids.update((call.provider_id, call.id) for call in fact.calls)
        alike = _bare(copied_fact(fact, row.run, RunId("")), ids)
        found.setdefault(_stream(fact), []).append(Bare(row, alike))
    return found


def difference(one: Fact, other: Fact) -> str:
    """Say in a few words where two facts differ first.

    Args:
        one: a bare fact.
        other: one that is not equal to it.
    """
    if type(one) is not type(other):
        return f"{kind(one)} against {kind(other)}"
    return f"{kind(one)}: {next(_differences(_ordered(one), _ordered(other), ''))}"


def kind(fact: Fact) -> str:
    """The tag of a fact in the journal."""
    return str(fact.__struct_config__.tag)


def _stream(fact: Fact) -> Stream:  # noqa: PLR0911 - one arm a kind of thing
    match fact:
        case TurnSubmitted(turn=turn) | TurnClosed(turn=turn):
            return "turn", str(turn)
        case TaskStarted(task=task) | TaskEnded(task=task):
            return "task", task
        case BudgetReserved(reservation=name) | BudgetSettled(reservation=name):
            return "reservation", name
        case BudgetNeared(budget=budget):
            return "budget", budget
        case LaneChanged(lane=lane):
            return "lane", lane
        case (
            MessageSaid()
            | LossAccepted()
            | RunOpened()
            | RunTaken()
            | RunForked()
            | RunStopped()
            | RunReopened()
            | RunAbandoned()
            | ModeChanged()
            | HostNoted()
        ):
            return "run", ""
        case GrantRevoked(grant=grant):
            return "grant", grant
        case LevelEntered(run=run):
            return "level", run
        case _:
            return "call", fact.call


def _bare(fact: Fact, ids: Ids) -> Fact:
    match fact:
        case TurnSubmitted(calls=calls):
            records = tuple(
                replace(call, provider_id="", arguments=_without_ids(call.arguments, ids))
                for call in calls
            )
            message = _without_ids(fact.message, ids)
            return replace(fact, message=message, calls=records, key="")
        case ApprovalAsked(arguments=arguments):
            arguments = _without_ids(arguments, ids)
            return replace(fact, digest="", arguments=arguments, expires_wall=0.0)
        case ApprovalAnswered(edit=edit):
            if edit is not None:
                arguments = _without_ids(edit.arguments, ids)
                edit = replace(edit, digest="", arguments=arguments)
            return replace(fact, edit=edit, sent=0)
        case CallStarted():
            return replace(fact, token=0)
        case ProcessStarted():
            return replace(fact, group=0, started="")
        case AttemptEnded():
            return replace(fact, delay_seconds=0.0)
        case CallEnded(outcome=outcome) | CallSettled(outcome=outcome):
            return replace(fact, outcome=_outcome(outcome, ids))
        case _:
            return fact


def _outcome(outcome: Outcome, ids: Ids) -> Outcome:
    if not isinstance(outcome, Failure):
        return outcome
    message = _WORD.sub(lambda word: ids.get(word[0], word[0]), outcome.message)
    return replace(outcome, message=message)


def _without_ids(value: Any, ids: Ids) -> Any:
    """Put Laneway's names in the place of the provider's ids, at any depth."""
    if isinstance(value, str):
        own = ids.get(value)
        return own or _QUOTED.sub(lambda found: ids.get(found[0], found[0]), value)
    if isinstance(value, dict):
        return {name: _without_ids(member, ids) for name, member in value.items()}
    if isinstance(value, list):
        return [_without_ids(member, ids) for member in value]
    return value


def _ordered(fact: Fact) -> dict[str, Any]:
    """A fact as JSON; the message of a turn last, since its calls say the same more clearly."""
    told: dict[str, Any] = msgspec.to_builtins(fact)
    if "message" in told:
        told["message"] = told.pop("message")
    return told


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    """Walk through two JSON values side by side, and tell of each place where they differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in (*one, *(name for name in other if name not in one)):
            inner = f"{path}.{name}" if path else name
            yield from _differences(one.get(name), other.get(name), inner)
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        for at, (left, right) in enumerate(zip(one, other, strict=False)):
            yield from _differences(left, right, f"{path}[{at}]")
        if len(one) != len(other):
            yield f"{path} has {len(one)} against {len(other)}"
    elif one != other:
        yield f"{path} {_brief(one)} against {_brief(other)}"


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
