"""Finds tools by words: names, descriptions and parameters, ranked by BM25.

SQLite's full-text index does it (FTS5, with Porter's stemmer), which every journal needs anyway.
Sources: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009);
sqlite.org/fts5.html, "The bm25() function".
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.tool import Tool

_WEIGHTS = (8.0, 3.0, 1.0)
"""Of a hit in the name, the description, the parameters."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_]+")
_MOST_WORDS = 64
"""Of a query: more say no more."""


class Index:
    """An index over some tools; never changed."""

    def __init__(self, tools: Iterable[Tool[..., Any]]) -> None:
        """Index tools."""
        self._rows = [
            (tool.spec.name, _words(tool.spec.name), tool.spec.description, _parameters(tool))
            for tool in tools
        ]
        self._names = [name for name, *_ in self._rows]

    def find(self, query: str, most: int) -> list[str]:
        """Name the tools that fit best, the best first; among equals, in their own order.

        Args:
            query: words; a tool that has any of them is found. A name is found by itself.
            most: how many at most.
        """
        exact = [name for name in self._names if name in query.split()]
        words = list(dict.fromkeys(_words(query).split()))[:_MOST_WORDS]
        if not words:
            return exact[:most]
        match = " OR ".join(f'"{word}"' for word in words)
        with sqlite3.connect(":memory:") as connection:
            connection.execute(
                "CREATE VIRTUAL TABLE tools USING fts5(name, description, parameters, "
                "tokenize = 'porter unicode61 remove_diacritics 2')"
            )
            connection.executemany(
                "INSERT INTO tools VALUES (?, ?, ?)", [row[1:] for row in self._rows]
            )
            found: list[tuple[int]] = connection.execute(
                "SELECT rowid FROM tools WHERE tools MATCH ? "
                "ORDER BY bm25(tools, ?, ?, ?), rowid LIMIT ?",
                (match, *_WEIGHTS, most),
            ).fetchall()
        connection.close()
        return list(dict.fromkeys([*exact, *(self._names[row - 1] for (row,) in found)]))[:most]


def _words(text: str) -> str:
    """`getUserByID` and `get_user` as the words they are made of."""
    return " ".join(_WORD.findall(text)).lower()


def _parameters(tool: Tool[..., Any]) -> str:
    return " ".join(_told(tool.spec.schema.get("properties", {})))


def _told(schema: object) -> Iterator[str]:
    """The names and descriptions in a schema."""
    if is_object(schema):
        for key, value in schema.items():
            if key == "description" and isinstance(value, str):
                yield value
            elif is_object(value) or is_list(value):
                yield _words(key)
                yield from _told(value)
    elif is_list(schema):
        for inner in schema:
            yield from _told(inner)
