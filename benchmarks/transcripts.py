"""Which recorded transcripts the loop detectors stop, and why.

    python -m laneway.benchmarks.transcripts transcripts.jsonl [--by-calls]

Reads one transcript a line: its turns, each with calls and their results; plays the calls past the
detectors with their default limits, as an engine would, and prints what was found. A result that
was not recorded is not known to be the same; `--by-calls` takes all results for the same instead,
to show what the results are good for.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from laneway.ids import CallId
from laneway.outcomes import Outcome, Success
from laneway.policies.findings import Finding, Stage
from laneway.policies.lately import Calls, Lately
from laneway.policies.loops import Loops, examine
from laneway.policies.sameness import key_of

CHANGES_NOTHING = frozenset({"read", "view-state", "none"})
"""The words of the recording for tools without an effect; all others have one, or may have."""


class Flagged(msgspec.Struct, frozen=True):
    """A call of a transcript about which something was found."""

    transcript: str
    turn: int
    """From 0."""
    call: str
    found: Finding


class Came(msgspec.Struct, frozen=True):
    """What a recorded call came to."""

    outcome: Outcome | None


def flagged(
    transcript: Mapping[str, Any], limits: Loops | None = None, *, by_calls: bool = False
) -> Iterator[Flagged]:
    """Play one transcript past the detectors.

    A call that would be refused is taken as having run all the same: the recording goes on so.

    Args:
        transcript: one record of the file.
        limits: the default ones if None.
        by_calls: take all results for the same.
    """
    loops = limits or Loops()
    lately = Lately(loops.window)
    effects = transcript.get("effects", {})
    for number, turn in enumerate(transcript["turns"]):
        if turn.get("user"):
            lately.clear()
        lately.begin(turn)
        came = _results(turn, by_calls=by_calls)
        for call in turn["calls"]:
            name, key = call["name"], key_of(call["name"], call["arguments"])
            found = examine(
                name, key, lately.turn, tuple(lately.entries), loops, repeats=loops.repeats
            )
            if found is not None:
                yield Flagged(transcript["id"], number, name, found)
            effect = effects.get(name) not in CHANGES_NOTHING
            lately.add(key, name, lately.latest.get(key), (came, CallId(call["id"])), effect=effect)


def _results(turn: Mapping[str, Any], *, by_calls: bool) -> Calls:
    told = {one["call_id"]: one["sha"] for one in turn.get("results", ())}
    return {
        CallId(call["id"]): Came(Success(value="same" if by_calls else told[call["id"]]))
        for call in turn["calls"]
        if by_calls or call["id"] in told
    }


def read(path: Path) -> Iterator[Mapping[str, Any]]:
    """The transcripts of a file, one a line."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def report(transcripts: Iterable[Mapping[str, Any]], *, by_calls: bool = False) -> Iterator[str]:
    """Say of each transcript that is flagged where and why, and count them."""
    count = hits = 0
    for transcript in transcripts:
        count += 1
        found = list(flagged(transcript, by_calls=by_calls))
        hits += any(one.found.stage is not Stage.WARN for one in found)
        for one in found:
            yield (
                f"{one.transcript}  turn {one.turn}  {one.call}  "
                f"{one.found.stage} ({one.found.detector}): {one.found.message}"
            )
    yield f"{hits} of {count} transcripts have a call that would be refused"


def main(arguments: list[str]) -> int:
    """Print what is found in a file."""
    paths = [one for one in arguments if one != "--by-calls"]
    if len(paths) != 1:
        print("python -m laneway.benchmarks.transcripts FILE [--by-calls]", file=sys.stderr)
        return 2
    for line in report(read(Path(paths[0])), by_calls="--by-calls" in arguments):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
