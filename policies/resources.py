"""Patterns over claims: `write file:/etc/**` against what a call takes.

Resources are hierarchical, and so is a pattern: it names resources and all that is below them.
`*` stays inside one level, `**` stands for any number of levels. A rule that refuses is touched
by a claim that overlaps the pattern, from above too: whoever takes `file:/` takes `file:/etc`.
A rule that grants must cover the claim. Reads claims; feeds the conditions of rules.
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from laneway.claims import Access, Claim
from laneway.policies.globs import ANYTHING, glob_regex, text_test

ClaimsTest = Callable[[Sequence[Claim]], bool]
"""Whether the claims of a call fit."""


class ClaimsCondition(msgspec.Struct, frozen=True):
    """What a rule wants of the claims."""

    test: ClaimsTest
    needs: str
    """A regular expression that the resource of at least one claim must fit, or the test fails."""


_PATTERN = re.compile(r"(?:(read|write)\s+)?([a-z][a-z0-9+.-]*):(\S.*)?")
_OF_THE_SCHEDULER = ("lane:", "run:", "inode:")
_LEVELS_MAX = 64
_BELOW = f"(?:/{ANYTHING})?"


def claims_condition(patterns: Sequence[str], /, *, grants: bool) -> ClaimsCondition:
    """Compile the claim patterns of one rule.

    A pattern is an access and a resource. An exclusive claim includes shared access, so a
    refusal of `read` also meets writers, and a grant of `write` also covers readers. Without
    a word, any access is meant.

    Args:
        patterns: At least one.
        grants: The rule grants: each claim must be covered, and there must be one. Claims on
            `lane:`, `run:` and `inode:`, by which the scheduler keeps order, need no cover.

    Raises:
        ValueError: a pattern cannot be read, or could never fit a canonical resource.
    """
    special = Access.SHARED if grants else Access.EXCLUSIVE
    word = "read" if grants else "write"
    regex = _covering if grants else _touching
    parsed = [_parse(pattern) for pattern in patterns]
    narrow = [regex(scheme, levels) for access, scheme, levels in parsed if access == word]
    wide = [regex(scheme, levels) for access, scheme, levels in parsed if access != word]
    fits = _claim_test(narrow, wide, special)
    return ClaimsCondition(_all_fit(fits) if grants else _any_fits(fits), "|".join(narrow + wide))


def _claim_test(
    narrow: Sequence[str], wide: Sequence[str], special: Access
) -> Callable[[Claim], bool]:
    """Test one claim: `narrow` patterns count for one access only."""
    fits_narrow = text_test(narrow) if narrow else None
    fits_wide = text_test(wide) if wide else None

    def test(claim: Claim) -> bool:
        if fits_wide and fits_wide(claim.resource):
            return True
        return bool(fits_narrow and claim.access is special and fits_narrow(claim.resource))

    return test


def _any_fits(fits: Callable[[Claim], bool]) -> ClaimsTest:
    def test(claims: Sequence[Claim]) -> bool:
        for claim in claims:  # noqa: SIM110 - any() would cost more than the one claim there is
            if fits(claim):
                return True
        return False

    return test


def _all_fit(fits: Callable[[Claim], bool]) -> ClaimsTest:
    def test(claims: Sequence[Claim]) -> bool:
        real = [claim for claim in claims if not claim.resource.startswith(_OF_THE_SCHEDULER)]
        named = real or claims
        return bool(named) and all(map(fits, named))

    return test


def _covering(scheme: str, levels: Sequence[str]) -> str:
    """Fit what the pattern names, and all below it."""
    head, tail = _split(levels)
    named = "/".join(head)
    if tail:
        return f"{scheme}:/?{named}{'/' if named else ''}{tail}{_BELOW}"
    if named:
        return f"{scheme}:/?{named}{_BELOW}"
    return f"{scheme}:{ANYTHING}"


def _touching(scheme: str, levels: Sequence[str]) -> str:
    """Fit what the pattern names, all below it, and all above it up to its first `**`."""
    head, tail = _split(levels)
    regex = f"{tail}{_BELOW}" if tail else ANYTHING
    for level in reversed(head):
        regex = f"{level}(?:/{regex})?"
    return f"{scheme}:/?(?:{regex})?"


def _split(levels: Sequence[str]) -> tuple[Sequence[str], str]:
    """Part the levels before the first `**` from a regular expression for the rest.

    The rest is empty where nothing but `**` follows: all below is meant anyway.
    """
    until = levels.index("**") if "**" in levels else len(levels)
    rest = list(levels[until:])
    while rest and rest[-1] == "**":
        rest.pop()
    tail = "".join("(?:[^/]+/)*" if level == "**" else f"{_level(level)}/" for level in rest)
    return [_level(level) for level in levels[:until]], tail.removesuffix("/")


def _level(pattern: str) -> str:
    """Fit one level, which is never empty: else `/a` would have a level before its slash."""
    return "[^/]+" if not pattern.strip("*") else glob_regex(pattern, "[^/]")


def _parse(pattern: str) -> tuple[str, str, Sequence[str]]:
    found = _PATTERN.fullmatch(pattern)
    if found is None or not found[3]:
        raise ValueError(
            f"claim pattern {pattern!r}: write an access and a resource, "
            "such as 'write file:/etc/**', 'read db:shop/*' or 'lane:mail'"
        )
    access, scheme, path = found[1] or "", found[2], found[3]
    if scheme == "file" and not path.startswith(("/", "**")):
        raise ValueError(
            f"claim pattern {pattern!r}: claims hold absolute paths, so a relative one never fits; "
            f"write 'file:/…/{path}' or 'file:**/{path}'"
        )
    trimmed = path.removeprefix("/").removesuffix("/")
    levels = trimmed.split("/") if trimmed else []
    if any(level in {"", ".", ".."} for level in levels):
        raise ValueError(
            f"claim pattern {pattern!r}: claims hold canonical resources, in which '.', '..' and "
            "'//' do not occur, so it never fits"
        )
    if any("**" in level and level != "**" for level in levels):
        raise ValueError(f"claim pattern {pattern!r}: '**' must be a level of its own")
    if len(levels) > _LEVELS_MAX:
        raise ValueError(f"claim pattern {pattern!r}: it has more than {_LEVELS_MAX} levels")
    return access, scheme, levels
