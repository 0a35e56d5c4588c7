"""What an approval binds, when it ends, and what its answer comes to."""

import math
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway.claims import exclusive, shared
from laneway.errors import UsageError
from laneway.facts import ApprovalAnswered, ApprovalAsked
from laneway.ids import ApprovalId, CallId, call_id
from laneway.policies.approvals import (
    EXPIRY_SECONDS,
    FAR_WALL,
    Standing,
    approval_id,
    digest,
    expired,
    expiry,
    standing,
)

GOLDEN = "8fbc6d137d4489197562e91036975d1fd89bd04cde6f3062dc0a4975cc1b7fd2"
CALL, APPROVAL = CallId("t1.1"), ApprovalId("t1.1.a1")
ASKED = ApprovalAsked(
    call=CALL,
    approval=APPROVAL,
    digest="d1",
    arguments={"v": 7},
    rule="policy.toml:3 (deploys)",
    expires_wall=1000.0,
)


def answered(*, granted: bool) -> ApprovalAnswered:
    return ApprovalAnswered(call=CALL, approval=APPROVAL, granted=granted)


def test_the_digest_is_the_same_whatever_the_order_of_keys_and_claims() -> None:
    a, b = exclusive("file:/a"), shared("file:/b")

    one = digest("edit", "1", {"x": 1, "y": {"p": 2, "q": 3}}, [a, b])
    other = digest("edit", "1", {"y": {"q": 3, "p": 2}, "x": 1}, [b, a, b])

    assert one == other
    assert len(one) == 64


def test_the_digest_changes_with_anything_that_would_run_otherwise() -> None:
    claims = [exclusive("file:/a")]
    digests = {
        digest("edit", "1", {"x": 1}, claims),
        digest("edit2", "1", {"x": 1}, claims),
        digest("edit", "2", {"x": 1}, claims),
        digest("edit", "1", {"x": 2}, claims),
        digest("edit", "1", {"x": "1"}, claims),
        digest("edit", "1", {"x": 1.0}, claims),
        digest("edit", "1", {"x": True}, claims),
        digest("edit", "1", {"x": 1, "y": None}, claims),
        digest("edit", "1", {"x": 1}, [shared("file:/a")]),
        digest("edit", "1", {"x": 1}, []),
    }

    assert len(digests) == 10


def test_the_digest_is_the_same_in_every_release() -> None:
    found = digest("edit", "v1", {"b": [1, "é"], "a": None}, [exclusive("file:/w/a")])

    assert found == GOLDEN


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(json_values, json_values)
def test_two_digests_are_equal_exactly_when_the_arguments_are(one: object, other: object) -> None:
    same = digest("t", "1", {"x": one}, []) == digest("t", "1", {"x": other}, [])

    assert same is (repr_sorted(one) == repr_sorted(other))


def repr_sorted(value: Any) -> str:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return "{}" + repr(sorted((name, repr_sorted(inner)) for name, inner in fields.items()))
    if isinstance(value, list):
        items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return repr([repr_sorted(inner) for inner in items])
    return repr(value)


def test_an_approval_is_named_after_its_call_the_same_after_a_restart() -> None:
    assert approval_id(call_id(3, 2), 1) == "t3.2.a1"
    assert approval_id(call_id(3, 2), 2) == "t3.2.a2"


def test_a_question_ends_after_an_hour_at_its_very_second() -> None:
    ends = expiry(100.0)

    assert ends == 100.0 + EXPIRY_SECONDS == 3700.0
    assert not expired(ends, 3699.9)
    assert expired(ends, 3700.0)


def test_a_question_may_stay_open_for_ever_and_still_be_written_as_json() -> None:
    assert expiry(100.0, math.inf) == FAR_WALL
    assert math.isfinite(FAR_WALL)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_an_expiry_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError) as caught:
        expiry(100.0, seconds)

    assert str(caught.value) == (
        f"an approval cannot expire after {seconds} seconds; give a positive number, "
        "or math.inf for one that never expires"
    )


@pytest.mark.parametrize(
    ("granted", "digest_now", "wall", "expected"),
    [
        (None, "d1", 999.0, Standing.OPEN),
        (None, "d2", 999.0, Standing.OPEN),
        (None, "d1", 1000.0, Standing.EXPIRED),
        (True, "d1", 999.0, Standing.GRANTED),
        (True, "d1", 1000.0, Standing.EXPIRED),
        (True, "d2", 999.0, Standing.STALE),
        (False, "d1", 999.0, Standing.REFUSED),
        (False, "d2", 999.0, Standing.REFUSED),
        (False, "d1", 1000.0, Standing.EXPIRED),
    ],
)
def test_an_answer_counts_in_time_and_for_the_very_call_only(
    granted: bool | None, digest_now: str, wall: float, expected: Standing
) -> None:
    answer = None if granted is None else answered(granted=granted)

    assert standing(ASKED, answer, digest_now=digest_now, wall=wall) is expected
