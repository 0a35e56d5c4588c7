"""OpenAI responses: items of many kinds, of which only some are ours to run."""

from typing import Any

import pytest
from openai.types.responses import ParsedResponse, ResponseInputItemParam
from openai.types.responses.response_input_item import ResponseInputItem
from pydantic import TypeAdapter

from laneway.engine.providers import Answer, Reply, format_named, parse
from laneway.engine.providers.openai_responses import approval_requests
from laneway.engine.providers.parts import image_part
from laneway.outcomes import Code, Failure, Outcome, Success

WIRE = format_named("openai-responses")
LOST = Failure(code=Code.TOOL_ERROR, message="It broke.")


def response(*items: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "output": list(items), **fields}


def one_result(
    item: dict[str, Any], outcome: Outcome, note: str = "", warning: str = ""
) -> list[dict[str, Any]]:
    """The items that answer the only call."""
    reply = parse(response(item))
    (asked,) = reply.calls
    answer = Answer(id=asked.id, name=asked.name, outcome=outcome, note=note, warning=warning)
    rendered = WIRE.render(reply.message, [answer])
    assert rendered[0] == item
    for one in rendered:
        accepted(one)
    return rendered[1:]


def accepted(item: dict[str, Any]) -> None:
    """See that the SDK's own types know an item."""
    if "role" in item:
        item = {"type": "message", **item}
    TypeAdapter[Any](ResponseInputItem).validate_python(item)
    assert ResponseInputItemParam is not None


def call(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "id": "i_1", "call_id": "c_1", "status": "completed", **fields}


def test_h_args_3_a_call_cut_off_by_the_limit_is_answered_and_the_one_before_runs() -> None:
    reply = parse(
        {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [
                call("function_call", name="write", arguments='{"path": "a.txt"}'),
                {
                    **call("function_call", name="write", arguments='{"path": "b.txt", "te'),
                    "call_id": "c_2",
                    "id": "i_2",
                    "status": "incomplete",
                },
            ],
        }
    )

    first, second = reply.calls
    assert first.fault is None
    assert first.cut is None, "its item is complete"
    assert second.fault is not None
    assert second.fault.code is Code.TRUNCATED_CALL
    answers = [
        Answer(id="c_2", name="write", outcome=second.fault),
        Answer(id="c_1", name="write", outcome=Success(value="ok")),
    ]
    outputs = WIRE.render(reply.message, answers)[2:]
    assert [one["call_id"] for one in outputs] == ["c_1", "c_2"]
    assert "output limit" in outputs[1]["output"]


def test_an_item_that_its_provider_calls_incomplete_is_not_run_though_it_looks_whole() -> None:
    item = {**call("function_call", name="f", arguments='{"n": 1}'), "status": "incomplete"}

    (asked,) = parse(response(item)).calls

    assert asked.arguments is None
    assert asked.fault is not None
    assert asked.fault.code is Code.TRUNCATED_CALL


def test_a_custom_tool_takes_a_text() -> None:
    item = call("custom_tool_call", name="sql", input="SELECT 1")
    (asked,) = parse(response(item)).calls

    assert (asked.name, asked.arguments) == ("sql", {"input": "SELECT 1"})
    (output,) = one_result(item, Success(value={"rows": 1}))
    assert output == {
        "type": "custom_tool_call_output",
        "call_id": "c_1",
        "output": '{"rows":1}',
    }
    changed = WIRE.with_arguments({"output": [item]}, {"c_1": {"input": "SELECT 2"}})
    assert changed["output"][0]["input"] == "SELECT 2"


def test_a_call_of_a_program_is_answered_to_the_program() -> None:
    caller = {"type": "program", "caller_id": "p_1"}

    (output,) = one_result(
        call("function_call", name="f", arguments="{}", caller=caller), Success(value="x")
    )

    assert output["caller"] == caller


@pytest.mark.parametrize(
    "item",
    [
        call("web_search_call", action={"type": "search", "query": "x"}),
        call("mcp_call", name="ask", arguments="{}", server_label="s", output="x"),
        call("code_interpreter_call", name="code", arguments='{"code": "1"}'),
        call("shell_call", action={"commands": []}, environment={"type": "container_reference"}),
        call("tool_search_call", arguments={}, execution="server"),
        call("tool_search_call", arguments={}),
        call("program", code="x", fingerprint="y"),
        call("image_generation_call", result=None),
        call("something_new_call", name="x"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "mcp_approval_request", "id": "m", "name": "f", "arguments": "{}"},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
    ],
    ids=lambda item: item["type"],
)
def test_what_the_provider_runs_is_neither_run_nor_answered_and_comes_back_untouched(
    item: dict[str, Any],
) -> None:
    reply = parse(response(item))

    assert reply.calls == ()
    assert WIRE.render(reply.message, []) == [item]


def test_a_call_whose_output_stands_beside_it_has_been_run() -> None:
    items = [
        call("shell_call", action={"commands": ["ls"]}),
        {"type": "shell_call_output", "call_id": "c_1", "output": []},
        {**call("function_call", name="f", arguments="{}"), "id": "i_2", "call_id": "c_2"},
    ]

    reply = parse(response(*items))

    assert [asked.id for asked in reply.calls] == ["c_2"]


def test_a_shell_s_output_is_told_stream_by_stream() -> None:
    item = call("shell_call", action={"commands": ["ls"], "max_output_length": 9})
    (asked,) = parse(response(item)).calls
    assert (asked.name, asked.arguments) == ("shell_call", item["action"])

    (output,) = one_result(item, Success(value={"stdout": "a\n", "stderr": "", "exit_code": 3}))

    assert output == {
        "type": "shell_call_output",
        "call_id": "c_1",
        "max_output_length": 9,
        "output": [
            {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}},
        ],
    }


@pytest.mark.parametrize(
    ("outcome", "chunk"),
    [
        (Success(value="a"), {"stdout": "a", "stderr": "", "outcome": ("exit", 0)}),
        (Success(value=[]), {"stdout": "[]", "stderr": "", "outcome": ("exit", 0)}),
        (
            Success(value=[{"stdout": "a"}]),
            {"stdout": "a", "stderr": "", "outcome": ("exit", 0)},
        ),
        (
            Failure(code=Code.TIMEOUT, message="Slow."),
            {"stdout": "", "stderr": "Error TIMEOUT: Slow.", "outcome": ("timeout", None)},
        ),
        (LOST, {"stdout": "", "stderr": "Error TOOL_ERROR: It broke.", "outcome": ("exit", 1)}),
    ],
)
def test_whatever_a_shell_tool_returns_fits_the_form(
    outcome: Outcome, chunk: dict[str, Any]
) -> None:
    (output,) = one_result(call("shell_call", action={"commands": ["ls"]}), outcome)

    (told,) = output["output"]
    ended = told.pop("outcome")
    assert {**told, "outcome": (ended["type"], ended.get("exit_code"))} == chunk


def test_a_patch_is_answered_with_its_status() -> None:
    item = call("apply_patch_call", operation={"type": "delete_file", "path": "x"})
    (asked,) = parse(response(item)).calls
    assert (asked.name, asked.arguments) == ("apply_patch_call", item["operation"])

    (done,) = one_result(item, Success(value="Deleted x"))
    (failed,) = one_result(item, LOST)

    assert (done["status"], done["output"]) == ("completed", "Deleted x")
    assert (failed["status"], failed["output"]) == ("failed", "Error TOOL_ERROR: It broke.")
    changed = WIRE.with_arguments({"output": [item]}, {"c_1": {"path": "y"}})
    assert changed["output"][0]["operation"] == {"path": "y"}


def test_a_local_shell_is_answered_under_the_id_of_its_call() -> None:
    item = call("local_shell_call", action={"type": "exec", "command": ["ls"], "env": {}})

    (output,) = one_result(item, Success(value="a"))

    assert output == {"type": "local_shell_call_output", "id": "c_1", "output": "a"}


SCREEN = call(
    "computer_call",
    action={"type": "screenshot"},
    pending_safety_checks=[{"id": "s1", "code": "malicious", "message": "Sure?"}],
)


def test_a_screen_is_answered_with_a_picture_and_its_checks_are_told_to_the_tool() -> None:
    (asked,) = parse(response(SCREEN)).calls
    assert asked.arguments is not None
    assert asked.arguments["pending_safety_checks"] == SCREEN["pending_safety_checks"]

    (output,) = one_result(SCREEN, Success(value=image_part(b"png")))

    assert output["output"] == {
        "type": "computer_screenshot",
        "image_url": "data:image/png;base64,cG5n",
    }
    assert output["acknowledged_safety_checks"] == SCREEN["pending_safety_checks"]
    changed = WIRE.with_arguments({"output": [SCREEN]}, {"c_1": asked.arguments | {"x": 1}})
    assert changed["output"][0]["action"] == {"type": "screenshot", "x": 1}


def test_a_screen_that_failed_is_answered_with_a_blank_and_words_behind_it() -> None:
    output, words = one_result(SCREEN, LOST)

    assert output["output"]["image_url"].startswith("data:image/png;base64,")
    assert "acknowledged_safety_checks" not in output
    assert words["role"] == "user"
    assert "It broke." in words["content"][0]["text"]


def test_a_note_about_a_picture_of_the_screen_follows_it() -> None:
    output, words = one_result(SCREEN, Success(value=image_part(b"png")), note="Changed.")

    assert output["output"]["image_url"].endswith("cG5n")
    assert words["content"][0]["text"] == "About the call c_1 of computer_call: Changed."


def test_actions_in_a_batch_are_one_argument() -> None:
    item = call("computer_call", actions=[{"type": "screenshot"}], pending_safety_checks=[])
    (asked,) = parse(response(item)).calls

    assert asked.arguments == {"actions": [{"type": "screenshot"}]}
    changed = WIRE.with_arguments({"output": [item]}, {"c_1": {"actions": []}})
    assert changed["output"][0]["actions"] == []


def test_a_search_for_tools_is_answered_with_definitions() -> None:
    item = call("tool_search_call", arguments={"goal": "x"}, execution="client")
    tools = [{"type": "function", "name": "f", "parameters": {}, "strict": False}]

    (found,) = one_result(item, Success(value={"tools": tools}))
    (same,) = one_result(item, Success(value=tools))
    (none,) = one_result(item, LOST)

    assert found == same
    assert (found["tools"], found["execution"], found["status"]) == (tools, "client", "completed")
    assert (none["tools"], none["status"]) == ([], "incomplete")


@pytest.mark.parametrize("given", [None, 5, "x"])
def test_a_built_in_call_without_a_readable_action_is_a_fault(given: Any) -> None:
    (asked,) = parse(response(call("apply_patch_call", operation=given))).calls

    if given is None:
        assert asked.arguments == {}
    else:
        assert asked.fault is not None
        assert asked.fault.code is Code.MALFORMED_ARGUMENTS


def test_a_built_in_call_that_was_cut_is_not_run() -> None:
    item = {**call("shell_call", action={"commands": ["rm"]}), "status": "incomplete"}

    (asked,) = parse(response(item, status="incomplete")).calls

    assert asked.arguments is None
    assert asked.fault is not None
    assert asked.fault.code is Code.TRUNCATED_CALL


def test_requests_for_approval_are_shown_to_the_host_and_answered_by_saying_so() -> None:
    request = {"type": "mcp_approval_request", "id": "m", "name": "f", "arguments": "{}"}
    reply = parse(response(request))

    assert approval_requests(WIRE.render(reply.message, [])) == [request]
    said = WIRE.say({"type": "mcp_approval_response", "approval_request_id": "m", "approve": True})
    assert WIRE.join([*WIRE.render(reply.message, []), said]) == [request, said]


def test_ids_of_items_stand_once() -> None:
    items = [call("function_call", name="f", arguments=f'{{"n": {n}}}') for n in (1, 2)]

    reply = parse(response(*items))

    first, second = reply.message["output"]
    assert first["id"] == "i_1"
    assert "id" not in second
    assert first["call_id"] != second["call_id"]


def test_what_the_sdk_has_parsed_is_not_sent_back() -> None:
    built = ParsedResponse[Any].construct(
        id="r",
        object="response",
        output=[
            {
                "type": "message",
                "content": [{"type": "output_text", "text": "{}", "parsed": {"a": 1}}],
            },
            {**call("function_call", name="f", arguments="{}"), "parsed_arguments": {"a": 1}},
        ],
    )

    rendered = WIRE.render(
        *_answered(parse(built)),
    )

    assert "parsed" not in str(rendered)


def _answered(reply: Reply) -> tuple[dict[str, Any], list[Answer]]:
    return reply.message, [
        Answer(id=asked.id, name=asked.name, outcome=Success(value="x")) for asked in reply.calls
    ]


def test_a_refusal_is_a_message_like_any_other() -> None:
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "No."}],
    }

    reply = parse(response(said, {**said, "id": "second"}))

    assert reply.calls == ()
    assert WIRE.render(reply.message, []) == [said, {**said, "id": "second"}]
