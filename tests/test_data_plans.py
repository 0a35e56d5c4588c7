"""Recorded plans and parallel calls, run by the real engine on virtual time."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from laneway import Code, Effect, Engine, Failure, State, Tool, Turn
from laneway.calls import Reason
from laneway.engine.providers import read_labelled_plan
from laneway.engine.providers.reply import Reply
from laneway.testing.clock import VirtualClock, run_virtual

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"

Record = dict[str, Any]


def records(name: str) -> list[Record]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the recorded material ../shared/data/{name} is not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def legal(name: str) -> str:
    """A name that providers take."""
    return name.replace(".", "_").replace(" ", "_").replace("/", "_")


def labelled(record: Record) -> Reply:
    """A recorded plan, each call with a tool of its own, so that its body knows its label."""
    return read_labelled_plan(
        [
            {"id": call["id"], "name": f"tool_{at}", "arguments": call["arguments"]}
            for at, call in enumerate(record["calls"])
        ]
    )


async def run_plan(record: Record, lanes: int | None) -> tuple[Turn, dict[str, Any], float]:
    """Run a plan; return the turn, the arguments of each body, and how many rounds it took."""
    answers = record.get("results") or invented(record)
    entered: dict[str, Any] = {}

    def body(label: str) -> Any:
        async def answer(**arguments: Any) -> Any:
            entered[label] = arguments
            await asyncio.sleep(1.0)
            return answers.get(label)

        return answer

    tools = [
        Tool.from_schema(
            body(call["id"]),
            name=f"tool_{at}",
            schema={"type": "object"},
            effect=Effect.PURE,
            claims=[] if lanes is None else ["lane:one"],
        )
        for at, call in enumerate(record["calls"])
    ]
    engine = Engine(tools, lanes={"one": lanes or 1}, clock=VirtualClock)
    async with engine, engine.run(record["id"]) as run:
        began = asyncio.get_running_loop().time()
        turn = await run.submit(labelled(record))
        return turn, entered, asyncio.get_running_loop().time() - began


def invented(record: Record) -> dict[str, Any]:
    """Results that hold whatever the plan refers to, where none were recorded."""
    found: dict[str, Any] = {}
    for reference in record["refs"]:
        found[reference["from"]] = _holding(found.get(reference["from"]), reference["path"])
    return found


def _holding(value: Any, path: Sequence[str | int]) -> Any:
    if not path:
        return {"whole": True} if value is None else value
    step, *rest = path
    if isinstance(step, int):
        items = list(value) if isinstance(value, list) else []
        items += [None] * (step + 1 - len(items))
        items[step] = _holding(items[step], rest)
        return items
    fields = dict(value) if isinstance(value, dict) else {}
    fields[step] = _holding(fields.get(step), rest)
    return fields


def parents(turn: Turn) -> list[list[int]]:
    place = {call.id: at for at, call in enumerate(turn.calls)}
    found: list[list[int]] = [[] for _ in turn.calls]
    for source, target, data in turn.graph.edges(data=True):
        assert data["reason"] is Reason.DATA
        found[place[target]].append(place[source])
    return [sorted(sources) for sources in found]


def sound(plans: Sequence[Record]) -> Iterator[Record]:
    return (record for record in plans if not record.get("problems"))


def test_gold_plans_give_their_parents_and_take_as_many_rounds_as_they_are_deep() -> None:
    plans = records("plans_gold.jsonl")

    async def play() -> Counter[str]:
        counts: Counter[str] = Counter()
        for record in sound(plans):
            turn, entered, rounds = await run_plan(record, None)
            assert parents(turn) == [sorted(sources) for sources in record["parents"]], record["id"]
            assert rounds == record["stats"]["depth"], record["id"]
            assert {call.state for call in turn.calls} == {State.SUCCEEDED}
            counts["plans"] += 1
            if "resolved" in record:
                assert entered == record["resolved"], record["id"]
                counts["resolved"] += 1
        return counts

    counts = run_virtual(play)

    print(f"\nplans_gold: {dict(counts)}")
    assert counts == {"plans": 647, "resolved": 500}


@pytest.mark.long
def test_gold_plans_on_one_lane_stay_between_the_optimum_and_the_bound() -> None:
    plans = records("plans_gold.jsonl")

    async def play() -> Counter[str]:
        counts: Counter[str] = Counter()
        for record in sound(plans):
            stats = record["stats"]
            for lanes, optimum in list(stats["unit_opt"].items())[::2]:
                m = int(lanes)
                _, _, rounds = await run_plan(record, m)
                graham = stats["n"] / m + (1 - 1 / m) * stats["depth"]
                assert optimum <= rounds <= int(graham), (record["id"], m)
                counts["schedules"] += 1
                counts["optimal"] += rounds == optimum
        return counts

    counts = run_virtual(play)

    print(f"\nplans_gold on m lanes: {dict(counts)}")
    assert counts["schedules"] >= 647


def test_gold_plans_with_problems_are_refused_with_a_message() -> None:
    plans = [record for record in records("plans_gold.jsonl") if record.get("problems")]

    async def play() -> list[set[Code]]:
        found = []
        for record in plans:
            turn, _, _ = await run_plan(record, None)
            found.append({o.code for o in turn.outcomes.values() if isinstance(o, Failure)})
        return found

    codes = run_virtual(play)

    assert len(codes) == 3
    for found in codes:
        assert found & {Code.BAD_REFERENCE, Code.DEPENDENCY_CYCLE}


def parallel_tools(record: Record) -> list[Tool[..., Any]]:
    async def body(**_: Any) -> str:
        await asyncio.sleep(1.0)
        return "ok"

    return [
        Tool.from_schema(
            body, name=legal(tool["name"]), schema=tool["parameters"], effect=Effect.PURE
        )
        for tool in record["tools"]
    ]


async def run_parallel(record: Record) -> tuple[Turn, float]:
    engine = Engine(parallel_tools(record), clock=VirtualClock)
    reply = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": legal(call["name"]),
                    "arguments": json.dumps(call["arguments"]),
                },
            }
            for call in record["calls"]
        ],
    }
    async with engine, engine.run("r") as run:
        began = asyncio.get_running_loop().time()
        turn = await run.submit(reply)
        return turn, asyncio.get_running_loop().time() - began


def test_parallel_calls_overlap_and_come_back_in_order() -> None:
    found = records("calls_parallel.jsonl")

    async def play() -> Counter[str]:
        counts: Counter[str] = Counter()
        for record in found:
            turn, makespan = await run_parallel(record)
            wrong = {place for place, *_ in record.get("schema_errors", [])}
            invalid = {
                name
                for name, outcome in turn.outcomes.items()
                if isinstance(outcome, Failure) and outcome.code is Code.INVALID_ARGUMENTS
            }
            assert invalid == wrong, record["id"]
            assert [m["tool_call_id"] for m in turn.messages[1:]] == [
                call["id"] for call in record["calls"]
            ]
            assert makespan == 1.0, "the longest call, since all others run beside it"
            counts["records"] += 1
            counts["with schema errors"] += bool(wrong)
            counts["calls"] += len(turn.calls)
        return counts

    counts = run_virtual(play)

    print(f"\ncalls_parallel: {dict(counts)}")
    assert counts["records"] == 220
    assert counts["with schema errors"] == 2
