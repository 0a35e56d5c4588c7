"""Two runs side by side: where they part, and what each cost.

Reads the rows of both, of one journal or of two, of a run and its fork or of strangers; gives a
frozen comparison, for people as text. Calls are matched by their place: the second call of the
third turn with the second call of the third turn.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from laneway.facts import Row, RunForked
from laneway.ids import CallId, RunId
from laneway.journal.bare import Bare, difference, kind, streams
from laneway.journal.fold import RunView
from laneway.journal.spent import Cost, Spent, Totals
from laneway.outcomes import Failure, Outcome


class Parting(msgspec.Struct, frozen=True, kw_only=True):
    """The first fact that is not the same in both runs."""

    what: str
    """What differs, in a few words."""
    where: str
    """`call t1.2`, `turn 3`, or what else it is about."""
    a: Row | None
    """None where only the other run has it."""
    b: Row | None


class ComparedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of either run, with the one in its place in the other."""

    call: CallId
    tool: str
    """Both tools, where they differ: `ls / dir`."""
    a: Cost | None
    b: Cost | None
    same_outcome: bool

    @property
    def same(self) -> bool:
        """Whether it came to the same in as many attempts, however long it took."""
        if self.a is None or self.b is None or " / " in self.tool:
            return False
        same_way = (self.a.state, self.a.attempts) == (self.b.state, self.b.attempts)
        return same_way and self.same_outcome


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs, called a and b."""

    a: RunId
    b: RunId
    kin: str
    """How they are related, if they are: one is a fork of the other, or both of a third."""
    shared: int
    """The facts that one has from the other, or both from a third."""
    brought: tuple[str, ...]
    """How the last drivers differed in what they brought along: mode, policy, tools, lanes."""
    parting: Parting | None
    """None where nothing differs but times."""
    calls: tuple[ComparedCall, ...]
    """In request order."""
    total_a: Totals
    total_b: Totals

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def compare(a: Sequence[Row], b: Sequence[Row]) -> Comparison:
    """Compare two runs.

    Not compared are times, drivers, tokens and process ids, the provider's ids, and which of two
    calls beside each other came first.

    Args:
        a: all facts of a run, at least one.
        b: all facts of another; calls below its calls are in runs of their own.

    Raises:
        DamagedJournalError: facts are missing.
    """
    spent_a, spent_b = Spent(a), Spent(b)
    shared, kin = _kinship(a, b)
    return Comparison(
        a=a[0].run,
        b=b[0].run,
        kin=kin,
        shared=shared,
        brought=tuple(_brought(spent_a.view, spent_b.view)),
        parting=_parting(a, b),
        calls=tuple(_calls(spent_a, spent_b)),
        total_a=spent_a.total(),
        total_b=spent_b.total(),
    )


def _calls(a: Spent, b: Spent) -> Iterator[ComparedCall]:
    names = {**a.view.calls, **b.view.calls}
    for name in sorted(names, key=_place):
        one, other = a.view.calls.get(name), b.view.calls.get(name)
        tools = dict.fromkeys(call.record.tool for call in (one, other) if call is not None)
        yield ComparedCall(
            call=name,
            tool=" / ".join(tools),
            a=a.cost(name),
            b=b.cost(name),
            same_outcome=one is not None
            and other is not None
            and _alike(one.outcome, other.outcome),
        )


def _place(call: CallId) -> tuple[int, ...]:
    """`t3.2/1` as numbers, to be sorted by."""
    return tuple(int(part) for part in call.removeprefix("t").replace("/", ".").split("."))


def _alike(one: Outcome | None, other: Outcome | None) -> bool:
    """Whether two outcomes are the same, but for what a failure says in words."""
    if isinstance(one, Failure) and isinstance(other, Failure):
        return (one.code, one.happened) == (other.code, other.happened)
    return one == other


def _parting(a: Sequence[Row], b: Sequence[Row]) -> Parting | None:
    """Find the first difference of each stream, and of these the first of all."""
    left, right = streams(a), streams(b)
    found: list[tuple[int, Parting]] = []
    for stream in left.keys() | right.keys():
        one, other = _first_apart(left.get(stream, ()), right.get(stream, ()))
        if one is None and other is None:
            continue
        first = min(at.row.seq for at in (one, other) if at is not None)
        parting = Parting(
            what=_apart(one, other),
            where=" ".join(filter(None, stream)),
            a=None if one is None else one.row,
            b=None if other is None else other.row,
        )
        found.append((first, parting))
    # Where two are as early, the one about a turn says more than the one about a call of it.
    found.sort(key=lambda one: (one[0], one[1].where.startswith("call"), one[1].where))
    return found[0][1] if found else None


def _first_apart(a: Sequence[Bare], b: Sequence[Bare]) -> tuple[Bare | None, Bare | None]:
    for one, other in zip(a, b, strict=False):
        if one.fact != other.fact:
            return one, other
    both = min(len(a), len(b))
    return next(iter(a[both:]), None), next(iter(b[both:]), None)


def _apart(one: Bare | None, other: Bare | None) -> str:
    if one is not None and other is not None:
        return difference(one.fact, other.fact)
    return (
        f"{kind(one.fact)} in a alone" if one else f"{kind(other.fact)} in b alone" if other else ""
    )


def _kinship(a: Sequence[Row], b: Sequence[Row]) -> tuple[int, str]:
    """Say how two runs are related, and how many facts they have in common for that reason."""
    name_a, name_b = a[0].run, b[0].run
    above_a, above_b = _ancestors(a), _ancestors(b)
    if not {name_a, *above_a} & {name_b, *above_b}:
        return 0, ""
    shared = 0
    for one, other in zip(a, b, strict=False):
        # A copy keeps the times of its original, and nothing else has them.
        if (one.wall, one.mono, type(one.fact)) != (other.wall, other.mono, type(other.fact)):
            break
        shared += 1
    if name_a == name_b:
        return shared, f"a and b are both called {name_a}, and share {shared} facts"
    if name_a in above_b:
        return shared, f"b is a fork of a: they share {shared} facts"
    if name_b in above_a:
        return shared, f"a is a fork of b: they share {shared} facts"
    third = next(name for name in reversed(above_a) if name in above_b)
    return shared, f"a and b are forks of {third}: they share {shared} facts"


def _ancestors(rows: Sequence[Row]) -> list[RunId]:
    return [row.fact.source for row in rows if isinstance(row.fact, RunForked)]


def _brought(a: RunView, b: RunView) -> Iterator[str]:
    if a.mode != b.mode:
        yield f"mode: {a.mode} against {b.mode}"
    if a.setting.policy != b.setting.policy:
        yield f"policy: {a.setting.policy or 'none'} against {b.setting.policy or 'none'}"
    for what, one, other in (
        ("tool", a.setting.tools, b.setting.tools),
        ("lane", a.setting.lanes, b.setting.lanes),
    ):
        yield from _listed(what, one, other)
    if a.settings != b.settings:
        yield "the settings that `resume` is given"


def _listed(what: str, a: dict[str, Any], b: dict[str, Any]) -> Iterator[str]:
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield f"{what} {name}: {a.get(name, 'none')} against {b.get(name, 'none')}"


def _lines(found: Comparison) -> Iterator[str]:
    yield f"a: run {found.a}"
    yield f"b: run {found.b}"
    if found.kin:
        yield found.kin
    yield from (f"they brought along: {one}" for one in found.brought)
    yield _parting_text(found.parting)
    apart = [call for call in found.calls if not call.same]
    if apart:
        yield "calls that came to something else:"
    for call in apart:
        yield f"  {call.call} {call.tool}"
        yield f"    a: {_cost_text(call.a)}"
        yield f"    b: {_cost_text(call.b)}"
    yield from _total_lines(found.total_a, found.total_b)


def _parting_text(parting: Parting | None) -> str:
    if parting is None:
        return "they don't part: nothing differs but times"
    places = [f"fact {row.seq} of {name}" for name, row in _rows(parting)]
    return f"they part at {' and '.join(places)}, {parting.where}: {parting.what}"


def _rows(parting: Parting) -> Iterator[tuple[str, Row]]:
    if parting.a is not None:
        yield "a", parting.a
    if parting.b is not None:
        yield "b", parting.b


def _cost_text(cost: Cost | None) -> str:
    if cost is None:
        return "–"
    code = f" {cost.outcome.code}" if isinstance(cost.outcome, Failure) else ""
    human = f", a human {cost.human_seconds:.3f} s" if cost.human_seconds else ""
    return (
        f"{cost.state}{code}  attempts {cost.attempts}, waited {cost.waiting_seconds:.3f} s{human}"
        f", ran {cost.running_seconds:.3f} s"
    )


def _total_lines(a: Totals, b: Totals) -> Iterator[str]:
    yield f"{'':<20}{'a':>14}{'b':>14}{'b - a':>14}"
    for name in a.__struct_fields__:
        if name == "budgets":
            continue
        one, other = getattr(a, name), getattr(b, name)
        form = ".3f" if name.endswith("_seconds") else "d"
        title = name.replace("_seconds", ", s").replace("_", " ")
        yield f"{title:<20}{one:>14{form}}{other:>14{form}}{other - one:>+14{form}}"
    for name in sorted(a.budgets.keys() | b.budgets.keys()):
        one, other = a.budgets.get(name, 0.0), b.budgets.get(name, 0.0)
        yield f"{'budget ' + name:<20}{one:>14g}{other:>14g}{other - one:>+14g}"
