"""What a budget is, and its books: pure, exact, and never overrun."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from laneway import UNLIMITED, Budget, Budgets, Price
from laneway.errors import UsageError
from laneway.policies.budgets import Limit, Scope, Unit, limit_of, limits, micros
from laneway.policies.ledger import (
    Line,
    Refused,
    Reserved,
    Wants,
    concerns,
    exceeded,
    hold,
    release,
    reserve,
    settle,
    told,
)
from laneway.policies.prices import Tokens


def line(limit: float, unit: Unit = Unit.TOOL_CALLS, scope: Scope = Scope.RUN) -> Line:
    given = Limit(unit, scope, "", limit)
    return Line(limit=given, key=given.key)


def found(budgets: Budgets, run: Budgets | None = None, *, nested: bool = False) -> dict[str, Any]:
    return {limit.key: limit.limit for limit in limits(budgets, run, nested=nested)}


# What a host gives


def test_the_three_hard_caps_have_a_value_of_which_nothing_was_said() -> None:
    caps = found(Budgets())

    assert caps["model_turns"] == 100
    assert caps["tokens"] == 2_000_000
    assert caps["seconds"] == 900
    assert caps["tool_calls"] == caps["attempts"] == caps["cost"] == math.inf


@pytest.mark.parametrize("unit", ["model_turns", "tokens", "seconds"])
def test_a_hard_cap_is_lifted_by_name_and_by_nothing_else(unit: str) -> None:
    lifted: dict[str, Any] = {unit: UNLIMITED}

    assert found(Budgets(**lifted))[unit] == math.inf
    assert found(Budgets(), Budgets(**lifted))[unit] == math.inf
    assert found(Budgets(), Budgets())[unit] < math.inf


def test_of_what_the_engine_and_the_run_say_the_less_holds() -> None:
    engine = Budgets(model_turns=50, tool_calls=5, tree=Budget(attempts=9, tokens=100))
    run = Budgets(model_turns=500, tool_calls=3, tree=Budget(attempts=20, cost="0.5"))

    both = found(engine, run)

    assert both["model_turns"] == 50
    assert both["tool_calls"] == 3
    assert both["tree:attempts"] == 9
    assert both["tree:tokens"] == 100
    assert both["tree:cost"] == 500_000


def test_a_run_within_a_call_has_trees_of_its_own_only_if_it_was_given_them() -> None:
    engine = Budgets(tree=Budget(tool_calls=9), tools={"mail": Budget(tool_calls=1)})

    nested = found(engine, Budgets(lanes={"lane:api": Budget(attempts=2)}), nested=True)

    assert "tree:tool_calls" not in nested
    assert "tool:mail:tool_calls" not in nested
    assert nested["lane:lane:api:attempts"] == 2


@pytest.mark.parametrize(
    ("given", "told_of"),
    [
        ({"model_turns": -1}, "Budgets.model_turns is -1; give a whole number of 0 or more"),
        ({"model_turns": 1.5}, "Budgets.model_turns is 1.5; give a whole number"),
        ({"tokens": True}, "Budgets.tokens is True; give a whole number"),
        ({"tokens": math.nan}, "Budgets.tokens is nan; give a whole number"),
        ({"seconds": -0.5}, "Budgets.seconds is -0.5; give seconds, 0 or more, or UNLIMITED"),
        ({"seconds": "60"}, "Budgets.seconds is '60'; give seconds"),
        ({"cost": "much"}, "Budgets.cost is 'much'; give US dollars of 0 or more"),
        ({"cost": -1}, "Budgets.cost is -1; give US dollars"),
        ({"cost": True}, "Budgets.cost is True; give US dollars"),
        (
            {"tools": {"mail": Budget(tokens=5)}},
            "Budgets.tools['mail'] limits tokens, which calls do not use",
        ),
        (
            {"lanes": {"mail": Budget(cost=5)}},
            "Budgets.lanes['mail'] limits cost, which calls do not use",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_way_out(
    given: dict[str, Any], told_of: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Budgets(**given)

    assert told_of in str(caught.value)


def test_a_budget_of_a_tree_is_checked_too_and_so_is_a_price() -> None:
    with pytest.raises(UsageError, match=r"Budget\.attempts is 'x'"):
        Budget(attempts="x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"Price\.input is 'x'; give US dollars per million"):
        Price(input="x", output=1)
    with pytest.raises(UsageError, match=r"Price\.output is -1"):
        Price(input=1, output=-1)


# Amounts are exact


@given(st.decimals(min_value=0, max_value=10**9, places=8))
def test_costs_are_rounded_up_and_limits_down_by_less_than_a_millionth(amount: Decimal) -> None:
    most, least = micros(amount, up=True), micros(amount, up=False)

    assert least <= amount * 1_000_000 <= most
    assert most - least <= 1


@given(st.lists(st.integers(0, 10**12), max_size=50))
def test_what_is_written_as_a_float_of_dollars_is_read_back_as_the_same_number(
    amounts: list[int],
) -> None:
    kept = [amount / 1_000_000 for amount in amounts]

    assert sum(round(amount * 1_000_000) for amount in kept) == sum(amounts)


def test_a_float_of_dollars_is_taken_for_the_number_that_it_is_written_as() -> None:
    assert limit_of("Budgets", "cost", 0.1) == 100_000
    assert limit_of("Budgets", "cost", Decimal("0.1")) == 100_000


def test_a_price_of_the_host_is_per_million_tokens() -> None:
    price = Price(input="2.5", output=Decimal(10))

    cost = price.of(Tokens(input=1000, output=100))

    assert cost == Decimal("0.0035")
    assert price.source == "given by the host"


# The books


def test_a_refusal_names_the_budget_the_limit_and_what_stands_against_it() -> None:
    one = line(5)
    settle([(one, 0)], [2])
    hold([(one, 3)])

    answer = reserve([(one, 1)])

    assert isinstance(answer, Refused)
    failure = exceeded(answer)
    assert failure.code == "BUDGET_EXCEEDED"
    assert failure.message == (
        "Not started: the budget tool_calls of 5 tool calls has 2 tool calls used and 3 tool calls "
        "set aside."
    )
    assert "tell the user which limit was reached" in failure.hint


def test_what_does_not_fit_as_a_whole_is_told_with_its_size() -> None:
    assert str(Refused(line(100, Unit.TOKENS), 250)) == (
        "the budget tokens of 100 tokens has 0 tokens used; 250 tokens more do not fit"
    )


@pytest.mark.parametrize(
    ("unit", "amount", "words"),
    [
        (Unit.TOOL_CALLS, 1, "1 tool call"),
        (Unit.TOKENS, 2_000_000, "2,000,000 tokens"),
        (Unit.COST, 250_000, "$0.25"),
        (Unit.COST, 2_000_000, "$2"),
        (Unit.COST, 0, "$0"),
        (Unit.SECONDS, 900.0, "900 s"),
        (Unit.TOKENS, math.inf, "no limit"),
    ],
)
def test_amounts_are_told_in_words(unit: Unit, amount: float, words: str) -> None:
    assert told(unit, amount) == words


def test_one_line_without_room_leaves_all_others_as_they_were() -> None:
    wide, narrow = line(10), line(1)
    wants: Wants = [(wide, 2), (narrow, 2)]

    answer = reserve(wants)

    assert isinstance(answer, Refused)
    assert answer.line is narrow
    assert (wide.used, narrow.used) == (0, 0)


def test_a_line_that_is_drawn_on_twice_at_once_is_checked_for_both() -> None:
    one = line(3)

    assert isinstance(reserve([(one, 2), (one, 2)]), Refused)
    assert one.used == 0
    assert isinstance(reserve([(one, 2), (one, 1)]), Reserved)
    assert one.left == 0


def test_thresholds_are_told_once_each_also_after_a_refund() -> None:
    one = line(20)

    hold([(one, 15)])
    assert one.crossed() == ()
    hold([(one, 1)])
    assert one.crossed() == (80,)
    release([(one, 10)])
    hold([(one, 13)])
    assert one.crossed() == (95,)
    assert one.crossed() == ()


def test_one_jump_tells_of_both_thresholds_and_what_is_not_limited_tells_of_none() -> None:
    one, free, nothing = line(2), line(math.inf), line(0)
    hold([(one, 2), (free, 9)])

    assert one.crossed() == (80, 95)
    assert free.crossed() == ()
    assert nothing.crossed() == ()


def test_what_was_used_beyond_what_was_set_aside_is_used_and_nothing_is_left() -> None:
    one = line(10, Unit.TOKENS)
    wants: Wants = [(one, 4)]
    assert isinstance(reserve(wants), Reserved)

    settle(wants, [15])

    assert (one.settled, one.reserved, one.left) == (15, 0, 0)
    assert isinstance(reserve([(one, 0)]), Refused)


def test_a_budget_concerns_the_calls_of_its_scope() -> None:
    mail = Limit(Unit.TOOL_CALLS, Scope.TOOL, "mail", 1)
    lane = Limit(Unit.TOOL_CALLS, Scope.LANE, "lane:api", 1)

    assert concerns(mail, "mail", ())
    assert not concerns(mail, "post", ())
    assert concerns(lane, "post", {"lane:api", "run:r"})
    assert not concerns(lane, "post", {"run:r"})
    assert concerns(Limit(Unit.TOOL_CALLS, Scope.TREE, "", 1), "any", ())


class Books(RuleBasedStateMachine):
    """Random reservations, settlements and refunds over shared lines, against plain sums."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [line(7), line(4), line(12)]
        self.open: list[Wants] = []
        self.settled = [0, 0, 0]

    @rule(amounts=st.lists(st.integers(0, 5), min_size=3, max_size=3))
    def ask(self, amounts: list[int]) -> None:
        wants = [(one, n) for one, n in zip(self.lines, amounts, strict=True) if n]
        fits = all(one.used + n <= one.limit.limit for one, n in wants)

        answer = reserve(wants)

        assert isinstance(answer, Reserved) is fits
        if fits:
            self.open.append(wants)

    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        if self.open:
            wants = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            taken = [data.draw(st.integers(0, n)) for _, n in wants]
            settle(wants, taken)
            for (one, _), n in zip(wants, taken, strict=True):
                self.settled[self.lines.index(one)] += n

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.open:
            release(self.open.pop(data.draw(st.integers(0, len(self.open) - 1))))

    @invariant()
    def nothing_is_overrun_and_nothing_leaks(self) -> None:
        for at, one in enumerate(self.lines):
            aside = sum(n for wants in self.open for other, n in wants if other is one)
            assert (one.settled, one.reserved) == (self.settled[at], aside)
            assert one.used <= one.limit.limit

    def teardown(self) -> None:
        for wants in self.open:
            release(wants)
        assert [one.reserved for one in self.lines] == [0, 0, 0]


test_the_books_hold_against_plain_sums = Books.TestCase
