"""The way through a re-execution: one driver's time after the other, each from what is recorded.

What cannot be known of a run alone is found by trying: where the engine would start a call earlier
than it was started, that call waited for something outside, and is made to wait in a second pass.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from laneway.engine.reexecution.comparing import parted
from laneway.engine.reexecution.events import Happening
from laneway.engine.reexecution.once import Passed, pass_through
from laneway.engine.reexecution.part import Part, Way
from laneway.engine.reexecution.recording import Recording
from laneway.engine.reexecution.staging import Options
from laneway.engine.reexecution.verdict import Divergence, Reexecution
from laneway.engine.tools import Tool, Toolset
from laneway.errors import UsageError
from laneway.facts import Row, RunOpened, RunTaken, TurnStreamed, TurnSubmitted
from laneway.ids import ApprovalId
from laneway.lanes.lane import Lane
from laneway.policies.layers import policy_of
from laneway.policies.rules import Policy

HIGHEST = 8
"""Priority that is tried as an explanation."""
PASSES = 64
"""Each finds at least one call more that waited for something outside."""


async def reexecute(
    rows: Sequence[Row],
    *,
    tools: Iterable[Tool[..., Any] | Callable[..., Any]] = (),
    policy: Policy | str | Path | None = None,
    mode: str | None = None,
    lanes: Mapping[str, int | Lane] | None = None,
    workspace: str | Path = ".",
    all: bool = False,  # noqa: A002 - as it is asked: all of them
) -> Reexecution:
    """Run the real scheduler on a run's recorded turns, with recorded results and no tool touched.

    Whatever came from outside (answers of the model, ends of bodies, answers of humans, timeouts,
    settlements) comes again, in its order; the engine decides anew, and each decision is held
    against the recorded one. Runs within calls are runs of their own, and re-executed so.

    Args:
        rows: all facts of one run, from its first.
        tools: their schemas, effects and claims count instead of what is recorded; their bodies
            are never entered. A tool that is not among them is taken as it is recorded.
        policy: judges instead of what is recorded of verdicts.
        mode: instead of the recorded one.
        lanes: as for an Engine; those that are recorded if None. Rates count for nothing, since
            time does not pass: how long a call waited for one is recorded.
        workspace: the folder that relative file names of `tools` start from.
        all: go on behind a divergence, with the next turn as it is recorded.

    Returns:
        The first decision that differs, or all of them; `str` tells it to people.

    Raises:
        UsageError: these are not the facts of one run from its beginning, or tools, policy or lanes
            cannot be used.
    """
    if not rows or not isinstance(rows[0].fact, RunOpened) or rows[0].seq != 1:
        raise UsageError("re-execution wants all facts of one run, from the first on")
    if any(isinstance(row.fact, TurnStreamed) for row in rows):
        raise UsageError(
            "the run has answers whose calls ran while they were being written, and what came when "
            "of a stream is not recorded: it cannot be re-executed (`laneway replay` shows it)"
        )
    options = Options(
        tools=tuple(Toolset(tools)),
        policy=policy_of(policy) if isinstance(policy, (str, Path)) else policy,
        mode=mode,
        lanes=lanes,
        workspace=workspace,
    )
    recording = Recording(rows)
    found = _Found(recording, options)
    at = 0
    while at < len(recording.events):
        at = await found.go_on(at)
        if found.divergences and not all:
            break
    found.tell_break(everything=all)
    return found.reexecution()


class _Found:
    """What has been found so far."""

    def __init__(self, recording: Recording, options: Options) -> None:
        self.divergences: list[Divergence] = []
        self._recording = recording
        self._options = options
        self._decisions = 0
        self._earlier = 0
        self._by_durations = False
        self._priorities: dict[str, int] = {}
        self._own = frozenset(tool.spec.name for tool in options.tools)
        self._digests: dict[ApprovalId, str] = {}

    async def go_on(self, at: int) -> int:
        """Re-execute from an event to the end of its driver's time; gives where to go on."""
        end = _end_of(self._recording, at)
        passed, way = await self._passed(Part(self._recording, at, end, self._digests))
        self._decisions += passed.decisions
        self._earlier += passed.earlier
        self._by_durations |= way.by_record
        if passed.divergence is None:
            self._priorities |= way.priorities
        self._digests |= passed.digests
        if passed.divergence is None:
            return end
        self.divergences.append(passed.divergence)
        return _next_turn(self._recording, at + passed.stopped + 1)

    async def _passed(self, part: Part) -> tuple[Passed, Way]:
        way = Way()
        passed = await pass_through(part, self._options, way)
        for _ in range(PASSES):
            more = None if passed.divergence is None else _further(passed, way, part, self._own)
            if more is None:
                break
            way = more
            passed = await pass_through(part, self._options, way)
        return passed, way

    def tell_break(self, *, everything: bool) -> None:
        """Tell of the place behind which no engine can have written what is recorded."""
        if self._recording.broken is not None and (everything or not self.divergences):
            row, why = self._recording.broken
            records = {
                record.id: record
                for one in self._recording.rows
                if isinstance(one.fact, TurnSubmitted)
                for record in one.fact.calls
            }
            self.divergences.append(parted(row, records, why=f"impossible there, for {why}"))

    def reexecution(self) -> Reexecution:
        return Reexecution(
            run=self._recording.rows[0].run,
            divergences=tuple(self.divergences),
            decisions=self._decisions,
            earlier=self._earlier,
            by_durations=self._by_durations,
            priorities=self._priorities,
        )


def _further(passed: Passed, way: Way, part: Part, own: frozenset[str]) -> Way | None:
    """What a pass has shown of the world around that the next one should know; None for nothing."""
    held = passed.early - way.held
    if passed.joined and not way.apart and (part.told_nothing or part.holds_secrets):
        return msgspec.structs.replace(way, apart=True)
    if held:
        return msgspec.structs.replace(way, held=way.held | held)
    if passed.ranked and not way.by_record:
        return msgspec.structs.replace(way, by_record=True)
    if passed.ranked and way.held and not way.aside:
        return msgspec.structs.replace(way, aside=True)
    tool, rivals = passed.overtaken
    known = way.priorities
    highest = max((known.get(one, 0) for one in rivals - {tool}), default=None)
    if tool in own or highest is None:
        return None
    # What was held for it so far was perhaps overtaken, and waited for nothing outside.
    raised = max(highest, known.get(tool, 0)) + 1
    if raised > HIGHEST:
        return None
    return Way(priorities={**known, tool: raised}, apart=way.apart)


def _end_of(recording: Recording, at: int) -> int:
    """Where the time of the driver ends in which an event is."""
    for later in range(at + 1, len(recording.events)):
        if isinstance(recording.events[later].given[0].fact, RunTaken):
            return later
    return len(recording.events)


def _next_turn(recording: Recording, at: int) -> int:
    """The first event from which a state can be taken as it is recorded."""
    for later in range(at, len(recording.events)):
        if recording.events[later].kind in (Happening.SUBMITTED, Happening.TAKEN):
            return later
    return len(recording.events)
