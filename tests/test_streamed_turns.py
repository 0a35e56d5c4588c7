"""Turns whose answer is still being written: what starts early, and what becomes of it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import pytest

from laneway import Effect
from laneway.benchmarks import streams
from laneway.engine.reexecution import reexecute
from laneway.engine.run import Run
from laneway.engine.streaming.stream import Stream
from laneway.engine.turn import Turn
from laneway.errors import BrokenStreamError, OpenTurnError, PayloadError, UsageError
from laneway.facts import CallEnded, CallStarted, TurnAbandoned, TurnStreamed, TurnSubmitted
from laneway.ids import RunId
from laneway.journal.fold import fold
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.outcomes import Code, Failure, Success
from laneway.states import State
from laneway.testing.scripted import Raise, Return, Sleep, Stage
from laneway.testing.theatre import Theatre, codes, states, values
from laneway.testing.watched import WatchedStore

Event = Mapping[str, Any]
PACE_SECONDS = 1.0


def message(*blocks: Event, stop: str = "tool_use", name: str = "msg_1") -> list[Event]:
    """The events of an Anthropic message, each block in three."""
    events: list[Event] = [
        {
            "type": "message_start",
            "message": {"id": name, "type": "message", "role": "assistant", "content": []},
        }
    ]
    for index, block in enumerate(blocks):
        first = {**block, "input": {}} if "input" in block else {**block, "text": ""}
        text = json.dumps(block["input"]) if "input" in block else block["text"]
        kind = "input_json_delta" if "input" in block else "text_delta"
        field = "partial_json" if "input" in block else "text"
        events += [
            {"type": "content_block_start", "index": index, "content_block": first},
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": kind, field: text},
            },
            {"type": "content_block_stop", "index": index},
        ]
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}})
    events.append({"type": "message_stop"})
    return events


def call(name: str, tool: str, **arguments: Any) -> Event:
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def text(said: str) -> Event:
    return {"type": "text", "text": said}


async def paced(events: Iterable[Any], seconds: float = PACE_SECONDS) -> AsyncGenerator[Any, None]:
    """Each event after a pause."""
    for event in events:
        await asyncio.sleep(seconds)
        yield event


class Broken(Exception):
    """The connection was lost."""


async def broken(events: Iterable[Any], seconds: float = 1.0) -> AsyncGenerator[Any, None]:
    async for event in paced(events, seconds):
        yield event
    raise Broken


def theatre(stage: Stage, **options: Any) -> Theatre:
    return Theatre(
        stage,
        stage.tool("read", Sleep(5), Return("{path}"), claims=["read file:{path}"]),
        stage.tool("look", Return("seen")),
        stage.tool("slow", Sleep(100), Return("late")),
        stage.tool("bad", Raise(ValueError("no"))),
        stage.tool(
            "write", Sleep(1), Return("ok"), effect=Effect.WRITE, claims=["write file:{path}"]
        ),
        stage.tool("mail", Return("sent"), effect=Effect.EXTERNAL),
        stage.tool("peek", Return("peeked"), approval=True),
        **options,
    )


def streams_of(source: object) -> Callable[[Run], Awaitable[Turn]]:
    return lambda run: awaited(run.stream(source))


async def awaited(stream: Stream) -> Turn:
    return await stream


def submitted_at(played: Theatre) -> float:
    """When the message had ended, in monotonic seconds."""
    (row,) = (
        row for row in played.journal.facts[RunId("r")] if isinstance(row.fact, TurnSubmitted)
    )
    return row.mono


def started_at(played: Theatre) -> dict[str, float]:
    rows = played.journal.facts[RunId("r")]
    return {row.fact.call: row.mono for row in rows if isinstance(row.fact, CallStarted)}


# What starts early


def test_a_read_starts_while_the_model_still_writes() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "read", path="/x"), text("and this is why I read it"))

    turn = played.enter(lambda run: awaited(run.stream(paced(events))))

    assert values(turn) == {"a": "/x"}
    assert started_at(played)["t1.1"] < submitted_at(played)
    (streamed,) = played.kept(TurnStreamed)
    (submitted,) = played.kept(TurnSubmitted)
    assert streamed.calls == submitted.calls


def test_a_stream_can_simply_be_awaited() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Turn:
        return await run.stream(paced(message(call("a", "look"), call("b", "look"))))

    turn = played.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.SUCCEEDED}
    assert [part["type"] for part in turn.messages[0]["content"]] == ["tool_use", "tool_use"]
    assert [part["tool_use_id"] for part in turn.messages[1]["content"]] == ["a", "b"]


def test_writes_and_external_calls_wait_for_the_end_of_the_message() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "write", path="/x"), call("b", "mail"), call("c", "look"), text("."))

    turn = played.enter(lambda run: awaited(run.stream(paced(events))))

    assert set(states(turn).values()) == {State.SUCCEEDED}
    early = {name for name, at in started_at(played).items() if at < submitted_at(played)}
    assert early == {"t1.3"}


def test_only_what_conflicts_with_nothing_before_it_starts_early() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(
        call("a", "write", path="/x"),
        call("b", "read", path="/x"),
        call("c", "read", path="/y"),
        text("."),
    )

    turn = played.enter(lambda run: awaited(run.stream(paced(events))))

    assert set(states(turn).values()) == {State.SUCCEEDED}
    early = {name for name, at in started_at(played).items() if at < submitted_at(played)}
    assert early == {"t1.3"}
    assert stage.of("write", path="/x").span.end <= stage.of("read", path="/x").span.start


def test_a_write_behind_an_early_read_waits_for_it() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "read", path="/x"), call("b", "write", path="/x"))

    turn = played.enter(lambda run: awaited(run.stream(paced(events, 0.1))))

    assert set(states(turn).values()) == {State.SUCCEEDED}
    assert stage.of("read", path="/x").span.end <= stage.of("write", path="/x").span.start


def test_nothing_behind_an_unresolved_reference_starts_early() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(
        call("a", "look"),
        call("b", "read", path={"$from": "a"}),
        call("c", "look"),
        text("."),
    )

    turn = played.enter(lambda run: awaited(run.stream(paced(events))))

    assert values(turn) == {"a": "seen", "b": "seen", "c": "seen"}
    early = {name for name, at in started_at(played).items() if at < submitted_at(played)}
    assert early == {"t1.1"}


def test_what_needs_an_early_call_that_failed_is_skipped() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "bad"), call("b", "read", path={"$from": "a"}), text("."))

    turn = played.enter(lambda run: awaited(run.stream(paced(events))))

    assert states(turn) == {"a": State.FAILED, "b": State.SKIPPED}
    assert codes(turn)["b"] is Code.DEPENDENCY_FAILED


def test_what_a_human_is_asked_about_waits_for_the_end_of_the_message() -> None:
    stage = Stage()
    played = theatre(stage)
    asked: list[bool] = []

    async def host(run: Run) -> Turn:
        async with run.stream(paced(message(call("a", "peek"), text("."))), wait=False) as stream:
            asked.extend([bool(run.approvals) async for _ in stream])
            turn = await stream.turn()
        await run.approve("a")
        await turn.close()
        return turn

    turn = played.enter(host)

    assert not any(asked)
    assert values(turn) == {"a": "peeked"}
    assert played.kept(TurnStreamed) == []


def test_strict_starts_nothing_early() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "look"), text("."))

    turn = played.enter(lambda run: awaited(run.stream(paced(events), strict=True)))

    assert values(turn) == {"a": "seen"}
    assert played.kept(TurnStreamed) == []


def test_nothing_starts_early_in_a_run_that_has_stopped() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Turn:
        await run.stop("FAILED", by="ann")
        return await run.stream(paced(message(call("a", "look"), text("."))))

    turn = played.enter(host)

    assert states(turn) == {"a": State.DENIED}
    assert played.kept(TurnStreamed) == []


def test_a_run_stopped_in_the_middle_refuses_what_has_not_started() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Turn:
        events = message(call("a", "read", path="/x"), call("b", "look"), text("."))
        async with run.stream(paced(events)) as stream:
            async for event in stream:
                if event["type"] == "content_block_stop":
                    await run.stop("BUDGET_EXCEEDED")
            return await stream.turn()

    turn = played.enter(host)

    assert states(turn) == {"a": State.SUCCEEDED, "b": State.DENIED}


def test_answers_without_calls_are_turns_too() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Any:
        turn = await run.stream(paced(message(text("done"), stop="end_turn")))
        return turn.calls, run.stop_reason

    assert played.enter(host) == ([], "COMPLETED")


# What the host sees


def test_the_host_sees_events_as_they_came_and_can_stop_looking() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(text("hello"), call("a", "look"))

    async def host(run: Run) -> tuple[list[object], Turn]:
        seen: list[object] = []
        async with run.stream(paced(events)) as stream:
            async for event in stream:
                seen.append(event)
                if len(seen) == 3:
                    break
            return seen, await stream.turn()

    seen, turn = played.enter(host)

    assert all(one is event for one, event in zip(seen, events, strict=False))
    assert values(turn) == {"a": "seen"}


def test_the_host_sees_the_text_alone() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> tuple[list[str], tuple[str, ...], Turn]:
        events = message(text("hel"), text("lo"), call("a", "look"), text("!"))
        async with run.stream(paced(events)) as stream:
            said = [piece async for piece in stream.text()]
            return said, stream.started, await stream.turn()

    said, started, _ = played.enter(host)

    assert said == ["hel", "lo", "!"]
    assert started == ("a",)


def test_nothing_is_read_ahead_of_the_host() -> None:
    stage = Stage()
    played = theatre(stage)
    taken: list[int] = []

    async def source() -> AsyncGenerator[Event, None]:
        for at, event in enumerate(message(call("a", "look"), text("."))):
            taken.append(at)
            yield event

    async def host(run: Run) -> int:
        async with run.stream(source()) as stream:
            await anext(stream)
            await asyncio.sleep(100)
            return len(taken)

    assert played.enter(host) == 1


def test_lists_and_generators_of_events_and_bytes_are_streams_too() -> None:
    stage = Stage()
    events = message(call("a", "look"), text("."))
    wire = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)

    for source in (events, tuple(events), wire, wire.encode(), [wire[:50], wire[50:]]):
        assert values(theatre(stage).enter(streams_of(source))) == {"a": "seen"}


def test_an_iterator_that_blocks_is_waited_for_in_a_thread() -> None:
    stage = Stage()

    turn = theatre(stage).enter(
        lambda run: awaited(run.stream(iter(message(call("a", "look"), text(".")))))
    )

    assert values(turn) == {"a": "seen"}


def test_what_is_no_stream_is_refused_with_the_way_out() -> None:
    stage = Stage()

    async def unawaited() -> None:
        return None

    async def host(run: Run) -> list[str]:
        told: list[str] = []
        for events in (42, {"type": "message"}, unawaited()):
            with pytest.raises(PayloadError) as refused:
                run.stream(events)
            told.append(str(refused.value))
        with pytest.raises(PayloadError) as refused:
            await run.stream([7])
        told.append(str(refused.value))
        with pytest.raises(PayloadError) as refused:
            await run.stream([{"what": 1}])
        told.append(str(refused.value))
        with pytest.raises(PayloadError) as refused:
            run.stream([], provider="smoke-signals")
        return [*told, str(refused.value)]

    number, whole, coroutine, strange, unknown, provider = theatre(stage).enter(host)

    assert (
        number == "stream: it is a int. Give an async iterable, or an iterable, of bytes or events"
    )
    assert "it is a dict" in whole
    assert "it has not been awaited" in coroutine
    assert strange.startswith("stream: an event is 7")
    assert "an object with what is an event of no known format" in unknown
    assert "no streams of the format 'smoke-signals' are read. Known are anthropic" in provider


# What never ends well


def test_a_broken_stream_leaves_no_turn_and_cancels_what_it_began() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "slow"), call("b", "look"), text("."))[:-2]

    async def host(run: Run) -> tuple[list[Any], list[Turn]]:
        with pytest.raises(BrokenStreamError) as told:
            await run.stream(paced(events))
        assert told.value.events == len(events)
        assert "broke off after 10 events, before its message had ended" in str(told.value)
        return run.history(), list(run.turns)

    assert played.enter(host) == ([], [])
    ended = {str(fact.call): fact for fact in played.kept(CallEnded)}
    assert ended["t1.1"].state is State.CANCELLED
    outcome = ended["t1.1"].outcome
    assert isinstance(outcome, Failure)
    assert outcome.code is Code.STREAM_ABANDONED
    assert isinstance(ended["t1.2"].outcome, Success), "an outcome that stands does not change"
    (abandoned,) = played.kept(TurnAbandoned)
    assert "broke off" in abandoned.reason


def test_a_stream_that_breaks_before_anything_started_leaves_nothing() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> int:
        with pytest.raises(Broken):
            await run.stream(broken(message(call("a", "write", path="/x"))[:4]))
        with pytest.raises(BrokenStreamError, match="after 0 events"):
            await run.stream([])
        return run.view.seq

    assert played.enter(host) == 1, "the run was opened, and that is all"


def test_after_a_broken_stream_the_next_answer_is_a_turn_of_its_own() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "slow"), text("."))

    async def host(run: Run) -> tuple[Turn, list[Any]]:
        with pytest.raises(Broken):
            await run.stream(broken(events[:5]))
        turn = await run.stream(paced(message(call("a", "look"), text("."))))
        return turn, run.history()

    turn, history = played.enter(host)

    assert turn.number == 2
    assert values(turn) == {"a": "seen"}
    assert len(history) == 2


def test_no_reference_leads_to_a_call_of_an_abandoned_turn() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Turn:
        with pytest.raises(Broken):
            await run.stream(broken(message(call("a", "look"), text("."))[:5]))
        return await run.submit(
            {"role": "assistant", "content": [call("b", "read", path={"$from": "a"})]}
        )

    assert codes(played.enter(host)) == {"b": Code.BAD_REFERENCE}


def test_a_message_that_begins_anew_takes_the_place_of_what_was_half_sent() -> None:
    stage = Stage()
    played = theatre(stage)
    events = [
        *message(call("a", "slow"), text("."))[:5],
        *message(call("b", "look"), text("."), name="msg_2"),
    ]

    turn = played.enter(lambda run: awaited(run.stream(paced(events))))

    assert values(turn) == {"b": "seen"}
    assert turn.number == 2
    (abandoned,) = played.kept(TurnAbandoned)
    assert "began the message anew" in abandoned.reason
    (first, second) = played.kept(TurnStreamed)
    assert [one.id for one in (*first.calls, *second.calls)] == ["t1.1", "t2.1"]


def test_two_messages_in_one_stream_are_no_answer() -> None:
    stage = Stage()
    played = theatre(stage)
    events = [*message(call("a", "look"), text(".")), *message(text("?"), name="msg_2")]

    async def host(run: Run) -> str:
        with pytest.raises(PayloadError) as told:
            await run.stream(paced(events))
        assert run.history() == []
        return str(told.value) + str(told.value.__notes__)

    told = played.enter(host)

    assert "another message begins behind one that has ended" in told
    assert "event 10 of the stream" in told


def test_a_call_that_turns_out_to_be_another_is_given_up() -> None:
    stage = Stage()
    played = theatre(stage)
    chunks = [
        {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}},
        {"index": 1, "id": "c2", "function": {"name": "look", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"n": 1}'}},
    ]
    events: list[Event] = [
        {"id": "x", "choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in chunks
    ]
    events.append({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})

    turn = played.enter(lambda run: awaited(run.stream(paced(events))))

    assert turn.number == 2
    assert [dict(one.arguments) for one in stage.executions] == [{}, {"n": 1}, {}]
    assert values(turn) == {"c1": "seen", "c2": "seen"}
    (abandoned,) = played.kept(TurnAbandoned)
    assert "had become another" in abandoned.reason


def test_a_host_that_leaves_its_stream_gives_the_answer_up() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> list[Turn]:
        async with run.stream(paced(message(call("a", "slow"), text(".")))) as stream:
            async for event in stream:
                if event["type"] == "content_block_stop":
                    break
        with pytest.raises(UsageError, match="within `async with"):
            await stream.turn()
        return list(run.turns)

    assert played.enter(host) == []
    assert len(played.kept(TurnAbandoned)) == 1


def test_cancelling_whoever_awaits_a_stream_gives_the_answer_up() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> list[State]:
        events = message(call("a", "slow"), text("."))
        going = asyncio.ensure_future(awaited(run.stream(paced(events))))
        await asyncio.sleep(4.5)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert run.open_turn is None
        return [one.state for one in run.view.calls.values()]

    assert played.enter(host) == [State.CANCELLED]


def test_cancelling_whoever_awaits_the_calls_cancels_the_turn() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Turn:
        events = message(call("a", "slow"), text("."))
        going = asyncio.ensure_future(awaited(run.stream(paced(events))))
        await asyncio.sleep(20)
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        return run.turns[-1]

    turn = played.enter(host)

    assert states(turn) == {"a": State.CANCELLED}
    assert codes(turn) == {"a": Code.CANCELLED}


def test_while_an_answer_is_written_the_run_takes_no_other() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> None:
        async with run.stream(paced(message(call("a", "look"), text(".")))) as stream:
            async for event in stream:
                if event["type"] == "content_block_stop":
                    break
            assert run.open_turn is None
            assert list(run.turns) == []
            assert await run.finish() is None
            with pytest.raises(OpenTurnError):
                await run.submit({"role": "assistant", "content": "hello"})
            with pytest.raises(OpenTurnError):
                await run.stream(paced(message(text("."))))
            with pytest.raises(UsageError, match="entered once"):
                await stream
            assert (await stream.turn()) is (await stream.turn())
        await run.submit({"role": "assistant", "content": [text("hello")]})

    played.enter(host)


def test_a_cancelled_run_begins_nothing_more_of_the_answer() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Turn:
        events = message(call("a", "slow"), call("b", "look"), text("."))
        async with run.stream(paced(events)) as stream:
            async for event in stream:
                if event["type"] == "content_block_stop":
                    await run.cancel()
            return await stream.turn()

    turn = played.enter(host)

    assert states(turn) == {"a": State.CANCELLED, "b": State.CANCELLED}
    assert not stage.entered


def test_one_early_call_can_be_cancelled_by_itself() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> Turn:
        events = message(call("a", "slow"), call("b", "look"), text("."))
        async with run.stream(paced(events)) as stream:
            async for event in stream:
                if event["type"] == "content_block_stop" and event["index"] == 0:
                    await run.cancel("a")
            return await stream.turn()

    assert states(played.enter(host)) == {"a": State.CANCELLED, "b": State.SUCCEEDED}


def test_an_answer_streamed_twice_is_one_turn() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "look"), text("."))

    async def host(run: Run) -> tuple[int, int]:
        first = await run.stream(paced(events), key="k")
        second = await run.stream(paced(events), key="k")
        third = await run.stream(paced(events), key="k")
        assert second.number == third.number == first.number
        return len(run.turns), stage.entered["look"]

    assert played.enter(host) == (1, 1)


def test_run_left_in_the_middle_abandons_the_turn() -> None:
    stage = Stage()
    played = theatre(stage)

    async def host(run: Run) -> None:
        stream = run.stream(paced(message(call("a", "slow"), text("."))))
        await stream.__aenter__()
        for _ in range(4):
            await anext(stream)
        await asyncio.sleep(1)

    played.enter(host)

    async def later(run: Run) -> tuple[object, list[Turn], list[Any]]:
        return run.open_turn, list(run.turns), run.history()

    assert played.enter(later) == (None, [], [])
    assert len(played.kept(TurnAbandoned)) == 1


# Deaths


def test_after_a_crash_at_any_fact_a_provisional_turn_is_abandoned() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "read", path="/x"), call("b", "slow"), text("."))
    again = message(call("c", "look"), text("."), name="msg_2")
    with pytest.raises(Broken):
        played.enter(lambda run: awaited(run.stream(broken(events[:8], 2.0))))
    rows = played.journal.facts[RunId("r")]
    assert len(rows) > 8

    for count in range(1, len(rows) + 1):
        later = theatre(Stage())
        later.journal.facts = {RunId("r"): list(rows[:count])}

        async def host(run: Run) -> tuple[object, list[Any], Turn]:
            return run.open_turn, run.history(), await run.stream(paced(again))

        open_turn, history, turn = later.enter(host)

        assert (open_turn, history) == (None, [])
        assert values(turn) == {"c": "seen"}
        view = fold(RunId("r"), later.journal.facts[RunId("r")])
        assert all(one.closed for one in view.turns)
        for one in view.turns[:-1]:
            assert one.abandoned
            assert all(each.outcome is not None for each in one.calls)


def test_a_crash_after_the_message_ended_leaves_an_open_turn() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "read", path="/x"), text("."))
    played.enter(lambda run: awaited(run.stream(paced(events, 0.5))))
    rows = played.journal.facts[RunId("r")]
    (at,) = (row.seq for row in rows if isinstance(row.fact, TurnSubmitted))
    later = theatre(Stage())
    later.journal.facts = {RunId("r"): list(rows[:at])}

    turn = later.finish()

    assert values(turn) == {"a": "/x"}


def test_a_journal_that_breaks_in_the_middle_of_a_stream_ends_it() -> None:
    stage = Stage()
    left = MemoryJournal()

    def refuse(number: int, _: object) -> None:
        if number == 3:
            raise OSError("no room")

    store = WatchedStore(MemoryStore(left), before=refuse)
    played = theatre(stage, journal=store)
    events = message(call("a", "look"), call("b", "look"), text("."))

    with pytest.raises(Exception, match="no room"):
        played.enter(lambda run: awaited(run.stream(paced(events))))


def test_the_state_of_a_resumed_run_is_that_of_the_live_one() -> None:
    stage = Stage()
    played = theatre(stage)
    events = message(call("a", "read", path="/x"), call("b", "write", path="/x"), text("."))

    async def host(run: Run) -> Any:
        with pytest.raises(Broken):
            await run.stream(broken(events[:5]))
        await run.stream(paced(events))
        return run.view

    live = played.enter(host)
    folded = fold(RunId("r"), played.journal.facts[RunId("r")][: live.seq])

    assert [(one.state, one.outcome) for one in folded.calls.values()] == [
        (one.state, one.outcome) for one in live.calls.values()
    ]
    assert [(one.abandoned, one.closed, one.message) for one in folded.turns] == [
        (one.abandoned, one.closed, one.message) for one in live.turns
    ]


def test_a_run_with_early_calls_is_not_re_executed_and_says_why() -> None:
    played = theatre(Stage())
    played.enter(lambda run: awaited(run.stream(paced(message(call("a", "look"), text("."))))))

    with pytest.raises(UsageError, match="cannot be re-executed"):
        asyncio.run(reexecute(played.journal.facts[RunId("r")], tools=[]))


def test_the_benchmark_of_streams_tells_what_is_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert streams.main(["--data", "/nowhere", "--json"]) == 0
    found = {
        (one["streams"], one["call_seconds"]): one for one in json.loads(capsys.readouterr().out)
    }

    assert found["8 calls and text", 3.0]["saved_seconds"] > 2
    assert all(one["saved_seconds"] >= 0 for one in found.values())
    assert streams.main(["--data", "/nowhere"]) == 0
    assert "8 calls and text" in capsys.readouterr().out
