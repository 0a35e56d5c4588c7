"""Laneway's own form of a plan: calls with ids, and what each of them needs.

    {"calls": [{"id": "a", "tool": "search", "arguments": {"q": "x"}},
               {"id": "b", "tool": "send", "arguments": {"to": "${a[0].mail}"}, "after": ["c"]}]}

Reads plans that a developer or a model wrote, feeds the engine like a model's answer; results come
back as one message `{"role": "tool", "results": [...]}`. A plan is strict: what is misspelt in it
is a fault, and every fault is named at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from laneway.calls import Referring
from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import NotPlainError, plain
from laneway.engine.providers.payload import (
    DECODE,
    ENCODE,
    arguments_of,
    copied,
    described,
    opened,
    read_decoded,
    text_of_arguments,
)
from laneway.engine.providers.repair import paired
from laneway.engine.providers.reply import Answer, Asked, Message, Reply
from laneway.engine.providers.say import said_by_host
from laneway.errors import PlanError
from laneway.ids import is_own
from laneway.outcomes import Code, Failure

FIELDS = ("id", "tool", "name", "arguments", "args", "needs", "after")
"""What a call of a plan may have; `name` is another word for `tool`, `args` for `arguments`."""


class PlanForm:
    """The format of `engine.plan` and `laneway run`."""

    name = "plan"

    def recognises(self, payload: Mapping[str, Any], /) -> bool:
        """Whether there are calls."""
        return "calls" in payload

    def parse(self, payload: Mapping[str, Any], /) -> Reply:
        """Read a plan; see `Format.parse`.

        Raises:
            PlanError: it is no plan, or its calls have faults of form; each is named.
        """
        given = opened(payload.get("calls"))
        if not is_list(given):
            raise PlanError([f"calls: expected a list of calls, not {described(given)}"])
        items = _copied(given)
        reader = _Reader(items)
        calls = tuple(map(reader.read, items))
        if reader.faults:
            raise PlanError(reader.faults)
        key = payload.get("id")
        return Reply(
            provider=self.name,
            message={"role": "assistant", "calls": [_written(call) for call in calls]},
            calls=calls,
            key=key if isinstance(key, str) else "",
            referring=Referring.STRICT,
        )

    def render(self, message: Message, answers: Sequence[Answer], /) -> list[Message]:
        """Write the plan and one message with all results, each with its value or its error."""
        ordered = paired([call["id"] for call in message["calls"]], answers)
        if not ordered:
            return [message]
        return [message, {"role": "tool", "results": [_result(answer) for answer in ordered]}]

    def with_arguments(
        self, message: Message, arguments: Mapping[str, dict[str, Any]], /
    ) -> Message:
        """Write other arguments into some calls."""
        calls = [
            {**call, "arguments": arguments[call["id"]]} if call["id"] in arguments else call
            for call in message["calls"]
        ]
        return {**message, "calls": calls}

    def say(self, said: object, /) -> Message:
        """Make a user message."""
        return said_by_host(said)

    def join(self, messages: Sequence[Message], /) -> list[Message]:
        """Put messages in a row as they come."""
        return list(messages)


def _copied(given: list[Any]) -> list[Any]:
    fast = copied(given)
    if fast:
        return fast[0]  # type: ignore[no-any-return]  # a copy of a list is a list
    return [_loosened(opened(item)) for item in given]


def _loosened(item: object) -> object:
    """Put arguments that are not JSON out of harm's way; any other fault is named later."""
    if not is_object(item):
        return item
    loosened = {
        word: arguments_of(given) if word in ("arguments", "args") else given
        for word, given in item.items()
    }
    try:
        return plain(loosened)
    except NotPlainError:
        return loosened


class _Reader:
    """One pass over the calls of a plan: gives each its id, and gathers the faults."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.faults: list[str] = []
        self._position = -1
        self._seen: set[str] = set()
        self._taken = {
            item["id"] for item in items if is_object(item) and isinstance(item.get("id"), str)
        }

    def read(self, item: object) -> Asked:
        self._position += 1
        if not is_object(item):
            self._blame("", f"expected an object with a tool, not {described(item)}")
            return _NOTHING
        if not item.keys() <= _FIELDS:
            unknown = ", ".join(str(field) for field in item if field not in _FIELDS)
            self._blame("", f"unknown field {unknown}; a call may have {', '.join(FIELDS)}")
        name = self._one_of(item, "tool", "name")
        if not isinstance(name, str) or not name or name.isspace():
            self._blame(".tool", f"expected the name of a tool, not {described(name)}")
        own, fault = self._id(item.get("id"))
        given = self._one_of(item, "arguments", "args")
        read = read_decoded(given)
        needs = self._ids(item, "needs") if "needs" in item else ()
        after = self._ids(item, "after") if "after" in item else ()
        if isinstance(read, Failure):
            return Asked(
                id=own,
                name=str(name),
                arguments=None,
                text=text_of_arguments(given),
                fault=fault or read,
                needs=needs,
                after=after,
            )
        return Asked(id=own, name=str(name), arguments=read, fault=fault, needs=needs, after=after)

    def _id(self, given: object) -> tuple[str, Failure | None]:
        """Name a call that has no id by its place; a second call of one id is faulty."""
        if given is not None and not isinstance(given, str):
            self._blame(".id", f"expected a text, not {described(given)}")
        if isinstance(given, str) and is_own(given):
            self._blame(".id", f"{given!r} is how Laneway itself names calls; give another id")
        own, fault = str(given or "call"), None
        if own in self._seen and given:
            fault = _ambiguous(own)
        if not given or fault:
            own = f"{own}_{self._position + 1}"
            while own in self._taken:
                own += "_"
            self._taken.add(own)
        self._seen.add(own)
        return own, fault

    def _one_of(self, item: dict[str, Any], word: str, other: str) -> object:
        if other not in item:
            return item.get(word)
        if word in item:
            self._blame("", f"{word} and {other} are two words for one thing; give one")
        return item[other]

    def _ids(self, item: dict[str, Any], word: str) -> tuple[str, ...]:
        names = opened(item.get(word))
        if names is None:
            return ()
        if is_list(names) and all(isinstance(name, str) for name in names):
            return tuple(names)
        self._blame(f".{word}", f"expected a list of ids, not {described(names)}")
        return ()

    def _blame(self, place: str, fault: str) -> None:
        self.faults.append(f"calls[{self._position}]{place}: {fault}")


_NOTHING = Asked(id="", name="", arguments=None)
_FIELDS = frozenset(FIELDS)


def _ambiguous(name: str) -> Failure:
    return Failure(
        code=Code.BAD_REFERENCE,
        message=f"An earlier call of the plan has the id {name!r} too, so a reference to it could "
        "mean either.",
        hint="Give each call an id of its own.",
    )


def _written(call: Asked) -> Message:
    written: Message = {"id": call.id, "tool": call.name, "arguments": call.arguments or {}}
    if call.needs:
        written["needs"] = list(call.needs)
    if call.after:
        written["after"] = list(call.after)
    return written


def _result(answer: Answer) -> Message:
    result: Message = {"id": answer.id, "tool": answer.name}
    outcome = answer.outcome
    if isinstance(outcome, Failure):
        result["error"] = {
            "code": outcome.code.value,
            "message": outcome.message,
            "retry": outcome.retry,
            "happened": outcome.happened.value,
            "hint": outcome.hint,
        }
    else:
        value = outcome.value
        result["value"] = DECODE(ENCODE(value)) if isinstance(value, (dict, list)) else value
    told = [note for note in (answer.note, answer.warning) if note]
    if told:
        result["note"] = "\n".join(told)
    return result
