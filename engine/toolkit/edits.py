"""The replacement of one passage of a text, so made that doing it again changes nothing.

Pure functions over texts; `files` reads and writes the file. A process may die between the edit
and the record of it, and the edit is then run again: so a first attempt insists on finding the old
passage exactly once and unmistakably, and a repeat takes its absence beside the new one for done.
"""

from collections.abc import Iterator

_MOST_LINES = 5


def edited(text: str, old: str, new: str, *, repeat: bool) -> str:
    """Replace the one `old` by `new`.

    Args:
        text: all of it.
        old: what must stand there exactly once.
        new: what takes its place; empty to delete it.
        repeat: whether an earlier attempt may have done it; then a text in which it is done comes
            back unchanged.

    Raises:
        ValueError: `old` is missing, or there more than once, or the result could not be told from
            the text before. The message says where, and what to do.
    """
    if not old:
        raise ValueError("old is empty; copy the passage to be replaced from the file")
    if old == new:
        raise ValueError("old and new are the same, so there is nothing to change")
    if repeat and is_done(text, old, new):
        return text
    places = list(occurrences(text, old))
    if not places:
        raise ValueError(f"old does not occur in the file{_hint(text, old, new)}")
    if len(places) > 1:
        lines = [str(line_of(text, at)) for at in places[:_MOST_LINES]]
        more = "" if len(places) <= _MOST_LINES else ", …"
        raise ValueError(
            f"old occurs {len(places)} times (lines {', '.join(lines)}{more}); "
            "give more of the text around the one that is meant"
        )
    if is_done(text, old, new):
        raise ValueError(
            f"old occurs only within new, at line {line_of(text, places[0])}: the edit seems to "
            "be made already; if it is not, give more of the text around it"
        )
    result = text[: places[0]] + new + text[places[0] + len(old) :]
    if not is_done(result, old, new):
        raise ValueError(
            "after this edit old would occur again beside what replaced it; "
            "give more of the text around it"
        )
    return result


def is_done(text: str, old: str, new: str) -> bool:
    """Whether the edit has been made: every `old` that is left is part of a `new`."""
    made = list(occurrences(text, new)) if new else []
    if new and not made:
        return False
    return all(
        any(start <= at and at + len(old) <= start + len(new) for start in made)
        for at in occurrences(text, old)
    )


def occurrences(text: str, passage: str) -> Iterator[int]:
    """Find where a passage begins, also where it overlaps itself."""
    at = text.find(passage)
    while at != -1:
        yield at
        at = text.find(passage, at + 1)


def line_of(text: str, at: int) -> int:
    """The line of a place, from 1."""
    return text.count("\n", 0, at) + 1


def _hint(text: str, old: str, new: str) -> str:
    if "\r\n" in text and "\n" in old and "\r\n" not in old:
        return "; its lines end in \\r\\n, so must those of old and new"
    if new and new in text:
        return f"; new stands at line {line_of(text, text.find(new))} already"
    wanted = [line.split() for line in old.splitlines() if line.split()]
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    filled = [(number, words) for number, words in lines if words]
    for start in range(len(filled) - len(wanted) + 1) if wanted else ():
        if [words for _, words in filled[start : start + len(wanted)]] == wanted:
            number = filled[start][0]
            return f"; a text that differs only in white space stands at line {number}: copy that"
    return "; read the file and copy the passage exactly"
