"""Plans in the notations of LLMCompiler (`$1`) and TaskBench (`<node-0>`), read into our own."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway import Effect, Engine, Success, Tool
from laneway.engine.providers import Reply, read_llmcompiler_plan, read_taskbench_plan
from laneway.engine.providers.links import MAX_PAIRS
from laneway.errors import PlanError
from laneway.testing.clock import VirtualClock, run_virtual

PARAMETERS = {
    "search": ["query"],
    "math": ["problem", "context"],
    "f": ["a", "b", "c", "d"],
    "now": [],
}

UNKNOWN = (
    "call 1 (search).{place}: no call has the number of ${number}; if it is no reference, "
    "write $${number}"
)


def asked(reply: Reply) -> list[tuple[str, str, Any]]:
    return [(call.id, call.name, call.arguments) for call in reply.calls]


def llmcompiler(plan: Any) -> list[tuple[str, str, Any]]:
    return asked(read_llmcompiler_plan(plan, parameters=PARAMETERS))


def refused(plan: Any, parameters: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    with pytest.raises(PlanError) as caught:
        read_llmcompiler_plan(plan, parameters=PARAMETERS if parameters is None else parameters)
    return list(caught.value.faults)


# LLMCompiler


def test_a_plan_of_numbered_calls_is_read_and_its_join_dropped() -> None:
    plan = """\
Thought: two heights, then a comparison.
1. search("height of the Tokyo Skytree")
2. search('height of the CN Tower')  # in metres
Thought: now I can compare them
3. math("which is higher, $1 or ${2}?", ["$1", "${2}"])
4. join()<END_OF_PLAN>
"""

    reply = read_llmcompiler_plan(plan, parameters=PARAMETERS)

    assert reply.provider == "plan"
    assert reply.referring.strict
    assert asked(reply) == [
        ("1", "search", {"query": "height of the Tokyo Skytree"}),
        ("2", "search", {"query": "height of the CN Tower"}),
        (
            "3",
            "math",
            {
                "problem": "which is higher, ${1} or ${2}?",
                "context": [{"$from": "1", "path": ""}, {"$from": "2", "path": ""}],
            },
        ),
    ]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("$1", {"$from": "1", "path": ""}),
        ("${01}", {"$from": "1", "path": ""}),
        ('"$1"', {"$from": "1", "path": ""}),
        ('"$1 and $1"', "${1} and ${1}"),
        ('"$1.50"', "${1}.50"),
        ('"$$1"', "$1"),
        ('"$${1}"', "$${1}"),
        ('"echo ${HOME} $x $"', "echo $${HOME} $x $"),
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("2.50", 2.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("True", True),
        ("false", False),
        ("None", None),
        ("null", None),
        ("[]", []),
        ("[1, [2], ]", [1, [2]]),
        ("(1, $1)", [1, {"$from": "1", "path": ""}]),
        ("{}", {}),
        ("{'a': {\"b\": $1}, }", {"a": {"b": {"$from": "1", "path": ""}}}),
        (r'"a\n\t\"b\" \d \u00e9 \x41 \\ \'"', 'a\n\t"b" \\d é A \\ \''),
        (r'"\ud83d\ude00 \ud83d"', "😀 �"),
        ('"two\nlines"', "two\nlines"),
        ('"2. search(1)"', "2. search(1)"),
        ("\n  7\n", 7),
    ],
)
def test_arguments_are_read_as_python_and_json_write_them(written: str, read: Any) -> None:
    plan = f'1. search("x")\n2. search({written})\n3. join()'

    assert llmcompiler(plan)[1] == ("2", "search", {"query": read})


def test_arguments_may_be_named_and_calls_stand_in_any_order() -> None:
    plan = '2. f(1, c=$1, b="x")\n1) now()\njoin()'

    assert llmcompiler(plan) == [
        ("2", "f", {"a": 1, "c": {"$from": "1", "path": ""}, "b": "x"}),
        ("1", "now", {}),
    ]


def test_a_plan_with_nothing_to_do_has_no_calls() -> None:
    assert llmcompiler("1. join()") == []
    assert llmcompiler([]) == []


def test_calls_that_were_taken_apart_already_are_read_too() -> None:
    plan = [
        {"idx": 1, "tool": "search", "args": ("x",)},
        {"id": "2", "name": "math", "arguments": {"problem": "$1 + 1"}},
        {"idx": 3, "tool": "now"},
        {"idx": 4, "tool": "join", "args": ["$1", "$2"]},
    ]

    assert llmcompiler(plan) == [
        ("1", "search", {"query": "x"}),
        ("2", "math", {"problem": "${1} + 1"}),
        ("3", "now", {}),
    ]


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        ("", "no call was found; write one a line, 1. tool(arguments)"),
        ("I cannot plan this.", "no call was found; write one a line, 1. tool(arguments)"),
        ("1. look for it", 'line 1.: expected tool(…), met "look for it"'),
        ('search("x")', "search(…): a call needs a number, 1. search(…)"),
        (
            '1. search("x"), 2. search("y")',
            'call 1 (search): ", 2. search(\\"y\\")" stands behind the call',
        ),
        (
            "1. search(Tokyo Skytree)",
            'call 1 (search): expected a value; put text in quotes, met "Tokyo Skytree)"',
        ),
        ('1. search("x', 'call 1 (search): expected a value; put text in quotes, met "\\"x"'),
        (
            '1. search("x"',
            "call 1 (search): expected a comma or ), met the end of the line",
        ),
        ("1. f([1 2])", 'call 1 (f): expected a comma or ], met "2])"'),
        ("1. f({1: 2})", 'call 1 (f): expected a field, "name": value, met "1: 2})"'),
        ('1. f({"a" 2})', 'call 1 (f): expected a field, "name": value, met "2})"'),
        ("1. f(a=1, a=2)", "call 1 (f): a is given twice"),
        ("1. f(1, a=2)", "call 1 (f): a is given twice"),
        ("1. f(1e999)", 'call 1 (f): the number "1e999" is too large'),
        (f"1. f({'9' * 301})", f'call 1 (f): the number "{"9" * 39}…" is too large'),
        (f"1. f({'[' * 102})", "call 1 (f): it is nested more than 100 deep"),
        (
            "1. f(1, 2, 3, 4, 5)",
            "call 1 (f): 5 arguments without a parameter's name, but its parameters are a, b, c, d",
        ),
        ("1. g(1)", "call 1 (g): 1 arguments without a parameter's name, but none is known"),
        (
            '1. search("costs $100")',
            UNKNOWN.format(place="query", number=100),
        ),
        (
            "1. search([$2])\n2. join()",
            UNKNOWN.format(place="query[0]", number=2),
        ),
        ("1. now()\n2. join()\n3. now()", "call 2 (join): calls follow, but join ends a plan"),
        ("1. now()\n01. now()", "call 1 (now): an earlier call has this number too"),
        (
            '1. f({"$from": "x"})',
            'call 1 (f).a: an object with "$from" would be read as a reference',
        ),
        (["x"], 'calls[0]: expected an object, not the text "x"'),
        ([{"tool": "now"}], "calls[0]: expected a number, not null"),
        ([{"idx": 1}], "calls[0]: expected a tool's name, not null"),
        (
            [{"idx": 1, "tool": "now", "args": "x"}],
            'calls[0].args: expected a list, not the text "x"',
        ),
    ],
)
def test_what_cannot_be_meant_is_a_fault_that_names_its_call(plan: Any, fault: str) -> None:
    assert refused(plan) == [fault]


def test_every_fault_of_a_plan_is_named_at_once() -> None:
    plan = '1. search(oops)\n2. search("$9")\n3. g(1)\n4. join()'

    assert [fault.split(":")[0] for fault in refused(plan)] == [
        "call 1 (search)",
        "call 2 (search).query",
        "call 3 (g)",
    ]


def test_without_parameters_only_named_arguments_can_be_read() -> None:
    assert asked(read_llmcompiler_plan('1. f(a="x")')) == [("1", "f", {"a": "x"})]
    assert len(refused('1. f("x")', {})) == 1


def test_a_call_that_runs_over_the_end_of_its_line_is_not_read_again() -> None:
    plan = '1. search("open\n2. now()\n3. now()'

    assert refused(plan) == [
        'call 1 (search): expected a value; put text in quotes, met "\\"open"',
    ]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="$", exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def without_dollars(value: Any) -> bool:
    return "$" not in json.dumps(value)


@given(json_values.filter(without_dollars), st.sampled_from([repr, json.dumps]))
def test_whatever_python_and_json_write_is_read_as_it_was(value: Any, write: Any) -> None:
    plan = f"1. search({write(value)})"

    assert llmcompiler(plan) == [("1", "search", {"query": value})]


@given(st.text(st.sampled_from("12.()[]{}\"'$,=: \n\\#aejoin"), max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        reply = read_llmcompiler_plan(f"1. search({text}", parameters=PARAMETERS)
    except PlanError as error:
        assert error.faults  # noqa: PT017 - either way it ends
    else:
        assert reply.referring.strict


# TaskBench


def taskbench(*nodes: Any, links: Any = (), **known: Any) -> Reply:
    return read_taskbench_plan(
        {
            "task_steps": ["ignored"],
            "task_nodes": [
                {"task": node[0], "arguments": node[1]} if isinstance(node, tuple) else node
                for node in nodes
            ],
            "task_links": links,
        },
        **known,
    )


def faults(*nodes: Any, links: Any = (), tools: Any = None) -> list[str]:
    with pytest.raises(PlanError) as caught:
        taskbench(*nodes, links=links, tools=tools)
    return list(caught.value.faults)


def test_nodes_become_calls_and_references_their_dependencies() -> None:
    reply = taskbench(
        ("Image-to-Text", ["example.jpg"]),
        ("Text Translation", ["<node-0>", "to ${LANG}: <node-0>.text"]),
        links=[{"source": "Text Translation", "target": "Image-to-Text"}],
    )

    assert reply.provider == "plan"
    assert reply.referring.strict
    assert asked(reply) == [
        ("node-0", "Image-to-Text", {"arguments": ["example.jpg"]}),
        (
            "node-1",
            "Text_Translation",
            {"arguments": [{"$from": "node-0", "path": ""}, "to $${LANG}: ${node-0}.text"]},
        ),
    ]
    assert all(not call.needs for call in reply.calls), "the references decide, not the links"


@pytest.mark.parametrize("link", [{"source": "a", "target": "b"}, ["a", "b"], ("a", "b")])
def test_links_are_the_dependencies_where_nothing_refers_to_a_node(link: Any) -> None:
    reply = taskbench(("b", []), ("a", None), ("c", ["<https://x.org>"]), links=[link])

    assert [call.needs for call in reply.calls] == [("node-1",), (), ()]


@pytest.mark.parametrize(
    ("given", "parameters", "read"),
    [
        ([], [], {}),
        ([{"name": "q", "value": 7}], [], {"q": 7}),
        ([{"name": "q", "value": "<node-0>"}], [], {"q": {"$from": "node-0", "path": ""}}),
        (["x"], ["q"], {"q": "x"}),
        (["x"], ["q", "r"], {"q": "x"}),
        (["x", "y"], ["q"], {"arguments": ["x", "y"]}),
        (
            ["x", {"name": "r", "value": 1}],
            ["q", "r"],
            {"arguments": ["x", {"name": "r", "value": 1}]},
        ),
        ([{"name": "", "value": 1}], [], {"arguments": [{"name": "", "value": 1}]}),
        ([{"name": "x"}], [], {"arguments": [{"name": "x"}]}),
        (
            [{"name": "<node-0>", "value": 1}],
            [],
            {"arguments": [{"name": {"$from": "node-0", "path": ""}, "value": 1}]},
        ),
        (
            [{"name": "q", "value": 1}, {"name": "q", "value": 2}],
            [],
            {"arguments": [{"name": "q", "value": 1}, {"name": "q", "value": 2}]},
        ),
    ],
)
def test_a_list_of_arguments_becomes_an_object(given: Any, parameters: Any, read: Any) -> None:
    reply = taskbench(("a", []), ("My Tool", given), parameters={"My Tool": parameters})

    assert reply.calls[1].arguments == read


def test_a_link_that_fits_several_nodes_orders_all_that_were_listed_in_its_direction() -> None:
    chain = taskbench(
        ("note", None),
        ("lookup", None),
        ("note", None),
        links=[["note", "lookup"], ["lookup", "note"]],
    )
    twice = taskbench(("note", None), ("note", None), links=[["note", "note"]])
    backward = taskbench(("b", None), ("a", None), ("a", None), links=[["a", "b"]])

    assert [call.needs for call in chain.calls] == [(), ("node-0",), ("node-1",)]
    assert [call.needs for call in twice.calls] == [(), ("node-0",)]
    assert [call.needs for call in backward.calls] == [("node-1", "node-2"), (), ()]


@pytest.mark.parametrize(
    ("nodes", "links", "fault"),
    [
        ([("a", ["<node-0>"])], [], "node-0 (a)[0]: self reference <node-0>; nodes count from 0"),
        (
            [("a", ["<node-2>"]), ("b", [])],
            [],
            "node-0 (a)[0]: unknown reference <node-2>; nodes count from 0, the last is <node-1>",
        ),
        (
            [("a", [{"name": "q", "value": ["x <node_1>"]}])],
            [],
            "node-0 (a)[0].value[0]: malformed reference <node_1>; write <node-0>",
        ),
        (
            [("a", ["<output of step 1>"])],
            [],
            "node-0 (a)[0]: malformed reference <output of step 1>; write <node-0>",
        ),
        (
            [("a", ["costs $<node-1>"]), ("b", [])],
            [],
            "node-0 (a)[0]: the reference <node-1> stands right behind a '$'",
        ),
        (
            [("a", ["<node-1>"]), ("b", ["<node-0>"]), ("c", ["<node-1>"])],
            [],
            "node-0, node-1: cycle in references, each waits for another of them",
        ),
        (
            [("a", []), ("b", [])],
            [["a", "b"], ["b", "a"]],
            "node-0, node-1: cycle in links, each waits for another of them",
        ),
        (
            [("a", []), ("b", ["<node-0>"])],
            [["a", "b"], ["b", "a"]],
            "node-0, node-1: cycle in links, each waits for another of them",
        ),
        ([("a", [])], [["a", "a"]], "links[0]: self link, a stands at both ends"),
        (
            [("a", [])],
            [["a", "b"]],
            'links[0]: link to unknown node, the text "b" is no tool of a node',
        ),
        ([("a", [])], [[0, "a"]], "links[0]: link to unknown node, 0 is no tool of a node"),
        ([("a", [])], [["a", None]], "links[0]: malformed link, a list of 2; it joins two tools"),
        ([("a", [])], ["a"], 'links[0]: malformed link, the text "a"; it joins two tools'),
        (
            [("a", {"q": 1})],
            [],
            "node-0 (a): arguments not a list, but an object with q",
        ),
        ([("z", [])], [], 'node-0 (z): unknown tool "z"'),
        (["a"], [], 'calls[0]: expected an object with a tool, not the text "a"'),
        ([{"arguments": []}], [], "calls[0].tool: expected the name of a tool, not null"),
    ],
)
def test_each_fault_is_named_with_its_place(nodes: Any, links: Any, fault: str) -> None:
    assert faults(*nodes, links=links, tools=["a", "b", "c"]) == [fault]


def test_the_faults_of_a_plan_of_nodes_are_named_together() -> None:
    found = faults(("a", ["<node-0>", "<node-7>"]), ("b", {}), links=[["a", "x"]], tools=["a"])

    assert [fault.split(": ", 1)[1].split(";")[0].split(",")[0] for fault in found] == [
        "self reference <node-0>",
        "unknown reference <node-7>",
        'unknown tool "b"',
        "arguments not a list",
        "link to unknown node",
    ]


def test_faults_of_form_are_named_with_the_others() -> None:
    assert faults(("a", ["<node-0>"]), "b", {"task": 7}) == [
        "node-0 (a)[0]: self reference <node-0>; nodes count from 0",
        'calls[1]: expected an object with a tool, not the text "b"',
        "calls[2].tool: expected the name of a tool, not 7",
    ]


def test_a_large_cycle_is_named_shortly() -> None:
    nodes = [("a", [f"<node-{(at + 1) % 100}>"]) for at in range(100)]

    (fault,) = faults(*nodes)

    assert fault.startswith("node-0, node-1, ")
    assert " and 92 more: cycle in references" in fault


def test_links_that_fit_very_many_pairs_are_refused_before_any_is_drawn() -> None:
    nodes = [("a", None)] * (int(MAX_PAIRS**0.5) + 1)

    assert faults(*nodes, links=[["a", "a"]]) == [
        f"links: more than {MAX_PAIRS} pairs of nodes fit; refer to nodes in arguments"
    ]


def test_references_decide_even_where_ambiguous_links_would_make_a_cycle() -> None:
    reply = taskbench(("b", []), ("a", ["<node-0>"]), ("a", []), links=[["a", "b"], ["b", "a"]])

    assert [call.needs for call in reply.calls] == [(), (), ()]


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({}, "task_nodes: expected a list, not null"),
        ({"nodes": "x"}, 'nodes: expected a list, not the text "x"'),
        ({"calls": [], "links": 7}, "links: expected a list, not 7"),
    ],
)
def test_what_is_no_plan_of_nodes_is_told(record: Any, fault: str) -> None:
    with pytest.raises(PlanError) as caught:
        read_taskbench_plan(record)

    assert caught.value.faults == (fault,)


def test_a_plan_of_nodes_may_use_other_words() -> None:
    reply = read_taskbench_plan(
        {"calls": [{"name": "a", "arguments": None}, {"tool": "b"}], "links": None}
    )

    assert asked(reply) == [("node-0", "a", {}), ("node-1", "b", {})]


# Both, run


def test_both_notations_hand_results_on() -> None:
    async def shout(text: str) -> str:
        return text.upper()

    async def main() -> list[Any]:
        tool = Tool.of(shout, effect=Effect.PURE, claims=[])
        numbered = '1. shout("a")\n2. shout("$$1 is $1, not ${HOME}")\n3. join()'
        nodes = {"nodes": [("shout", "a"), ("shout", "${x} <node-0>")]}
        plans = [
            read_llmcompiler_plan(numbered, parameters={"shout": ["text"]}),
            read_taskbench_plan(
                {"nodes": [{"task": name, "arguments": [text]} for name, text in nodes["nodes"]]},
                parameters={"shout": ["text"]},
            ),
        ]
        values = []
        async with Engine([tool], clock=VirtualClock) as engine:
            for at, plan in enumerate(plans):
                async with engine.run(str(at)) as run:
                    turn = await run.submit(plan, strict=True)
                    values += [o.value for o in turn.outcomes.values() if isinstance(o, Success)]
        return values

    assert run_virtual(main) == ["A", "$1 IS A, NOT ${HOME}", "A", "${X} A"]
