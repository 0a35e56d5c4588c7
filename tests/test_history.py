"""Histories in every format: whole, damaged, repaired, cut and pruned."""

import asyncio
import copy
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from laneway import history
from laneway.engine.cli.app import app
from laneway.engine.history.parts import LOST
from laneway.engine.history.summarising import MARK, MOST_CHARACTERS
from laneway.errors import HistoryError, UsageError

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
Message = dict[str, Any]
Script = Sequence[tuple[Any, ...]]
ROWS = ("openai-chat", "cohere-v2", "ollama-chat")
BLOCKS = ("anthropic-messages", "google-generate", "bedrock-converse")
KEYS = ("messages", "contents", "input")
ITEMS = ("openai-responses", "google-interactions")
FORMATS = (*ROWS, *BLOCKS, *ITEMS)


# Histories in each format, written from one script


def written(wire: str, script: Script) -> list[Message]:
    """("user", text) | ("model", text, [(id, name), …]) | ("results", [(id, name, text), …])."""
    found: list[Message] = []
    for kind, *rest in script:
        found += WRITE[wire](kind, *rest)
    return found


def _rows(wire: str) -> Callable[..., list[Message]]:
    def write(kind: str, said: Any, calls: Any = ()) -> list[Message]:
        if kind == "user":
            return [{"role": "user", "content": said}]
        if kind == "model":
            message: Message = {"role": "assistant", "content": said}
            if calls:
                message["tool_calls"] = [_row_call(wire, *call) for call in calls]
            if wire == "cohere-v2":
                message["tool_plan"] = "I will"
            return [message]
        if wire == "ollama-chat":
            return [{"role": "tool", "tool_name": name, "content": text} for _, name, text in said]
        return [{"role": "tool", "tool_call_id": id_, "content": text} for id_, _, text in said]

    return write


def _row_call(wire: str, id_: str, name: str) -> Message:
    if wire == "ollama-chat":
        return {"function": {"name": name, "arguments": {"q": id_}}}
    arguments = json.dumps({"q": id_})
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def _anthropic(kind: str, said: Any, calls: Any = ()) -> list[Message]:
    if kind == "results":
        results = [{"type": "tool_result", "tool_use_id": i, "content": t} for i, _, t in said]
        return [{"role": "user", "content": results}]
    if kind == "user":
        return [{"role": "user", "content": said}]
    uses = [{"type": "tool_use", "id": i, "name": n, "input": {"q": i}} for i, n in calls]
    return [{"role": "assistant", "content": [{"type": "text", "text": said}, *uses]}]


def _bedrock(kind: str, said: Any, calls: Any = ()) -> list[Message]:
    if kind == "results":
        results = [
            {"toolResult": {"toolUseId": i, "content": [{"text": t}], "status": "success"}}
            for i, _, t in said
        ]
        return [{"role": "user", "content": results}]
    if kind == "user":
        return [{"role": "user", "content": [{"text": said}]}]
    uses = [{"toolUse": {"toolUseId": i, "name": n, "input": {"q": i}}} for i, n in calls]
    return [{"role": "assistant", "content": [{"text": said}, *uses]}]


def _google(kind: str, said: Any, calls: Any = ()) -> list[Message]:
    if kind == "results":
        results = [{"functionResponse": {"name": n, "response": {"output": t}}} for _, n, t in said]
        return [{"role": "user", "parts": results}]
    if kind == "user":
        return [{"role": "user", "parts": [{"text": said}]}]
    uses = [{"functionCall": {"name": n, "args": {"q": i}}} for i, n in calls]
    return [{"role": "model", "parts": [{"text": said}, *uses]}]


def _responses(kind: str, said: Any, calls: Any = ()) -> list[Message]:
    if kind == "results":
        return [{"type": "function_call_output", "call_id": i, "output": t} for i, _, t in said]
    if kind == "user":
        return [{"role": "user", "content": said}]
    text = [{"type": "output_text", "text": said}]
    items: list[Message] = [{"type": "message", "role": "assistant", "content": text}]
    return items + [
        {"type": "function_call", "call_id": i, "name": n, "arguments": json.dumps({"q": i})}
        for i, n in calls
    ]


def _interactions(kind: str, said: Any, calls: Any = ()) -> list[Message]:
    text = [{"type": "text", "text": said}]
    if kind == "results":
        return [
            {"type": "function_result", "call_id": i, "name": n, "result": t} for i, n, t in said
        ]
    if kind == "user":
        return [{"type": "user_input", "content": text}]
    items: list[Message] = [{"type": "model_output", "content": text}]
    return items + [
        {"type": "function_call", "id": i, "name": n, "arguments": {"q": i}} for i, n in calls
    ]


WRITE: dict[str, Callable[..., list[Message]]] = {
    **{wire: _rows(wire) for wire in ROWS},
    "anthropic-messages": _anthropic,
    "bedrock-converse": _bedrock,
    "google-generate": _google,
    "openai-responses": _responses,
    "google-interactions": _interactions,
}


# A reader of its own, which knows nothing of the code under test


def told(wire: str, messages: Sequence[Message]) -> list[tuple[str, int, str, str]]:
    """(what, number of message, id or name, text) of all calls, results and texts, in order."""
    found: list[tuple[str, int, str, str]] = []
    for at, message in enumerate(messages):
        if wire in ROWS:
            if message["role"] == "tool":
                key = "tool_name" if wire == "ollama-chat" else "tool_call_id"
                found.append(("result", at, message[key], message["content"]))
                continue
            found.append((message["role"], at, "", message["content"]))
            for call in message.get("tool_calls") or ():
                name = call["function"]["name"] if wire == "ollama-chat" else call["id"]
                found.append(("call", at, name, ""))
        elif wire in BLOCKS:
            content = message["parts" if wire == "google-generate" else "content"]
            blocks = [{"text": content}] if isinstance(content, str) else content
            found += [_block(block, at, message["role"]) for block in blocks]
        else:
            found.append(_item(message, at))
    return found


def _block(block: Message, at: int, role: str) -> tuple[str, int, str, str]:
    if "functionCall" in block:
        return "call", at, block["functionCall"]["name"], ""
    if "functionResponse" in block:
        response = block["functionResponse"]
        return "result", at, response["name"], next(iter(response["response"].values()))
    if "toolUse" in block:
        return "call", at, block["toolUse"]["toolUseId"], ""
    if "toolResult" in block:
        inner = block["toolResult"]
        return "result", at, inner["toolUseId"], inner["content"][0]["text"]
    if block.get("type") == "tool_use":
        return "call", at, block["id"], ""
    if block.get("type") == "tool_result":
        return "result", at, block["tool_use_id"], block["content"]
    return ("user" if role == "user" else "assistant"), at, "", block["text"]


def _item(item: Message, at: int) -> tuple[str, int, str, str]:
    match item.get("type"):
        case "function_call":
            return "call", at, item.get("call_id") or item["id"], ""
        case "function_call_output":
            return "result", at, item["call_id"], item["output"]
        case "function_result":
            return "result", at, item["call_id"], item["result"]
        case "user_input" | "model_output":
            who = "user" if item["type"] == "user_input" else "assistant"
            return who, at, "", item["content"][0]["text"]
        case _:
            text = (
                item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
            )
            return item["role"], at, "", text


def see_whole(wire: str, messages: Sequence[Message]) -> None:
    """Every call is answered exactly once, where the provider wants it, and nothing else is."""
    open_: list[str] = []
    for what, _, name, _ in told(wire, messages):
        if what == "call":
            if wire in ITEMS:
                assert name not in open_, f"{name} is asked for twice"
            open_.append(name)
        elif what == "result":
            assert name in open_, f"{name} answers nothing"
            open_.remove(name)
        elif wire not in ITEMS and what == "user":
            assert not open_, f"{open_} have no result where it belongs"
    assert not open_, f"{open_} have no result"
    if wire in ROWS:
        for at, message in enumerate(messages):
            calls = len(message.get("tool_calls") or ())
            behind = messages[at + 1 : at + 1 + calls]
            assert [one["role"] for one in behind] == ["tool"] * calls
    if wire in BLOCKS:
        for message in messages:
            results = [what == "result" for what, *_ in told(wire, [message])]
            assert results == sorted(results, reverse=True) or message["role"] != "user"


# Random ones

names = st.sampled_from(["look", "edit", "send"])


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """A whole history: it begins with the user, and answers and results alternate."""
    number = 0
    script: list[tuple[Any, ...]] = [("user", "U0 please")]
    for turn in range(draw(st.integers(0, 6))):
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            calls.append((f"c{number}", draw(names)))
        script.append(("model", f"M{turn} says", calls))
        if calls:
            script.append(("results", [(i, n, f"got {i} {'x' * 40}") for i, n in calls]))
        else:
            script.append(("user", f"U{turn + 1} asks"))
    return script


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, list[Message]]:
    """A history of which messages were lost, written twice, or put elsewhere."""
    wire = draw(st.sampled_from(FORMATS))
    messages = copy.deepcopy(written(wire, draw(scripts())))
    for _ in range(draw(st.integers(0, 4))):
        if not messages:
            break
        at = draw(st.integers(0, len(messages) - 1))
        match draw(st.sampled_from(["lose", "again", "move", "part", "id"])):
            case "lose":
                del messages[at]
            case "again":
                messages.insert(draw(st.integers(0, len(messages))), copy.deepcopy(messages[at]))
            case "move":
                messages.insert(draw(st.integers(0, len(messages) - 1)), messages.pop(at))
            case "part":
                key = "parts" if wire == "google-generate" else "content"
                if wire in BLOCKS and isinstance(messages[at][key], list) and messages[at][key]:
                    messages[at][key].pop(draw(st.integers(0, len(messages[at][key]) - 1)))
                    if not messages[at][key]:
                        del messages[at]
            case _:
                for entry in messages[at].get("tool_calls") or ():
                    entry.update({"id": "c1"} if "id" in entry else {})
    return wire, messages


@given(wire=st.sampled_from(FORMATS), script=scripts())
def test_a_whole_history_has_no_fault_and_stays_the_same_object_by_object(
    wire: str, script: Script
) -> None:
    messages = written(wire, script)

    repaired = history.repair(messages, format=wire)

    see_whole(wire, messages)
    assert history.check(messages, format=wire) == ()
    assert [id(one) for one in repaired] == [id(one) for one in messages]


@given(damaged())
@settings(max_examples=400, deadline=None)
def test_a_damaged_history_is_made_whole_the_same_way_each_time(
    case: tuple[str, list[Message]],
) -> None:
    wire, messages = case
    before = copy.deepcopy(messages)

    repaired = history.repair(messages, format=wire)

    see_whole(wire, repaired)
    assert messages == before
    assert history.check(repaired, format=wire) == ()
    assert bool(history.check(messages, format=wire)) is (repaired != messages)
    assert json.dumps(history.repair(before, format=wire)) == json.dumps(repaired)
    assert json.dumps(history.repair(repaired, format=wire)) == json.dumps(repaired)


@given(damaged())
@settings(max_examples=200, deadline=None)
def test_a_repair_loses_no_word_and_keeps_the_order(case: tuple[str, list[Message]]) -> None:
    wire, messages = case

    def said(given: Sequence[Message]) -> list[str]:
        return [
            text
            for what, _, _, text in told(wire, given)
            if what in ("user", "assistant") and "stood here" not in text
        ]

    def called(given: Sequence[Message]) -> int:
        return sum(what == "call" for what, *_ in told(wire, given))

    repaired = history.repair(messages, format=wire)

    assert said(repaired) == said(messages)
    assert called(repaired) == called(messages)


@given(damaged(), st.integers(1, 12))
@settings(max_examples=300, deadline=None)
def test_what_is_compacted_is_whole_and_compacting_it_again_changes_nothing(
    case: tuple[str, list[Message]], keep: int
) -> None:
    wire, messages = case

    compacted = history.compact(messages, keep=keep, format=wire)

    see_whole(wire, compacted)
    again = history.compact(compacted, keep=keep, format=wire)
    assert json.dumps(again) == json.dumps(compacted)
    assert len(compacted) <= len(history.repair(messages, format=wire)) + 1


@given(wire=st.sampled_from(FORMATS), script=scripts(), keep=st.integers(1, 400))
@settings(max_examples=200, deadline=None)
def test_a_budget_of_tokens_is_kept_but_for_a_last_piece_that_is_larger(
    wire: str, script: Script, keep: int
) -> None:
    messages = written(wire, script)

    compacted = history.compact(messages, keep_tokens=keep, summary="all of it", format=wire)

    see_whole(wire, compacted)
    tail = [one for one in compacted if MARK not in json.dumps(one)]
    if compacted != messages and sum(map(history.tokens, tail)) > keep:
        assert history.compact(tail, keep_tokens=1, summary="", format=wire)[-len(tail) :] == tail


@given(wire=st.sampled_from(FORMATS), script=scripts(), kept=st.integers(0, 60))
@settings(max_examples=200, deadline=None)
def test_pruning_empties_results_alone_and_twice_is_once(
    wire: str, script: Script, kept: int
) -> None:
    messages = written(wire, script)
    long = json.loads(json.dumps(messages).replace("x" * 40, "x" * 4_000))

    def prune(given: list[Message]) -> Any:
        return history.prune(
            given, keep_tokens=40 * kept, protected_turns=1, least_tokens=0, format=wire
        )

    pruned = prune(long)

    see_whole(wire, pruned)
    assert json.dumps(prune(pruned)) == json.dumps(pruned)
    before, after = told(wire, long), told(wire, pruned)
    assert [(what, at, name) for what, at, name, _ in before] == [
        (what, at, name) for what, at, name, _ in after
    ]
    for (what, _, _, old), (_, _, _, new) in zip(before, after, strict=True):
        assert new == old or (what == "result" and new.startswith("(old result left out: about "))


# Handed cases

TEN: Script = [
    ("user", "U"),
    *(
        one
        for n in (1, 2, 3, 4)
        for one in (
            ("model", f"m{n}", [(f"t{n}", "look")]),
            ("results", [(f"t{n}", "look", f"result {n}")]),
        )
    ),
    ("model", "the end", []),
]


@pytest.mark.parametrize("wire", [*ROWS, *BLOCKS])
@pytest.mark.parametrize("keep", range(1, 10))
def test_h_comp_1_a_cut_never_falls_between_a_call_and_its_result(wire: str, keep: int) -> None:
    messages = written(wire, TEN)
    assert len(messages) == 10

    compacted = history.compact(messages, keep=keep, format=wire)

    see_whole(wire, compacted)
    first, *tail = compacted
    assert MARK in json.dumps(first)
    assert tail == messages[-len(tail) :]
    assert len(tail) >= keep
    assert told(wire, tail)[0][0] != "result"
    if keep == 6:
        assert tail[0] == messages[3], "the tail starts at call t2"
    for one in messages[1 : len(messages) - len(tail)]:
        if told(wire, [one])[0][0] == "result":
            assert told(wire, [one])[0][3] in json.dumps(first), "what was left out is told"


@pytest.mark.parametrize("wire", FORMATS)
def test_h_comp_1_compacted_extended_and_compacted_again_it_is_still_whole(wire: str) -> None:
    once = history.compact(written(wire, TEN), keep=6, format=wire)
    more = written(
        wire,
        [("model", "m5", [("t5", "look")]), ("results", [("t5", "look", "result 5")])],
    )

    twice = history.compact([*once, *more], keep=6, format=wire)

    see_whole(wire, twice)
    summary = json.dumps(twice[0])
    assert summary.count(MARK) == 1
    assert "result 1" in summary, "the first summary is in the second"
    assert json.dumps(twice[-1]) == json.dumps(more[-1])


# Faults, and what is done about them


def test_each_fault_is_named_with_its_place_and_its_way_out() -> None:
    messages = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a", "name": "look", "input": {}},
                {"type": "tool_use", "id": "b", "name": "look", "input": {}},
                {"type": "tool_use", "id": "b", "name": "edit", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "text", "text": "and then?"},
                {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                {"type": "tool_result", "tool_use_id": "zz", "content": "?"},
            ],
        },
    ]

    found = [(one.place, one.kind, one.told, one.way_out) for one in history.check(messages)]

    assert found == [
        (
            "messages[1].content[2]",
            "unanswered",
            "call 'b' of edit has no result",
            "it is answered with an error",
        ),
        (
            "messages[1].content[2]",
            "id",
            "call 'b' of edit has the id of an earlier one",
            "it is given one of its own",
        ),
        (
            "messages[2].content[2]",
            "misplaced",
            "the result of call 'b' of look does not stand first in the user's next message",
            "it is put there",
        ),
        (
            "messages[2].content[3]",
            "repeated",
            "the call 'a' of a result is answered already",
            "it is dropped",
        ),
        (
            "messages[2].content[4]",
            "orphan",
            "the call 'zz' of a result is nowhere",
            "it is dropped",
        ),
    ]
    repaired = history.repair(messages)
    new = repaired[1]["content"][2]["id"]
    assert [block.get("tool_use_id") for block in repaired[2]["content"]] == ["a", "b", new, None]
    assert repaired[2]["content"][2]["is_error"] is True


def test_a_result_that_turns_up_takes_the_place_of_the_error_that_it_was_lost() -> None:
    call = written("openai-chat", [("user", "U"), ("model", "", [("a", "look")])])
    lost = history.repair(call)
    late = {"role": "tool", "tool_call_id": "a", "content": "here it is"}

    repaired = history.repair([*lost, {"role": "user", "content": "?"}, late])

    assert lost[-1] == {"role": "tool", "tool_call_id": "a", "content": LOST}
    assert repaired == [*call, late, {"role": "user", "content": "?"}]


@pytest.mark.parametrize("wire", FORMATS)
def test_the_calls_of_the_last_message_may_be_open_where_the_host_says_so(wire: str) -> None:
    messages = written(wire, [*TEN, ("user", "more"), ("model", "m5", [("t5", "look")])])

    assert history.check(messages, format=wire, open_end=True) == ()
    assert history.repair(messages, format=wire, open_end=True) == messages
    assert [one.kind for one in history.check(messages, format=wire)] == ["unanswered"]


def test_ids_that_are_missing_are_given_by_place() -> None:
    messages = [
        {"role": "assistant", "content": [{"toolUse": {"name": "look", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"content": [{"text": "x"}]}}]},
    ]

    repaired = history.repair(messages)

    given = repaired[0]["content"][0]["toolUse"]["toolUseId"]
    assert repaired[1]["content"][0]["toolResult"]["toolUseId"] == given
    assert [one.kind for one in history.check(messages)] == ["id", "id"]


def test_the_older_form_of_one_call_without_an_id_is_answered_in_its_form() -> None:
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}

    repaired = history.repair([call, {"role": "user", "content": "?"}])

    assert repaired[1] == {"role": "function", "name": "f", "content": LOST}
    assert history.check(repaired) == ()


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("custom_tool_call", {"type": "custom_tool_call_output", "call_id": "a", "output": LOST}),
        ("local_shell_call", {"type": "local_shell_call_output", "id": "a", "output": LOST}),
        (
            "apply_patch_call",
            {
                "type": "apply_patch_call_output",
                "call_id": "a",
                "status": "failed",
                "output": LOST,
            },
        ),
        (
            "shell_call",
            {
                "type": "shell_call_output",
                "call_id": "a",
                "output": [
                    {
                        "stdout": "",
                        "stderr": LOST,
                        "outcome": {"type": "exit", "exit_code": 1},
                    }
                ],
            },
        ),
        ("computer_call", None),
        ("mcp_approval_request", None),
    ],
)
def test_each_kind_of_item_is_answered_in_its_way_or_left_out(
    kind: str, answer: Message | None
) -> None:
    key = "id" if kind == "mcp_approval_request" else "call_id"
    call = {"type": kind, key: "a"}

    repaired = history.repair([{"role": "user", "content": "go"}, call])

    assert repaired[1:] == ([] if answer is None else [call, answer])
    assert history.check(repaired) == ()


def test_an_approval_names_its_request() -> None:
    items = [
        {"type": "mcp_approval_request", "id": "r1"},
        {"type": "mcp_approval_response", "approval_request_id": "r1", "approve": True},
    ]

    assert history.check(items) == ()
    assert history.repair(items[1:]) == []


def test_what_the_provider_searches_by_itself_needs_no_answer() -> None:
    item = {"type": "tool_search_call", "call_id": "s", "execution": "server"}

    assert history.check([item]) == ()
    assert history.repair([{**item, "execution": "client"}]) == []


def test_results_of_calls_that_stand_with_the_provider_are_no_orphans() -> None:
    output = {"type": "function_call_output", "call_id": "a", "output": "x"}

    assert [one.kind for one in history.check([output])] == ["orphan"]
    assert history.check({"input": [output], "previous_response_id": "resp_1"}) == ()
    assert history.check([{"type": "item_reference", "id": "fc_1"}, output]) == ()


def test_between_two_answers_of_the_model_a_message_is_left_even_if_its_results_are_not() -> None:
    stray = written("bedrock-converse", [("results", [("zz", "look", "?")])])
    messages = [
        *written("bedrock-converse", [("user", "U"), ("model", "one", [])]),
        *stray,
        *stray,
        *written("bedrock-converse", [("model", "two", [])]),
    ]

    repaired = history.repair(messages)

    assert [one["role"] for one in repaired] == ["user", "assistant", "user", "assistant"]
    assert repaired[2]["content"] == [{"text": "(a result stood here that belongs to no call)"}]


def test_ids_of_google_that_are_the_same_in_one_turn_are_made_different() -> None:
    call = {"functionCall": {"id": "a", "name": "look", "args": {}}}
    answer = {"functionResponse": {"id": "a", "name": "look", "response": {"output": "1"}}}
    messages = [
        {"role": "model", "parts": [call, call]},
        {"parts": [answer, answer]},
    ]

    repaired = history.repair(messages)

    calls = [part["functionCall"]["id"] for part in repaired[0]["parts"]]
    assert calls[0] == "a"
    assert calls[1] != "a"
    assert [part["functionResponse"]["id"] for part in repaired[1]["parts"]] == calls
    assert history.check(repaired) == ()


@pytest.mark.parametrize("wire", ITEMS)
def test_the_same_id_twice_in_a_list_of_items_is_made_different(wire: str) -> None:
    twice = [("model", "m", [("a", "look")]), ("results", [("a", "look", "r")])] * 2

    repaired = history.repair(written(wire, twice), format=wire)

    see_whole(wire, repaired)
    ids = [name for what, _, name, _ in told(wire, repaired) if what == "call"]
    assert len(set(ids)) == 2


def test_open_calls_stay_behind_the_cut() -> None:
    messages = written("openai-chat", [*TEN, ("user", "on"), ("model", "m5", [("t5", "look")])])

    compacted = history.compact(messages, keep=1, open_end=True)

    assert compacted[1:] == messages[-1:]


def test_the_outline_tells_of_custom_tools_of_numbers_and_of_nothing() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    bare = {"id": "b", "type": "function", "function": {"name": "bare"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "text", "text": ""}]},
        {"role": "assistant", "content": None, "tool_calls": [custom, bare]},
        {"role": "tool", "tool_call_id": "a", "content": [{"json": {"n": 1}}, 7]},
        {"role": "tool", "tool_call_id": "b", "content": None},
        {"role": "user", "content": "on"},
    ]

    text = history.compact(messages, keep=1)[0]["content"]

    assert "- user: go" in text
    assert "- called patch(*** Begin) → 7" in text
    assert "- called bare() →" in text


# Forms


def test_a_request_is_given_back_as_a_request() -> None:
    body = {"model": "m", "messages": written("openai-chat", TEN), "tools": []}

    compacted = history.compact(body, keep=2)

    assert compacted.keys() == body.keys()
    assert len(compacted["messages"]) == 4  # the summary, call t4, its result, the end
    assert history.repair(body) == body


def test_the_messages_of_the_system_stay_at_the_beginning() -> None:
    system = {"role": "system", "content": "be brief"}

    compacted = history.compact([system, *written("openai-chat", TEN)], keep=1, summary="so far")

    assert compacted[:2] == [system, {"role": "user", "content": f"{MARK}\nso far"}]


def test_a_summary_joins_the_users_message_where_two_of_one_side_are_refused() -> None:
    messages = written("bedrock-converse", [*TEN, ("user", "more"), ("model", "yes", [])])

    compacted = history.compact(messages, keep=2, summary=lambda gone: f"{len(gone)} messages")

    assert compacted[0]["content"] == [{"text": f"{MARK}\n10 messages"}, {"text": "more"}]
    assert [one["role"] for one in compacted] == ["user", "assistant"]


def test_the_outline_of_very_much_is_bounded_and_counts_what_it_leaves_out() -> None:
    script = [("user", f"question {n} {'x' * 300}") for n in range(200)]

    compacted = history.compact(written("openai-chat", script), keep=1)

    text = compacted[0]["content"]
    assert len(text) <= MOST_CHARACTERS + len(MARK) + 2
    assert "lines left out" in text
    assert "question 0" in text
    assert "question 198" in text


def test_objects_of_a_library_are_read_as_what_they_hold() -> None:
    from openai.types.chat import ChatCompletionMessage  # noqa: PLC0415 - a second, for one test

    call = written("openai-chat", [("model", "", [("a", "look")])])[0]

    repaired = history.repair([ChatCompletionMessage.model_validate(call)])

    assert repaired[1]["tool_call_id"] == "a"


@pytest.mark.parametrize(
    ("given_", "told_"),
    [
        ("text", "history: expected a list of messages, not str"),
        ({"model": "m"}, "history: no list of messages. Give the list itself"),
        (["x"], r"messages\[0\]: expected a message, not str"),
        ([{"role": "nobody", "content": ""}], r"messages\[0\].role: 'nobody' is not known here"),
        ([{"role": "tool"}], r"messages\[0\]: a result without content"),
        (
            [{"role": "assistant", "tool_calls": "x"}],
            r"messages\[0\].tool_calls: expected a list",
        ),
        (
            [{"role": "assistant", "tool_calls": ["x"]}],
            r"messages\[0\].tool_calls\[0\]: expected an object, not str",
        ),
        (
            [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}],
            r"messages\[0\].content\[0\]: a call in the user's message",
        ),
        (
            [{"role": "assistant", "content": [{"toolResult": {}}]}],
            r"messages\[0\].content\[0\]: a result in the model's message",
        ),
        (
            [
                {"role": "tool", "tool_call_id": "a", "content": ""},
                {"role": "model", "parts": []},
            ],
            r"messages\[1\]: a message of google-generate, but messages\[0\] is openai-chat: a",
        ),
        ([{"type": "reasoning"}, {}], r"messages\[1\]: an item without a type or a role"),
        ([{"type": "user_input"}, {}], r"messages\[1\]: a step without a type"),
        ([{"parts": "x", "role": "x"}], r"messages\[0\].role: 'x' is not known here"),
        ([{"parts": 3}], r"messages\[0\].parts: expected a list, not int"),
    ],
)
def test_what_cannot_be_read_is_named_and_left_as_it_is(given_: Any, told_: str) -> None:
    before = copy.deepcopy(given_)

    for act in (history.check, history.repair, history.prune):
        with pytest.raises(HistoryError, match=told_):
            act(given_)

    assert given_ == before


def test_a_format_that_is_named_is_held_to() -> None:
    with pytest.raises(HistoryError, match=r"there is no format 'x'. Known are cohere-v2, ollama"):
        history.check([], format="x")
    with pytest.raises(HistoryError, match="the format that was named is anthropic-messages"):
        history.check(written("openai-chat", TEN), format="anthropic-messages")
    with pytest.raises(HistoryError, match=r"messages\[0\]: a message without content"):
        history.check([{"role": "user"}], format="anthropic-messages")


def test_how_much_stays_must_be_said_once() -> None:
    with pytest.raises(UsageError, match="say how much stays"):
        history.compact([])
    with pytest.raises(UsageError, match="say how much stays"):
        history.compact([], keep=1, keep_tokens=1)
    with pytest.raises(UsageError, match="something must stay"):
        history.compact([], keep=0)
    assert history.compact([], keep_tokens=1) == []


def test_results_of_named_tools_and_of_the_last_answers_are_not_pruned() -> None:
    long = "y" * 4_000
    script = [
        ("user", "U"),
        *(
            one
            for n, name in enumerate(["look", "skill", "look", "look"])
            for one in (
                ("model", f"m{n}", [(f"t{n}", name)]),
                ("results", [(f"t{n}", name, long)]),
            )
        ),
    ]
    messages = written("openai-chat", script)

    pruned = history.prune(
        messages, keep_tokens=0, protected_turns=1, least_tokens=0, keep_tools=["skill"]
    )

    assert [one["content"] == long for one in pruned if one["role"] == "tool"] == [
        False,
        True,
        False,
        True,
    ]
    assert history.prune(messages, keep_tokens=0, least_tokens=10_000) == messages


def test_pictures_count_as_pictures_and_not_as_their_letters() -> None:
    picture = {"type": "image", "source": {"type": "base64", "data": "A" * 1_000_000}}
    url = {"image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}

    assert history.tokens(picture) < 1_700
    assert history.tokens([url, url]) < 3_300
    assert history.tokens("word " * 100) == 125
    assert history.tokens("語" * 30) == 20


# Compaction in a host's loop


def long_history() -> list[Message]:
    spoken: list[tuple[Any, ...]] = [
        ("user", "x" * 400) if n % 2 else ("model", "x" * 400, []) for n in range(20)
    ]
    return written("openai-chat", [("user", "U"), *spoken])


def test_a_short_history_is_given_back_itself() -> None:
    messages = long_history()

    assert asyncio.run(history.Compaction(limit_tokens=100_000)(messages)) is messages


def test_old_results_are_emptied_before_anything_is_summarised() -> None:
    script = [*TEN[:-1], ("model", "m5", [("t5", "look")]), ("results", [("t5", "look", "r")])]
    messages = json.loads(
        json.dumps(written("anthropic-messages", script)).replace("result 1", "z" * 40_000)
    )

    async def fails(_: list[Message]) -> str:
        raise AssertionError

    shorter = asyncio.run(
        history.Compaction(limit_tokens=5_000, keep_tokens=1_000, summarise=fails)(messages)
    )

    assert shorter[2]["content"][0]["content"].startswith("(old result left out: about 10,0")
    assert shorter[3:] == messages[3:]


def test_a_summary_may_come_from_a_model_or_from_the_outline() -> None:
    async def asked(gone: list[Message]) -> str:
        return f"{len(gone)} messages about x"

    messages = long_history()
    by_model = asyncio.run(
        history.Compaction(limit_tokens=1_000, keep_tokens=500, summarise=asked)(messages)
    )
    by_outline = asyncio.run(history.Compaction(limit_tokens=1_200)(messages))

    assert by_model[0]["content"].endswith("messages about x")
    assert history.tokens(by_model) < 1_000
    assert by_outline[0]["content"].startswith(MARK)


def test_after_three_failures_in_a_row_no_summary_is_tried_any_more() -> None:
    tried: list[int] = []

    def summarise(gone: list[Message]) -> str:
        tried.append(len(gone))
        if len(tried) == 2:
            return "well"
        raise OSError("no model there")

    compaction = history.Compaction(limit_tokens=1_000, keep_tokens=500, summarise=summarise)
    messages = long_history()

    async def loop() -> list[bool]:
        return [await compaction(messages) is messages for _ in range(8)]

    kept = asyncio.run(loop())

    assert kept == [True, False, True, True, True, True, True, True]
    assert len(tried) == 5
    assert compaction.given_up
    assert compaction.error == "OSError: no model there"
    compaction.reset()
    assert not compaction.given_up


@pytest.mark.parametrize(
    ("summary", "error"),
    [("  ", "the summary is empty"), ("s" * 100_000, "nothing would be saved")],
)
def test_a_summary_that_helps_nothing_counts_as_a_failure(summary: str, error: str) -> None:
    compaction = history.Compaction(limit_tokens=1_000, summarise=lambda _: summary)
    messages = long_history()

    assert asyncio.run(compaction(messages)) is messages
    assert error in compaction.error
    assert compaction.failures == 1


def test_one_piece_that_is_too_long_cannot_be_compacted() -> None:
    compaction = history.Compaction(limit_tokens=100)
    messages = written("openai-chat", [("user", "x" * 4_000)])

    assert asyncio.run(compaction(messages)) is messages
    assert "what stays is one piece" in compaction.error


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="keep_tokens=10 of limit_tokens=10"):
        history.Compaction(limit_tokens=10, keep_tokens=10)


# What was recorded


def records(name: str) -> list[dict[str, Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not beside this checkout")
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_recorded_requests_are_whole_and_stay_so_however_they_are_cut() -> None:
    seen = 0
    for record in records("provider_exchanges.jsonl"):
        request = record.get("request") or {}
        key = next(
            (
                one
                for one in ("messages", "contents", "input")
                if isinstance(request.get(one), list)
            ),
            None,
        )
        if key is None:
            continue
        seen += 1
        wire = record["dialect"]
        assert history.check(request, format=wire) == (), record["conv"]
        assert history.check(request) == (), record["conv"]
        assert history.repair(request, format=wire) == request
        for keep in range(1, len(request[key]) + 1):
            compacted = history.compact(request, keep=keep, format=wire)
            assert history.check(compacted, format=wire) == ()
            assert history.compact(compacted, keep=keep, format=wire) == compacted
    assert seen > 150


def test_recorded_transcripts_are_read_and_what_is_torn_is_mended() -> None:
    kept = [one["record"] for one in records("claude_code_records.jsonl")]
    lines = [record["message"] for record in kept if "message" in record]

    repaired = history.repair(lines)

    assert history.check(lines)
    assert history.check(repaired) == ()
    assert history.repair(repaired) == repaired


# The command


def command(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["history", "check", *arguments], catch_exceptions=True)
    return result.exit_code, result.output + str(result.exception or "")


def test_the_command_tells_what_is_wrong_and_repairs_it(tmp_path: Path) -> None:
    torn, mended = tmp_path / "torn.json", tmp_path / "mended.json"
    torn.write_text(json.dumps({"model": "m", "messages": written("openai-chat", TEN)[:2]}))

    code, said = command(str(torn))
    repaired = command(str(torn), "--repair", "-o", str(mended))

    assert code == 1
    assert "messages[1].tool_calls[0]  call 't1' of look has no result: it is answered" in said
    assert "1 fault; mend with --repair -o FILE" in said
    assert repaired[0] == 0
    assert f"1 fault mended; written to {mended}" in repaired[1].replace("\n", "")
    assert json.loads(mended.read_text())["messages"][2]["content"] == LOST
    assert command(str(mended))[:1] == (0,)
    assert "whole" in command(str(mended))[1]
    assert command(str(torn), "--open")[0] == 0
    assert json.loads(command(str(torn), "--json")[1].split("\n1")[0].strip())["faults"]


def test_the_command_reads_a_message_in_each_line_and_transcripts(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    messages = written("anthropic-messages", TEN)
    wrapped = [{"type": one["role"], "uuid": "u", "message": one} for one in messages]
    other = {"type": "summary", "uuid": "v"}
    file.write_text("\n".join(map(json.dumps, [*messages[:3], *wrapped[3:], other])))

    assert command(str(file)) == (0, "whole\n")
    same = tmp_path / "same.json"
    assert command(str(file), "--repair", "-o", str(same))[0] == 0
    assert json.loads(same.read_text()) == messages


def test_the_command_writes_nothing_where_it_cannot_read(tmp_path: Path) -> None:
    file, out = tmp_path / "h.json", tmp_path / "out.json"

    assert "cannot be read" in command(str(file))[1]
    file.write_text("{")
    assert "it is no JSON" in command(str(file), "--repair", "-o", str(out))[1]
    file.write_text('{"role": "user", "content": ""}\n{')
    assert f"{file}:2: it is no JSON" in command(str(file))[1]
    assert "give --repair and --output together" in command(str(file), "--repair")[1]
    assert not out.exists()
