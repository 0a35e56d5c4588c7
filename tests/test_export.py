"""A run in the forms of other programs: nothing lost, nothing that another program would refuse."""

import asyncio
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from laneway import Effect, Run
from laneway.calls import CallRecord, Edge, Reason
from laneway.claims import exclusive, shared
from laneway.errors import DamagedJournalError, JournalError
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    CallEnded,
    CallQueued,
    CallSettled,
    CallStarted,
    Driver,
    Fact,
    HolderStopped,
    HostNoted,
    LaneChanged,
    LossAccepted,
    Row,
    RunOpened,
    RunTaken,
    TurnClosed,
    TurnSubmitted,
)
from laneway.ids import ApprovalId, CallId, RunId
from laneway.journal.export import chrome, jsonl, mermaid, otlp
from laneway.journal.export.escaping import plain_json, quoted, visible
from laneway.journal.export.spans import export_spans, span_id, spans, trace_id
from laneway.journal.fold import fold
from laneway.journal.timeline import timeline
from laneway.outcomes import Code, Failure, Happened, Success
from laneway.states import ARROWS, State
from laneway.testing.sample_facts import every_kind_of_fact, notes, numbered
from laneway.testing.scripted import Do, Raise, Sleep, Stage
from laneway.testing.theatre import RUN, Theatre, plan

SRC = Path(__file__).resolve().parent.parent / "src"
DRIVER = Driver(host="h", boot="b", pid=7, started="1")
A, B = CallId("t1.1"), CallId("t1.2")
NASTY = (
    'a"]\n%%{init: {"theme":"dark"}}%%<img src=x onerror=alert(1)>`$$x$$`#35;&lt;\x1b[31m\u202e\x9b'
)


def busy() -> list[Row]:
    """A run with conflicts, lanes, an approval, a retry, a failure, and a second driver."""
    stage = Stage()
    fails = [ConnectionError("503")]

    def body(_: object) -> str:
        if fails:
            raise fails.pop()
        return "ok"

    theatre = Theatre(
        stage,
        stage.tool("edit", Sleep(2), effect=Effect.WRITE, claims=["write r:{x}"]),
        stage.tool("look", Sleep(1), claims=["read r:{x}"]),
        stage.tool("send", Sleep(1), effect=Effect.EXTERNAL, claims=["lane:mail"], approval=True),
        stage.tool("fetch", Sleep(1), Do(body), retries=2),
        stage.tool("bad", Raise(LookupError("no"))),
        stage.tool("pay", Sleep(60), effect=Effect.EXTERNAL, claims=["lane:bank"]),
    )
    reply = plan(
        {"id": "a", "tool": "edit", "arguments": {"x": "1"}},
        *({"id": f"look{n}", "tool": "look", "arguments": {"x": "1"}} for n in range(3)),
        {"id": "b", "tool": "edit", "arguments": {"x": "1"}},
        *({"id": f"send{n}", "tool": "send"} for n in range(3)),
        {"id": "f", "tool": "fetch", "after": ["a"]},
        {"id": "bad", "tool": "bad"},
        {"id": "c", "tool": "edit", "arguments": {"x": "2"}, "needs": ["bad"]},
        {"id": "pay", "tool": "pay"},
    )

    async def host(run: Run) -> None:
        turn = await run.submit(reply, wait=False)
        await asyncio.sleep(5)
        for question in run.approvals:
            await run.approve(question.id, by="ann")
        await asyncio.sleep(8)
        theatre.crash()
        await turn.close()

    theatre.enter(host)
    theatre.wall_seconds = 3600.0
    theatre.finish()
    return theatre.journal.facts[RUN]


@pytest.fixture(scope="module")
def recorded() -> list[Row]:
    return busy()


def turn_of(*names: str, edges: Sequence[Edge] = ()) -> list[Row]:
    calls = tuple(
        CallRecord(id=CallId(f"t1.{at}"), provider_id=name, tool=name)
        for at, name in enumerate(names, 1)
    )
    asked = TurnSubmitted(turn=1, provider="plan", message=None, calls=calls, edges=tuple(edges))
    return numbered(RUN, [RunOpened(run=RUN, driver=DRIVER), asked])


# JSON Lines


def test_every_kind_of_fact_comes_back_from_its_line() -> None:
    rows = numbered(RUN, every_kind_of_fact())

    written = list(jsonl.lines(rows))

    assert list(jsonl.read_lines(written)) == rows
    assert list(jsonl.read_lines(b"".join(written).decode().split("\n"))) == rows
    for line, row in zip(written, rows, strict=True):
        told = json.loads(line)
        assert list(told) == ["run", "seq", "wall", "mono", "fact"]
        assert (told["run"], told["seq"], told["wall"], told["mono"]) == (
            *(row.run, row.seq),
            *(row.wall, row.mono),
        )
        assert line.count(b"\n") == 1


def test_the_lines_of_a_recorded_run_come_back_as_the_same_rows(recorded: list[Row]) -> None:
    assert list(jsonl.read_lines(jsonl.lines(recorded))) == recorded


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_any_text_comes_back_and_none_steers_a_terminal(text: str, wall: float) -> None:
    row = Row(RunId("r"), 1, wall, -wall, HostNoted(note={"text": text}))

    (line,) = jsonl.lines([row])

    assert list(jsonl.read_lines([line])) == [row]
    assert line.decode().removesuffix("\n").isprintable()


def test_a_line_that_is_no_fact_is_named_by_its_number() -> None:
    (line,) = jsonl.lines(notes(RUN, 1))

    with pytest.raises(DamagedJournalError, match="line 3 is no fact"):
        list(jsonl.read_lines([line, "", "{}"]))
    with pytest.raises(DamagedJournalError, match="fact 1: it cannot be read"):
        list(jsonl.read_lines([line.replace(b"message_said", b"message_sung")]))


def test_what_json_would_falsify_is_refused() -> None:
    row = Row(RUN, 1, 0.0, 0.0, HostNoted(note=float("nan")))

    with pytest.raises(JournalError, match="not finite"):
        list(jsonl.lines([row]))


# Mermaid


def test_a_graph_shows_calls_states_and_reasons(recorded: list[Row]) -> None:
    lines = list(mermaid.chart(fold(RUN, recorded)))

    assert lines[0] == "flowchart TD"
    assert '    subgraph turn1["turn 1"]' in lines
    assert '        t1_1["t1.1 edit (a)<br>SUCCEEDED"]' in lines
    assert '    t1_1 -.->|"conflict r:1"| t1_2' in lines
    assert '    t1_1 --o|"after"| t1_9' in lines
    assert '    t1_10 -->|"needs"| t1_11' in lines
    assert any(line.startswith("        t1_9") and "attempt 2" in line for line in lines)
    assert any(
        line.startswith("        t1_12") and "UNCERTAIN: OUTCOME_UNKNOWN" in line for line in lines
    )
    assert "    class t1_11 SKIPPED" in lines


def test_every_state_has_a_style_and_is_a_class() -> None:
    assert set(mermaid.STYLES) == set(ARROWS)


def test_turns_follow_one_another_and_one_can_be_drawn_alone() -> None:
    rows = turn_of("a")
    closed = TurnClosed(turn=1)
    ended = CallEnded(
        call=A, state=State.CANCELLED, outcome=Failure(code=Code.CANCELLED, message="")
    )
    rows += numbered(RUN, [ended, closed], after=2)
    rows += numbered(RUN, [TurnSubmitted(turn=2, provider="plan", message=None)], after=4)
    view = fold(RUN, rows)

    both, second = list(mermaid.chart(view)), list(mermaid.chart(view, 2))

    assert "    turn1 ==> turn2" in both
    assert second == ["flowchart TD", '    turn2["turn 2: no calls"]']


LINE = re.compile(
    r"flowchart TD|    end|    subgraph turn\d+\[\"turn \d+\"\]"
    r"|        \w+\[\"[^\"\[\]`<>%$*\\]*(?:<br>)[^\"\[`<>%$*\\]*\"\]"
    r"|    \w+ (?:-->|-\.->|--o)\|\"[^\"`<>%$*\\]+\"\| \w+"
    r"|    classDef [A-Z_]+ [a-z0-9:#,-]+|    class [\w,]+ [A-Z_]+"
)


@pytest.mark.parametrize("name", [NASTY, "end", "1. x", "", "**b** ~~c~~ __d__", "[x](y)", "漢 😀"])
def test_no_name_leaves_its_label(name: str) -> None:
    edges = [Edge(A, B, reason, name) for reason in Reason]

    lines = list(mermaid.chart(fold(RUN, turn_of(name, "b", edges=edges))))

    for line in lines:
        assert LINE.fullmatch(line), line
        assert line.isprintable()


@given(st.text())
def test_no_text_leaves_its_quotes(text: str) -> None:
    found = quoted(text)

    assert found.isprintable()
    assert not set(found) & set('"<>`%$*~[]\\')


def test_underscores_within_a_word_stay_readable() -> None:
    assert quoted("read_file _x_ __init__") == ("read_file #95;x#95; #95;#95;init#95;#95;")


# Chrome trace


def events_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    document = json.loads(b"".join(chrome.trace(timeline(rows[0].run, rows))))
    found: list[dict[str, Any]] = document["traceEvents"]
    return found


def check(events: Sequence[dict[str, Any]]) -> None:
    """What Perfetto wants: known phases, named tracks, order, nesting, whole arrows in slices."""
    meta = [one for one in events if one["ph"] == "M"]
    timed = [one for one in events if one["ph"] != "M"]
    assert {one["ph"] for one in timed} <= {"X", "i", "s", "f"}
    assert [one["ts"] for one in timed] == sorted(one["ts"] for one in timed)
    assert all(isinstance(one["ts"], int) and one["ts"] > 0 for one in timed)
    named = {one["tid"]: one["pid"] for one in meta if one["name"] == "thread_name"}
    assert len(named) == sum(one["name"] == "thread_name" for one in meta), "tids are unique"
    pids = {one["pid"] for one in meta if one["name"] == "process_name"}
    assert not pids & set(named)
    for one in timed:
        assert one["pid"] in pids
        assert one.get("s") == "p" or named[one["tid"]] == one["pid"]
    slices: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for one in timed:
        if one["ph"] == "X":
            assert one["dur"] >= 0
            for began, ended in slices[one["tid"]]:
                inside = one["ts"] >= began and one["ts"] + one["dur"] <= ended
                assert inside or one["ts"] >= ended, "slices of a track nest"
            slices[one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    starts = {one["id"]: one for one in timed if one["ph"] == "s"}
    ends = {one["id"]: one for one in timed if one["ph"] == "f"}
    assert len(starts) == sum(one["ph"] == "s" for one in timed)
    assert starts.keys() == ends.keys()
    for at, start in starts.items():
        end = ends[at]
        assert (start["cat"], start["name"]) == (end["cat"], end["name"])
        assert start["ts"] <= end["ts"]
        assert end["bp"] == "e"
        for one in (start, end):
            assert any(began <= one["ts"] <= ended for began, ended in slices[one["tid"]])


def test_a_trace_is_what_perfetto_takes(recorded: list[Row]) -> None:
    events = events_of(recorded)

    check(events)
    edges = [
        edge for row in recorded if isinstance(row.fact, TurnSubmitted) for edge in row.fact.edges
    ]
    assert sum(one["ph"] == "s" for one in events) == len(edges)


def test_a_lane_is_a_track_and_waiting_for_it_another(recorded: list[Row]) -> None:
    events = events_of(recorded)
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    found = [(names[one["tid"]], one["name"], one["dur"]) for one in events if one["ph"] == "X"]

    assert ("turns", "turn 1", 8_000_000) in found
    assert ("r:1", "t1.1 edit", 2_000_000) in found
    assert ("lane:mail", "t1.6 send", 1_000_000) in found
    assert ("lane:mail · waiting", "t1.6 send: awaiting approval", 5_000_000) in found
    assert ("lane:mail · waiting (2)", "t1.7 send: queued", 1_000_000) in found
    assert {name for name, told, _ in found if told.endswith("look")} == {
        "r:1",
        "r:1 (2)",
        "r:1 (3)",
    }
    assert ("no lane", "t1.9 fetch #2", 1_000_000) in found
    assert {one["name"] for one in events if one["ph"] == "i"} >= {
        "asked: t1.6.a1",
        "granted: t1.6.a1",
    }


def test_each_driver_is_a_process_at_its_own_wall_clock(recorded: list[Row]) -> None:
    events = events_of(recorded)

    pids = [one["pid"] for one in events if one["name"] == "process_name"]
    starts = {
        pid: min(one["ts"] for one in events if one["pid"] == pid and one["ph"] == "X")
        for pid in pids
    }

    assert pids == [1, 2]
    assert starts[2] - starts[1] == pytest.approx(3600e6, abs=60e6)
    assert len([one for one in events if one["name"] == "turn 1"]) == 2


def test_open_calls_stuck_bodies_and_vain_waits_are_drawn() -> None:
    calls = tuple(
        CallRecord(id=CallId(f"t1.{at}"), provider_id="", tool="x", claims=(claim,))
        for at, claim in enumerate(
            (exclusive("lane:a"), exclusive("lane:b"), shared("run:r"), exclusive("run:r")), 1
        )
    )
    third, fourth = calls[2].id, calls[3].id
    edges = (Edge(A, B, Reason.AFTER), Edge(third, B, Reason.NEEDS), Edge(B, third, Reason.AFTER))
    late = Failure(code=Code.TIMEOUT, message="", happened=Happened.UNKNOWN)
    question = ApprovalAsked(
        call=fourth, approval=ApprovalId("q"), digest="", arguments={}, rule="x", expires_wall=0
    )
    facts: list[Fact] = [
        RunOpened(run=RUN, driver=DRIVER),
        TurnSubmitted(turn=1, provider="plan", message=None, calls=calls, edges=edges),
        CallQueued(call=A, rule="x"),
        CallStarted(call=A, attempt=1, token=1),
        CallEnded(call=A, state=State.TIMED_OUT, outcome=late, stopped=False),
        CallQueued(call=B, rule="x"),
        CallStarted(call=B, attempt=1, token=2),
        CallEnded(call=third, state=State.SKIPPED, outcome=late),
        question,
        LaneChanged(lane="lane:a", change="paused"),
        LossAccepted(lost=1),
        RunTaken(driver=DRIVER),
        ApprovalAnswered(call=fourth, approval=ApprovalId("q"), granted=False, by=NASTY),
        HolderStopped(call=A),
    ]

    events = events_of(numbered(RUN, facts))

    check(events)
    told = {one["name"] for one in events}
    assert {"t1.1 x: not stopped", "t1.2 x", "t1.3 x: pending", "t1.4 x: awaiting approval"} <= told
    assert {"asked: q", "refused: q", "lane:a paused", "1 damaged facts given up"} <= told
    assert any(one.get("args", {}).get("open") for one in events)
    assert "no driver" in str([one for one in events if one["name"] == "process_name"])


# OpenTelemetry


class Refusing(SpanExporter):
    """Takes one batch."""

    def __init__(self) -> None:
        self.batches = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.batches += 1
        return SpanExportResult.FAILURE if self.batches > 1 else SpanExportResult.SUCCESS


def exported(rows: Sequence[Row], **options: Any) -> tuple[ReadableSpan, ...]:
    exporter = InMemorySpanExporter()
    assert export_spans(rows, exporter, **options)
    return exporter.get_finished_spans()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def test_spans_are_run_turn_call_and_attempt_one_below_the_other(recorded: list[Row]) -> None:
    found = exported(recorded)

    by_id = {number(one): one for one in found}
    assert len(by_id) == len(found)
    assert {one.context.trace_id for one in found if one.context} == {trace_id("r")}
    above = {"turn": "invoke_workflow", "attempt": "execute_tool"}
    for one in found:
        kind = one.name.split()[0]
        if kind == "invoke_workflow":
            assert one.parent is None
            continue
        assert one.parent is not None
        parent = by_id[one.parent.span_id]
        assert parent.name.split()[0] == above.get(kind, "turn")
        assert one.start_time is not None
        assert one.end_time is not None
        assert (parent.start_time or 0) <= one.start_time <= one.end_time <= (parent.end_time or 0)


def test_a_call_follows_the_conventions_for_tools(recorded: list[Row]) -> None:
    found = exported(recorded)

    edit = next(one for one in found if attributes(one).get("laneway.call") == A)
    told = attributes(edit)
    assert edit.name == "execute_tool edit"
    assert told["gen_ai.operation.name"] == "execute_tool"
    assert told["gen_ai.tool.name"] == "edit"
    assert told["gen_ai.tool.call.id"] == "a"
    assert told["gen_ai.tool.type"] == "function"
    assert edit.status.status_code is StatusCode.UNSET
    assert edit.end_time is not None
    assert edit.start_time is not None
    assert edit.end_time - edit.start_time == 2_000_000_000
    bad = next(one for one in found if one.name == "execute_tool bad")
    assert attributes(bad)["error.type"] == "TOOL_ERROR"
    assert bad.status.status_code is StatusCode.ERROR
    tries = [
        one for one in found if one.name == "attempt" and attributes(one)["laneway.call"] == "t1.9"
    ]
    assert [attributes(one).get("error.type") for one in tries] == ["_OTHER", None]
    waited = next(one for one in found if attributes(one).get("laneway.call") == "t1.2")
    assert [link.context.span_id for link in waited.links] == [span_id("r", A)]
    sent = next(one for one in found if attributes(one).get("laneway.call") == "t1.6")
    assert [event.name for event in sent.events] == [
        "laneway.approval.asked",
        "laneway.approval.answered",
    ]


def test_arguments_and_results_leave_only_when_asked_for(recorded: list[Row]) -> None:
    silent, loud = exported(recorded), exported(recorded, content=True)

    assert not any("gen_ai.tool.call.arguments" in attributes(one) for one in silent)
    told = next(attributes(one) for one in loud if attributes(one).get("laneway.call") == A)
    assert json.loads(told["gen_ai.tool.call.arguments"]) == {"x": "1"}
    assert told["gen_ai.tool.call.result"] == "null"


def test_the_same_run_has_the_same_ids_each_time(recorded: list[Row]) -> None:
    first = list(spans(timeline(RUN, recorded)))

    assert list(spans(timeline(RUN, recorded))) == first
    child = RunId("r/t1.6/1")
    (top,) = spans(timeline(child, numbered(child, [RunOpened(run=child, driver=DRIVER)])))
    assert (top.trace_id, top.parent_id) == (trace_id("r"), span_id("r", "t1.6"))
    assert trace_id("r/t1.6/1/t2.1/3/7") == trace_id("r")
    assert trace_id("another") != trace_id("r")


def test_open_calls_settled_ones_and_parts_are_told() -> None:
    part = CallId("t1.1/1")
    calls = (
        CallRecord(id=A, provider_id="a", tool="plan"),
        CallRecord(id=part, provider_id="b", tool="pay", parent=A),
    )
    lost = Failure(code=Code.OUTCOME_UNKNOWN, message="Nobody knows.", happened=Happened.UNKNOWN)
    facts: list[Fact] = [
        RunOpened(run=RUN, driver=DRIVER),
        TurnSubmitted(turn=1, provider="plan", message=None, calls=calls),
        CallQueued(call=part, rule="default"),
        CallStarted(call=part, attempt=1, token=1),
        CallEnded(call=part, state=State.UNCERTAIN, outcome=lost, stopped=False),
        HolderStopped(call=part, late="x"),
        TurnClosed(turn=1),
        CallSettled(call=part, outcome=Success(value=1), by="ann"),
    ]

    found = {one.name: one for one in spans(timeline(RUN, numbered(RUN, facts)))}

    assert found["execute_tool plan"].attributes["laneway.open"] is True
    pay = found["execute_tool pay"]
    assert pay.parent_id == span_id("r", A)
    assert [event.name for event in pay.events] == ["laneway.settled", "laneway.body.stopped"]
    assert pay.events[0].attributes == {"laneway.by": "ann", "laneway.succeeded": True}
    assert found["attempt"].error == "Nobody knows."


def test_an_exporter_that_refuses_gets_no_more() -> None:
    calls = tuple(CallRecord(id=CallId(f"t1.{n}"), provider_id="", tool="x") for n in range(1200))
    asked = TurnSubmitted(turn=1, provider="plan", message=None, calls=calls)
    exporter = Refusing()

    assert not export_spans(numbered(RUN, [RunOpened(run=RUN, driver=DRIVER), asked]), exporter)

    assert exporter.batches == 2
    assert export_spans([], exporter)


def test_otlp_json_is_written_by_the_protocol(recorded: list[Row]) -> None:
    found = list(spans(timeline(RUN, recorded), content=True))

    document = json.loads(
        b"".join(otlp.otlp_json(found, resource={"service.name": "shop", "n": 1.5}))
    )

    (resource,) = document["resourceSpans"]
    assert resource["resource"]["attributes"] == [
        {"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "n", "value": {"doubleValue": 1.5}},
    ]
    (scope,) = resource["scopeSpans"]
    assert scope["scope"] == {"name": "laneway"}
    assert len(scope["spans"]) == len(found)
    for told, one in zip(scope["spans"], found, strict=True):
        assert int(told["traceId"], 16) == one.trace_id
        assert re.fullmatch("[0-9a-f]{32}", told["traceId"])
        assert re.fullmatch("[0-9a-f]{16}", told["spanId"])
        assert told["startTimeUnixNano"] == str(one.began)
        assert told["kind"] == 1
        keys = [attribute["key"] for attribute in told["attributes"]]
        assert len(keys) == len(set(keys))
        assert told.get("status", {}).get("code", 2) == 2
    called = next(one for one in scope["spans"] if one["name"] == "execute_tool send")
    values = {one["key"]: one["value"] for one in called["attributes"]}
    assert values["laneway.attempts"] == {"intValue": "1"}
    answered = called["events"][1]["attributes"]
    assert {"key": "laneway.granted", "value": {"boolValue": True}} in answered
    linked = [one for one in scope["spans"] if "links" in one]
    assert all(
        re.fullmatch("[0-9a-f]{16}", link["spanId"]) for one in linked for link in one["links"]
    )
    assert linked


# Texts, and what it costs


def test_no_export_holds_a_letter_that_steers_a_terminal() -> None:
    rows = turn_of(NASTY, "b", edges=[Edge(A, B, Reason.CONFLICT, NASTY)])
    time = timeline(RUN, rows)

    for written in (
        b"".join(jsonl.lines(rows)),
        b"".join(chrome.trace(time)),
        b"".join(otlp.otlp_json(spans(time, content=True))),
        "\n".join(mermaid.chart(time.view)).encode(),
    ):
        assert all(line.isprintable() for line in written.decode().split("\n"))


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text())))
def test_escaping_json_changes_no_value(value: Any) -> None:
    written = json.dumps(value, ensure_ascii=False).encode()

    escaped = plain_json(written)

    assert json.loads(escaped) == value
    assert escaped.decode().isprintable()


def test_visible_texts_stay_and_others_are_escaped() -> None:
    assert visible("ünï 漢") == "ünï 漢"
    assert visible("\x1b[1m\n") == r"\x1b[1m\n"


def test_exporting_needs_opentelemetry_only_for_its_own_objects() -> None:
    code = (
        "import sys; from laneway.journal.export import chrome, jsonl, mermaid, otlp, spans;"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, check=False, capture_output=True
    )

    assert done.returncode == 0, done.stderr


def test_a_large_run_is_exported_whole() -> None:
    facts: list[Fact] = [RunOpened(run=RUN, driver=DRIVER)]
    for turn in range(1, 51):
        calls = tuple(
            CallRecord(
                id=CallId(f"t{turn}.{n}"),
                provider_id=f"{n}",
                tool="x",
                claims=(exclusive("lane:a"),),
            )
            for n in range(1, 21)
        )
        facts.append(TurnSubmitted(turn=turn, provider="plan", message=None, calls=calls))
        for call in calls:
            facts += [
                CallQueued(call=call.id, rule="x"),
                CallStarted(call=call.id, attempt=1, token=len(facts)),
                CallEnded(call=call.id, state=State.SUCCEEDED, outcome=Success(value=1)),
            ]
        facts.append(TurnClosed(turn=turn))
    rows = numbered(RUN, facts)

    events = events_of(rows)

    assert sum(one["name"].endswith(" x") for one in events) == 1000
    assert len(exported(rows)) == 1 + 50 + 1000 * 2
    assert sum(1 for _ in jsonl.lines(rows)) == len(rows)
