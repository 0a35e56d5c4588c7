"""A stage with a journal and a run of its own, entered as often as a test likes.

Reads a host's own function, which does with the run what hosts do; gives what that returns. Between
two entries the process may be thought to have died: `crash` keeps what a crash would have left.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from laneway.engine.engine import Engine
from laneway.engine.run import Run
from laneway.engine.turn import Turn
from laneway.facts import Fact
from laneway.ids import RunId
from laneway.journal.memory import MemoryJournal, MemoryStore
from laneway.outcomes import Code, Failure, Success
from laneway.states import State
from laneway.testing.clock import VirtualClock, run_virtual
from laneway.testing.scripted import Stage

F = TypeVar("F", bound=Fact)
T = TypeVar("T")

RUN = RunId("r")


class Theatre:
    """Tools of a stage, on virtual time, in one run called `r`."""

    def __init__(self, stage: Stage, *tools: Any, **options: Any) -> None:
        """Put a play together.

        Args:
            stage: where the scripted tools of the play are.
            tools: for the engine, made anew for each entry.
            options: of the engine; a journal in memory, unless they name one.
        """
        self.stage = stage
        self.tools: Sequence[Any] = tools
        self.options = options
        self.journal = MemoryJournal()
        self.wall_seconds = 0.0
        """How much the wall clock is ahead of the first entry's, in entries to come."""

    def enter(
        self,
        host: Callable[[Run], Awaitable[T]],
        *,
        run: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> T:
        """Enter engine and run, let the host do its work, and leave them.

        Args:
            host: what a host does with the run.
            run: options of the run.
            options: of the engine, for this entry.
        """

        async def main() -> T:
            given: dict[str, Any] = {**self.options, **options}
            given.setdefault("journal", MemoryStore(self.journal))
            engine = Engine(self.tools, clock=self._clock, **given)
            async with engine, engine.run(RUN, **(run or {})) as entered:
                return await host(entered)

        return run_virtual(main)

    def play(self, reply: Any, **options: Any) -> Turn:
        """Submit one answer, and wait for all its outcomes."""
        return self.enter(lambda run: run.submit(reply), **options)

    def finish(self, **options: Any) -> Turn:
        """Take the run up, and end its open turn."""

        async def host(run: Run) -> Turn:
            turn = await run.finish()
            if turn is None:
                raise LookupError("the run has no open turn")
            return turn

        return self.enter(host, **options)

    def crash(self) -> None:
        """Go on from the facts as they are now; whatever is kept later is lost."""
        left = MemoryJournal()
        left.facts = {run: list(rows) for run, rows in self.journal.facts.items()}
        self.journal = left

    @property
    def facts(self) -> list[Fact]:
        """What is kept of the run."""
        return [row.fact for row in self.journal.facts.get(RUN, [])]

    def kept(self, kind: type[F]) -> list[F]:
        """The facts of a kind, in the order in which they were kept."""
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def _clock(self) -> VirtualClock:
        clock = self.stage.make_clock()
        clock.advance_wall(self.wall_seconds)
        return clock


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    """Write a plan; calls without arguments have none."""
    return {"calls": [{"arguments": {}, **call} for call in calls]}


def states(turn: Turn) -> dict[str, State]:
    """Tell where each call stands, by the provider's id."""
    return {call.record.provider_id: call.state for call in turn.calls}


def codes(turn: Turn) -> dict[str, Code]:
    """Tell why calls failed, by the provider's id."""
    failures = {name: one for name, one in turn.outcomes.items() if isinstance(one, Failure)}
    return {name: failure.code for name, failure in failures.items()}


def values(turn: Turn) -> dict[str, Any]:
    """Tell what calls gave, by the provider's id."""
    return {name: one.value for name, one in turn.outcomes.items() if isinstance(one, Success)}


def failure(turn: Turn, name: str) -> Failure:
    """Find the failure of a call that did not succeed.

    Raises:
        LookupError: it has none.
    """
    outcome = turn.outcomes[name]
    if not isinstance(outcome, Failure):
        raise LookupError(f"{name} has not failed: {outcome!r}")  # noqa: TRY004 - as a look-up
    return outcome


def spans(stage: Stage) -> dict[Any, tuple[float, float]]:
    """Tell when each body ran, by its argument `n`; one that has not ended runs for ever."""
    return {
        one.arguments["n"]: (one.start, math.inf if one.end is None else one.end)
        for one in stage.executions
    }
