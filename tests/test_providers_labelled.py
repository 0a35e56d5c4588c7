"""Plans that write `$label.path$` for an earlier result."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers import read_labelled_plan
from laneway.errors import PlanError
from laneway.outcomes import Code

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "plans_gold.jsonl"


def translated(value: Any) -> Any:
    reply = read_labelled_plan([{"id": "b", "name": "f", "arguments": {"v": value}}])
    arguments = reply.calls[0].arguments
    assert arguments is not None
    return arguments["v"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("$var1$", {"$from": "var1", "path": ""}),
        ("$var1.a.b$", {"$from": "var1", "path": "a.b"}),
        ("$var1.items[0].id$", {"$from": "var1", "path": "items[0].id"}),
        ("$var1[2]$", {"$from": "var1", "path": "[2]"}),
        ("$var1.Exchange Rate$", {"$from": "var1", "path": "Exchange Rate"}),
        ("5 * $var1.Exchange Rate$", "5 * ${var1.Exchange Rate}"),
        ("$var1.t$ - $var2$", "${var1.t} - ${var2}"),
        ("see $var1[0].id$.", "see ${var1[0].id}."),
        ("$100-$200", "$100-$200"),
        ("costs $5 or $ 6", "costs $5 or $ 6"),
        ("echo ${HOME} $x$", "echo $${HOME} ${x}"),
        ("${open and $x$", "${open and ${x}"),
        (["$a$", {"k": "$b.c$"}], [{"$from": "a", "path": ""}, {"k": {"$from": "b", "path": "c"}}]),
        ("$var1. not a field$", "$var1. not a field$"),
        (7, 7),
        (None, None),
    ],
)
def test_references_are_translated_and_nothing_else(written: Any, read: Any) -> None:
    assert translated(written) == read


def test_the_calls_come_out_as_a_strict_plan() -> None:
    reply = read_labelled_plan(
        [
            {"id": "var1", "name": "find", "arguments": {"q": "x"}},
            {"id": "var2", "name": "send", "args": {"to": "$var1.mail$"}},
            {"id": "var3", "name": "stop"},
        ]
    )

    assert reply.provider == "plan"
    assert reply.referring.strict
    assert [asked.arguments for asked in reply.calls] == [
        {"q": "x"},
        {"to": {"$from": "var1", "path": "mail"}},
        {},
    ]


def test_a_dollar_right_before_a_reference_is_refused_since_it_would_read_as_an_escape() -> None:
    with pytest.raises(PlanError) as caught:
        read_labelled_plan([{"id": "a", "name": "f", "arguments": {"t": ["costs $$x.price$"]}}])

    assert caught.value.faults == (
        "calls[0].arguments.t[0]: the reference $x.price$ stands right behind a '$'",
    )


def test_faults_of_form_are_those_of_a_plan() -> None:
    plan: Any = ["x", {"id": "a", "name": "f", "arguments": "{"}]

    with pytest.raises(PlanError, match=r"calls\[0\]: expected an object with a tool"):
        read_labelled_plan(plan)


def test_a_label_given_twice_is_ambiguous() -> None:
    call: dict[str, Any] = {"id": "var1", "name": "f", "arguments": {}}

    first, second = read_labelled_plan([call, call]).calls

    assert first.fault is None
    assert second.fault is not None
    assert second.fault.code is Code.BAD_REFERENCE


def found(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, str, str, bool]]:
    """Every reference in translated arguments: where, from which call, its path, whether whole."""
    if isinstance(value, str):
        for name, path in re.findall(r"(?<!\$)\$\{(\w+)([^{}]*)\}", value):
            yield at, name, path.removeprefix("."), False
    elif is_list(value):
        for index, inner in enumerate(value):
            yield from found(inner, (*at, index))
    elif is_object(value):
        if "$from" in value:
            yield at, value["$from"], value["path"], True
            return
        for key, inner in value.items():
            yield from found(inner, (*at, key))


def as_written(reference: dict[str, Any]) -> tuple[Any, str, str, bool]:
    """A recorded reference as the plan writes it: a list level that it skips is not written."""
    path = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}"
        for step in reference["path"]
        if not (reference.get("implicit_first") and step == 0)
    )
    return tuple(reference["at"]), reference["from"], path.removeprefix("."), reference["whole"]


def test_the_references_of_every_gold_plan_are_found_where_they_stand() -> None:
    if not DATA.exists():
        pytest.skip("the recorded plans are not beside this checkout")
    plans = references = 0
    with DATA.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            reply = read_labelled_plan(record["calls"])
            wanted: dict[str, list[Any]] = {}
            for reference in record["refs"]:
                wanted.setdefault(reference["call"], []).append(as_written(reference))
            got: dict[str, list[Any]] = {}
            for written, asked in zip(record["calls"], reply.calls, strict=True):
                got.setdefault(written["id"], []).extend(found(asked.arguments))
            assert {label: mine for label, mine in got.items() if mine} == wanted, record["id"]
            twice = any(problem["kind"] == "duplicate_id" for problem in record.get("problems", ()))
            assert any(asked.fault for asked in reply.calls) == twice
            plans += 1
            references += len(record["refs"])

    print(f"{plans} plans, {references} references")  # part of the proof
    assert (plans, references) == (650, 2136)
