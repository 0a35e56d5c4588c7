"""Whether a repetition did what it was timed for: every call once, in order, with its rows.

Each function returns the faults it found as sentences, none if all is well. A contender that
leaves work out, doubles it or overtakes a dependency loses its figures (see harness).
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from laneway.benchmarks.workloads import Workload

_Item = TypeVar("_Item", bound=Hashable)

INTENT = "intent"
"""A row written before the body is entered."""
RESULT = "result"
"""A row written after the body has returned, before any child starts."""


def entry_faults(workload: Workload, entered: Sequence[int]) -> list[str]:
    """Check the order in which the bodies were entered."""
    faults = _not_exactly_once("call", range(workload.total), entered)
    if faults:
        return faults
    place = _places(entered)
    return [
        f"call {child} was entered before its parent {parent}"
        for parent, child in _edges(workload)
        if place[parent] > place[child]
    ]


def row_faults(workload: Workload, rows: Sequence[tuple[int, str]]) -> list[str]:
    """Check the durable rows, `(position, INTENT or RESULT)` in the order they were written."""
    expected = [(position, kind) for position in range(workload.total) for kind in (INTENT, RESULT)]
    faults = _not_exactly_once("row", expected, rows)
    if faults:
        return faults
    place = _places(rows)
    for position in range(workload.total):
        if place[position, INTENT] > place[position, RESULT]:
            faults.append(f"the result of call {position} was written before its intent")
    faults += [
        f"the intent of call {child} was written before the result of its parent {parent}"
        for parent, child in _edges(workload)
        if place[parent, RESULT] > place[child, INTENT]
    ]
    return faults


def answer_faults(workload: Workload, answers: Sequence[int]) -> list[str]:
    """Check the answers, which must come in request order."""
    expected = list(range(workload.total))
    faults = _not_exactly_once("answer", expected, answers)
    if not faults and list(answers) != expected:
        faults.append("the answers are not in request order")
    return faults


def _edges(workload: Workload) -> Iterable[tuple[int, int]]:
    """Yield (before, after): all dependencies, and the end of one turn before the next begins."""
    for turn in range(workload.turns):
        first = turn * workload.n
        for position, parents in enumerate(workload.parents):
            for parent in parents:
                yield first + parent, first + position
        if turn:
            for position in range(workload.n):
                yield first - workload.n + position, first + position


def _places(items: Iterable[_Item]) -> dict[_Item, int]:
    return {item: place for place, item in enumerate(items)}


def _not_exactly_once(noun: str, expected: Iterable[_Item], seen: Iterable[_Item]) -> list[str]:
    wanted, found = Counter(expected), Counter(seen)
    faults = [
        f"{noun} {item} {'is missing' if not found[item] else f'stands {found[item]} times'}"
        for item in wanted
        if found[item] != 1
    ]
    return faults + [f"{noun} {item} was never asked for" for item in found if item not in wanted]
