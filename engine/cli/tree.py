"""A run as a tree of lines: its turns, their calls, what each waited for and how it ended."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from laneway.engine.cli.shown import ShownCall, ShownRun, ShownTurn, workspace_of
from laneway.engine.cli.wording import MARKS, call_text, outcome_text, seconds_text
from laneway.engine.results import text_of
from laneway.states import State

LONGEST_RESULT = 2_000
"""Characters of a result that are printed."""


def tree_lines(run: ShownRun) -> Iterator[str]:
    """Draw a run; its workspace is left out of the names of resources, to keep the lines short."""
    folder = workspace_of(run)
    calls = sum(len(_asked(turn)) for turn in run.turns)
    drivers = f", {run.drivers} processes" if run.drivers > 1 else ""
    yield f"run {run.run}  {_ending(run)}  ({calls} calls, {run.facts} facts{drivers})"
    for turn in run.turns:
        last = turn is run.turns[-1]
        yield f"{'└─' if last else '├─'} {_turn_text(turn)}"
        parts: defaultdict[str, list[ShownCall]] = defaultdict(list)
        for call in turn.calls:
            parts[call.parent].append(call)
        yield from _branches(parts, "", folder, "   " if last else "│  ")


def _branches(
    parts: Mapping[str, Sequence[ShownCall]], parent: str, folder: str, before: str
) -> Iterator[str]:
    """Draw the calls of a turn, or those that are part of one of them, below it."""
    calls = parts.get(parent, ())
    for call in calls:
        stem, rest = ("└─", "   ") if call is calls[-1] else ("├─", "│  ")
        for number, text in enumerate(call_lines(call, folder)):
            yield f"{before}{rest if number else stem} {text}"
        yield from _branches(parts, call.call, folder, f"{before}{rest} ")


def _asked(turn: ShownTurn) -> list[ShownCall]:
    return [call for call in turn.calls if not call.parent]


def call_lines(call: ShownCall, folder: str = "") -> Iterator[str]:
    """Tell of one call: what it was, how it went, and below it why it waited and what it said."""
    mark = MARKS[State(call.state)]
    again = f"  attempts {call.attempts}" if call.attempts > 1 else ""
    times = f"waited {seconds_text(call.waited_seconds)}  took {seconds_text(call.took_seconds)}"
    yield f"{mark} {call.call} {call_text(call.tool, call.arguments)}  {call.state}  {times}{again}"
    for wait in call.waits_for:
        if wait.call.startswith(f"{call.call}/"):
            continue  # A plan waits for its own calls, which stand below it.
        about = f" over {shortened(wait.detail, folder)}" if wait.detail else ""
        yield f"  waited for {wait.call}: {wait.reason}{about}"
    if call.outcome is not None and call.state != State.SUCCEEDED:
        yield f"  {outcome_text(call.outcome)}"
    if call.settled is not None:
        yield f"  settled later: {outcome_text(call.settled)}"
    if call.stuck:
        yield "  its body has not stopped: it still holds its lanes"


def result_lines(run: ShownRun) -> Iterator[str]:
    """Give what the calls of the last turn came to, as the model would be told."""
    calls = run.turns[-1].calls if run.turns else []
    for call in calls:
        if call.outcome is not None and not call.parent:
            text = text_of(call.outcome)
            cut = "" if len(text) <= LONGEST_RESULT else "… (cut: --json gives all of it)"
            yield f"{call.id}: {text[:LONGEST_RESULT]}{cut}"


def shortened(resource: str, folder: str) -> str:
    """Write a resource below a folder from that folder on."""
    if not folder:
        return resource
    root = str(Path(folder)).rstrip("/")
    return resource.replace(f"{root}/", "").replace(root, ".")


def _ending(run: ShownRun) -> str:
    if not run.finished:
        return "OPEN"
    return "✓" if run.succeeded else "✗ some calls did not succeed"


def _turn_text(turn: ShownTurn) -> str:
    count = len(_asked(turn))
    calls = f"{count or 'no'} call{'' if count == 1 else 's'}"
    path = f"  critical path {turn.critical_path}" if len(turn.calls) > 1 else ""
    return f"turn {turn.turn}  {calls}{'' if turn.closed else '  OPEN'}{path}"
