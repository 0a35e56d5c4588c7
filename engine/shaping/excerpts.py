"""Cuts texts: never within a character that people see as one, preferably between lines.

A string of Python has no half UTF-8 sequences, but a cut can part a letter from its accent, or an
emoji from what it is joined with; that is avoided too.
"""

import unicodedata

GAP = "\n[…]\n"
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")
_LOOK_BACK = 16
"""Longer chains of joined characters are cut all the same."""
_TIDY = 5
"""A cut is moved to the end of a line where that costs no more than a fifth."""


def excerpt(text: str, room: int) -> str:
    """The beginning and the end of a text, two thirds and one, within some room.

    Args:
        text: valid Unicode.
        room: characters at most, 0 or more.
    """
    if len(text) <= room:
        return text
    if room <= 3 * len(GAP):
        return beginning(text, room)
    left = room - len(GAP)
    first = beginning(text, left - left // 3)
    return f"{first}{GAP}{ending(text, left - len(first))}"


def beginning(text: str, room: int) -> str:
    """As much of the beginning as has room."""
    if len(text) <= room:
        return text
    at = _whole(text, max(room, 0))
    line = text.rfind("\n", 0, at)
    return text[: line if line >= at - at // _TIDY > 0 else at]


def ending(text: str, room: int) -> str:
    """As much of the end as has room."""
    if len(text) <= room:
        return text
    at = len(text) - max(room, 0)
    while at < len(text) and _joined(text, at) and at - len(text) + room < _LOOK_BACK:
        at += 1
    line = text.find("\n", at)
    room = len(text) - at
    return text[line + 1 if at <= line < at + room // _TIDY else at :]


def _whole(text: str, at: int) -> int:
    """The last place up to `at` that parts nothing."""
    for place in range(at, max(at - _LOOK_BACK, -1), -1):
        if not _joined(text, place):
            return place
    return at


def _joined(text: str, at: int) -> bool:
    """Whether what stands at a place belongs to what stands before it."""
    if not 0 < at < len(text):
        return False
    here, before = text[at], text[at - 1]
    if here.isascii() and before.isascii():
        return here == "\n" and before == "\r"
    modifier = "\U0001f3fb" <= here <= "\U0001f3ff"
    joined = here in _JOINERS or before == "\u200d" or modifier
    return joined or unicodedata.combining(here) > 0
