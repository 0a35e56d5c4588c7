"""What a caller means by a moment of a run, and which of its facts.

Reads the text of options; feeds `replay`.
"""

import re
from collections.abc import Iterable
from datetime import datetime, time
from typing import get_args

import msgspec

from laneway.engine.cli.commands.replay_lanes import claims_of
from laneway.engine.cli.commands.replay_shown import local_time
from laneway.errors import UnknownCallError, UsageError
from laneway.facts import Fact, LaneChanged
from laneway.ids import CallId
from laneway.journal.bare import kind
from laneway.journal.fold import CallView, RunView
from laneway.journal.replay import Replay, Step
from laneway.lanes.names import Names, overlaps
from laneway.states import State

KINDS = frozenset(str(one.__struct_config__.tag) for one in get_args(Fact))

_SEQ = re.compile(r"\d{1,18}")
_SINCE = re.compile(r"\+(\d{1,18}(?:\.\d*)?)\s*(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def point(text: str, replay: Replay) -> int:
    """Find the fact that is meant by `--at`.

    Args:
        text: a fact's number; a date with a time, of this place unless it says which; a time of the
            day on which the run began; or `+12.5s` since its first fact.
        replay: of the run, with at least one fact.

    Raises:
        UsageError: it is none of these, or the run had not begun.
    """
    if _SEQ.fullmatch(text):
        return replay.step(int(text)).row.seq
    since = _SINCE.fullmatch(text)
    if since:
        return replay.seq_after(float(since[1]) * _UNITS[since[2] or "s"])
    first = replay.rows[0].wall
    try:
        seq = replay.seq_at(_wall(text, first))
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--at {text!r} is no moment: give the number of a fact, 2026-01-31T12:00:00, "
            "12:00:00 on the day when the run began, or +12.5s since its first fact"
        ) from None
    if not seq:
        raise UsageError(
            f"run {replay.run!r} had not begun at {text}: its first fact is of {local_time(first)}"
        )
    return seq


def _wall(text: str, first: float) -> float:
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()
    day = datetime.fromtimestamp(first, tz=clock.tzinfo).date()
    return datetime.combine(day, clock).timestamp()


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which facts are wanted; each that is given must hold, of one and the same call."""

    call: str = ""
    """Laneway's name of a call, or the provider's."""
    lanes: tuple[str, ...] = ()
    """Canonical resources, of which a call must touch one."""
    state: State | None = None
    """Into which a call came."""
    kinds: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether all facts are wanted."""
        return not (self.call or self.lanes or self.state or self.kinds)

    def fits(self, step: Step, view: RunView) -> bool:
        """Whether a fact is wanted, with the run as it stood after it."""
        fact = step.row.fact
        if self.kinds and kind(fact) not in self.kinds:
            return False
        if not (self.call or self.lanes or self.state):
            return True
        if isinstance(fact, LaneChanged):
            return not (self.call or self.state) and self._touches((fact.lane,))
        moved = {move.call for move in step.moves if move.after is self.state}
        return any(self._is_wanted(view.calls[name], moved) for name in step.calls)

    def _is_wanted(self, call: CallView, moved: set[CallId]) -> bool:
        if self.call and self.call not in (call.id, call.record.provider_id):
            return False
        if self.state and call.id not in moved:
            return False
        return not self.lanes or self._touches(claim.resource for claim in claims_of(call))

    def _touches(self, resources: Iterable[str]) -> bool:
        return any(overlaps(lane, one) for one in resources for lane in self.lanes)


def chosen(
    replay: Replay,
    *,
    call: str,
    lane: str,
    state: State | None,
    kinds: Iterable[str],
    workspace: str,
) -> Filter:
    """Make a filter from options.

    Args:
        replay: of the run.
        call: a call's name, or empty.
        lane: a resource as people write it, or empty: `mail`, `file:src/a.py`.
        state: or None.
        kinds: tags of facts.
        workspace: that relative file names start from.

    Raises:
        UnknownCallError: the run has no such call.
        UsageError: there is no such kind.
        BadResourceError: the resource cannot be named.
    """
    unknown = sorted({*kinds} - KINDS)
    if unknown:
        raise UsageError(f"no fact is a {unknown[0]!r}; there are: {', '.join(sorted(KINDS))}")
    calls = replay.at(len(replay.rows)).calls.values()
    if call and not any(call in (one.id, one.record.provider_id) for one in calls):
        raise UnknownCallError(replay.run, call)
    named = lane if ":" in lane else f"lane:{lane}"
    return Filter(
        call=call,
        lanes=tuple(Names(workspace).resources(named)) if lane else (),
        state=state,
        kinds=frozenset(kinds),
    )
