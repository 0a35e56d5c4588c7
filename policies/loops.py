"""Loops: is a model asking for the same over and over, without anything coming of it?

Reads what a run, or a tree of runs, has asked for lately (`laneway.policies.lately`) and the limits
that the host set; gives what was found about one more call, if anything. The engine refuses the
call, tells the model, and stops the run.

Results count. A call is the same again only while it brings the same result, and a new effect in
between, one that is not itself a repeat, is progress: tests run again after another edit are none.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from laneway.errors import UsageError
from laneway.policies.findings import LITTLE_NEW, OTHERWISE, Finding, Stage, times
from laneway.policies.lately import Entry


class Loops(msgspec.Struct, frozen=True, kw_only=True):
    """When a model counts as going round in circles; None lifts a limit, by name."""

    OFF: ClassVar["Loops"]
    """All limits lifted."""

    repeats: int | None = 2
    """How often the same call runs that brings the same result each time; one more is refused."""
    rounds: int | None = 3
    """How often the same sequence of two calls or more runs, with the same results."""
    window: int = 50
    """How many calls back all of this looks; several of one answer that are the same are one."""
    warn_below: float | None = 0.30
    """Share of different calls in a full window under which the model is warned."""
    block_below: float | None = 0.10
    """Share of different calls in a full window under which what is in it is refused."""
    stop_after: int | None = 3
    """After how many answers in a row with a refused call the run is stopped."""
    repeats_in_tree: int | None = 12
    """As `repeats`, over all runs of a tree: as many as each of its runs may ask once."""
    effects_at_once: int | None = 50
    """How many calls of one answer may be the same, where each has an effect."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: a limit that makes no sense.
        """
        least = {"repeats": 1, "rounds": 2, "window": 4, "stop_after": 1}
        for name in ("repeats", "rounds", "stop_after", "repeats_in_tree", "effects_at_once"):
            self._see(name, getattr(self, name), least.get(name, 1))
        if self.window is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise UsageError("Loops.window is None; give a whole number of 4 or more")
        self._see("window", self.window, least["window"])
        for name in ("warn_below", "block_below"):
            share = getattr(self, name)
            if share is not None and (isinstance(share, bool) or not 0 <= share <= 1):
                raise UsageError(f"Loops.{name} is {share!r}; give a share from 0 to 1, or None")

    def _see(self, name: str, given: Any, least: int) -> None:
        whole = isinstance(given, int) and not isinstance(given, bool)
        if given is not None and not (whole and given >= least):
            raise UsageError(
                f"Loops.{name} is {given!r}; give a whole number of {least} or more, or None"
            )


Loops.OFF = Loops(
    repeats=None,
    rounds=None,
    warn_below=None,
    block_below=None,
    stop_after=None,
    repeats_in_tree=None,
    effects_at_once=None,
)


def examine(
    tool: str, key: bytes, turn: int, seen: Sequence[Entry], loops: Loops, *, repeats: int | None
) -> Finding | None:
    """Look at one more call before it runs; the worst that is found.

    Args:
        tool: its name.
        key: what it is the same by.
        turn: which answer it is of, as the entries count them.
        seen: what was asked for lately, the oldest first: at most a window.
        loops: the limits.
        repeats: the one for exact repeats, which is another one for a tree of runs.
    """
    before = [entry for entry in seen if entry.turn != turn]
    found = (
        _repeat(tool, key, before, repeats),
        _rounds(key, before, loops.rounds),
        _diversity(key, seen, loops),
    )
    blocks = [one for one in found if one is not None and one.stage is Stage.BLOCK]
    return next(iter(blocks), next((one for one in found if one is not None), None))


def same_in_a_row(key: bytes, before: Sequence[Entry]) -> int:
    """How often a call has brought the same result by now, without progress in between."""
    count, result, since = 0, None, 0
    for entry in reversed(before):
        if entry.turn < since:
            break
        if entry.key == key:
            if entry.result is None or (result is not None and entry.result != result):
                break
            result = entry.result
            count += 1
        elif entry.is_progress:
            since = entry.turn  # What stands in one answer has no order.
    return count


def _repeat(tool: str, key: bytes, before: Sequence[Entry], most: int | None) -> Finding | None:
    if most is None:
        return None
    count = same_in_a_row(key, before)
    if count >= most:
        return Finding(
            stage=Stage.BLOCK,
            detector="repeat",
            message=f"You keep asking for {tool} with the same arguments: {times(count)} by now, "
            "and its result was the same each time. It was not run again.",
            hint=OTHERWISE,
        )
    if count > 1 and count == most - 1:
        return Finding(
            stage=Stage.WARN,
            detector="repeat",
            message=f"You keep asking for {tool} with the same arguments, and its result was the "
            "same each time. If it is so once more, it will not be run again.",
            hint=OTHERWISE,
        )
    return None


def _rounds(key: bytes, before: Sequence[Entry], most: int | None) -> Finding | None:
    if most is None or sum(entry.key == key for entry in before) < max(most - 1, 2):
        return None
    # What stands in one answer was asked for at once: its order says nothing.
    ordered = sorted(before, key=lambda entry: (entry.turn, entry.key))
    for count, stage in ((most, Stage.BLOCK), (most - 1, Stage.WARN)):
        block = _repeated_block(ordered, count) if count > 1 else ()
        if any(entry.key == key for entry in block):
            tools = ", ".join(dict.fromkeys(entry.tool for entry in block))
            again = (
                "Nothing of it was run again."
                if stage is Stage.BLOCK
                else "If it comes to the same once more, it will not be run again."
            )
            return Finding(
                stage=stage,
                detector="rounds",
                message=f"You keep going round in the same {len(block)} calls ({tools}): "
                f"{count} rounds by now, with the same results each time. {again}",
                hint=OTHERWISE,
            )
    return None


def _repeated_block(ordered: Sequence[Entry], rounds: int) -> Sequence[Entry]:
    """The shortest sequence of two or more that was repeated so often at the very end."""
    pairs = [(entry.key, entry.result) for entry in ordered]
    for period in range(2, len(pairs) // rounds + 1):
        tail = pairs[-period * rounds :]
        block = tail[:period]
        known = all(result is not None for _, result in block)
        if known and len(set(block)) > 1 and block * rounds == tail:
            return ordered[-period:]
    return ()


def _diversity(key: bytes, seen: Sequence[Entry], loops: Loops) -> Finding | None:
    if len(seen) < loops.window:
        return None
    # What brought another result, or none yet, is another one.
    unknown = sum(entry.result is None for entry in seen)
    known = {(entry.key, entry.result) for entry in seen if entry.result is not None}
    share = (unknown + len(known)) / len(seen)
    often = Counter(entry.tool for entry in seen).most_common(1)[0]
    told = (
        f"{LITTLE_NEW}: of your last {len(seen)} calls only {unknown + len(known)} were different "
        f"ones, most of them of {often[0]} ({times(often[1])})."
    )
    repeated = any(entry.key == key for entry in seen)
    if loops.block_below is not None and share < loops.block_below and repeated:
        message = f"{told} This is one of them, and was not run again."
        return Finding(stage=Stage.BLOCK, detector="diversity", message=message, hint=OTHERWISE)
    if loops.warn_below is not None and share < loops.warn_below:
        hint = (
            "Use the results that you have, and ask only for what is new; if you cannot go on, "
            "tell the user what stands in the way."
        )
        return Finding(stage=Stage.WARN, detector="diversity", message=told, hint=hint)
    return None


def at_once(tool: str, count: int, loops: Loops) -> Finding | None:
    """Look at a call with an effect that stands several times in one answer.

    Args:
        tool: its name.
        count: how many of the same the answer has had before.
        loops: the limits.
    """
    if loops.effects_at_once is None or count < loops.effects_at_once:
        return None
    return Finding(
        stage=Stage.BLOCK,
        detector="at once",
        message=f"You asked for {tool} with the same arguments more than "
        f"{times(loops.effects_at_once)} in one answer. This one was not run.",
        hint="Look at the results of the others first.",
    )
