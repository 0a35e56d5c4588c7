"""Whether one pattern fits all that another fits: sound, not complete.

A yes is proof; a no says only that nobody could tell. Reads patterns as people write them; feeds
the coverage of one rule by another.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from laneway.claims import Access
from laneway.policies.patterns import parse_pattern, text_of

Symbol = TypeVar("Symbol")

_ANYWHERE: Final = "**"
_RUN = re.compile(r"[*?]{2,}")
_CLAIM = re.compile(r"(?:(read|write)\s+)?([a-z][a-z0-9+.-]*):(.*)")


def glob_covers(wide: str, narrow: str, /) -> bool:
    """Whether every text that fits `narrow` fits `wide`."""
    reached = _reached(_ordered(wide), _ordered(narrow), "*", _char_covers)
    return len(_ordered(wide)) in reached[-1]


def at_or_below(wide: Sequence[str], narrow: Sequence[str], /) -> bool:
    """Whether all that `narrow` names, level by level, is named by `wide` or stands below that."""
    return any(len(wide) in places for places in _reached(wide, narrow, _ANYWHERE, _level_covers))


class Values(msgspec.Struct, frozen=True):
    """What a pattern over an argument fits."""

    alternatives: Sequence[tuple[str, Any]]
    """`glob`, `regex` or `equals`, each with its text or value."""
    missing: bool = False

    @property
    def whole(self) -> bool:
        """Whether a list or object is meant as one value."""
        return any(kind == "equals" and isinstance(what, dict | list) for kind, what in self)

    def __iter__(self) -> Any:
        return iter(self.alternatives)


def values_of(pattern: object, /) -> Values:
    """Take a pattern over an argument apart, which must be one that can be read."""
    if not isinstance(pattern, Mapping):
        return Values(_each(pattern))
    table = cast("Mapping[str, object]", pattern)
    missing = bool(table.get("missing", False))
    for kind in ("glob", "regex"):
        if kind in table:
            return Values([(kind, text) for text in _several(table[kind])], missing)
    return Values([("equals", table["equals"])] if "equals" in table else [], missing)


def values_cover(wide: Values, narrow: Values, /, *, wide_grants: bool) -> bool:
    """Whether all that fits `narrow` fits `wide`, a missing value included.

    Args:
        wide: The pattern that must cover.
        narrow: The pattern that must be covered; of a rule that grants, if the other does.
        wide_grants: The rule of the first grants, so that its patterns are read more strictly.
    """
    if narrow.missing and not wide.missing:
        return False
    return all(
        any(_alternative_covers(one, other, wide_grants=wide_grants) for one in wide)
        for other in narrow
    )


def claims_cover(
    wide: Sequence[str], narrow: Sequence[str], /, *, wide_grants: bool, narrow_grants: bool
) -> bool:
    """Whether claims that meet `narrow` meet `wide`. What grants covers nothing that refuses.

    Args:
        wide: The claim patterns of the rule that must cover.
        narrow: Those of the rule that must be covered; at least one.
        wide_grants: The first rule grants: each claim must be named by it.
        narrow_grants: The same of the second.
    """
    return all(
        any(_area_covers(_area(one, wide_grants), _area(other, narrow_grants)) for one in wide)
        for other in narrow
    )


class _Area(msgspec.Struct, frozen=True):
    """What a claim pattern fits."""

    accesses: frozenset[Access]
    scheme: str
    levels: Sequence[str]
    grants: bool

    @property
    def head(self) -> Sequence[str]:
        """The levels before the first `**`: a refusal is met by all that stands above them, too."""
        until = self.levels.index(_ANYWHERE) if _ANYWHERE in self.levels else len(self.levels)
        return self.levels[:until]


def _area(pattern: str, grants: bool, /) -> _Area:  # noqa: FBT001 - as the field is
    found = _CLAIM.fullmatch(pattern)
    assert found, "a rule that was compiled has patterns that can be read"
    word, scheme, path = found.groups()
    levels = path.removeprefix("/").removesuffix("/").split("/")
    while levels and levels[-1] in {_ANYWHERE, ""}:  # all below is meant anyway
        levels.pop()
    only = {"read": Access.SHARED} if grants else {"write": Access.EXCLUSIVE}
    accesses = frozenset([only[word]]) if word in only else frozenset(Access)
    return _Area(accesses, scheme, levels, grants)


def _area_covers(wide: _Area, narrow: _Area) -> bool:
    if wide.scheme != narrow.scheme or not narrow.accesses <= wide.accesses:
        return False
    if not at_or_below(wide.levels, narrow.levels):
        return False
    if narrow.grants:
        return True
    above = [narrow.head[:end] for end in range(len(narrow.head) + 1)]
    return all(at_or_below(wide.levels, one) or _stands_above(one, wide.head) for one in above)


def _stands_above(levels: Sequence[str], head: Sequence[str]) -> bool:
    return len(levels) <= len(head) and all(map(glob_covers, head, levels))


def _reached(
    wide: Sequence[Symbol],
    narrow: Sequence[Symbol],
    star: Symbol,
    covers: Callable[[Symbol, Symbol], bool],
) -> Sequence[frozenset[int]]:
    """Read `narrow` like a text: where `wide` can stand after each symbol, none included.

    Only a star takes a star, so whatever the one in `narrow` stands for is taken, too.
    """
    places = _past_stars({0}, wide, star)
    reached = [places]
    for symbol in narrow:
        after = {place for place in places if place < len(wide) and wide[place] == star}
        after |= {
            place + 1
            for place in places
            if place < len(wide) and wide[place] != star != symbol and covers(wide[place], symbol)
        }
        places = _past_stars(after, wide, star)
        reached.append(places)
    return reached


def _past_stars(places: set[int], wide: Sequence[Symbol], star: Symbol) -> frozenset[int]:
    """Add the places that are reached where stars stand for nothing."""
    found = set(places)
    for place in places:
        at = place
        while at < len(wide) and wide[at] == star:
            at += 1
            found.add(at)
    return frozenset(found)


def _char_covers(wide: str, narrow: str) -> bool:
    return wide in {"?", narrow}


def _level_covers(wide: str, narrow: str) -> bool:
    return glob_covers(wide, narrow)


def _ordered(glob: str) -> str:
    """Write `*?` as `?*`: it is the same, and compares alike."""
    return _RUN.sub(lambda run: "?" * run[0].count("?") + "*" * ("*" in run[0]), glob)


def _alternative_covers(
    wide: tuple[str, Any], narrow: tuple[str, Any], *, wide_grants: bool
) -> bool:
    (kind, what), (other_kind, other) = wide, narrow
    if kind == "equals":
        return other_kind == "equals" and _written(what) == _written(other)
    if other_kind == "equals" and isinstance(other, dict | list):
        return False
    if kind == "glob" and not what.strip("*"):
        return True
    text = _only_text(other_kind, other)
    if text is not None:
        return parse_pattern({kind: what}, grants=wide_grants).fits(text)
    if kind != other_kind or other_kind == "equals":
        return False
    if kind == "regex":
        return bool(what == other)
    # One that grants and has a `/` fits no text that climbs; so does what it covers, which has one.
    return glob_covers(what, other)


def _only_text(kind: str, what: Any) -> str | None:
    """Give the one text that an alternative fits; None if there are several, or none can tell."""
    if kind == "glob":
        return None if "*" in what or "?" in what else what
    if kind == "equals" and (what is None or isinstance(what, str | bool)):
        return text_of(what)
    return None  # a number has several spellings: 1 is 1.0


def _written(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _each(pattern: object) -> Sequence[tuple[str, Any]]:
    return [("glob" if isinstance(one, str) else "equals", one) for one in _several(pattern)]


def _several(one_or_many: object) -> Sequence[Any]:
    many = isinstance(one_or_many, list | tuple)
    return cast("Sequence[Any]", one_or_many) if many else [one_or_many]
