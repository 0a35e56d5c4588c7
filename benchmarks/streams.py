"""What is saved by starting calls while the model still writes.

`python -m laneway.benchmarks.streams`: recorded streams, and made ones of several calls, are
replayed at a pace on the virtual clock, once to `run.stream` and once read to their end and
submitted. The pace and the length of a call are assumptions, named in the table; the times that
follow from them are exact.
"""

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from laneway.effects import Effect
from laneway.engine.engine import Engine
from laneway.engine.providers import parse
from laneway.engine.providers.streams import reader_for
from laneway.engine.run import Run
from laneway.engine.tools import Tool
from laneway.engine.turn import Turn
from laneway.errors import PayloadError
from laneway.testing.clock import VirtualClock, run_virtual

Event = Mapping[str, Any]
DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "provider_exchanges.jsonl"
EVENT_SECONDS = 0.02
"""Between two events: 50 tokens a second."""
CALL_SECONDS = (0.2, 1.0, 3.0)
CALLS = (1, 2, 4, 8)
BEHIND = 100
"""Events of text behind the calls of a made stream, in one of its two kinds."""


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of stream at one length of calls."""

    streams: str
    count: int
    call_seconds: float
    whole_seconds: float
    """From the first event to the last outcome, read whole first; the median."""
    streamed_seconds: float
    saved_seconds: float
    """The median of the differences."""
    saved_most_seconds: float


def measured(data: Path = DATA) -> Iterator[Saved]:
    """Measure all kinds, those of the recorded streams if there are any."""
    kinds: dict[str, Sequence[Sequence[Event]]] = {
        f"{calls} calls{behind}": [made(calls, events)]
        for behind, events in (("", 0), (" and text", BEHIND))
        for calls in CALLS
    }
    one_lane = "8 calls in one lane"
    kinds[one_lane] = [made(8, 0)]
    if data.exists():
        kinds["recorded"] = recorded(data)
    for name, streams in kinds.items():
        for seconds in CALL_SECONDS:
            yield _measure(name, streams, seconds, ["lane:look"] if name == one_lane else [])


def recorded(data: Path) -> list[list[Event]]:
    """The recorded streams that hold calls and can be read whole here."""
    found: list[list[Event]] = []
    with data.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            events = [one["data"] for one in record.get("events") or () if "data" in one]
            if events and _calls(events):
                found.append(events)
    return found


def _calls(events: Sequence[Event]) -> Sequence[str]:
    try:
        reader = reader_for(events[0])
        for event in events:
            reader.feed(event)
        return [asked.name for asked in parse(reader.whole(), provider=reader.name).calls]
    except PayloadError:
        return []


def made(calls: int, behind: int) -> list[Event]:
    """A message of Anthropic's form: calls of ten events each, and a text behind them."""
    events: list[Event] = [{"type": "message_start", "message": {"id": "m", "content": []}}]
    for at in range(calls):
        block: Event = {"type": "tool_use", "id": f"c{at}", "name": "look", "input": {}}
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        for piece in ('{"n": "', *("x" * 7), f'{at}"}}'):
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    text = {"type": "text", "text": ""}
    events.append({"type": "content_block_start", "index": calls, "content_block": text})
    delta = {"type": "text_delta", "text": "so "}
    more = {"type": "content_block_delta", "index": calls, "delta": delta}
    events += [more] * behind
    events.append({"type": "content_block_stop", "index": calls})
    return [*events, {"type": "message_stop"}]


def _measure(
    name: str, streams: Sequence[Sequence[Event]], seconds: float, claims: list[str]
) -> Saved:
    pairs = [
        (_timed(one, seconds, claims, _read_whole), _timed(one, seconds, claims, _streamed))
        for one in streams
    ]
    saved = [whole - streamed for whole, streamed in pairs]
    return Saved(
        streams=name,
        count=len(streams),
        call_seconds=seconds,
        whole_seconds=statistics.median(whole for whole, _ in pairs),
        streamed_seconds=statistics.median(streamed for _, streamed in pairs),
        saved_seconds=statistics.median(saved),
        saved_most_seconds=max(saved),
    )


async def _paced(events: Sequence[Event]) -> AsyncIterator[Event]:
    for event in events:
        await asyncio.sleep(EVENT_SECONDS)
        yield event


async def _read_whole(run: Run, events: Sequence[Event]) -> Turn:
    reader = reader_for(events[0])
    async for event in _paced(events):
        reader.feed(event)
    return await run.submit(reader.whole(), provider=reader.name)


async def _streamed(run: Run, events: Sequence[Event]) -> Turn:
    return await run.stream(_paced(events))


def _timed(
    events: Sequence[Event], seconds: float, claims: list[str], host: Callable[..., Any]
) -> float:
    """Seconds of virtual time from the first event to the last outcome; all tools only read."""

    async def body(**_: Any) -> str:
        await asyncio.sleep(seconds)
        return "seen"

    tools = [
        Tool.from_schema(
            body, name=name, description=name, schema={}, effect=Effect.READ, claims=claims
        )
        for name in dict.fromkeys(_calls(events))
    ]

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with Engine(tools, clock=VirtualClock) as engine, engine.run("r") as run:
            start = loop.time()
            await host(run, events)
            return loop.time() - start

    return run_virtual(main)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m laneway.benchmarks.streams")
    parser.add_argument("--json", action="store_true", help="a JSON list of records")
    parser.add_argument("--data", type=Path, default=DATA, help="the recorded exchanges")
    given = parser.parse_args(arguments)
    found = list(measured(given.data))
    if given.json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        return 0
    sys.stdout.write(
        f"an event each {EVENT_SECONDS * 1000:g} ms; seconds of virtual time, medians\n"
    )
    heads = ("streams", "n", "a call", "whole", "streamed", "saved", "at most")
    sys.stdout.write("{:<20}{:>4}{:>8}{:>8}{:>10}{:>8}{:>9}\n".format(*heads))
    for one in found:
        sys.stdout.write(
            f"{one.streams:<20}{one.count:>4}{one.call_seconds:>8.2f}{one.whole_seconds:>8.2f}"
            f"{one.streamed_seconds:>10.2f}{one.saved_seconds:>8.2f}{one.saved_most_seconds:>9.2f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
