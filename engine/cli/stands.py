"""The words of `laneway why RUN`: what a run did, where it stands, what is known of its effects.

Reads the journal's answer for a run and who drives it now; gives lines for people.
"""

from collections.abc import Iterator, Mapping

import msgspec

from laneway.engine.cli.because import approval_line, clock, listed, told_line
from laneway.engine.cli.wording import brief, seconds_text
from laneway.facts import Driver
from laneway.journal.answered import Drove, RunAnswer
from laneway.journal.lease import describe

KINDS = 8
"""Tools that are counted by name."""


class Driven(msgspec.Struct, frozen=True, kw_only=True):
    """Who drives a run now."""

    driver: Driver | None
    """None where nobody does, or has died doing so."""
    told: str
    """In words."""
    alive: bool


def run_lines(answer: RunAnswer, driven: Driven) -> Iterator[str]:
    """Say what a run did, why it stopped or what it waits for, and what is known of it."""
    yield f"run {answer.run}: {_standing(answer)}"
    if answer.stopped:
        because = f": {brief(answer.stopped_because, 160)}" if answer.stopped_because else ""
        yield f"  stopped: {answer.stopped}{because} (laneway report {answer.run})"
    yield f"  driver: {driven.told}"
    if driven.driver is not None and not driven.alive and answer.open_turn is not None:
        yield (
            f"    go on with: laneway resume {answer.run} (if its host named a function for that), "
            "or enter it again"
        )
    if answer.forked_from is not None:
        yield f"  forked from {answer.forked_from} after its fact {answer.forked_at}"
    yield f"  did: {_did(answer)}"
    yield from _spent_lines(answer)
    yield from listed("confirmed effects", [told_line(one) for one in answer.confirmed])
    yield from listed("unknown or partial effects", [told_line(one) for one in answer.unknown])
    yield from listed("unfinished", [told_line(one) for one in answer.unfinished])
    yield from listed("did not succeed", [told_line(one) for one in answer.failed])
    yield from listed("approvals", [approval_line(one) for one in answer.approvals])
    yield from listed("background tasks", [f"{name}: {end}" for name, end in answer.tasks.items()])
    if len(answer.drivers) > 1 or any(one.changes for one in answer.drivers):
        yield from listed("drivers", [_drove(one) for one in answer.drivers])
    yield from listed("changes of lanes", answer.lanes_changed)
    lost = [
        f"{one.facts} facts after fact {one.after}, given up by {one.by or 'somebody'}"
        for one in answer.lost
    ]
    yield from listed("lost", lost)
    yield from listed("notes of the host", [brief(note, 160) for note in answer.notes])


def _standing(answer: RunAnswer) -> str:
    match answer.standing:
        case "open":
            calls = len(answer.unfinished)
            waits = f"for {_plural(calls, 'call')}" if calls else "to be closed"
            return f"turn {answer.open_turn} is open and waits {waits}"
        case "answered":
            return "it has ended: the model's last answer asked for nothing"
        case "done":
            return (
                "all that was asked for has ended, and no other answer of the model has come since "
                f"{clock(answer.touched_wall)}"
            )
        case _:
            return "nothing has been asked for yet"


def _did(answer: RunAnswer) -> str:
    spent = answer.spent
    told = f"{_plural(spent.turns, 'turn')}, {_plural(spent.calls, 'call')}, {answer.facts} facts"
    states = _counted(answer.states)
    tools = _counted(answer.tools)
    return told + (f": {states}; {tools}" if states else "")


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _counted(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    told = ", ".join(f"{count} {name}" for name, count in most[:KINDS])
    return told + (f", and {len(most) - KINDS} more kinds" if len(most) > KINDS else "")


def _spent_lines(answer: RunAnswer) -> Iterator[str]:
    spent = answer.spent
    attempts = _plural(spent.attempts, "attempt")
    yield (
        f"  spent: {seconds_text(spent.driven_seconds)} driven, {attempts} with "
        f"{seconds_text(spent.body_seconds)} in bodies, {seconds_text(spent.human_seconds)} "
        "waiting for humans"
    )
    for name, budget in spent.budgets.items():
        aside = f", {budget.reserved:g} set aside" if budget.reserved else ""
        yield f"    budget {name}: {budget.settled:g} spent{aside}"


def _drove(one: Drove) -> str:
    who = "nobody" if one.driver is None else describe(one.driver)
    changed = f"; changed: {'; '.join(one.changes)}" if one.changes else ""
    return f"{clock(one.took_wall)} – {clock(one.last_wall)}: {who}, {one.facts} facts{changed}"
