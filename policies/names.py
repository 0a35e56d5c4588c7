"""Misspelt names: what was meant. Feeds the messages of everything that a person writes."""

from collections.abc import Collection
from difflib import get_close_matches


def closest(name: str, known: Collection[str], /) -> str:
    """Say, for the end of a message, what a name may have meant, and what there is."""
    near = get_close_matches(name, known, n=1)
    meant = f"; did you mean {str(near[0])!r}?" if near else ""
    return f"{meant} (known: {', '.join(sorted(known))})"
