"""What a verdict costs, counted in function calls: the clock of a shared machine tells little."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from laneway.benchmarks import policy as bench
from laneway.benchmarks.policy import Cost, commands, costs, edit, mixed, one_argument, table
from laneway.policies.rules import Policy, Rule

MISS, HIT = edit("/home/me/project/src/a.py"), edit("/srv/52/a")


def calls_of(function: Callable[[], object]) -> int:
    """Count the functions that are called, those of C included."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def calls_of_a_verdict(rules: list[Rule], question: Any) -> int:
    policy = Policy(rules)
    policy.decide(question)
    return calls_of(lambda: policy.decide(question))


@pytest.mark.parametrize("kind", [mixed, one_argument, commands])
def test_a_hundred_rules_are_looked_at_together(kind: Callable[[int], list[Rule]]) -> None:
    assert calls_of_a_verdict(kind(100), MISS) < 40


@pytest.mark.parametrize("kind", [mixed, one_argument])
def test_a_rule_that_fits_is_found_in_few_looks(kind: Callable[[int], list[Rule]]) -> None:
    assert calls_of_a_verdict(kind(100), HIT) < 80


@pytest.mark.parametrize("question", [MISS, HIT])
@pytest.mark.parametrize("kind", [mixed, one_argument, commands])
def test_ten_thousand_rules_cost_no_more_than_a_hundred_times_a_hundred(
    kind: Callable[[int], list[Rule]], question: Any
) -> None:
    few, many = (calls_of_a_verdict(kind(n), question) for n in (100, 10_000))

    assert many <= 100 * few
    assert many < 1_500  # a look for each 128 of them, and what goes with it


def test_loading_grows_no_faster_than_the_rules() -> None:
    def load(n: int) -> int:
        return calls_of(lambda: Policy(mixed(n)).decide(MISS))

    load(10)

    assert load(4_000) <= 11 * load(400)


def test_reading_a_file_grows_no_faster_than_the_rules() -> None:
    def text(n: int) -> str:
        return "".join(
            f'[[rule]]\ndecision = "deny"\ntools = ["t{i}"]\narguments.path = "/srv/{i}/*"\n'
            for i in range(n)
        )

    def read(n: int) -> int:
        said = text(n)
        return calls_of(lambda: Policy.from_toml(said))

    read(10)

    assert read(1_000) <= 11 * read(100)


def test_the_benchmark_measures_every_kind_and_says_whether_the_gate_is_met(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = list(costs(sizes=(10,), loops=1))

    assert {one.rules for one in found} == {10}
    assert len(found) == 6
    monkeypatch.setattr(bench, "costs", lambda: found)
    bench.main()
    assert "| commands, no rule fits | 10 |" in capsys.readouterr().out
    fast = Cost(policy="mixed, one fits", rules=100, us_per_call=1.0)
    slow = Cost(policy="mixed, one fits", rules=100, us_per_call=9.0)
    assert table([fast]).endswith("gate of 5 µs with 100 mixed rules: met")
    assert table([fast, slow]).endswith("missed")
