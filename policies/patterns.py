"""What must stand at the end of a path into arguments: a glob, a regular expression, a JSON value.

Reads what a person wrote, as TOML or as objects; feeds the conditions on arguments.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from laneway.policies.globs import TextTest, checked_regex, glob_regex, text_test

ValueTest = Callable[[Any], bool]

MATCHERS: Final = frozenset({"glob", "regex", "equals", "missing"})
"""The keys of a pattern written as a table."""

_CLIMBS = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)").search


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled pattern."""

    fits: ValueTest
    """Tests one value: one that holds no others, unless `whole` says so."""
    fits_text: TextTest | None = None
    """The same for a value that is a text, by a shorter way."""
    needs: str = ""
    """A regular expression that the text of a value fits if the pattern does; empty if none."""
    whole: bool = False
    """Meant for a list or object itself, not for the values in it."""
    missing: bool = False
    """Fits where there is nothing, too."""


def parse_pattern(pattern: object, /, *, grants: bool) -> Pattern:
    """Compile a pattern.

    Args:
        pattern: A text is a glob; a number or truth value is meant as it is; a list holds
            alternatives; a table holds one of `glob`, `regex`, `equals`, and may say
            `missing = true`: fits, too, where there is no such argument.
        grants: The pattern is part of a grant. Then a regex must fit the whole text, and a glob
            with a `/` fits no text that climbs with `..`: `src/*` would grant `src/../../etc`.

    Raises:
        ValueError: it cannot be read, or fits nothing or everything.
    """
    match pattern:
        case Mapping():
            return _table(cast("Mapping[str, object]", pattern), grants=grants)
        case list() | tuple():
            return _alternatives(cast("Sequence[object]", pattern), grants=grants)
        case _:
            return _alternatives([pattern], grants=grants)


def text_of(value: Any, /) -> str:
    """Write a value that holds no others as the text that patterns see."""
    return value if type(value) is str else msgspec.json.encode(value).decode()


def _table(table: Mapping[str, object], *, grants: bool) -> Pattern:
    missing = table.get("missing", False)
    if missing is not True and missing is not False:
        raise ValueError(f"missing must be true or false, not {missing!r}")
    for key in table:
        if key not in MATCHERS:
            raise ValueError(
                f"unknown key {key!r}; a pattern holds one of glob, regex and equals, "
                "and may hold missing"
            )
    match [key for key in ("glob", "regex", "equals") if key in table]:
        case ["glob"]:
            found = _globs(_texts("glob", table["glob"]), grants=grants)
        case ["regex"]:
            texts = _texts("regex", table["regex"])
            found = _regexes([checked_regex(text, whole=grants) for text in texts])
        case ["equals"]:
            found = _equal(table["equals"])
        case [] if missing:
            found = Pattern(fits=lambda _: False)
        case _:
            raise ValueError("a pattern holds exactly one of glob, regex and equals")
    return msgspec.structs.replace(found, missing=missing)


def _alternatives(patterns: Sequence[object], *, grants: bool) -> Pattern:
    if not patterns:
        raise ValueError("an empty list fits nothing; leave the argument out instead")
    globs = [one for one in patterns if isinstance(one, str)]
    others = [one for one in patterns if not isinstance(one, str)]
    strange = [one for one in others if not isinstance(one, bool | int | float)]
    if strange:
        raise ValueError(
            f"{strange[0]!r} is no pattern; write a text, a number, true, false, a list of those, "
            "or a table with glob, regex or equals"
        )
    found = [_globs(globs, grants=grants)] if globs else []
    found += map(_equal, others)
    if len(found) == 1:
        return found[0]
    tests = [pattern.fits for pattern in found]
    return Pattern(fits=lambda value: any(fits(value) for fits in tests))


def _texts(kind: str, wanted: object) -> Sequence[str]:
    many = cast("Sequence[object]", wanted) if isinstance(wanted, list | tuple) else [wanted]
    texts = [one for one in many if isinstance(one, str)]
    if not texts or len(texts) != len(many):
        raise ValueError(f"{kind} must be a text or a list of texts, not {wanted!r}")
    return texts


def _globs(patterns: Sequence[str], *, grants: bool) -> Pattern:
    if "" in patterns:
        raise ValueError('an empty pattern fits nothing; for the empty text write { equals = "" }')
    plain = [glob_regex(one) for one in patterns if not (grants and "/" in one)]
    paths = [glob_regex(one) for one in patterns if grants and "/" in one]
    if not paths:
        return _regexes(plain)
    fits_path = text_test(paths)
    fits_plain = text_test(plain) if plain else None

    def fits(text: str) -> bool:
        if fits_plain and fits_plain(text):
            return True
        return fits_path(text) and not _CLIMBS(text)

    return _on_text(fits, plain + paths)


def _regexes(regexes: Sequence[str]) -> Pattern:
    return _on_text(text_test(regexes), regexes)


def _on_text(fits: TextTest, regexes: Sequence[str]) -> Pattern:
    return Pattern(fits=lambda value: fits(text_of(value)), fits_text=fits, needs="|".join(regexes))


def _equal(wanted: object) -> Pattern:
    if wanted != wanted or not _is_json(wanted):  # noqa: PLR0124 - NaN alone differs from itself
        raise ValueError(f"equals must be a JSON value, not {wanted!r}")
    whole = isinstance(wanted, Mapping | list | tuple)
    return Pattern(fits=lambda value: _same(value, wanted), whole=whole)


def _is_json(value: object) -> bool:
    match value:
        case Mapping():
            fields = cast("Mapping[object, object]", value)
            return all(isinstance(name, str) and _is_json(inner) for name, inner in fields.items())
        case list() | tuple():
            return all(map(_is_json, cast("Sequence[object]", value)))
        case _:
            return value is None or isinstance(value, str | bool | int | float)


def _same(value: object, wanted: object) -> bool:
    """Compare as JSON does: true is not 1, but 1 is 1.0. Goes as deep as what is wanted."""
    match wanted:
        case Mapping():
            fields = cast("Mapping[str, object]", wanted)
            found = cast("Mapping[str, object]", value if isinstance(value, Mapping) else {})
            return (
                isinstance(value, Mapping)
                and found.keys() == fields.keys()
                and all(_same(found[name], inner) for name, inner in fields.items())
            )
        case list() | tuple():
            items = cast("Sequence[object]", wanted)
            entries = cast("Sequence[object]", value if isinstance(value, list | tuple) else ())
            return (
                isinstance(value, list | tuple)
                and len(entries) == len(items)
                and all(map(_same, entries, items))
            )
        case _:
            return isinstance(value, bool) is isinstance(wanted, bool) and value == wanted
