"""References from arguments to results: found, refused, and put in place."""

import pytest

from laneway.calls import Referring
from laneway.engine.references import NOTHING, Reference, find, resolve, split, steps
from laneway.outcomes import Code, Failure

RESULTS = {
    "c1": "v1",
    "c10": {"items": [{"id": 7, "name": "seven"}], "total": 2},
    "c11": "v11",
    "functions.look:0": [1, 2],
}


def put(
    arguments: object,
    referring: Referring = Referring.STRICT,
    *,
    literal: tuple[str, ...] = (),
) -> object:
    return resolve({"x": arguments}, RESULTS, RESULTS.__getitem__, referring, literal=literal)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${c1}+${c11}", "v1+v11"),
        ("${c10.items[0].name}", "seven"),
        ("${c10.total}", "2"),
        ("${c10.items}", '[{"id":7,"name":"seven"}]'),
        ({"$from": "c10"}, RESULTS["c10"]),
        ({"$from": "c10", "path": "items[0].id"}, 7),
        ({"$from": "c10", "path": ".items[0].id"}, 7),
        ("${functions.look:0[1]}", "2"),
        ([{"deep": ["${c1}"]}], [{"deep": ["v1"]}]),
        ("$${c1}", "${c1}"),
        ("cost: $5 and $x and ${", "cost: $5 and $x and ${"),
        (12, 12),
    ],
)
def test_a_reference_gives_way_to_the_value_it_names(written: object, meant: object) -> None:
    assert put(written) == {"x": meant}


def test_what_is_put_in_is_not_read_again() -> None:
    results = {"a": "${b}", "b": "secret"}

    filled = resolve({"x": "${a}"}, results, results.__getitem__, Referring.STRICT)

    assert filled == {"x": "${b}"}


def test_in_a_plan_a_name_that_no_call_has_is_a_fault() -> None:
    found = find({"x": "${nope.field}"}, RESULTS, Referring.STRICT)

    assert found.faults == ("argument 'x' refers to ${nope.field}, but no call is named 'nope'",)


def test_in_a_turn_a_name_that_no_call_has_is_text() -> None:
    assert find({"cmd": "echo ${HOME} $${PID}"}, RESULTS, Referring.KNOWN) is NOTHING
    assert put("echo ${HOME} $${PID}", Referring.KNOWN) == {"x": "echo ${HOME} $${PID}"}


def test_a_whole_reference_that_names_no_call_is_a_fault_everywhere() -> None:
    found = find({"x": {"$from": "nope"}}, RESULTS, Referring.KNOWN)

    assert found.faults == ("argument 'x' refers to ${nope}, but no call is named 'nope'",)


def test_a_path_that_cannot_be_read_is_a_fault() -> None:
    found = find({"x": "${c10.items[first]}"}, RESULTS, Referring.STRICT)

    assert "whose path cannot be read" in found.faults[0]


def test_literal_parameters_hold_no_references() -> None:
    assert find({"x": "${c1}"}, RESULTS, Referring.STRICT, literal={"x"}) is NOTHING
    assert put("${c1}", literal=("x",)) == {"x": "${c1}"}


def test_references_name_their_parameter_source_and_path() -> None:
    found = find({"a": "${c1} and ${c10.total}", "b": 1}, RESULTS, Referring.STRICT)

    assert found.references == (
        Reference("a", "c1", ""),
        Reference("a", "c10", ".total"),
    )
    assert found.parameters == {"a"}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("${c10.nope}", "the result of c10 is an object with items, total, so there is no 'nope'"),
        ("${c10.items[4]}", "the result of c10 at .items is a list of 1, so there is no 4 in it"),
        ("${c1.field}", "the result of c1 is text, so there is no 'field' in it"),
        ("${c10.items[0].id.x}", "the result of c10 at .items[0].id is int, so there is no 'x'"),
    ],
)
def test_a_field_that_is_not_there_is_named_with_what_is_there(written: str, told: str) -> None:
    failure = put(written)

    assert isinstance(failure, Failure)
    assert failure.code is Code.BAD_REFERENCE
    assert told in failure.message


def test_names_decide_where_a_path_begins() -> None:
    assert split("functions.look:0[1]", RESULTS) == ("functions.look:0", "[1]")
    assert split("c1.a", RESULTS) == ("c1", ".a")
    assert split("c1", RESULTS) == ("c1", "")
    assert split("x.y.z", RESULTS) == ("x", ".y.z")


def test_paths_are_split_into_keys_and_indices() -> None:
    assert steps(".items[0].id") == ("items", 0, "id")
    assert steps("items") is None


def test_in_a_labelled_plan_a_field_of_a_list_is_that_of_its_first_element() -> None:
    assert put("${c10.items.name}", Referring.FIRST) == {"x": "seven"}
    assert isinstance(put("${c10.items.name}", Referring.STRICT), Failure)


@pytest.mark.parametrize("name", ["1", "HOME", "name", "PATH_2"])
def test_in_a_turn_what_code_is_full_of_is_text_even_if_a_call_has_that_id(name: str) -> None:
    results = {name: "secret"}

    assert find({"x": f"${{{name}}}"}, results, Referring.KNOWN) is NOTHING
    filled = resolve({"x": f"${{{name}}}"}, results, results.__getitem__, Referring.KNOWN)
    assert filled == {"x": f"${{{name}}}"}
    whole = resolve({"x": {"$from": name}}, results, results.__getitem__, Referring.KNOWN)
    assert whole == {"x": "secret"}
    assert find({"x": f"${{{name}}}"}, results, Referring.STRICT).references
