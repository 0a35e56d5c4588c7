"""Paths into the JSON of a call's arguments: `edits[*].file`.

What a model nests is walked without recursion, so that no depth breaks it.
Feeds the patterns over arguments.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec


class Each(msgspec.Struct, frozen=True):
    """The step that goes to every element of a list and every field of an object."""


Step = str | int | Each

ABSENT: Final = object()
"""Stands where a path leads nowhere, or to an empty list or object."""

_STEP = re.compile(r'(?:^|\.)(?!\[)([^.\[\]"]+)|\[(\d+)\]|(\[\*\])|\["([^"]+)"\]')


def parse_path(path: str, /) -> tuple[Step, ...]:
    """Read a path: `path`, `user.name`, `edits[0].file`, `edits[*].file`, `*`, `["a.b"]`.

    Raises:
        ValueError: it cannot be read; the message shows from where.
    """
    steps: list[Step] = []
    at = 0
    while found := _STEP.match(path, at):
        name, index, each, quoted = found.groups()
        if each or name == "*":
            steps.append(Each())
        else:
            steps.append(int(index) if index else name or quoted)
        at = found.end()
    if not path or at < len(path):
        raise ValueError(
            f"argument path {path!r} cannot be read at {path[at:]!r}; "
            'write it like path, user.name, edits[0].file, edits[*].file, * or ["a.b"]'
        )
    return tuple(steps)


def ends(arguments: Mapping[str, Any], steps: Sequence[Step], /) -> Sequence[Any]:
    """Follow a path; each branch that leads nowhere gives `ABSENT`, so there is always an end."""
    nodes: list[Any] = [dict(arguments)]
    for step in steps:
        nodes = [inner for node in nodes for inner in _inside(node, step)]
    return nodes


def leaves(node: Any, /) -> Iterator[Any]:
    """Give the values in a node that hold no others; `ABSENT` for each empty list or object."""
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            waiting += _children(inner) or [ABSENT]
        else:
            yield inner


def _inside(node: Any, step: Step) -> Sequence[Any]:
    if isinstance(step, Each):
        return _children(node) or [ABSENT]
    if isinstance(step, str):
        return [
            cast("dict[str, Any]", node).get(step, ABSENT) if isinstance(node, dict) else ABSENT
        ]
    items: Sequence[Any] = _children(node) if isinstance(node, list) else ()
    return [items[step] if step < len(items) else ABSENT]


def _children(node: Any) -> Sequence[Any]:
    match node:
        case dict():
            return list(cast("dict[str, Any]", node).values())
        case list():
            return cast("Sequence[Any]", node)
        case _:
            return []
