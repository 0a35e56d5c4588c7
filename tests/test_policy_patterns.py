"""Globs, expressions and values over arguments: what fits, what must not, what is refused."""

import time
from typing import Any

import pytest

from laneway.errors import PolicyError
from laneway.policies.rules import Decision, Policy, Question, Rule


def refuses(arguments: dict[str, Any], patterns: dict[str, object]) -> bool:
    """Whether a denying rule with these patterns meets a call with these arguments."""
    policy = Policy([Rule(Decision.DENY, tools=["*"], arguments=patterns)])
    return policy.decide(Question(tool="t", arguments=arguments)).decision is Decision.DENY


def grants(arguments: dict[str, Any], patterns: dict[str, object]) -> bool:
    """Whether an allowing rule with these patterns meets a call with these arguments."""
    rule = Rule(Decision.ALLOW, tools=["*"], arguments=patterns)
    policy = Policy([rule], otherwise=Decision.DENY)
    return policy.decide(Question(tool="t", arguments=arguments)).decision is Decision.ALLOW


def both(arguments: dict[str, Any], patterns: dict[str, object]) -> bool:
    """Ask a denying and an allowing rule, which must agree over a single value."""
    (answer,) = {refuses(arguments, patterns), grants(arguments, patterns)}
    return answer


@pytest.mark.parametrize(
    ("glob", "text", "fits"),
    [
        ("abc", "abc", True),
        ("abc", "abcd", False),
        ("abc", "ABC", False),
        ("a*", "a", True),
        ("a*", "abc/d\ne", True),
        ("*c", "abc", True),
        ("*b*", "abc", True),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abcd", False),
        ("a**c", "abc", True),
        ("a?c", "abc", True),
        ("a?c", "a\nc", True),
        ("a?c", "ac", False),
        ("a?c", "aéc", True),
        ("*", "", True),
        ("?", "", False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("$(x) {1} \\ ^|+", "$(x) {1} \\ ^|+", True),
        ("rm *", "rm -rf /\nls", True),
        ("rm *", "rmdir", False),
    ],
)
def test_a_glob_fits_the_whole_text(glob: str, text: str, fits: bool) -> None:
    assert both({"x": text}, {"x": glob}) is fits


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        ("5", 5, True),
        ("5*", 512, True),
        ("5", "5", True),
        ("true", True, True),
        ("null", None, True),
        ("1.5", 1.5, True),
        (5, 5, True),
        (5, 5.0, True),
        (5, "5", False),
        (1, True, False),
        (True, 1, False),
        (True, True, True),
        (["a", "b*", 7], "bc", True),
        (["a", "b*", 7], 7, True),
        (["a", "b*", 7], "c", False),
        ({"glob": ["a", "b"]}, "b", True),
        ({"equals": "a*"}, "a*", True),
        ({"equals": "a*"}, "ab", False),
        ({"equals": None}, None, True),
        ({"equals": ""}, "", True),
    ],
)
def test_a_pattern_over_one_value(pattern: object, value: object, fits: bool) -> None:
    assert both({"x": value}, {"x": pattern}) is fits


@pytest.mark.parametrize(
    ("wanted", "value", "fits"),
    [
        ([1, "a"], [1, "a"], True),
        ([1, "a"], [1], False),
        ([1], [True], False),
        ([1], 1, False),
        ([], [], True),
        ({"a": [1.0]}, {"a": [1]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, [1], False),
        ({}, {}, True),
    ],
)
def test_equals_compares_lists_and_objects_as_a_whole(
    wanted: object, value: object, fits: bool
) -> None:
    assert both({"x": value}, {"x": {"equals": wanted}}) is fits
    assert both({"y": {"x": value}}, {"y.x": {"equals": wanted}}) is fits


def test_a_refusal_needs_one_value_of_a_list_and_a_grant_needs_all() -> None:
    mixed = {"to": ["ann@us.example", "eve@evil.example"]}

    assert refuses(mixed, {"to": "*@evil.example"})
    assert not grants(mixed, {"to": "*@us.example"})
    assert grants({"to": ["a@us.example", "b@us.example"]}, {"to": "*@us.example"})
    assert grants({"to": ["a@us.example", "b@de.example"]}, {"to": ["*@us.*", "*@de.*"]})


def test_an_empty_list_is_no_value() -> None:
    empties: list[Any] = [[], {}, [[], {}]]
    for empty in empties:
        assert not both({"to": empty}, {"to": "*"})
    assert not grants({"to": ["a", []]}, {"to": "*"})


def test_values_are_found_however_deep_they_lie() -> None:
    deep: Any = "needle"
    for _ in range(5000):
        deep = [deep]

    assert both({"x": deep}, {"x": "needle"})
    assert refuses({"x": {"a": [{"b": "needle"}, "hay"]}}, {"x": "needle"})


@pytest.mark.parametrize(
    ("path", "refused", "granted"),
    [
        ("user.name", True, True),
        ("edits[1].file", True, True),
        ("edits[0].file", False, False),
        ("edits[2].file", False, False),
        ("edits[*].file", True, False),
        ("edits.file", False, False),
        ("edits[*].nothing", False, False),
        ("user[0]", False, False),
        ("user.name.first", False, False),
        ("user.name[*]", False, False),
        ("*", True, False),
        ("user.*", True, True),
        ('["a.b"]', True, True),
        ('user["name"]', True, True),
        ("a.b", False, False),
    ],
)
def test_a_path_leads_into_the_arguments(path: str, refused: bool, granted: bool) -> None:
    arguments = {
        "user": {"name": "secret"},
        "edits": [{"file": "open"}, {"file": "secret"}],
        "a.b": "secret",
    }

    assert refuses(arguments, {path: "secret"}) is refused
    assert grants(arguments, {path: "secret"}) is granted


def test_a_grant_over_each_element_wants_the_field_in_all_of_them() -> None:
    arguments = {"edits": [{"file": "a"}, {"path": "b"}]}

    assert not grants(arguments, {"edits[*].file": "a"})
    assert refuses(arguments, {"edits[*].file": "a"})


def test_nested_tables_are_paths() -> None:
    assert both({"user": {"name": "x"}}, {"user": {"name": "x"}})
    assert not both({"user": {"name": "y"}}, {"user": {"name": "x"}})


def test_a_field_called_like_a_matcher_is_reached_by_its_path() -> None:
    assert both({"query": {"regex": "x"}}, {"query.regex": "x"})


@pytest.mark.parametrize(
    ("pattern", "missing", "present"),
    [
        ("*", False, True),
        ({"glob": "a*", "missing": True}, True, True),
        ({"glob": "b*", "missing": True}, True, False),
        ({"regex": "b", "missing": True}, True, True),
        ({"glob": "a*", "missing": False}, False, True),
        ({"equals": "abc", "missing": True}, True, True),
        ({"missing": True}, True, False),
    ],
)
def test_a_missing_argument_fits_only_where_the_pattern_says_so(
    pattern: object, missing: bool, present: bool
) -> None:
    assert both({}, {"x": pattern}) is missing
    assert both({"x": []}, {"x": pattern}) is missing
    assert both({"y": 1}, {"y.x": pattern}) is missing
    assert refuses({"x": "abc"}, {"x": pattern}) is present


def test_an_expression_is_found_anywhere_by_a_refusal_and_fits_the_whole_for_a_grant() -> None:
    pattern = {"regex": r"git (status|log)"}

    assert refuses({"cmd": "rm -rf / # git status"}, {"cmd": pattern})
    assert not grants({"cmd": "rm -rf / # git status"}, {"cmd": pattern})
    assert not grants({"cmd": "git status\nrm -rf /"}, {"cmd": pattern})
    assert grants({"cmd": "git log"}, {"cmd": pattern})
    assert not grants({"cmd": "xb"}, {"cmd": {"regex": "^a|b$"}})


def test_an_expression_may_ignore_case_and_give_alternatives() -> None:
    assert both({"x": "ABC"}, {"x": {"regex": "(?i)abc"}})
    assert both({"x": "ABC"}, {"x": {"regex": "A(?i:b)C"}})
    assert both({"x": "(?x"}, {"x": {"regex": [r"\(\?x", "y"]}})
    assert both({"x": "y"}, {"x": {"regex": [r"\(\?x", "y"]}})
    assert refuses({"x": "a\nb"}, {"x": {"regex": r"a[\s\S]b"}})


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*$", "(.*a){20}", "a*a*a*a*a*a*a*a*b", "^(([a-z])+.)+[A-Z]([a-z])+$"],
)
def test_no_expression_explodes_on_what_a_model_wrote(pattern: str) -> None:
    text = "a" * 50_000 + "!"
    policy = Policy([Rule(Decision.DENY, arguments={"x": {"regex": pattern}})])

    began = time.process_time()
    policy.decide(Question(tool="t", arguments={"x": text}))

    assert time.process_time() - began < 5.0


def test_no_glob_explodes_on_what_a_model_wrote() -> None:
    text = "a" * 50_000 + "!"
    policy = Policy([Rule(Decision.DENY, arguments={"x": "*a" * 30 + "*b"})])

    began = time.process_time()
    policy.decide(Question(tool="t", arguments={"x": text}))

    assert time.process_time() - began < 5.0


@pytest.mark.parametrize(
    "text", ["src/../../etc/passwd", "src/..", "src/a/../b", "src/\\..\\x", "src/a\\.."]
)
def test_a_grant_over_a_path_fits_no_text_that_climbs(text: str) -> None:
    assert not grants({"path": text}, {"path": "src/*"})
    assert not grants({"path": text}, {"path": ["lib", "src/*"]})
    assert refuses({"path": text}, {"path": "src/*"})


def test_a_grant_over_a_path_fits_dots_that_do_not_climb() -> None:
    assert grants({"path": "src/a..b/...c"}, {"path": "src/*"})
    assert grants({"path": "lib"}, {"path": ["lib", "src/*"]})


def test_a_lone_surrogate_in_an_argument_breaks_nothing() -> None:
    assert both({"x": "a\ud800b"}, {"x": "a*b"})
    assert refuses({"x": "a\ud800b"}, {"x": {"regex": "b$"}})


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (
            {"x": ""},
            'arguments.x: an empty pattern fits nothing; for the empty text write { equals = "" }',
        ),
        ({"x": []}, "arguments.x: an empty list fits nothing; leave the argument out instead"),
        (
            {"x": [["a"]]},
            (
                "arguments.x: ['a'] is no pattern; write a text, a number, true, false, a list of "
                "those, or a table with glob, regex or equals"
            ),
        ),
        (
            {"x": None},
            (
                "arguments.x: None is no pattern; write a text, a number, true, false, a list of "
                "those, or a table with glob, regex or equals"
            ),
        ),
        (
            {"x": {"regex": "a", "flags": "i"}},
            (
                "arguments.x: unknown key 'flags'; a pattern holds one of glob, regex and equals, "
                "and may hold missing"
            ),
        ),
        ({"x": {}}, "arguments.x: a pattern holds exactly one of glob, regex and equals"),
        (
            {"x": {"glob": "a", "regex": "b"}},
            "arguments.x: a pattern holds exactly one of glob, regex and equals",
        ),
        (
            {"x": {"missing": False}},
            "arguments.x: a pattern holds exactly one of glob, regex and equals",
        ),
        (
            {"x": {"glob": "a", "missing": "yes"}},
            "arguments.x: missing must be true or false, not 'yes'",
        ),
        (
            {"x": {"glob": 5}},
            "arguments.x: glob must be a text or a list of texts, not 5",
        ),
        (
            {"x": {"regex": []}},
            "arguments.x: regex must be a text or a list of texts, not []",
        ),
        (
            {"x": {"equals": float("nan")}},
            "arguments.x: equals must be a JSON value, not nan",
        ),
        (
            {"x": {"equals": {"a": [b"x"]}}},
            "arguments.x: equals must be a JSON value, not {'a': [b'x']}",
        ),
        (
            {"x": {"regex": ""}},
            "arguments.x: an empty regex fits everything; leave the argument out instead",
        ),
        (
            {"x": {"regex": "a("}},
            "arguments.x: regex 'a(': missing ), unterminated subpattern at position 1",
        ),
        (
            {"x": {"regex": r"(a)\1"}},
            (
                r"arguments.x: regex '(a)\\1': look-around, back-references and very large "
                "repetitions are not available, because matching must take linear time"
            ),
        ),
        (
            {"x": {"regex": "(?=a)b"}},
            (
                "arguments.x: regex '(?=a)b': '(?=a)' is not available; there are (…), (?:…), (?i) "
                r"and (?i:…), and [\s\S] for any character, line breaks too"
            ),
        ),
        (
            {"x": {"regex": "(?s)a.b"}},
            (
                "arguments.x: regex '(?s)a.b': '(?s)' is not available; there are (…), (?:…), (?i) "
                r"and (?i:…), and [\s\S] for any character, line breaks too"
            ),
        ),
        (
            {"a..b": "x"},
            (
                "arguments.a..b: argument path 'a..b' cannot be read at '..b'; write it like path, "
                'user.name, edits[0].file, edits[*].file, * or ["a.b"]'
            ),
        ),
        (
            {"": "x"},
            (
                "arguments.: argument path '' cannot be read at ''; write it like path, "
                'user.name, edits[0].file, edits[*].file, * or ["a.b"]'
            ),
        ),
        (
            {"a[x]": "x"},
            (
                "arguments.a[x]: argument path 'a[x]' cannot be read at '[x]'; write it like path, "
                'user.name, edits[0].file, edits[*].file, * or ["a.b"]'
            ),
        ),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(
    patterns: dict[str, object], message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy([Rule(Decision.DENY, arguments=patterns)])

    assert str(caught.value) == f"rule 1: {message}"
