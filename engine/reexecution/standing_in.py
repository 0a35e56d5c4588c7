"""What stands in for the world: bodies that wait at a gate, a clock that is set, silent probes.

The scheduler itself is the real one; these take the places of what it reads from outside.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from laneway.engine.asking import Probes
from laneway.engine.bodies import Bodies
from laneway.engine.durations import Durations
from laneway.engine.flights import Flight, Key
from laneway.engine.live import LiveCall
from laneway.engine.looping import RULE as LOOPS
from laneway.engine.looping import Watch
from laneway.engine.scheduler import Scheduler
from laneway.facts import Row
from laneway.ids import CallId
from laneway.outcomes import Failure
from laneway.policies.loops import Loops

Attempt = tuple[CallId, int]


class SetClock:
    """Stands where the recorded facts stood; nothing ever happens because time passes."""

    def __init__(self) -> None:
        """Start at no time."""
        self._row: Row | None = None

    def set(self, row: Row) -> None:
        """It is the time of this fact."""
        self._row = row

    def monotonic(self) -> float:
        """Monotonic seconds of the driver, as recorded."""
        return 0.0 if self._row is None else self._row.mono

    def wall(self) -> float:
        """Unix seconds, as recorded."""
        return 0.0 if self._row is None else self._row.wall

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:  # noqa: ARG002 - what came of it is recorded
        """Never call back."""
        handle = asyncio.get_running_loop().call_later(0.0, _nothing)
        handle.cancel()
        return handle

    def hold(self) -> None:
        """Time stands still anyway."""

    def release(self) -> None:
        """Time stands still anyway."""


def _nothing() -> None:
    """Do nothing."""


class Gate:
    """Where the body of one attempt waits for what it came to."""

    def __init__(self, call: LiveCall) -> None:
        """Wait for the body."""
        self.call = call
        self.late: str | None = None
        """What it gives back although it is told to stop."""
        self.stays = False
        """It does not stop when it is told to."""
        self._entered = False
        self._end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def passed(self) -> Any:
        """For the body: wait, and come to the recorded end."""
        self._entered = True
        while True:
            try:
                return await asyncio.shield(self._end)
            except asyncio.CancelledError:
                if self._end.done() or not (self.stays or self.late is not None):
                    raise
                if self.late is not None and not self.stays:
                    return self.late

    def open(self, value: Any = None, error: BaseException | None = None) -> None:
        """Let the body come to its end."""
        if error is None:
            self._end.set_result(value)
        else:
            self._end.set_exception(error)
            self._end.exception()  # Somebody looks at it in any case.

    @property
    def waits(self) -> bool:
        """Whether its body has come so far, and nothing moves it on."""
        told = self.call.told is not None and self.call.outcome is None and not self.stays
        return self._entered and not self._end.done() and not told


class GatedBodies(Bodies):
    """Bodies that do nothing, each until it is let go."""

    def __init__(self, scheduler: Scheduler, never_entered: Collection[Attempt]) -> None:
        """Serve one scheduler.

        Args:
            scheduler: whose bodies these are.
            never_entered: attempts that were told to stop before their body was entered.
        """
        super().__init__(scheduler)
        self.gates: dict[CallId, Gate] = {}
        self._never_entered = never_entered
        self._held: dict[CallId, LiveCall] = {}

    def launch(self, call: LiveCall) -> None:
        """Enter the body, which waits at its gate."""
        if call.told is None and (call.id, call.attempt) in self._never_entered:
            self._held[call.id] = call
            return
        gate = self.gates[call.id] = Gate(call)
        super().launch(call)
        assert call.task is not None
        call.task.add_done_callback(lambda _: self._gone(call, gate))

    def tell(self, call: LiveCall) -> None:
        """Tell a started call to stop, too, whose body is not entered any more."""
        super().tell(call)
        if self._held.pop(call.id, None) is not None:
            self.launch(call)

    def _gone(self, call: LiveCall, gate: Gate) -> None:
        if self.gates.get(call.id) is gate:
            del self.gates[call.id]

    @property
    def at_rest(self) -> bool:
        """Whether every body waits at its gate."""
        return all(gate.waits for gate in self.gates.values())


class SilentProbes(Probes):
    """Asks nobody: what probes found is recorded."""

    def ask(self, call: LiveCall) -> None:
        """Do nothing."""


class RecordedWatch(Watch):
    """Refuses what was refused, and notes what was noted."""

    def __init__(
        self,
        refused: Mapping[CallId, Failure],
        halting: Collection[CallId],
        notes: Mapping[CallId, str],
    ) -> None:
        """Go by what is recorded.

        Args:
            refused: calls that were, and why.
            halting: those of them with which the run stopped.
            notes: what the model was told beside results.
        """
        super().__init__(Loops())
        self._refused = refused
        self._halting = halting
        self._notes = notes

    def refuses(self, call: LiveCall) -> Failure | None:
        """Say of a call what was said of it."""
        call.note = self._notes.get(call.id, "")
        failure = self._refused.get(call.id)
        if failure is not None:
            call.rule = LOOPS
            call.scheduler.halted |= call.id in self._halting
        return failure


class RecordedBooks:
    """Has no room for what there was no room for."""

    def __init__(self, refused: Mapping[CallId, tuple[str, Failure]]) -> None:
        """Go by what is recorded.

        Args:
            refused: calls that were, with the rule and the outcome.
        """
        self._refused = refused

    def admit(self, call: LiveCall) -> Failure | None:
        """Say of a call what was said of it."""
        if call.id not in self._refused:
            return None
        call.rule, failure = self._refused[call.id]
        return failure

    def started(self, call: LiveCall) -> None:
        """Nothing is counted."""

    def ended(self, call: LiveCall) -> None:
        """Nothing is counted."""

    def hold(self, call: LiveCall) -> None:
        """Nothing is counted."""


class WatchedScheduler(Scheduler):
    """The real one; says whose arguments are being completed."""

    completing: CallId | None = None

    def complete(self, call: LiveCall) -> Failure | None:
        """Resolve a ready call's references, and check what comes of it."""
        self.completing = call.id
        try:
            return super().complete(call)
        finally:
            self.completing = None


class Apart(dict[Key, Flight]):
    """Flights that nobody joins."""

    def get(self, key: Key, default: Any = None, /) -> Any:  # noqa: ARG002 - nobody finds any
        """Find none."""
        return default

    def __delitem__(self, key: Key) -> None:
        self.pop(key, None)


class AsRecorded(Durations):
    """Expects of a turn's calls what puts them into the order in which they were started.

    The rank of a call is its own time and the largest rank behind it; nothing that waits for a call
    was started before it, so that every order of starts is one of ranks.
    """

    def __init__(self) -> None:
        """Expect nothing yet."""
        super().__init__()
        self._seconds: Iterator[float] = iter(())

    def expect_of_turn(self, seconds: Sequence[float]) -> None:
        """Say what will be expected of the calls of the next turn, in request order."""
        self._seconds = iter(seconds)

    def expect_call(self, tool: str, arguments: Any) -> float:
        """Say it of the next call."""
        found = next(self._seconds, None)
        return super().expect_call(tool, arguments) if found is None else found
