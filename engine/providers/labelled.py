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
from laneway.engine.kinds import is_object
from laneway.engine.providers.notation import Notation, Referred, as_plan, rewritten
from laneway.engine.providers.payload import arguments_of, opened
from laneway.engine.providers.reply import Reply

_FIELD = r"[^\s.$\[\]{}](?:[^.$\[\]{}\n]*[^\s.$\[\]{}])?"
_LABEL = re.compile(rf"\$([A-Za-z_]\w*)((?:\.{_FIELD}|\[\d+\])*)\$")
"""A name, then fields (which may hold spaces) and indices. `$100-$200` is none: names don't begin
with a digit."""


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
    reply = as_plan(translated, faults)
    return msgspec.structs.replace(reply, referring=Referring.FIRST)


def _call(call: object, where: str, faults: list[str]) -> object:
    if not is_object(call):
        return call
    word = "arguments" if "arguments" in call else "args"
    given = arguments_of(call.get(word))
    return {**call, word: rewritten(given, f"{where}.{word}", _NOTATION, faults)}


_NOTATION = Notation(pattern=_LABEL, read=lambda mention, _: Referred(mention[1], mention[2]))
