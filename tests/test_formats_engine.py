"""Whole turns in every wire format: run, recorded, resumed, shown as the provider wants them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from laneway import Effect, Engine, Failure, State, Success, Turn, tool
from laneway.engine.providers.definitions import FORMS
from laneway.engine.run import Run
from laneway.errors import PayloadError
from laneway.outcomes import Code
from laneway.testing.clock import run_virtual
from laneway.testing.scripted import Log, Raise, Return, Sleep, Stage
from tests.wires import TEXTUAL, WIRES, Said, answer, calls_in, results_in, said


def given(wire: str, arguments: dict[str, Any]) -> Any:
    return json.dumps(arguments) if wire in TEXTUAL else arguments


def use(own: str, name: str) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": own, "name": name, "input": {}}}


def test_h_pair_1_three_results_stand_in_one_message_before_what_the_user_says() -> None:
    stage = Stage()
    tools = [
        stage.tool("slow", Sleep(0.3), Return("one")),
        stage.tool("bad", Sleep(0.1), Raise(ValueError())),
        stage.tool("silent", Return("")),
    ]
    blocks = [use("u1", "slow"), use("u2", "bad"), use("u3", "silent")]
    reply = {
        "stopReason": "tool_use",
        "output": {"message": {"role": "assistant", "content": blocks}},
    }

    async def main() -> tuple[Turn, list[dict[str, Any]]]:
        async with Engine(tools, clock=stage.make_clock) as engine, engine.run("case") as run:
            turn = await run.submit(reply, wait=False)
            await asyncio.sleep(0.05)
            await run.say("also check B")
            await turn.wait()
            await turn.close()
            return turn, run.history()

    turn, history = run_virtual(main)

    assert [call.state for call in turn.calls] == [
        State.SUCCEEDED,
        State.FAILED,
        State.SUCCEEDED,
    ]
    assert [message["role"] for message in history] == ["assistant", "user"]
    first, second, third, text = history[1]["content"]
    assert [one["toolResult"]["toolUseId"] for one in (first, second, third)] == ["u1", "u2", "u3"]
    assert text == {"text": "also check B"}
    assert first["toolResult"]["status"] == "success"
    assert second["toolResult"]["status"] == "error"
    assert "ValueError" in second["toolResult"]["content"][0]["text"]
    assert third["toolResult"] == {
        "toolUseId": "u3",
        "content": [{"text": "(no output)"}],
        "status": "success",
    }


def test_h_args_3_a_call_that_the_limit_cut_never_enters_its_tool() -> None:
    stage = Stage()
    write = stage.tool(
        "write_text",
        Log("w {path}"),
        Return("ok"),
        effect=Effect.WRITE,
    )
    reply = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [
            {
                "type": "function_call",
                "id": "fc_1",
                "call_id": "call_one",
                "name": "write_text",
                "status": "completed",
                "arguments": '{"path": "a.txt", "text": "ok"}',
            },
            {
                "type": "function_call",
                "id": "fc_2",
                "call_id": "call_two",
                "name": "write_text",
                "status": "incomplete",
                "arguments": '{"path": "b.txt", "text": "lor',
            },
        ],
    }

    async def main() -> Turn:
        async with Engine([write], clock=stage.make_clock) as engine, engine.run("case") as run:
            return await run.submit(reply)

    turn = run_virtual(main)

    assert isinstance(turn.outcomes["call_one"], Success)
    failure = turn.outcomes["call_two"]
    assert isinstance(failure, Failure)
    assert failure.code is Code.TRUNCATED_CALL
    assert stage.entered == {"write_text": 1}
    outputs = turn.messages[2:]
    assert [one["type"] for one in outputs] == ["function_call_output"] * 2
    assert [one["call_id"] for one in outputs] == ["call_one", "call_two"]
    assert "output limit cut" in outputs[1]["output"]
    assert "missing" not in outputs[1]["output"]


@pytest.mark.parametrize("wire", WIRES)
def test_h_name_1_an_invented_tool_is_answered_and_the_others_run(wire: str) -> None:
    stage = Stage()
    calls = [
        Said("t1", "lookup", given(wire, {"key": "a"})),
        Said("t2", "fetch_magic", given(wire, {"key": "b"})),
        Said("t3", "lookup", given(wire, {"key": "c"})),
    ]

    async def main() -> Turn:
        lookup = stage.tool("lookup", Sleep(0.2), Return("v:{key}"))
        async with Engine([lookup], clock=stage.make_clock) as engine, engine.run("case") as run:
            return await run.submit(answer(wire, calls))

    turn = run_virtual(main)

    assert stage.entered == {"lookup": 2}
    results = results_in(turn.messages)
    assert [one.id for one in results] == ["t1", "t2", "t3"]
    texts = [said(one.told) for one in results]
    assert (texts[0], texts[2]) == ("v:a", "v:c")
    assert "There is no tool named" in texts[1]
    assert "lookup" in texts[1]


@pytest.mark.parametrize("wire", WIRES)
def test_the_history_of_a_format_is_the_same_after_a_restart(wire: str, tmp_path: Path) -> None:
    stage = Stage()
    calls = [Said("a", "f", given(wire, {"n": 1})), Said("b", "g", given(wire, {"n": 2}))]
    unnamed = [one._replace(id=None) for one in calls] if wire == "ollama-chat" else calls

    async def drive(run: Run) -> list[dict[str, Any]]:
        begun = await run.say("Go.", provider=wire)
        assert begun == run.history(wire)
        await run.submit(answer(wire, unnamed))
        final = answer(wire, [], text="Done.")
        for name in ("id", "responseId"):
            if name in final:
                final[name] = "r2"
        await run.submit(final)
        return await run.say("Thanks.")

    def tools() -> list[Any]:
        return [stage.tool("f", Return("one")), stage.tool("g", Return("two"))]

    async def main() -> list[dict[str, Any]]:
        engine = Engine(tools(), journal=tmp_path / "runs.db")
        async with engine, engine.run("case") as run:
            return await drive(run)

    async def again() -> list[dict[str, Any]]:
        engine = Engine(tools(), journal=tmp_path / "runs.db")
        async with engine, engine.run("case") as run:
            return run.history()

    shown = asyncio.run(main())

    assert asyncio.run(again()) == shown
    assert [said(one.told) for one in results_in(shown)] == ["one", "two"]
    assert [one.name for one in calls_in(shown)] == ["f", "g"]
    assert "laneway" not in json.dumps(shown)
    texts = json.dumps(shown)
    assert texts.index("Go.") < texts.index("Let me see.") < texts.index("Done.")
    assert texts.index("Done.") < texts.index("Thanks.")


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_that_the_host_says_for_a_call_that_is_not_open_is_refused(wire: str) -> None:
    stage = Stage()
    reply = answer(wire, [Said("a", "f", given(wire, {}))])

    async def main() -> None:
        tools = [stage.tool("f", Return("x"))]
        async with Engine(tools, clock=stage.make_clock) as engine:
            async with engine.run("case") as run:
                turn = await run.submit(reply)
                (result,) = [one for one in turn.messages if results_in([one])]
                before = run.history()
                with pytest.raises(PayloadError, match=r"^message: it holds a result for the call"):
                    await run.say(result)
                assert run.history() == before
            async with engine.run("brought along") as other:
                for message in turn.messages:
                    await other.say(message)
                assert len(other.history(wire)) == len(turn.messages)
                with pytest.raises(
                    PayloadError, match=r"which is not open\. Calls are answered by"
                ):
                    await other.say(result)

    run_virtual(main)


def test_messages_before_the_first_answer_take_a_known_form_only() -> None:
    async def main() -> None:
        async with Engine() as engine, engine.run("case") as run:
            with pytest.raises(PayloadError, match=r"there is no format 'telegraph'"):
                await run.say("x", provider="telegraph")
            assert run.history() == []
            await run.say("x")
            assert run.history() == [{"role": "user", "content": "x"}]
            assert run.history("google-generate") == [{"role": "user", "parts": [{"text": "x"}]}]

    asyncio.run(main())


async def look(path: str, lines: int = 9) -> str:
    """Look at a file."""
    return path * lines


SCHEMA_AT: dict[str, list[Any]] = {
    "anthropic-messages": ["input_schema"],
    "bedrock-converse": ["toolSpec", "inputSchema", "json"],
    "cohere-v2": ["function", "parameters"],
    "google-generate": ["functionDeclarations", 0, "parametersJsonSchema"],
    "google-interactions": ["parameters"],
    "ollama-chat": ["function", "parameters"],
    "openai-chat": ["function", "parameters"],
    "openai-responses": ["parameters"],
}


@pytest.mark.parametrize("wire", WIRES)
def test_tools_are_described_as_each_provider_wants_them(wire: str) -> None:
    engine = Engine([tool(look, effect=Effect.READ)])

    (found,) = engine.definitions(wire)

    inner: Any = found
    for step in SCHEMA_AT[wire]:
        inner = inner[step]
    assert inner["required"] == ["path"]
    assert "Look at a file." in json.dumps(found)
    assert engine.tools.definitions(wire) == [found]
    assert list(FORMS) == WIRES


def test_the_built_in_tools_of_openai_are_offered_as_such() -> None:
    stage = Stage()
    names = ["shell_call", "apply_patch_call", "computer_call", "local_shell_call"]
    engine = Engine([stage.tool(name, Return("x")) for name in [*names, "tool_search_call"]])

    offered = engine.definitions("openai-responses")

    assert [one["type"] for one in offered] == [
        "shell",
        "apply_patch",
        "computer",
        "local_shell",
        "tool_search",
    ]
    assert offered[-1]["execution"] == "client"
    assert Engine([]).definitions("google-generate") == []


def test_a_tool_without_a_description_is_told_to_bedrock_without_one() -> None:
    async def bare(n: int) -> int:
        return n

    (found,) = Engine([tool(bare, effect=Effect.PURE)]).definitions("bedrock-converse")

    assert found["toolSpec"].keys() == {"name", "inputSchema"}
