"""A stop report in words: the same text wherever it is made, and never longer than some pages.

Reads the report; feeds its `str` and the command line.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laneway.engine.reports import Answered, Confirmed, StopReport, Unfinished

MOST = 20
"""Lines of a list that are shown."""
LONGEST = 400
"""Characters of a line."""


def report_lines(report: "StopReport") -> Iterator[str]:
    """Say it in lines."""
    for line in _lines(report):
        yield line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _lines(report: "StopReport") -> Iterator[str]:
    by = f" by {report.by}" if report.by else ""
    standing = f"stopped: {report.reason}{by}" if report.reason is not None else "not stopped"
    yield f"run {report.run}, mode {report.mode}: {standing}"
    if report.detail:
        yield f"  because: {' '.join(report.detail.split())}"
    yield f"  {report.tell}"
    if report.goes_on:
        yield f"  it goes on through {report.goes_on}"
    if report.summary_turns:
        tokens = f" and {report.summary_tokens} tokens" if report.summary_tokens else ""
        yield (
            f"  kept back for a last summary: {report.summary_turns} answer of the model{tokens}; "
            "offer it no tools"
        )
    yield from _listed("confirmed", [_confirmed(one) for one in report.confirmed])
    if report.last_new is not None:
        yield f"  the last new: {_confirmed(report.last_new)}"
    yield from _listed("in doubt, for a human", [_unfinished(one) for one in report.in_doubt])
    yield from _listed("unfinished", [_unfinished(one) for one in report.unfinished])
    yield from _listed("approvals", [_answered(one) for one in report.approvals])
    yield f"  used: {_used(report)}"
    yield from _listed("budgets", list(_budgets(report)))
    yield from _listed("warnings", report.warnings)


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if not lines:
        return
    yield f"  {title} ({len(lines)}):"
    yield from (f"    {line}" for line in lines[:MOST])
    if len(lines) > MOST:
        yield f"    … and {len(lines) - MOST} more: the JSON has them all"


def _confirmed(one: "Confirmed") -> str:
    found = f", as {one.by} found out" if one.by else ""
    what = f"{one.call} {one.tool}({one.about})"
    return f"{what} → {one.value}  [{one.effect}, {_clock(one.at_wall)}{found}]"


def _unfinished(one: "Unfinished") -> str:
    code = f" {one.code}" if one.code is not None else ""
    cause = f", for {one.cause}" if one.cause is not None else ""
    return f"{one.call} {one.tool}({one.about})  {one.state}{code}{cause}: {one.why}"


def _answered(one: "Answered") -> str:
    word = {True: "granted", False: "refused", None: "open" if one.open else "not answered"}
    by = f" by {one.by}" if one.by else ""
    said = f": {one.said}" if one.said else ""
    return f"{one.approval} {one.tool}({one.about}): {word[one.granted]}{by}{said}"


def _used(report: "StopReport") -> str:
    used = report.used
    counts = ((used.turns, "turn"), (used.calls, "call"), (used.attempts, "attempt"))
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)


def _budgets(report: "StopReport") -> Iterator[str]:
    for name, settled in report.used.budgets.items():
        aside, limit = report.used.set_aside.get(name, 0.0), report.used.limits.get(name)
        most = "" if limit is None else f" of {limit:,.12g}"
        yield f"{name}: {settled:,.12g}{most} used{f', {aside:,.12g} set aside' if aside else ''}"


def _clock(wall: float) -> str:
    try:
        return f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a clock that was set to no year at all
        return f"{wall:.3f}"
