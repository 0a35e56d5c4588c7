"""Claim patterns: refusals overlap, grants cover, and levels are levels."""

import pytest

from laneway.claims import Claim, exclusive, shared
from laneway.errors import PolicyError
from laneway.policies.rules import Decision, Policy, Question, Rule


def refuses(pattern: str | list[str], *claims: Claim) -> bool:
    patterns = [pattern] if isinstance(pattern, str) else pattern
    policy = Policy([Rule(Decision.DENY, claims=patterns)])
    asked = Question(tool="t", arguments={}, claims=claims)
    return policy.decide(asked).decision is Decision.DENY


def grants(pattern: str | list[str], *claims: Claim) -> bool:
    patterns = [pattern] if isinstance(pattern, str) else pattern
    policy = Policy([Rule(Decision.ALLOW, claims=patterns)], otherwise=Decision.DENY)
    asked = Question(tool="t", arguments={}, claims=claims)
    return policy.decide(asked).decision is Decision.ALLOW


@pytest.mark.parametrize(
    ("pattern", "resource", "covered", "touched"),
    [
        ("file:/etc/**", "file:/etc/passwd", True, True),
        ("file:/etc/**", "file:/etc", True, True),
        ("file:/etc", "file:/etc/ssh/key", True, True),
        ("file:/etc/", "file:/etc/ssh", True, True),
        ("file:/etc/**", "file:/etcetera", False, False),
        ("file:/etc/**", "file:/", False, True),
        ("file:/etc/ssh/key", "file:/etc", False, True),
        ("file:/etc/ssh/key", "file:/etc/ssl", False, False),
        ("file:/w/*.py", "file:/w/a.py", True, True),
        ("file:/w/*.py", "file:/w/b/a.py", False, False),
        ("file:/w/*/x", "file:/w/b/x", True, True),
        ("file:/w/*/x", "file:/w/b", False, True),
        ("file:/w/?", "file:/w/ab", False, False),
        ("file:/**/*/a", "file:/a", False, False),
        ("file:/**/*/a", "file:/b/a", True, True),
        ("file:/*", "file:/", False, True),
        ("file:**/*", "file:/", False, True),
        ("file:/w/*", "file:/w", False, True),
        ("file:**", "file:/", True, True),
        ("file:/**", "file:/a/b", True, True),
        ("file:/", "file:/a/b", True, True),
        ("file:**/.env", "file:/w/a/.env", True, True),
        ("file:**/.env", "file:/.env", True, True),
        ("file:**/.env", "file:/w/x.env", False, False),
        ("file:**/.env", "file:/w", False, False),
        ("file:**/.env", "file:/", False, True),
        ("file:/w/**/.env", "file:/w", False, True),
        ("file:/w/**/.env", "file:/w/a/b/.env/c", True, True),
        ("file:/w/**/.env", "file:/w/a", False, False),
        ("file:/w/**/a/**/b", "file:/w/x/a/b/y/b", True, True),
        ("file:/w/**/a/**/b", "file:/w/x/b/a", False, False),
        ("file:/w/**/**/a", "file:/w/a", True, True),
        ("db:shop/*/42", "db:shop/orders/42", True, True),
        ("db:shop/orders", "db:shop", False, True),
        ("db:shop/orders", "db:", False, True),
        ("db:shop", "db:shop/orders", True, True),
        ("db:shop", "file:/shop", False, False),
        ("db:/", "db:shop", True, True),
        ("lane:mail", "lane:mail", True, True),
        ("lane:mail", "lane:mailbox", False, False),
        ("file:/w/a+b(c)", "file:/w/a+b(c)", True, True),
        ("file:/w/a\u00e9", "file:/w/a\u00e9", True, True),
    ],
)
def test_a_pattern_covers_what_lies_below_it_and_is_touched_from_above(
    pattern: str, resource: str, covered: bool, touched: bool
) -> None:
    assert grants(pattern, exclusive(resource)) is covered
    assert refuses(pattern, exclusive(resource)) is touched


def test_whoever_may_not_read_may_not_write_either() -> None:
    for claim in (shared("file:/k"), exclusive("file:/k")):
        assert refuses("read file:/k", claim)
        assert refuses("file:/k", claim)
    assert refuses("write file:/k", exclusive("file:/k"))
    assert not refuses("write file:/k", shared("file:/k"))


def test_whoever_may_write_may_read_too() -> None:
    for claim in (shared("file:/k"), exclusive("file:/k")):
        assert grants("write file:/k", claim)
        assert grants("file:/k", claim)
    assert grants("read file:/k", shared("file:/k"))
    assert not grants("read file:/k", exclusive("file:/k"))


def test_a_refusal_needs_one_claim_and_a_grant_needs_all() -> None:
    copy = (shared("file:/etc/passwd"), exclusive("file:/w/a"))

    assert refuses("file:/etc", *copy)
    assert not grants("write file:/w", *copy)
    assert grants(["write file:/w", "read file:/etc"], *copy)


def test_a_grant_needs_no_cover_for_lanes_and_runs_but_something_to_cover() -> None:
    order = (exclusive("lane:mail"), shared("run:fix-42"))

    assert grants("write file:/w", exclusive("file:/w/a"), *order)
    assert not grants("write file:/w", *order)
    assert not grants("write file:/w")
    assert grants(["lane:mail", "run:*"], *order)


def test_a_call_that_claims_nothing_is_touched_by_no_pattern() -> None:
    assert not refuses("file:**")


def test_many_patterns_over_claims_share_a_look() -> None:
    policy = Policy([Rule(Decision.DENY, claims=[f"write file:/w/{i}"]) for i in range(40)])
    asked = Question(
        tool="t", arguments=None, claims=(shared("file:/w/3"), exclusive("file:/w/7/x"))
    )

    assert policy.decide(asked).rule == "rule 8"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "/etc/**",
            (
                "claim pattern '/etc/**': write an access and a resource, such as "
                "'write file:/etc/**', 'read db:shop/*' or 'lane:mail'"
            ),
        ),
        (
            "exclusive file:/etc",
            (
                "claim pattern 'exclusive file:/etc': write an access and a resource, such as "
                "'write file:/etc/**', 'read db:shop/*' or 'lane:mail'"
            ),
        ),
        (
            "write file:",
            (
                "claim pattern 'write file:': write an access and a resource, such as "
                "'write file:/etc/**', 'read db:shop/*' or 'lane:mail'"
            ),
        ),
        (
            "write file:src/**",
            (
                "claim pattern 'write file:src/**': claims hold absolute paths, so a relative one "
                "never fits; write 'file:/…/src/**' or 'file:**/src/**'"
            ),
        ),
        (
            "file:/a/../b",
            (
                "claim pattern 'file:/a/../b': claims hold canonical resources, in which '.', '..' "
                "and '//' do not occur, so it never fits"
            ),
        ),
        (
            "file:/a//b",
            (
                "claim pattern 'file:/a//b': claims hold canonical resources, in which '.', '..' "
                "and '//' do not occur, so it never fits"
            ),
        ),
        ("file:/a/**.py", "claim pattern 'file:/a/**.py': '**' must be a level of its own"),
        (
            "db:" + "a/" * 64 + "a",
            f"claim pattern {'db:' + 'a/' * 64 + 'a'!r}: it has more than 64 levels",
        ),
    ],
)
def test_a_claim_pattern_that_could_never_fit_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy([Rule(Decision.DENY, claims=[pattern])])

    assert str(caught.value) == f"rule 1: claims: {message}"
