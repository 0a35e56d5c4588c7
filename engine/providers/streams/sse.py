"""From bytes, however they were cut, to events: server-sent events, or one JSON object a line.

After the HTML standard, 9.2 (Server-sent events): CR, LF and CRLF end lines, a byte order mark may
lead, comments begin with a colon, several `data:` lines are one text with line feeds. Two things
are looser: what follows the last blank line counts if it is whole JSON, since servers forget that
line, and `[DONE]` is no event. Bytes are decoded line by line, so no cut falls into a character.
"""

import re
from typing import Any

import msgspec

from laneway.engine.kinds import is_object
from laneway.errors import PayloadError

_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_DECODE = msgspec.json.Decoder().decode


class ByteReader:
    """Decodes one stream of bytes."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self._rest = bytearray()
        self._looked = 0
        """How much of the rest is known to hold no end of a line."""
        self._begun = False
        self._after_cr = False
        self._lines: bool | None = None
        """Whether each line is an event by itself; None until the first that says so."""
        self._kind = ""
        self._data: list[str] = []
        self._events = 0
        self.done = False
        """`[DONE]` has come: whoever sent it says no more."""

    def feed(self, piece: bytes) -> list[dict[str, Any]]:
        """Take in the next bytes; give the events that are complete by them.

        Raises:
            PayloadError: they are no such stream; names the event.
        """
        if self._after_cr and piece:
            self._after_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        self._rest += piece
        if not self._begun:
            if len(self._rest) < len(_BOM) and _BOM.startswith(bytes(self._rest)):
                return []
            self._begun = True
            if self._rest.startswith(_BOM):
                del self._rest[: len(_BOM)]
        return self._complete_lines()

    def end(self) -> list[dict[str, Any]]:
        """There are no more bytes: give what was complete but for its last line end.

        What is cut in the middle is dropped: the message then never ends well.
        """
        last = bytes(self._rest)
        self._rest.clear()
        found: list[dict[str, Any]] = []
        try:
            if last:
                found += self._line(last)
            found += self._line(b"")
        except PayloadError:
            return found
        return found

    def _complete_lines(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        at = 0
        while True:
            match = _END.search(self._rest, max(at, self._looked))
            if match is None:
                break
            found += self._line(bytes(self._rest[at : match.start()]))
            at = match.end()
            if match.group() == b"\r" and at == len(self._rest):
                self._after_cr = True
        del self._rest[:at]
        self._looked = len(self._rest)
        return found

    def _line(self, line: bytes) -> list[dict[str, Any]]:
        if self._lines is None and line.strip():
            self._lines = line.lstrip().startswith(b"{")
            if line.lstrip().startswith(b"["):
                raise PayloadError(
                    "stream",
                    "it is a JSON list, which is no stream of events",
                    "Ask Google for server-sent events (`?alt=sse`), or decode the list first",
                )
        if self._lines:
            return [self._decoded(line, "")] if line.strip() else []
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(self._text(value))
        elif field == b"event":
            self._kind = self._text(value)
        elif field not in (b"", b"id", b"retry"):
            raise PayloadError(
                f"stream.events[{self._events}]",
                f"the line begins with {field[:40]!r}, which server-sent events do not",
                "Give the bytes of the answer as they come, or decoded events",
            )
        return []

    def _dispatch(self) -> list[dict[str, Any]]:
        data, self._data = "\n".join(self._data), []
        kind, self._kind = self._kind, ""
        if data.strip() == "[DONE]":
            self.done = True
        if not data.strip() or self.done:
            return []
        return [self._decoded(data.encode(), kind)]

    def _text(self, value: bytes) -> str:
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise PayloadError(
                f"stream.events[{self._events}]", f"it is not UTF-8: {error.reason}"
            ) from None

    def _decoded(self, data: bytes, kind: str) -> dict[str, Any]:
        where = f"stream.events[{self._events}]"
        try:
            event = _DECODE(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise PayloadError(where, f"it is no JSON: {error}") from None
        if not is_object(event):
            raise PayloadError(where, f"expected an object, not {data[:40]!r}")
        self._events += 1
        if kind == "error" and not event.get("error"):
            return {"error": event}
        return event
