"""Conditions on arguments: a path into the call's JSON, and the pattern that must fit there.

A rule that refuses needs one value that fits, a rule that grants needs every value to fit: else a
list with one harmless entry would carry the others along. Reads checked arguments; feeds the
conditions of rules.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from laneway.policies.paths import ABSENT, Step, ends, leaves, parse_path
from laneway.policies.patterns import MATCHERS, Pattern, parse_pattern, text_of

Arguments = Mapping[str, Any]


class ArgumentCondition(msgspec.Struct, frozen=True):
    """What a rule wants of one argument."""

    test: Callable[[Arguments], bool]
    name: str = ""
    """The argument that `needs` speaks of."""
    needs: str = ""
    """A regular expression that one text in that argument fits if the test holds; empty if none."""


def argument_condition(path: str, pattern: object, /, *, grants: bool) -> ArgumentCondition:
    """Compile the condition on one argument.

    Args:
        path: `path`, `user.name`, `edits[0].file`, `edits[*].file`, `*`, `["a.b"]`. Where it
            ends in a list or object, all values in there are meant, but not the names of fields.
        pattern: As `laneway.policies.patterns.parse_pattern` reads it.
        grants: The rule grants: every value must fit, instead of any.

    Raises:
        ValueError: path or pattern cannot be read.
    """
    steps = parse_path(path)
    wanted = parse_pattern(pattern, grants=grants)
    walk = _walking(steps, wanted, every=grants)
    match steps:
        case [str(name)] if not wanted.whole:
            needs = "" if wanted.missing else wanted.needs
            return ArgumentCondition(_direct(name, wanted, walk), name, needs)
        case _:
            return ArgumentCondition(walk)


def flatten(arguments: Mapping[str, object], /) -> Iterator[tuple[str, object]]:
    """Turn nested tables into paths: TOML reads `a.b = …` as a table `b` inside `a`."""
    for name, pattern in arguments.items():
        if isinstance(pattern, Mapping):
            table = cast("Mapping[str, object]", pattern)
            if table and not MATCHERS & table.keys():
                yield from ((f"{name}.{path}", inner) for path, inner in flatten(table))
                continue
        yield name, pattern


def texts_in(arguments: Arguments, name: str, /) -> Sequence[str]:
    """Give all texts in one argument, as patterns see them."""
    value = arguments.get(name, ABSENT)
    if type(value) is str:
        return (value,)
    return [text_of(leaf) for leaf in leaves(value) if leaf is not ABSENT]


def _direct(
    name: str, wanted: Pattern, walk: Callable[[Arguments], bool]
) -> Callable[[Arguments], bool]:
    """Test an argument that is nearly always one text."""
    fits, missing = wanted.fits_text or wanted.fits, wanted.missing

    def test(arguments: Arguments) -> bool:
        value = arguments.get(name, ABSENT)
        if type(value) is str:
            return fits(value)
        return missing if value is ABSENT else walk(arguments)

    return test


def _walking(steps: Sequence[Step], wanted: Pattern, *, every: bool) -> Callable[[Arguments], bool]:
    combine = all if every else any

    def test(arguments: Arguments) -> bool:
        return combine(
            wanted.missing if value is ABSENT else wanted.fits(value)
            for end in ends(arguments, steps)
            for value in ((end,) if wanted.whole else leaves(end))
        )

    return test
