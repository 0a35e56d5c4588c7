"""Where in a TOML text a table or key stands: tomllib tells values, but not their lines.

Reads a text that tomllib has accepted; feeds the messages about a policy file.
"""

import re
from collections.abc import Iterator, Mapping

Place = tuple[str | int, ...]
"""A key path from the top, with the position in an array of tables: ("rule", 0, "effects")."""

_TOKEN = re.compile(
    r'#[^\n]*|"""(?:[^\\]|\\.)*?"{3,5}|' + r"'''.*?'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|' + r"'[^'\n]*'|[\[\]{}\n]",
    re.DOTALL,
)
_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_KEY}(?:[ \t]*\.[ \t]*{_KEY})*"
_STATEMENT = re.compile(rf"[ \t]*(?:\[\[[ \t]*({_DOTTED})|\[[ \t]*({_DOTTED})|({_DOTTED})[ \t]*=)")


class Lines:
    """Finds the line of a key, or of the nearest table around it."""

    def __init__(self, text: str) -> None:
        """Index a text that is valid TOML."""
        self._lines: dict[Place, int] = {}
        for place, line in _places(text):
            self._lines.setdefault(place, line)

    def of(self, *place: str | int) -> int:
        """Return the line, from 1; of the innermost table that can be found, at worst 1."""
        for end in range(len(place), 0, -1):
            line = self._lines.get(place[:end])
            if line is not None:
                return line
        return 1


def _places(text: str) -> Iterator[tuple[Place, int]]:
    counts: dict[tuple[str, ...], int] = {}
    table: Place = ()
    for line, start in _statements(text):
        found = _STATEMENT.match(text, start)
        if found is None:
            continue
        array, header, key = found.groups()
        if array:
            parts = _parts(array)
            counts[parts] = counts.get(parts, -1) + 1
            table = (*parts, counts[parts])
            yield table, line
        elif header:
            table = _numbered(_parts(header), counts)
            yield table, line
        else:
            parts = _parts(key)
            for end in range(1, len(parts) + 1):
                yield (*table, *parts[:end]), line


def _numbered(parts: tuple[str, ...], counts: Mapping[tuple[str, ...], int]) -> Place:
    """Place `[rule.arguments]` in the rule that was begun last."""
    begun = counts.get(parts[:1])
    return parts if begun is None else (parts[0], begun, *parts[1:])


def _parts(dotted: str) -> tuple[str, ...]:
    """Split a key; a quoted one with dots in it reads like the path that it stands for."""
    bare = ".".join(part.strip("\"'") for part in re.findall(_KEY, dotted))
    return tuple(bare.split("."))


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Give line and offset of each line that begins a statement, not the middle of a value."""
    yield 1, 0
    line, depth = 1, 0
    for token in _TOKEN.finditer(text):
        found = token[0]
        line += found.count("\n")
        if found in {"[", "{"}:
            depth += 1
        elif found in {"]", "}"}:
            depth -= 1
        elif found == "\n" and depth == 0:
            yield line, token.end()
