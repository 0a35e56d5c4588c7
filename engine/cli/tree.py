"""A run as a tree of lines: its turns, their calls, what each waited for and how it ended."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from laneway.engine.cli.shown import ShownCall, ShownRun, ShownTurn, workspace_of
from laneway.engine.cli.wording import MARKS, brief, call_text, outcome_text, seconds_text
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
    if run.stopped:
        because = f": {brief(run.stopped_because, 160)}" if run.stopped_because else ""
        yield f"stopped: {run.stopped}{because}"
    for change in run.changes:
        yield f"changed since the driver before: {change}"
    for turn in run.turns:
        last = turn is run.turns[-1]
        yield f"{'└─' if last else '├─'} {_turn_text(turn)}"
        yield from _branches([turn], folder, "   " if last else "│  ")


def _branches(turns: Sequence[ShownTurn], folder: str, before: str) -> Iterator[str]:
    """Draw the calls of turns, below each what is part of it and the runs that it entered."""
    parts: defaultdict[str, list[ShownCall]] = defaultdict(list)
    for turn in turns:
        for call in turn.calls:
            parts[call.parent].append(call)
    pending: list[tuple[Sequence[ShownCall | ShownRun], int, str]] = [(parts[""], 0, before)]
    while pending:
        branches, at, before = pending.pop()
        if at == len(branches):
            continue
        pending.append((branches, at + 1, before))
        one = branches[at]
        stem, rest = ("└─", "   ") if at == len(branches) - 1 else ("├─", "│  ")
        if isinstance(one, ShownRun):
            yield from _run_below(one, folder, f"{before}{stem} ", f"{before}{rest} ")
            continue
        for number, text in enumerate(call_lines(one, folder)):
            yield f"{before}{rest if number else stem} {text}"
        pending.append(([*parts[one.call], *one.runs], 0, f"{before}{rest} "))


def _run_below(run: ShownRun, folder: str, first: str, rest: str) -> Iterator[str]:
    """Draw a run that a call entered: how it went, and its calls."""
    if not run.facts:
        yield f"{first}run {run.run}  nothing of it can be read"
        return
    count = sum(len(_asked(turn)) for turn in run.turns)
    calls = f"{count} call{'' if count == 1 else 's'}"
    yield f"{first}run {run.run}  {_ending(run)}  {calls}  took {seconds_text(run.took_seconds)}"
    yield from _branches(run.turns, folder, rest)


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
    if call.probed and call.settled is None:
        yield f"  asked what became of it, its probe said: {call.probed}"
    if call.settled is not None:
        yield f"  settled later: {outcome_text(call.settled)}"
    if call.by:
        found = "" if call.settled is not None else "run again, as it did nothing; "
        yield f"  {found}says {call.by}"
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
