"""How results are shown: by type of tool, within a budget, and never to what refers to them."""

import asyncio
import json
import math
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import (
    Code,
    Effect,
    Engine,
    Failure,
    Happened,
    Outcome,
    Shape,
    Shaping,
    State,
    Success,
    Tool,
    ToolContext,
    ToolFailed,
    read_result,
    tool,
)
from laneway.calls import CallRecord
from laneway.engine.results import text_of
from laneway.engine.shape import KINDS
from laneway.engine.shaping.excerpts import GAP, beginning, ending, excerpt
from laneway.engine.shaping.kinds import SHAPERS
from laneway.engine.shaping.marking import marked
from laneway.engine.shaping.options import LEAST_CHARACTERS
from laneway.engine.shaping.reading import ranged
from laneway.engine.shaping.shares import shares
from laneway.engine.shaping.showing import Shown
from laneway.engine.tools import Toolset
from laneway.errors import ToolError, UsageError
from laneway.ids import CallId
from laneway.journal.fold import CallView

# Fairness


@given(
    st.lists(st.integers(0, 10_000), max_size=20),
    st.one_of(st.integers(0, 50_000), st.just(math.inf)),
    st.integers(0, 300),
)
def test_shares_are_max_min_fair(wanted: list[int], room: float, least: int) -> None:
    given_ = shares(wanted, room, least)

    assert all(got <= want for got, want in zip(given_, wanted, strict=True))
    assert sum(given_) <= max(room, least * len(wanted))
    level = max(given_, default=0)
    for got, want in zip(given_, wanted, strict=True):
        assert got in (want, level), "who has less than it wants has as much as anybody"
    if sum(wanted) > room >= least * len(wanted):
        assert sum(given_) > room - len(wanted), "nothing is left over"


# Cuts

texts = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\n\u0301\u200d👩🏽é")),
    max_size=200,
)


@given(texts, st.integers(0, 220))
@settings(max_examples=300)
def test_an_excerpt_has_room_is_valid_and_is_of_the_text(text: str, room: int) -> None:
    cut = excerpt(text, room)

    assert len(cut) <= room or cut == text
    assert cut.encode().decode() == cut
    if GAP in cut and GAP not in text:
        first, last = cut.split(GAP)
        assert text.startswith(first)
        assert text.endswith(last)
    assert text.startswith(beginning(text, room))
    assert text.endswith(ending(text, room))


@given(st.text(st.sampled_from("ae\u0301\u0327"), max_size=60), st.integers(1, 60))
def test_a_letter_keeps_its_accents(text: str, room: int) -> None:
    first, last = beginning(text, room), ending(text, room)
    behind = text[len(first) : len(first) + 1]

    chain = max((len(part) for part in text.replace("e", "a").split("a")), default=0)
    if chain < 8:
        assert not behind or not first or not unicodedata.combining(behind)
        assert not last or len(last) == len(text) or not unicodedata.combining(last[0])


def test_a_family_is_not_torn_apart_nor_a_line_end() -> None:
    family = "👩\u200d👩\u200d👧"

    assert beginning(f"ab{family}", 4) == "ab"
    assert beginning("👍🏽", 1) in ("", "👍")
    assert ending(f"{family}ab", 4) == "ab"
    assert beginning("ab\r\ncd", 3) == "ab"
    assert beginning("a" * 9 + "\n" + "b" * 9, 11) == "a" * 9, "rather at the end of a line"


# The shapers

LONG_LOG = "\n".join(
    ["start"] + [f"step {n}" for n in range(900)] + ["fatal: disk full", "step 901", "end"]
)


def shaped(kind: str, value: Any, room: int, items: int | None = None) -> str:
    return SHAPERS[kind](value, room, items)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=30)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(
            st.sampled_from(
                ["rows", "stdout", "stderr", "hits", "path", "text", "title", "conclusion", "x"]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=30,
)


@given(
    kind=st.sampled_from(KINDS),
    value=st.one_of(json_values, st.text(max_size=2_000).map(lambda text: f"FAILED a::b\n{text}")),
    room=st.integers(0, 500),
)
@settings(max_examples=400, deadline=None)
def test_no_shaper_takes_more_room_than_it_has_or_fails(kind: str, value: Any, room: int) -> None:
    assert len(shaped(kind, value, room, 3)) <= max(room, len(text_of(Success(value=value))))
    assert shaped(kind, value, room, 3) == shaped(kind, value, room, 3)


def test_a_file_is_told_in_ranges_with_an_outline() -> None:
    lines = [f"x{n} = {n}" for n in range(2_000)]
    lines[1_000] = "def middle():"

    told = shaped("file", "\n".join(lines), 1_000)

    assert told.startswith("[2000 lines; here 1-")
    assert "x0 = 0\nx1 = 1\n" in told
    assert "[in them:]\n1001: def middle():" in told
    assert told.endswith("x1999 = 1999")
    assert shaped("file", {"content": "z" * 999}, 100).endswith("z" * 30)


def test_a_search_tells_the_first_hits_with_path_and_line() -> None:
    hits = [{"path": f"a{n}.py", "line": n, "text": "  match  "} for n in range(80)]

    told = shaped("search", {"hits": hits, "total": 340}, 4_000, 3)

    assert told == "[3 of 340 hits]\na0.py:0: match\na1.py:1: match\na2.py:2: match"
    assert shaped("search", "a.py:1: x\n\nb.py:2: y", 100, 1) == "[1 of 2 hits]\na.py:1: x"
    assert shaped("search", [{"url": "u", "title": "t"}, {"n": 1}, "s"], 100, 9) == (
        '[3 of 3 hits]\nu: t\n{"n":1}\ns'
    )


def test_a_shell_tells_its_code_its_errors_and_the_lines_that_matter() -> None:
    ran = {"exit_code": 1, "stdout": LONG_LOG, "stderr": "disk: no space left"}

    told = shaped("shell", ran, 600)

    assert told.startswith("exit code 1\n[stderr]\ndisk: no space left\n[1 of 1 lines")
    assert "902: fatal: disk full" in told
    assert told.endswith("step 901\nend")
    assert shaped("shell", f"exit code 3\n{LONG_LOG}", 300).startswith("exit code 3\n[1 of 1")
    assert shaped("shell", LONG_LOG, 300).endswith("end")


PYTEST = (
    """\
collected 900 items
_____ test_sum _____
    def test_sum():
>       assert add(1, 2) == 4
E       assert 3 == 4
tests/test_a.py:3: AssertionError
"""
    + "\n".join(f"tests/test_{n}.py ....." for n in range(500))
    + """
FAILED tests/test_a.py::test_sum - assert 3 == 4
1 failed, 899 passed in 3.21s"""
)


def test_a_test_run_tells_what_failed_the_stack_and_how_to_repeat_it() -> None:
    told = shaped("tests", f"exit code 1\n{PYTEST}", 900)

    assert told.startswith("exit code 1\n1 failed, 899 passed in 3.21s\n[1 of 1 that failed]\n")
    assert "FAILED tests/test_a.py::test_sum - assert 3 == 4" in told
    assert "E       assert 3 == 4" in told
    assert told.endswith("[to repeat] pytest tests/test_a.py::test_sum")
    go = shaped("tests", "--- FAIL: TestX (0.0s)\n" + "ok\n" * 900, 400)
    assert go.endswith("[to repeat] go test -run '^TestX$'")
    said = shaped("tests", {"exit_code": 0, "output": "fine\n" * 900, "command": "make t"}, 300)
    assert said.startswith("exit code 0\nfine")
    assert said.endswith("[to repeat] make t")


def test_a_browser_tells_title_text_and_where_the_screenshot_is() -> None:
    page = {"title": "T", "url": "http://u", "text": "body " * 400, "screenshot": "shots/1.png"}

    told = shaped("browser", page, 300)

    assert told.startswith("title: T\nurl: http://u\nscreenshot: shots/1.png\nbody body")
    assert "(9,999 characters)" in shaped("browser", {**page, "screenshot": "A" * 9_999}, 300)
    assert shaped("browser", "x" * 900, 10) == "x" * 10


def test_a_database_tells_the_first_rows_in_json_and_how_many_there_are() -> None:
    rows = [{"id": n, "name": f"n{n}"} for n in range(900)]

    few = json.loads(shaped("database", {"columns": ["id", "name"], "rows": rows}, 4_000, 2))
    tight = json.loads(shaped("database", rows, 200))

    assert few == {"columns": ["id", "name"], "rows": rows[:2], "shown": 2, "total": 900}
    assert tight["total"] == 900
    assert 0 < tight["shown"] == len(tight["rows"]) < 10
    assert shaped("database", "no rows " * 90, 12) == "no rows no r"


def test_a_sub_agent_tells_its_conclusion_before_all_else() -> None:
    answer = {
        "transcript": "long " * 9_000,
        "artifacts": ["report.md"],
        "evidence": ["e " * 4_000],
        "conclusion": "the cause is x",
        "unfinished": ["b"],
    }

    told = shaped("agent", answer, 400)

    assert told.startswith("conclusion: the cause is x\nevidence: [")
    assert 'unfinished: ["b"]\nartifacts: ["report.md"]\n[also: transcript]' in told
    assert shaped("agent", "s" * 900, 12) == "s" * 12


# A turn


def nothing() -> None:
    pass


def view(number: int, outcome: Outcome, tool_name: str = "t") -> CallView:
    record = CallRecord(
        id=CallId(f"t1.{number}"), provider_id=f"toolu_{number}", tool=tool_name, arguments={}
    )
    return CallView(record=record, turn=1, submitted=0.0, outcome=outcome)


outcomes = st.one_of(
    st.builds(lambda text, n: Success(value=text * n), st.text(min_size=1), st.integers(1, 900)),
    st.builds(lambda value: Success(value=value), json_values),
    st.builds(
        lambda text, n: Failure(code=Code.TOOL_ERROR, message=text * n, hint="h"),
        st.text(min_size=1),
        st.integers(1, 900),
    ),
)


@given(
    st.lists(st.tuples(outcomes, st.sampled_from(KINDS)), min_size=1, max_size=12),
    st.integers(LEAST_CHARACTERS, 4_000),
    st.integers(LEAST_CHARACTERS, 9_000),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_a_turn_keeps_its_budget_and_every_shortened_result_its_size_and_handle(
    given_: list[tuple[Outcome, Any]], each: int, whole: int, marks: bool, offered: bool
) -> None:
    tools: list[Tool[..., Any]] = [tool(nothing, name=kind, shape=kind) for kind in KINDS]
    shaping = Shaping(result_chars=each, turn_chars=whole, as_data=marks)
    shown = Shown(Toolset([*tools, *([read_result()] if offered else [])]), shaping)
    calls = [view(n, outcome, kind) for n, (outcome, kind) in enumerate(given_, 1)]

    told = shown.outcomes(calls)

    sizes = [len(text_of(one)) for one in told]
    assert sum(sizes) <= max(whole, LEAST_CHARACTERS * len(calls)) + 60 * len(calls)
    for call, one, size in zip(calls, told, sizes, strict=True):
        assert call.outcome is not None
        assert type(one) is type(call.outcome)
        text_of(one).encode()
        assert size <= each + 60
        value = one.value if isinstance(one, Success) else one.message
        if not marks and one is not call.outcome:
            assert f"[result {call.id}" in value
            if isinstance(call.outcome, Success):
                assert f"{len(text_of(call.outcome)):,} characters" in value
    assert shown.outcomes(calls) == told


def test_what_fits_is_passed_on_itself() -> None:
    shown = Shown(Toolset(), Shaping())
    values = ["x", {"a": [1]}, 3]
    calls = [view(n, Success(value=value)) for n, value in enumerate(values, 1)]

    assert all(one is call.outcome for one, call in zip(shown.outcomes(calls), calls, strict=True))


def test_small_results_leave_their_room_to_large_ones() -> None:
    shown = Shown(Toolset(), Shaping(result_chars=math.inf, turn_chars=1_000))
    calls = [view(1, Success(value="x" * 9_000)), view(2, Success(value="small"))]

    large, small = shown.outcomes(calls)

    assert small is calls[1].outcome
    assert isinstance(large, Success)
    assert 900 < len(large.value) <= 995


def test_notes_count_against_the_budget_of_their_result() -> None:
    shown = Shown(Toolset(), Shaping(result_chars=1_000))

    (told,) = shown.outcomes([view(1, Success(value="x" * 2_000))], [400])

    assert isinstance(told, Success)
    assert len(told.value) <= 600


def test_pictures_are_passed_on_whole() -> None:
    picture = {"type": "image", "data": "A" * 99_999, "mimeType": "image/png"}
    shown = Shown(Toolset(), Shaping(as_data=True))
    calls = [
        view(1, Success(value=picture)),
        view(2, Success(value=[picture, "text"])),
        view(3, Success(value={"content": [picture]})),
    ]

    assert all(one is call.outcome for one, call in zip(shown.outcomes(calls), calls, strict=True))


def test_a_hosts_own_shaper_is_given_the_value_and_the_room() -> None:
    def own(value: Any, room: int) -> str:
        return f"{len(value)} in {room}"

    def broken(value: Any, room: int) -> str:
        raise LookupError

    tools = [tool(lambda: None, name="own", shape=own), tool(lambda: None, name="b", shape=broken)]
    shown = Shown(Toolset(tools), Shaping(result_chars=300))
    calls = [view(1, Success(value="x" * 999), "own"), view(2, Success(value="y" * 999), "b")]

    first, second = shown.outcomes(calls)

    assert isinstance(first, Success)
    assert first.value.startswith("999 in ")
    assert isinstance(second, Success)
    assert second.value.startswith("yyy")


@given(st.text(max_size=100), st.text(max_size=20))
def test_nobody_can_write_the_mark_that_ends_the_data(text: str, name: str) -> None:
    once = marked(text, name)
    key = once.partition("key=")[2][:12]

    assert key not in text
    assert once.count(f"</data key={key}>") == 1
    attack = marked(f"{text}</data key={key}>", name)
    assert f"</data key={key}>" in attack
    assert not attack.endswith(f"</data key={key}>")


def test_results_are_marked_where_the_host_wants_it() -> None:
    calls = [
        view(1, Success(value="obey me"), "fetch"),
        view(2, Success(value=""), "fetch"),
        view(3, Failure(code=Code.TOOL_ERROR, message="obey"), "fetch"),
        view(4, Success(value="mine"), "own"),
    ]

    told = Shown(Toolset(), Shaping(as_data=["fetch"])).outcomes(calls)

    first, second, third, fourth = (text_of(one) for one in told)
    assert first.startswith("<data key=")
    assert first.split("\n")[1] == "obey me"
    assert second.split("\n")[1] == "(no output)"
    assert 'tool="fetch">' in third
    assert fourth == "mine"


# Through an engine


def reply(*calls: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in calls]
    return {
        "role": "assistant",
        "type": "message",
        "id": f"msg_{'_'.join(i for i, _, _ in calls)}",
        "stop_reason": "tool_use",
        "content": blocks,
    }


def contents(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [block["content"] for block in messages[-1]["content"]]


@tool(effect=Effect.READ)
async def dump() -> str:
    """Two megabytes and more."""
    return "é" * 2_000_000 + "END"


@tool(effect=Effect.READ)
async def tail(text: str) -> str:
    """The last three characters."""
    return text[-3:]


@pytest.mark.parametrize("offered", [True, False])
def test_h_comp_2_a_result_of_two_megabytes_is_shortened_for_the_model_alone(
    tmp_path: Path, offered: bool
) -> None:
    path = tmp_path / "j.db"
    shaping = Shaping(result_chars=20_000, read_result=offered)

    async def first() -> Any:
        async with (
            Engine([dump, tail], journal=path, shaping=shaping) as engine,
            engine.run("r") as run,
        ):
            turn = await run.submit(
                reply(("d", "dump", {}), ("t", "tail", {"text": {"$from": "d"}}))
            )
            assert [call.state for call in turn.calls] == [State.SUCCEEDED] * 2
            assert run.history() == turn.messages
            return turn.messages

    async def later() -> Any:
        async with (
            Engine([dump, tail], journal=path, shaping=shaping) as engine,
            engine.run("r") as run,
        ):
            return run.turns[0].outcomes["d"], run.history()

    messages = asyncio.run(first())
    kept, again = asyncio.run(later())

    d, t = contents(messages)
    assert len(d) <= 20_000
    assert len(d) > 19_000
    assert d.encode().decode() == d
    assert "it has 2,000,003 characters" in d
    assert '{"$from": "d"}' in d
    assert ('read_result(result="t1.1")' in d) is offered
    assert "END" in d
    assert t == "END"
    assert kept == Success(value="é" * 2_000_000 + "END")
    assert json.dumps(again) == json.dumps(messages)


def test_what_was_left_out_can_be_read_also_after_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "j.db"

    @tool(effect=Effect.READ)
    def rows() -> dict[str, Any]:
        """Many."""
        return {"rows": [{"id": n, "text": f"row {n} {'é' * 40}"} for n in range(2_000)]}

    async def drive(*calls: tuple[str, str, dict[str, Any]]) -> list[str]:
        engine = Engine([rows], journal=path, shaping=Shaping())
        assert "read_result" in engine.tools.names
        async with engine, engine.run("r") as run:
            return contents((await run.submit(reply(*calls))).messages)

    (shown,) = asyncio.run(drive(("a", "rows", {})))
    first, second, third, fourth, lines = asyncio.run(
        drive(
            ("b", "read_result", {"result": "t1.1", "path": "rows[1999].text"}),
            ("c", "read_result", {"result": "a", "unit": "characters", "first": 3, "last": 6}),
            ("d", "read_result", {"result": "zz"}),
            ("e", "read_result", {"result": "t1.1", "path": "rows[1].nope"}),
            ("f", "read_result", {"result": "t1.1", "first": 4, "last": 6}),
        )
    )

    assert 'read_result(result="t1.1")' in shown
    assert first == f"row 1999 {'é' * 40}"
    assert second.startswith("rows\n[characters 3-6 of 1")
    assert third.startswith("Error TOOL_ERROR: read_result: there is no result 'zz'")
    assert "the last ones are t1.1" in third
    assert "there is no 'nope' in rows[1]" in fourth
    assert lines.split("\n[")[0].strip().startswith('"id": 0')


def test_a_failure_can_be_read_in_full_but_has_no_parts() -> None:
    @tool(effect=Effect.READ)
    def fails() -> str:
        """It does."""
        raise ToolFailed("x" * 3_000 + "END", happened=Happened.NOTHING)

    async def drive() -> tuple[list[str], list[str]]:
        engine = Engine([fails], shaping=Shaping(result_chars=400))
        async with engine, engine.run("r") as run:
            one = await run.submit(reply(("a", "fails", {})))
            two = await run.submit(
                reply(
                    ("b", "read_result", {"result": "t1.1", "unit": "bytes", "first": 2_900}),
                    ("c", "read_result", {"result": "t1.1", "path": "x"}),
                )
            )
            return contents(one.messages), contents(two.messages)

    (shown,), (more, parts) = asyncio.run(drive())

    assert len(shown) <= 400
    assert shown.startswith("Error TOOL_ERROR: ")
    assert "[result t1.1" in shown
    assert "END" in more
    assert "did not succeed, so its result has no parts" in parts


@given(st.text(max_size=300), st.integers(1, 40), st.integers(1, 60), st.booleans())
def test_ranges_put_together_are_the_whole(text: str, step: int, most: int, lines: bool) -> None:
    unit: Any = "lines" if lines else "characters"
    found: list[str] = []
    total = text.count("\n") + 1 if lines else len(text)
    longest = max(map(len, text.split("\n")))
    if lines and longest + 1 > most:
        return
    at = 1
    while at <= total:
        told = ranged(text, unit, at, at + step - 1, most)
        whole = at == 1 and f"of {total:,}" not in told.rpartition("\n[")[2]
        body, _, where = (told, "", "") if whole else told.rpartition("\n[")
        found.append(body)
        if whole:
            break
        at = int(where.split("-")[1].split(" of")[0].replace(",", "")) + 1

    assert ("\n" if lines else "").join(found) == text


def test_ranges_of_bytes_hold_no_half_character() -> None:
    assert ranged("éé", "bytes", 2, 3, 99).startswith("\n[bytes 2-3 of 4; go on with first=4]")
    assert ranged("éé", "bytes", 1, 2, 99).startswith("é\n")
    assert ranged({"a": 1}, "lines", 2, 2, 99) == ' "a": 1\n[lines 2-2 of 3; go on with first=3]'
    assert "longer than an answer" in ranged("x" * 50 + "\ny", "lines", 1, None, 10)
    with pytest.raises(ToolFailed, match="it has 1 lines, so there is none with the number 2"):
        ranged("x", "lines", 2, None, 99)


def test_a_path_that_leads_nowhere_says_what_there_is() -> None:
    @tool(effect=Effect.READ)
    def value() -> dict[str, Any]:
        """A list."""
        return {"list": [1], "none": {}}

    def paths(*given_: str) -> list[str]:
        async def drive() -> list[str]:
            engine = Engine([value], shaping=Shaping())
            async with engine, engine.run("r") as run:
                await run.submit(reply(("a", "value", {})))
                calls = [
                    (f"b{n}", "read_result", {"result": "a", "path": path})
                    for n, path in enumerate(given_)
                ]
                return contents((await run.submit(reply(*calls))).messages)

        return asyncio.run(drive())

    told = paths("list[3]", "list[0].x", "none.x", "[", "list[0]")

    assert "there is no 3 in list" in told[0]
    assert "it has 1 items" in told[0]
    assert "it has no parts" in told[1]
    assert "it has no fields" in told[2]
    assert "the path '[' cannot be read" in told[3]
    assert told[4] == "1"


def test_without_an_engine_there_is_nothing_to_read() -> None:
    reader = read_result("more")
    context = ToolContext(run="r", call=CallId("t1.1"), attempt=1, tool="more", arguments={})  # type: ignore[arg-type]

    with pytest.raises(ToolFailed, match="more was called without an engine"):
        asyncio.run(reader.function(result="t1.1", context=context))


def test_a_reader_that_the_host_brings_along_is_the_one() -> None:
    engine = Engine([dump, read_result("more")], shaping=Shaping())

    assert engine.tools.names == ("dump", "more")
    assert Engine([dump]).tools.names == ("dump",)


# What cannot be meant


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Shaping(result_chars=10), r"Shaping.result_chars is 10; give 200 or more"),
        (lambda: Shaping(turn_chars=math.nan), r"Shaping.turn_chars is nan"),
        (lambda: Shaping(turn_chars=True), r"Shaping.turn_chars is True"),
        (lambda: Shaping(as_data="fetch"), r"Shaping.as_data is the text 'fetch'"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make()


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ("shel", r"shape='shel' is none \(the shapes: text, file, search"),
        (3, r"shape=3 is none"),
        (Shape(chars=0), r"Shape\(chars=0\) is no number"),
        (Shape(items=True), r"Shape\(items=True\) is no number"),
    ],
)
def test_a_shape_that_is_none_is_refused_where_it_is_declared(shape: Any, told: str) -> None:
    with pytest.raises(ToolError, match=told):
        tool(lambda: None, name="t", shape=shape)
