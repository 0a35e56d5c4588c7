"""Records and verdicts for people: plain columns, as wide as they need to be."""

from collections.abc import Sequence

from laneway.benchmarks.grants import GrantCost
from laneway.benchmarks.machine import Machine
from laneway.benchmarks.records import Record
from laneway.benchmarks.targets import Judgement

_RECORD_COLUMNS = (
    "workload",
    "n",
    "journal",
    "µs per call",
    "min – max",
    "× gather",
    "× link",
    "× floor_d",
    "× raw_d",
    "rounds",
)
_FIGURE_BEGINS = frozenset("0123456789–")


def record_table(records: Sequence[Record]) -> str:
    """Lay out one line per record."""
    lines = [
        (
            record.workload,
            f"{record.n:,}",
            record.journal,
            f"{record.us_per_call:,.1f}",
            "{:,.1f} – {:,.1f}".format(*record.spread["us_per_call"]),
            _factor(record.ratio_to_gather),
            _factor(record.ratio_to_link),
            _factor(record.ratio_to_floor),
            _factor(record.ratio_to_raw),
            str(record.rounds),
        )
        for record in records
    ]
    return _columns([_RECORD_COLUMNS, *lines])


def judgement_table(judgements: Sequence[Judgement]) -> str:
    """Lay out one line per target that something was measured for."""
    lines = [
        (
            judgement.target.id,
            judgement.target.workload,
            f"{judgement.target.n:,}",
            judgement.target.journal,
            judgement.target.against,
            f"gate {judgement.target.gate:g} ×",
            f"goal {judgement.target.goal:g} ×",
            f"measured {judgement.measured:.2f} ×",
            judgement.word,
        )
        for judgement in judgements
    ]
    return _columns(lines)


def grant_table(costs: Sequence[GrantCost]) -> str:
    """A line for each queue and length."""
    lines = [("queue", "waiters", "µs/grant", "×shortest")]
    lines += [
        (
            cost.queue,
            f"{cost.waiters:,}",
            f"{cost.us_per_grant:.1f}",
            _factor(cost.ratio_to_shortest),
        )
        for cost in costs
    ]
    return _columns(lines)


def machine_line(machine: Machine) -> str:
    """Say in a few lines where the figures come from."""
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    return (
        f"laneway {machine.laneway} · {machine.python} · SQLite {machine.sqlite} · {libraries}\n"
        f"{machine.system} · {machine.processor}, {machine.cores} cores, load {machine.load} · "
        f"files on {machine.disk}"
    )


def _factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _columns(lines: Sequence[Sequence[str]]) -> str:
    """Align texts to the left and figures to the right; the last line tells which is which."""
    if not lines:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    figures = [cell[:1] in _FIGURE_BEGINS for cell in lines[-1]]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_figure else cell.ljust(width)
            for cell, width, is_figure in zip(line, widths, figures, strict=True)
        ).rstrip()
        for line in lines
    )
