"""Many tools: found by search, counted in tokens, told of when nobody uses them; and the prompt."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from laneway import Effect, Engine, Policy, Search, Shaping, Success, Tool, plan_tool, tool
from laneway.engine.cli.app import app
from laneway.engine.toolsearch.cost import toolset_tokens
from laneway.engine.toolsearch.finding import search_tools
from laneway.engine.toolsearch.index import Index
from laneway.engine.toolsearch.unused import Uses
from laneway.errors import UsageError
from laneway.facts import Row, RunOpened, Setting
from laneway.ids import RunId
from laneway.journal.lease import this_driver

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def numbered(count: int) -> list[Tool[..., Any]]:
    def work(value: int) -> str:
        return f"did {value}"

    return [
        tool(work, name=f"tool_{n}", description=f"Does number {n}.", effect=Effect.READ)
        for n in range(count)
    ]


def reply(number: int, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    blocks = [
        {"type": "tool_use", "id": f"c{number}_{at}", "name": name, "input": arguments}
        for at, (name, arguments) in enumerate(calls)
    ]
    return {"type": "message", "id": f"m{number}", "role": "assistant", "content": blocks}


def names(definitions: list[dict[str, Any]]) -> list[str]:
    return [one["name"] for one in definitions]


# When


@pytest.mark.parametrize(
    ("count", "search", "lazy"),
    [
        (15, Search(most_tokens=0), False),
        (16, Search(most_tokens=0), True),
        (49, Search(), False),
        (50, Search(), True),
        (50, Search.OFF, False),
        (50, None, False),
        (2, Search(lazy=True), True),
        (0, Search(lazy=True), False),
    ],
)
def test_how_many_tools_are_shown_whole(count: int, search: Search | None, lazy: bool) -> None:
    engine = Engine(numbered(count), search=search)

    shown = names(engine.definitions("anthropic-messages"))

    assert shown == (["search_tools"] if lazy else [f"tool_{n}" for n in range(count)])


def test_some_are_shown_always_and_so_are_the_engines_own() -> None:
    engine = Engine(
        [*numbered(60), plan_tool()], search=Search(always=["tool_7"]), shaping=Shaping()
    )

    assert names(engine.definitions("anthropic-messages")) == [
        "tool_7",
        "plan",
        "read_result",
        "search_tools",
    ]


def test_what_was_found_or_called_is_shown_from_then_on_also_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "j.db"

    def made() -> Engine:
        return Engine(numbered(60), search=Search(found=2), journal=path)

    async def first() -> list[list[str]]:
        async with made() as engine, engine.run("r") as run:
            seen = [names(run.definitions("anthropic-messages"))]
            turn = await run.submit(reply(1, ("search_tools", {"query": "number 42"})))
            found = next(iter(turn.outcomes.values()))
            assert isinstance(found, Success)
            assert found.value["tools"][0]["name"] == "tool_42"
            assert found.value["tools"][0]["parameters"]["required"] == ["value"]
            seen.append(names(run.definitions("anthropic-messages")))
            await run.submit(reply(2, ("tool_42", {"value": 1}), ("tool_9", {"value": 2})))
            seen.append(names(run.definitions("anthropic-messages")))
            await run.submit(reply(3, ("search_tools", {"query": "zebra"})))
            return seen

    async def later() -> list[str]:
        async with made() as engine, engine.run("r") as run:
            return names(run.definitions("anthropic-messages"))

    before, found, called = asyncio.run(first())

    assert before == ["search_tools"]
    assert found[:2] == ["search_tools", "tool_42"]
    assert called == [*found, "tool_9"]
    assert asyncio.run(later()) == called


def test_a_search_that_finds_nothing_says_so() -> None:
    made = search_tools(numbered(3))

    assert asyncio.run(made.function(query="zebra")) == {
        "tools": [],
        "hint": "none of 3 tools has these words; try others",
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"always": "x"}, "Search.always is the text 'x'"),
        ({"found": 0}, "Search.found is 0; give 1 or more"),
        ({"most_tokens": -1}, "Search.most_tokens is -1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Search(**options)


def test_a_tool_that_is_always_shown_must_be_one() -> None:
    with pytest.raises(UsageError, match=r"Search.always names 'nope', which is no tool here"):
        Engine(numbered(1), search=Search(always=["nope"]))


# How they are found


def with_words(**words: str) -> list[Tool[..., Any]]:
    def nothing() -> None:
        pass

    return [tool(nothing, name=name, description=text) for name, text in words.items()]


def test_names_are_read_as_words_and_words_by_their_stems() -> None:
    index = Index(
        with_words(
            getUserByID="Look somebody up.",
            send_mail="Write to a customer.",
            deploy="Deploys the building.",
        )
    )

    assert index.find("user", 5) == ["getUserByID"]
    assert index.find("sending mails", 5) == ["send_mail"]
    assert index.find("customers", 5) == ["send_mail"]
    assert index.find("deploy", 5) == ["deploy"]
    assert index.find("getUserByID", 1) == ["getUserByID"]
    assert index.find("", 5) == []


def test_parameters_are_searched_too_and_a_name_counts_more() -> None:
    schema = {
        "type": "object",
        "properties": {"postcode": {"type": "string", "description": "Of the parcel."}},
        "anyOf": [{"required": ["postcode"]}],
    }
    by_parameter = Tool.from_schema(lambda **_: None, schema=schema, name="look", description="x")
    index = Index([by_parameter, *with_words(parcel="y")])

    assert index.find("postcode", 5) == ["look"]
    assert index.find("parcel", 5) == ["parcel", "look"]


@given(st.text(max_size=80), st.integers(1, 5))
def test_no_query_breaks_the_search(query: str, most: int) -> None:
    index = Index(numbered(8))

    assert index.find(query, most) == index.find(query, most)
    assert len(index.find(query, most)) <= most


def recorded() -> list[Tool[..., Any]]:
    path = DATA / "bfcl_tools.json"
    if not path.exists():
        pytest.skip("the recorded tools are not beside this checkout")
    text = path.read_text(encoding="utf-8")
    for theirs, ours in (("dict", "object"), ("float", "number"), ("tuple", "array")):
        text = text.replace(f'"type": "{theirs}"', f'"type": "{ours}"')
        text = text.replace(f'"type":"{theirs}"', f'"type":"{ours}"')
    found: dict[str, Tool[..., Any]] = {
        one["name"]: Tool.from_schema(
            lambda **_: None,
            schema=one["parameters"],
            name=one["name"],
            description=one["description"],
        )
        for tools in json.loads(text).values()
        for one in tools
    }
    return list(found.values())


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("post a tweet", "post_tweet"),
        ("move a file", "mv"),
        ("cancel a flight booking", "cancel_booking"),
        ("start the car engine", "startEngine"),
        ("square root of a number", "square_root"),
    ],
)
def test_recorded_tools_are_found_by_what_they_do(query: str, name: str) -> None:
    assert name in Index(recorded()).find(query, 5)


def test_search_saves_most_of_the_tokens_of_many_tools() -> None:
    tools = recorded()
    engine = Engine(tools)

    whole = sum(toolset_tokens(tools).values())
    first = sum(toolset_tokens(engine.catalogue.shown()).values())

    assert len(tools) > 100
    assert first < whole * 0.15, "at least 85 % saved"


# The prompt


def test_the_prompt_says_what_may_be_asked_for_together() -> None:
    engine = Engine(
        [
            tool(lambda: None, name="look", effect=Effect.READ),
            tool(lambda: None, name="add", effect=Effect.PURE, claims=[]),
            tool(lambda path: None, name="edit", effect=Effect.WRITE, claims=["write file:{path}"]),
            tool(lambda: None, name="save", effect=Effect.WRITE),
            tool(
                lambda: None,
                name="mail",
                effect=Effect.EXTERNAL,
                claims=["lane:mail"],
                approval=True,
            ),
            tool(lambda: None, name="anything"),
            plan_tool(),
        ],
        shaping=Shaping(as_data=True),
    )

    text = engine.prompt()

    assert text == engine.prompt()
    lines = text.split("\n")
    assert lines[0].startswith("- Ask for these together")
    assert lines[0].endswith(": look, add.")
    assert lines[1].endswith("in the order in which you wrote them: edit.")
    assert lines[2].endswith(": save, mail.")
    assert lines[3] == "- Each call of these runs alone; nothing else runs meanwhile: anything."
    assert lines[4].endswith(": mail.")
    assert "in one call of plan instead" in text
    assert "read_result gives the rest" in text
    assert "<data key=…>" in text


def test_the_prompt_lists_what_is_found_by_search_in_a_line_each() -> None:
    tools = [*numbered(250), *with_words(zlong="word " * 50)]

    text = Engine(tools, search=Search(always=["zlong"])).prompt()

    assert "search_tools finds them by what they do" in text
    assert "- tool_7: Does number 7\n" in text
    assert text.endswith("- and 50 more")
    listed = Engine(
        [*with_words(a="word " * 50), *with_words(b="")], search=Search(lazy=True)
    ).prompt()
    assert listed.endswith("…\n- b")
    assert max(map(len, listed.split("\n")[1:])) < 120


def test_the_prompt_names_no_tool_that_the_mode_denies() -> None:
    async def told() -> tuple[str, str]:
        async with (
            Engine(
                [
                    tool(lambda: None, name="look", effect=Effect.READ),
                    tool(lambda: None, name="save", effect=Effect.WRITE),
                ],
                policy=Policy(()),
            ) as engine,
            engine.run("r", mode="plan") as run,
        ):
            return run.prompt(), engine.prompt(mode="plan")

    of_run, of_engine = asyncio.run(told())

    assert "look" in of_run
    assert "save" not in of_run
    assert of_run == of_engine
    assert Engine([]).prompt() == ""


# Use and cost


def test_uses_are_counted_by_run_and_the_longest_unused_come_first(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    (tmp_path / "mine.py").write_text(
        "from laneway import Effect, tool\n"
        "def work(value: int) -> int:\n    return value\n"
        'tools = [tool(work, name=f"t{n}", effect=Effect.READ) for n in range(16)]\n'
    )

    async def drive() -> None:
        engine = Engine(numbered(4), journal=path)
        async with engine, engine.run("r") as run:
            await run.submit(reply(1, ("tool_1", {"value": 1}), ("tool_1", {"value": 2})))
            await run.submit(reply(2, ("nope", {})))

    asyncio.run(drive())
    runner = CliRunner()

    def command(*arguments: str) -> str:
        return runner.invoke(app, ["tools", *arguments], catch_exceptions=False).output

    told = command("unused", "--journal", str(path))
    all_ = command("unused", "--days", "0", "--journal", str(path), "--json")

    assert told.splitlines() == [
        "tool_0  never called",
        "tool_2  never called",
        "tool_3  never called",
        "3 of 4 tools unused for 30 days",
    ]
    last = json.loads(all_)["unused"][-1]
    assert (last["tool"], last["calls"], last["runs"]) == ("tool_1", 2, 1)
    assert "tool_1  last called 0 days ago, 2 times in 1 runs" in command(
        "unused", "--days", "0", "--journal", str(path)
    )


def test_the_cost_of_tools_is_told_the_dearest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "costly.py").write_text(
        "from laneway import Effect, tool\n"
        "def work(value: int) -> int:\n    return value\n"
        'tools = [tool(work, name=f"t{n}", description="d " * n) for n in range(1, 17)]\n'
        'many = [tool(work, name=f"t{n}") for n in range(50)]\n'
        "few = tools[:2]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    runner = CliRunner()

    def command(*arguments: str) -> str:
        return runner.invoke(app, ["tools", *arguments], catch_exceptions=False).output

    told = command("tokens", "--tools", "costly:tools")

    assert told.splitlines()[0].endswith("  t16")
    assert "for 16 tools; they may be found by search" in told
    assert "for 50 tools; by default they are found" in command("tokens", "--tools", "costly:many")
    assert command("tokens", "--tools", "costly:few").rstrip().endswith("for 2 tools")
    assert json.loads(command("tokens", "--tools", "costly:few", "--json"))["tokens"] > 0

    async def journal() -> None:
        async with Engine(numbered(1), journal=tmp_path / "j.db") as engine, engine.run("r"):
            pass

    asyncio.run(journal())
    unused = command("unused", "--tools", "costly:few", "--journal", str(tmp_path / "j.db"))
    assert "2 of 2 tools unused for 30 days, about" in unused


def test_only_the_tools_that_are_asked_about_are_told_of() -> None:
    uses = Uses(["a"])
    opened = RunOpened(run=RunId("r"), driver=this_driver(), setting=Setting(tools={"b": "1"}))
    uses.take([Row(run=RunId("r"), seq=1, wall=time.time(), mono=0.0, fact=opened)])

    assert [one.tool for one in uses.unused(time.time())] == ["a"]
    assert uses.count == 1
