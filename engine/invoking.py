"""How a tool's body calls other tools: each call in a run of its own, below the call that makes it.

Reads what the body asks for, and what earlier attempts of it have asked for; gives the outcome.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from laneway.calls import Referring
from laneway.effects import Effect
from laneway.engine.descent import INVOKED, entered_as
from laneway.engine.failing import NestedCallFailed
from laneway.engine.failures import stopped
from laneway.engine.nesting import ORPHANED, holder, inside
from laneway.engine.plain import NotPlainError, plain
from laneway.engine.providers.reply import Asked, Reply
from laneway.engine.secrets.losses import LOST_RESULT
from laneway.engine.serialise import digest
from laneway.errors import RunOwnedError, UsageError
from laneway.facts import TurnSubmitted
from laneway.ids import RunId
from laneway.journal.fold import RunView
from laneway.outcomes import Code, Failure, Happened, Outcome, Success

if TYPE_CHECKING:
    from laneway.engine.live import LiveCall
    from laneway.engine.run import Run
    from laneway.engine.sealing import Secrets
    from laneway.engine.turn import Turn


class Nest:
    """The way from one attempt of a call to the calls that its body makes."""

    def __init__(self, open_run: Callable[..., "Run"], call: "LiveCall") -> None:
        """Serve one attempt.

        Args:
            open_run: makes a run by name, as `Engine.run`.
            call: whose body it is.
        """
        self._open_run = open_run
        self._call = call
        self._attempt = call.attempt
        self._loop = asyncio.get_running_loop()
        self._numbers = _Numbers(call)
        self._waiting = 0
        """How many calls the thread of a synchronous tool waits for."""

    @property
    def view(self) -> RunView:
        """The run of the call, as the facts so far tell."""
        return self._call.scheduler.log.view

    async def outcome(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        """Run one call in a run of its own below this call, and give its outcome.

        The n-th call of a body with the same arguments has the same run in every attempt, so that
        one which has succeeded, or may have had its effect, is not repeated when the body is
        entered again: after a failed attempt, or by whoever resumes after a crash.
        """
        given = _checked(tool, arguments)
        if asyncio.get_running_loop() is not self._loop:
            coming = self._while_waiting(tool, given)
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coming, self._loop))
        return await self._outcome(tool, given)

    def outcome_in_thread(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        """Do the same from the thread of a synchronous tool, which waits."""
        given = _checked(tool, arguments)
        if self._loop is _running_loop():
            raise UsageError(
                f"invoke_blocking({tool!r}) would keep the event loop from running {tool}, and so "
                f"never end; in an async tool, use `await context.invoke({tool!r}, …)`"
            )
        if self._loop.is_closed():
            raise UsageError(f"{tool} cannot be called any more: the event loop is closed")
        coming = self._while_waiting(tool, given)
        return asyncio.run_coroutine_threadsafe(coming, self._loop).result()

    async def _while_waiting(self, tool: str, arguments: dict[str, Any]) -> Outcome:
        clock = self._call.scheduler.services.clock
        counted = self._call.running is not None  # Else it is a thread of the tool's own.
        if counted and not self._waiting:
            clock.release()  # The thread is not at work meanwhile.
        self._waiting += counted
        # A thread that the tool has started does not know whose body it is part of.
        known = holder(self._call.scheduler.services) is not None
        token = None if known else inside.set(self._call)
        try:
            return await self._outcome(tool, arguments)
        finally:
            if token is not None:
                inside.reset(token)
            self._waiting -= counted
            if counted and not self._waiting:
                clock.hold()

    async def _outcome(self, tool: str, given: dict[str, Any]) -> Outcome:
        if self._is_over:
            return stopped(ORPHANED, effect=Effect.READ, entered=False, still_running=False)
        scheduler = self._call.scheduler
        secrets = scheduler.secrets
        # A digest that is kept would let a short secret be guessed.
        asked = digest([tool, given if secrets is None else secrets.shown(tool, given)])
        name = f"{self._numbers.prefix}{await self._numbers.of(asked)}"
        run = self._open_run(
            name, mode=scheduler.mode, bound=scheduler.bound, priority=scheduler.priority
        )
        async with AsyncExitStack() as leaving:
            try:
                with entered_as(INVOKED):
                    await leaving.enter_async_context(run)
            except RunOwnedError as error:
                return _still_at_work(tool, error)
            await run.finish()
            turn = next((one for one in run.turns if _stands(one, asked, name, secrets)), None)
            if turn is None:
                turn = await run.submit(_reply(tool, given), key=f"{asked}/{self._attempt}")
        (found,) = turn.outcomes.values()
        if secrets is None:
            return found
        return secrets.revealed(f"{name}/{turn.calls[0].id}", found)

    def has_read(self, source: str, version: str, *, found: bool | None) -> None:
        """The body has read a source; see `ToolContext.note_read`."""
        scheduler = self._call.scheduler
        if scheduler.services.telemetry is not None:
            scheduler.services.telemetry.has_read(self._call, source, version, found=found)

    @property
    def _is_over(self) -> bool:
        call = self._call
        return call.outcome is not None or call.attempt != self._attempt or not call.entered


class _Numbers:
    """What the runs of an attempt's calls are called, in the order in which they are made.

    Where earlier attempts have asked for the same, it has its number from them: the order may be
    another this time, as that of things that go on side by side.
    """

    def __init__(self, call: "LiveCall") -> None:
        """Count from 1."""
        self.prefix = f"{call.scheduler.log.view.run}/{call.id}/"
        self._services = call.scheduler.services
        self._last = 0
        self._earlier: dict[str, list[int]] | None = None if call.attempt > 1 else {}
        """By what was asked for, the lowest number first."""
        self._looking = asyncio.Lock()

    async def of(self, asked: str) -> int:
        """Number a call."""
        if self._earlier is None:
            async with self._looking:
                if self._earlier is None:
                    self._earlier = await self._look()
        same = self._earlier.get(asked)
        if same:
            return same.pop(0)
        self._last += 1
        return self._last

    async def _look(self) -> dict[str, list[int]]:
        """Read what earlier attempts have asked for: all of it was kept before this one began."""
        found: dict[int, str] = {}
        store, clock = self._services.journal.store, self._services.clock
        clock.hold()
        try:
            for entry in await store.runs():
                number = entry.run.removeprefix(self.prefix)
                if entry.run.startswith(self.prefix) and number.isdecimal():
                    rows = await store.read(RunId(entry.run))
                    turns = (row.fact for row in rows if isinstance(row.fact, TurnSubmitted))
                    found[int(number)] = next((_asked(turn.key) for turn in turns), "")
        finally:
            clock.release()
        self._last = max(found, default=0)
        earlier: dict[str, list[int]] = {}
        for at, asked in sorted(found.items()):
            earlier.setdefault(asked, []).append(at)
        return earlier


def _asked(key: str) -> str:
    return key.rpartition("/")[0]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _checked(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """See that a call can be written down.

    Raises:
        UsageError: it cannot; nothing was called.
    """
    if not isinstance(tool, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"a tool is called by its name, not by {tool!r}")
    try:
        given: dict[str, Any] = plain(arguments)
    except NotPlainError as error:
        raise UsageError(
            f"{tool} cannot be called with arguments that JSON cannot tell: {error}"
        ) from None
    return given


def _still_at_work(tool: str, owned: RunOwnedError) -> Failure:
    """The failure of a call that an earlier attempt has made, and that has not stopped."""
    return Failure(
        code=Code.ALREADY_RUNNING,
        message=f"The same call of {tool}, made before, has not stopped: {owned}",
        retry=True,
        happened=Happened.UNKNOWN,
        hint="Ask for it again later: then it is known what it came to.",
    )


def _reply(tool: str, arguments: dict[str, Any]) -> Reply:
    call = {"id": "1", "tool": tool, "arguments": arguments}
    return Reply(
        provider="plan",
        message={"role": "assistant", "calls": [call]},
        calls=(Asked(id="1", name=tool, arguments=arguments),),
        referring=Referring.LITERAL,
    )


def _stands(turn: "Turn", asked: str, run: str, secrets: "Secrets | None") -> Outcome | None:
    """What an earlier attempt's call came to, if that is not to be tried again.

    What did nothing is tried again, but for what a human has refused: nobody answers twice. So is
    what a repeat does not hurt, if its result held a secret that nobody has any more.
    """
    if _asked(turn.key) != asked:
        return None
    (outcome,) = turn.outcomes.values()
    if isinstance(outcome, Failure) and outcome.happened is Happened.NOTHING:
        return outcome if outcome.code is Code.APPROVAL_REJECTED else None
    call = turn.calls[0]
    if secrets is not None and call.record.idempotent:
        told = secrets.revealed(f"{run}/{call.id}", outcome)
        return None if told is LOST_RESULT else outcome
    return outcome


def value_of(tool: str, outcome: Outcome) -> Any:
    """The value of a call that a body has made.

    Raises:
        NestedCallFailed: it did not succeed; uncaught, the call that made it has failed, too.
    """
    if isinstance(outcome, Success):
        return outcome.value
    raise NestedCallFailed(
        f"{tool} did not succeed ({outcome.code}): {outcome.message}",
        happened=outcome.happened,
        retry=outcome.retry,
        hint=outcome.hint,
        code=outcome.code,
    )
