"""Rewrites another notation's references into Laneway's own, wherever they stand in a value.

Serves the readers of foreign plans. A reference that is a whole text becomes
`{"$from": name, "path": ...}` and keeps its type; inside a text it becomes `${name.path}`. What
Laneway would take for a reference by accident is escaped, so that it arrives as it was written.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.plan import PlanForm
from laneway.engine.providers.reply import Reply
from laneway.engine.references import is_whole
from laneway.errors import PlanError

_LOOKS_LIKE_OURS = re.compile(r"\$\{(?=[^{}]*\})")


class Referred(msgspec.Struct, frozen=True):
    """What a reference leads to."""

    name: str
    path: str = ""
    """As Laneway writes it: `.items[0].id`."""


class Notation(msgspec.Struct, frozen=True, kw_only=True):
    """A way to write references.

    `read` is given a match of `pattern` and the place it stands in; it may return None for what is
    no reference after all, and stays as it is.
    """

    pattern: re.Pattern[str]
    read: Callable[[re.Match[str], str], Referred | None]
    literal: Callable[[str], str] = str
    """Makes of the text between two references what it stands for: undoes escapes."""


def as_plan(calls: Sequence[object], faults: Sequence[str]) -> Reply:
    """Read translated calls as a plan of our own.

    Raises:
        PlanError: there are faults, or the calls have faults of form; all are named together.
    """
    try:
        reply = PlanForm().parse({"calls": calls})
    except PlanError as error:
        raise PlanError([*faults, *error.faults]) from None
    if faults:
        raise PlanError(faults)
    return reply


def rewritten(value: Any, where: str, notation: Notation, faults: list[str]) -> Any:
    """Rewrite every reference in a plain value.

    Args:
        value: plain JSON, not changed.
        where: its place, for faults.
        notation: how references are written in it.
        faults: gains a line for each text that Laneway's own form cannot say.
    """
    if isinstance(value, str):
        return _text(value, where, notation, faults)
    if is_object(value):
        if is_whole(value):
            faults.append(f'{where}: an object with "$from" would be read as a reference')
        return {
            key: rewritten(inner, f"{where}.{key}", notation, faults)
            for key, inner in value.items()
        }
    if is_list(value):
        return [
            rewritten(inner, f"{where}[{at}]", notation, faults) for at, inner in enumerate(value)
        ]
    return value


def _text(text: str, where: str, notation: Notation, faults: list[str]) -> Any:
    pieces: list[str] = []
    end = 0
    for mention in notation.pattern.finditer(text):
        referred = notation.read(mention, where)
        if referred is None:
            continue
        if mention[0] == text:
            return {"$from": referred.name, "path": referred.path.removeprefix(".")}
        literal = text[end : mention.start()]
        if literal.endswith("$"):
            faults.append(f"{where}: the reference {mention[0]} stands right behind a '$'")
        pieces += [_escaped(notation.literal(literal)), "${", referred.name, referred.path, "}"]
        end = mention.end()
    return "".join([*pieces, _escaped(notation.literal(text[end:]))])


def _escaped(literal: str) -> str:
    return _LOOKS_LIKE_OURS.sub("$${", literal)
