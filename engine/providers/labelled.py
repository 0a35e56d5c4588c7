"""Reads plans in which `$label.path$` stands for an earlier result, as NESTFUL's data sets write.

Translates them into Laneway's own form and its references: `{"$from": label, "path": "..."}` where
the reference is the whole value, `${label.path}` inside a text; what would be taken for a reference
by accident is escaped. Source of the notation: Basu et al., "NESTFUL: A Benchmark for Evaluating
LLMs on Nested Sequences of API Calls", 2024.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from laneway.calls import Referring
from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.payload import arguments_of, opened
from laneway.engine.providers.plan import PlanForm
from laneway.engine.providers.reply import Reply
from laneway.errors import PlanError

_FIELD = r"[^\s.$\[\]{}](?:[^.$\[\]{}\n]*[^\s.$\[\]{}])?"
_LABEL = re.compile(rf"\$([A-Za-z_]\w*)((?:\.{_FIELD}|\[\d+\])*)\$")
"""A name, then fields (which may hold spaces) and indices. `$100-$200` is none: names don't begin
with a digit."""
_LOOKS_LIKE_OURS = re.compile(r"\$\{(?=[^{}]*\})")


def read_labelled_plan(calls: Sequence[Mapping[str, Any]]) -> Reply:
    """Read the calls of a labelled plan: `[{"id": "var1", "name": ..., "arguments": {...}}]`.

    Raises:
        PlanError: a call has a fault of form, or a text holds a `$` right before a reference,
            which Laneway's own form would read as an escape.
    """
    faults: list[str] = []
    translated = [
        _call(opened(call), f"calls[{position}]", faults) for position, call in enumerate(calls)
    ]
    if faults:
        raise PlanError(faults)
    reply = PlanForm().parse({"calls": translated})
    return msgspec.structs.replace(reply, referring=Referring.FIRST)


def _call(call: object, where: str, faults: list[str]) -> object:
    if not is_object(call):
        return call
    word = "arguments" if "arguments" in call else "args"
    given = arguments_of(call.get(word))
    return {**call, word: _value(given, f"{where}.{word}", faults)}


def _value(value: Any, where: str, faults: list[str]) -> Any:
    if isinstance(value, str):
        return _text(value, where, faults)
    if is_object(value):
        return {key: _value(inner, f"{where}.{key}", faults) for key, inner in value.items()}
    if is_list(value):
        return [_value(inner, f"{where}[{at}]", faults) for at, inner in enumerate(value)]
    return value


def _text(text: str, where: str, faults: list[str]) -> Any:
    whole = _LABEL.fullmatch(text)
    if whole:
        return {"$from": whole[1], "path": whole[2].removeprefix(".")}
    pieces: list[str] = []
    end = 0
    for label in _LABEL.finditer(text):
        literal = text[end : label.start()]
        if literal.endswith("$"):
            faults.append(f"{where}: the reference {label[0]} stands right behind a '$'")
        pieces += [_escaped(literal), "${", label[1], label[2], "}"]
        end = label.end()
    return "".join([*pieces, _escaped(text[end:])])


def _escaped(literal: str) -> str:
    return _LOOKS_LIKE_OURS.sub("$${", literal)
