"""References from a call's arguments to another call's result.

`${call}` or `${call.path[0].field}` inside a text, `{"$from": "call", "path": "..."}` as a whole
value (which keeps its type); `$${` is a literal `${`. Reads checked arguments; feeds the graph
with data edges, and the scheduler with the arguments that a body is entered with.

A plan is strict: a name that no call has is a fault. A model's own turn is not: shell and template
code is full of `${HOME}`, so there a text refers to a call only where a call has that name.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

import msgspec

from laneway.calls import Referring
from laneway.engine.kinds import is_list, is_object
from laneway.engine.secrets.losses import lost_reference
from laneway.engine.secrets.marks import MARK, holds_mark
from laneway.outcomes import Code, Failure

Path = tuple[str | int, ...]

OPENING = re.compile(r"(\$?)\$\{([^{}]*)\}")
STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
WHOLE = "$from"
NO_ID = re.compile(r"\d+|[A-Z_][A-Z0-9_]*|[a-z]+")
LONGEST_NAME = 256
"""Characters of a call's name that a path may follow: a text that merely looks like a reference
costs no more than so many look-ups, however long it is."""


class Reference(msgspec.Struct, frozen=True):
    """One use of one call's result."""

    parameter: str
    """The top-level parameter it stands in."""
    source: str
    """The name of the call, as the model wrote it."""
    path: str
    """Where in the source's result, as written: `.items[0].id`, or empty for all of it."""


class Unresolved(msgspec.Struct, frozen=True):
    """What stands in a call's arguments and cannot be known yet."""

    references: tuple[Reference, ...] = ()
    faults: tuple[str, ...] = ()
    """Names and paths that lead nowhere, each as a sentence."""
    escaped: frozenset[str] = frozenset()
    """Parameters that hold a `$${` to be read as `${`, and no reference."""

    @property
    def parameters(self) -> frozenset[str]:
        """The top-level parameters whose value is not known yet."""
        return frozenset(reference.parameter for reference in self.references)


NOTHING = Unresolved()


def find(
    arguments: Mapping[str, Any],
    names: Collection[str],
    referring: Referring,
    *,
    literal: Collection[str] = (),
) -> Unresolved:
    """Find the references in checked arguments, in which there can be some.

    Args:
        arguments: as the model wrote them.
        names: of the calls that can be referred to.
        referring: how they are read.
        literal: parameters in which nothing is a reference.
    """
    found: list[Reference] = []
    faults: list[str] = []
    escaped: set[str] = set()
    for parameter, value in arguments.items():
        if type(value) in _FLAT or parameter in literal or _mentions_nothing(value):
            continue
        for source, path, whole in _mentions(value, names):
            where = _shortened(f"${{{source}{path}}}")
            known = source in names and (whole or referring.strict or _is_an_id(source))
            if whole is None:
                if referring.strict or known:
                    escaped.add(parameter)
            elif not known:
                if referring.strict or whole:
                    faults.append(
                        f"argument {parameter!r} refers to {where}, but no call is named "
                        f"{_shortened(source)!r}"
                    )
            elif path and steps(path) is None:
                faults.append(
                    f"argument {parameter!r} refers to {where}, whose path cannot be read: "
                    "write .field or [index]"
                )
            else:
                found.append(Reference(parameter, source, path))
    if not found and not faults and not escaped:
        return NOTHING
    escaped.difference_update(reference.parameter for reference in found)
    return Unresolved(tuple(found), tuple(faults), frozenset(escaped))


def unescaped(
    arguments: Mapping[str, Any],
    unresolved: Unresolved,
    names: Collection[str],
    referring: Referring,
) -> dict[str, Any]:
    """Read each `$${` in the parameters that hold no reference; the others stay as they are."""
    filling = _Filling(names, _no_value, referring)
    return {
        parameter: filling.fill(value) if parameter in unresolved.escaped else value
        for parameter, value in arguments.items()
    }


def _no_value(name: str) -> NoReturn:
    raise AssertionError(f"{name} is a reference, in a parameter that holds none")


def resolve(
    arguments: Mapping[str, Any],
    names: Collection[str],
    value_of: Callable[[str], Any],
    referring: Referring,
    *,
    literal: Collection[str] = (),
    marks: bool = False,
) -> dict[str, Any] | Failure:
    """Put the results in place of the references, in one pass: what is put in is not read again.

    Args:
        arguments: as recorded.
        names: as for `find`.
        value_of: the JSON value of a named call that has succeeded.
        referring: as for `find`; a strict one also unwraps `$${` around a name that no call has.
        literal: as for `find`.
        marks: let the marks of secrets through; else a reference to one leads nowhere.
    """
    if referring is Referring.LITERAL:
        return dict(arguments)
    filling = _Filling(names, value_of, referring, marks=marks)
    try:
        return {
            parameter: value if parameter in literal else filling.fill(value)
            for parameter, value in arguments.items()
        }
    except _NoSuchFieldError as error:
        return Failure(
            code=Code.BAD_REFERENCE,
            message=str(error),
            hint="Look at the result of that call, and refer to a field that it has.",
        )
    except _LostError as error:
        return lost_reference(str(error))


def steps(path: str) -> Path | None:
    """Split `.items[0].id` into keys and indices; None where it is neither."""
    taken: list[str | int] = []
    at = 0
    while at < len(path):
        step = STEP.match(path, at)
        if step is None:
            return None
        taken.append(step[1] if step[1] is not None else int(step[2]))
        at = step.end()
    return tuple(taken)


def split(inner: str, names: Collection[str]) -> tuple[str, str]:
    """Split `call.path[0]` into the longest name that a call has, and the path behind it.

    Ids of providers may hold dots and colons themselves, so the names decide where the path begins.
    """
    if inner in names:
        return inner, ""
    ends = [at for at, letter in enumerate(inner[:LONGEST_NAME]) if letter in ".["]
    for end in reversed(ends):
        if inner[:end] in names:
            return inner[:end], inner[end:]
    first = ends[0] if ends else len(inner)
    return inner[:first], inner[first:]


_FLAT = frozenset({int, float, bool, type(None)})
"""Of these no value holds a reference."""


def _mentions_nothing(value: object) -> bool:
    """Whether a value can hold no reference, told at a glance."""
    if isinstance(value, str):
        return "${" not in value
    return not (is_object(value) or is_list(value))


def _mentions(value: Any, names: Collection[str]) -> Iterator[tuple[str, str, bool | None]]:
    """List source, path, and whether the reference is a whole value; None for an escape."""
    if isinstance(value, str):
        if "${" in value:
            for mention in OPENING.finditer(value):
                yield *split(mention[2].strip(), names), None if mention[1] else False
    elif is_object(value):
        if is_whole(value):
            yield str(value[WHOLE]), _written(value.get("path")), True
            return
        for inner in value.values():
            yield from _mentions(inner, names)
    elif is_list(value):
        for inner in value:
            yield from _mentions(inner, names)


def is_whole(value: Mapping[str, Any]) -> bool:
    """Whether an object is a reference to a whole value."""
    return WHOLE in value and value.keys() <= {WHOLE, "path"}


def _written(path: object) -> str:
    """A path with the dot that may be left out in `{"path": "items[0]"}`; None is no path."""
    text = "" if path is None else str(path)
    return text if not text or text[0] in ".[" else f".{text}"


def is_reference(value: Any, names: Collection[str], referring: Referring) -> bool:
    """Whether a value is one reference to a call of such a name, and nothing else."""
    if referring is Referring.LITERAL:
        return False
    if isinstance(value, str):
        mention = OPENING.fullmatch(value)
        if mention is None or mention[1]:
            return False
        source = split(mention[2].strip(), names)[0]
        return source in names and (referring.strict or _is_an_id(source))
    return is_object(value) and is_whole(value) and str(value[WHOLE]) in names


def _is_an_id(name: str) -> bool:
    """Whether a model's text can only mean a call by it.

    `${1}`, `${HOME}` and `${name}` are what shell and template code is full of, and some servers
    number their calls.
    """
    return not NO_ID.fullmatch(name)


class _NoSuchFieldError(Exception):
    pass


class _LostError(Exception):
    pass


class _Filling:
    def __init__(
        self,
        names: Collection[str],
        value_of: Callable[[str], Any],
        referring: Referring,
        *,
        marks: bool = False,
    ) -> None:
        self._marks = marks
        self._names = names
        self._value_of = value_of
        self._strict = referring.strict
        self._first = referring is Referring.FIRST

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            return OPENING.sub(self._text, value) if "${" in value else value
        if is_object(value):
            if is_whole(value):
                return self._value(str(value[WHOLE]), _written(value.get("path")))
            return {key: self.fill(inner) for key, inner in value.items()}
        if is_list(value):
            return [self.fill(inner) for inner in value]
        return value

    def _text(self, mention: re.Match[str]) -> str:
        source, path = split(mention[2].strip(), self._names)
        known = source in self._names and (self._strict or _is_an_id(source))
        if mention[1]:
            return mention[0][1:] if known or self._strict else mention[0]
        if not known:
            return mention[0]
        value = self._value(source, path)
        if isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def _value(self, source: str, path: str) -> Any:
        value: Any = self._value_of(source)
        walked = ""
        for step in steps(path) or ():
            if self._first and isinstance(step, str) and _has(value, 0):
                value = value[0]
                walked += "[0]"
            if not _has(value, step):
                if self._marks and _is_mark(value):
                    return value
                if _is_mark(value):
                    raise _LostError(_shortened(f"${{{source}{path}}}"))
                raise _NoSuchFieldError(_missing(source, path, walked, step, value))
            value = value[step]
            walked += f"[{step}]" if isinstance(step, int) else f".{step}"
        if not self._marks and holds_mark(value):
            raise _LostError(_shortened(f"${{{source}{path}}}"))
        return value


def _is_mark(value: object) -> bool:
    return value == MARK


def _has(value: Any, step: str | int) -> bool:
    """Whether a step leads on; an index into a text does not."""
    if isinstance(step, str):
        return is_object(value) and step in value
    return is_list(value) and step < len(value)


def _missing(source: str, path: str, walked: str, step: str | int, value: object) -> str:
    place = f"the result of {_shortened(source)}" + (f" at {_shortened(walked)}" if walked else "")
    if is_object(value):
        has = ", ".join(map(_shortened, sorted(map(str, value))[:10])) or "no fields"
        found = f"is an object with {has}"
    elif is_list(value):
        found = f"is a list of {len(value)}"
    else:
        found = f"is {'text' if isinstance(value, str) else type(value).__name__}"
    wanted = step if isinstance(step, int) else _shortened(step)
    return f"{_shortened(f'${{{source}{path}}}')}: {place} {found}, so there is no {wanted!r} in it"


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN = 120
