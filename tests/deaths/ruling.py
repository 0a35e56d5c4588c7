"""Judges a fight: reads the journal and the log of the bodies, and names what must not have been.

A body that a frozen process was about to enter is entered when it thaws, be the run another's by
then. That is allowed where its start was kept before the other took the run, and the call was then
given up as UNCERTAIN, or is safe to repeat.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from laneway import State
from laneway.facts import AttemptEnded, CallEnded, CallReopened, CallStarted, Fact, TurnSubmitted
from tests.deaths.evidence import Kept, Line
from tests.deaths.programs import KINDS

FAULTS = (
    "a process failed",
    "a body was entered twice",
    "a body was entered whose start was not kept",
    "a body was entered under an old lease, and its call was not given up",
    "a fencing token went back",
    "a call was started again that nobody had given up",
    "an outcome was recorded twice",
    "a call was left without an outcome",
)


class Entry(NamedTuple):
    """A body that was entered."""

    call: str
    attempt: int
    tool: str
    under: int
    """The fact behind which its process had the run."""
    mono: float


def rule(kept: Kept, log: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Name every fault, and where it is."""
    yield from ((FAULTS[0], str(line.rest)) for line in log if line.word == "failed")
    for run, rows in kept.items():
        entries = [_entry(line) for line in _of(run, log, "start")]
        taken = [(line.rest[1], line.mono) for line in _of(run, log, "took")]
        facts = {row.seq: row.fact for row in rows}
        for what, where in (*_entries(facts, entries, taken), *_facts(list(facts.values()))):
            yield what, f"{run} {where}"
        yield from ((FAULTS[7], f"{run} {call}") for call in _open(facts.values()))


def stale(kept: Kept, log: Sequence[Line]) -> int:
    """Count the bodies that were entered when another process had taken their run."""
    count = 0
    for run in kept:
        taken = [(line.rest[1], line.mono) for line in _of(run, log, "took")]
        entries = [_entry(line) for line in _of(run, log, "start")]
        count += sum(_taken_since(entry, taken) is not None for entry in entries)
    return count


def _entry(line: Line) -> Entry:
    _, call, attempt, tool, under = line.rest
    return Entry(call, attempt, tool, under, line.mono)


def _of(run: str, log: Sequence[Line], word: str) -> list[Line]:
    return [line for line in log if line.word == word and line.rest[0] == run]


def _taken_since(entry: Entry, taken: Sequence[tuple[int, float]]) -> int | None:
    later = (seq for seq, mono in taken if seq > entry.under and mono < entry.mono)
    return min(later, default=None)


def _entries(
    facts: Mapping[int, Fact], entries: Sequence[Entry], taken: Sequence[tuple[int, float]]
) -> Iterator[tuple[str, str]]:
    started = {
        (str(fact.call), fact.attempt): seq
        for seq, fact in facts.items()
        if isinstance(fact, CallStarted)
    }
    given_up = {
        fact.call
        for fact in facts.values()
        if isinstance(fact, CallEnded) and fact.state is State.UNCERTAIN
    }
    attempts = Counter((entry.call, entry.attempt) for entry in entries)
    calls = Counter(entry.call for entry in entries)
    for entry in entries:
        where = f"{entry.call}, attempt {entry.attempt} of {entry.tool}, under {entry.under}"
        repeatable = KINDS[entry.tool].repeatable
        if attempts[entry.call, entry.attempt] > 1 or (calls[entry.call] > 1 and not repeatable):
            yield FAULTS[1], where
        start = started.get((entry.call, entry.attempt))
        later = _taken_since(entry, taken)
        if start is None:
            yield FAULTS[2], where
        elif later is not None and (start > later or not (repeatable or entry.call in given_up)):
            yield FAULTS[3], f"{where}, taken at {later}"


def _open(facts: Iterable[Fact]) -> set[str]:
    found: set[str] = set()
    for fact in facts:
        if isinstance(fact, TurnSubmitted):
            found |= {str(call.id) for call in fact.calls}
        elif isinstance(fact, CallReopened):
            found.add(str(fact.call))
        elif isinstance(fact, CallEnded):
            found.discard(str(fact.call))
    return found


def _facts(facts: Sequence[Fact]) -> Iterator[tuple[str, str]]:
    token = 0
    running: set[str] = set()
    ended: set[str] = set()
    for fact in facts:
        match fact:
            case CallStarted():
                if fact.token <= token:
                    yield FAULTS[4], f"{fact.call}: {fact.token} after {token}"
                if fact.call in running:
                    yield FAULTS[5], f"{fact.call}"
                token = fact.token
                running.add(fact.call)
            case CallEnded():
                if fact.call in ended:
                    yield FAULTS[6], f"{fact.call}"
                ended.add(fact.call)
                running.discard(fact.call)
            case AttemptEnded():
                running.discard(fact.call)
            case CallReopened():
                ended.discard(fact.call)
            case _:
                pass
