"""A client's session is a run; each of its calls is a call, in the order in which they came.

The run has one call of its own, which lasts as long as the session, and what the client asks for is
nested in it: so that several calls may be under way at once, and one who looks sees a tree. They
enter their lanes one after another, in the order of their requests, so that what conflicts keeps
that order; whoever waits for a human holds nothing, and others pass.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from laneway.calls import Referring
from laneway.effects import Effect
from laneway.engine.context import ToolContext
from laneway.engine.descent import INVOKED, entered_as
from laneway.engine.mcp.calling import Progress, relaying
from laneway.engine.providers.reply import Asked as AskedCall
from laneway.engine.providers.reply import Reply
from laneway.engine.tools import Tool, tool
from laneway.errors import LanewayError
from laneway.outcomes import Outcome
from laneway.policies.layers import Layers
from laneway.policies.questions import Decision, Question, Verdict
from laneway.policies.rules import Policy

if TYPE_CHECKING:
    from laneway.engine.engine import Engine
    from laneway.engine.run import Run
    from laneway.engine.turn import Turn

SESSION = "mcp_session"
"""The tool whose call lasts as long as a session."""

logger = logging.getLogger("laneway")


class Admitting(Layers):
    """The policy of the host, which is not asked about the sessions themselves: they do nothing."""

    def __init__(self, policy: Policy) -> None:
        """Put it over a policy."""
        super().__init__(policy.layers if isinstance(policy, Layers) else [("host", policy)])

    def decide(self, question: Question, /) -> Verdict:
        """Judge a call."""
        if question.tool == SESSION:
            return Verdict(Decision.ALLOW, "the proxy", "a session does nothing by itself")
        return super().decide(question)


class Asked:
    """A request of a client."""

    def __init__(self, tool: str, arguments: dict[str, Any], progress: Progress | None) -> None:
        """Take it in."""
        self.tool, self.arguments, self.progress = tool, arguments, progress
        self.answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


class Session:
    """One client's."""

    def __init__(self, engine: "Engine", name: str, mode: str) -> None:
        """Prepare; `open` begins its run.

        Args:
            engine: behind the proxy.
            name: of the run.
            mode: the agent mode that policies see.
        """
        self._engine, self.name, self._mode = engine, name, mode
        self._asked: asyncio.Queue[Asked | None] = asyncio.Queue()
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.run: Run | None = None
        """While it is open."""
        self.tell_changed: Callable[[], Awaitable[None]] | None = None
        """Tells the client that there are other tools now."""
        self.open_calls = 0
        self.last_used = asyncio.get_running_loop().time()

    async def open(self) -> None:
        """Begin the run.

        Raises:
            LanewayError: it cannot be begun.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name=f"mcp session {self.name}")
        await asyncio.shield(self._opened)

    async def close(self) -> None:
        """End it; what is under way is cancelled, and written down so."""
        self._over.set()
        self._asked.put_nowait(None)
        if self._task is not None:
            await asyncio.wait([self._task])

    async def call(
        self, tool: str, arguments: dict[str, Any], progress: Progress | None
    ) -> Outcome:
        """Run one call; cancelling the wait cancels the call.

        Raises:
            LanewayError: the session is over, or its journal broke.
        """
        asked = Asked(tool, arguments, progress)
        self.open_calls += 1
        try:
            self._asked.put_nowait(asked)
            await self.open()
            return await asked.answer
        finally:
            self.open_calls -= 1
            self.last_used = asyncio.get_running_loop().time()

    async def _live(self) -> None:
        try:
            async with self._engine.run(self.name, mode=self._mode) as run:
                self.run = run
                turn = await run.submit(_begins(self.name), wait=False)
                if not self._opened.done():
                    self._opened.set_result(None)
                await turn.wait()
                await turn.close()
        except LanewayError as error:
            self._fail(error)
        finally:
            self._fail(LanewayError(f"the session {self.name} is over"))

    def _fail(self, error: LanewayError) -> None:
        if not self._opened.done():
            self._opened.set_exception(error)
            self._opened.exception()
        while not self._asked.empty():
            asked = self._asked.get_nowait()
            if asked is not None and not asked.answer.done():
                asked.answer.set_exception(error)

    # Within the call of the session

    async def serve(self, context: ToolContext) -> int:
        """Run what the client asks for, until the session is over; gives the number of calls."""
        running: set[asyncio.Task[None]] = set()
        number = 0
        try:
            while (asked := await self._asked.get()) is not None and not self._over.is_set():
                if asked.answer.done():
                    continue  # Cancelled before it began.
                number += 1
                name = f"{context.run}/{context.call}/{number}"
                run = self._engine.run(name, mode=self._mode)
                try:
                    turn = await self._admitted(run, asked)
                except LanewayError as error:
                    if not asked.answer.done():
                        asked.answer.set_exception(error)
                    continue
                task = asyncio.create_task(self._to_its_end(run, turn, asked))
                running.add(task)
                task.add_done_callback(running.discard)
        finally:
            for task in running:
                task.cancel()
            while running:
                await asyncio.wait(running)
        return number

    async def _admitted(self, run: "Run", asked: Asked) -> "Turn":
        """Enter its run and its lanes, before anybody behind it does."""
        with entered_as(INVOKED):
            await run.__aenter__()
        token = relaying.set(asked.progress)
        try:
            return await run.submit(_asks(asked), wait=False)
        except BaseException:
            await run.__aexit__(None, None, None)
            raise
        finally:
            relaying.reset(token)

    async def _to_its_end(self, run: "Run", turn: "Turn", asked: Asked) -> None:
        gone = asyncio.create_task(_gone(asked))
        waiting = asyncio.create_task(turn.wait())
        try:
            await asyncio.wait([gone, waiting], return_when="FIRST_COMPLETED")
            if not waiting.done():
                waiting.cancel()  # That cancels the call, and waits until it has stopped.
                await asyncio.wait([waiting])
            await turn.close()
            (outcome,) = turn.outcomes.values()
            if not asked.answer.done():
                asked.answer.set_result(outcome)
        except LanewayError as error:
            if not asked.answer.done():
                asked.answer.set_exception(error)
        finally:
            for one in (gone, waiting):
                one.cancel()
            await run.__aexit__(None, None, None)
            if not asked.answer.done():
                asked.answer.set_exception(LanewayError("the session is over"))


async def _gone(asked: Asked) -> None:
    """Wait until nobody waits for an answer."""
    await asyncio.wait([asked.answer])


def session_tool(find: Callable[[str], Session]) -> Tool[..., Any]:
    """The tool whose calls are the sessions.

    Args:
        find: gives the session of a run.
    """

    @tool(name=SESSION, effect=Effect.PURE, claims=[], timeout=float("inf"))
    async def mcp_session(context: ToolContext, session: str) -> int:  # noqa: ARG001 - for the journal
        """Serve a client of the proxy, as long as it stays."""
        return await find(context.run).serve(context)

    return mcp_session


def _begins(name: str) -> dict[str, Any]:
    return {"calls": [{"id": "session", "tool": SESSION, "arguments": {"session": name}}]}


def _asks(asked: Asked) -> Reply:
    call = {"id": "1", "tool": asked.tool, "arguments": asked.arguments}
    return Reply(
        provider="plan",
        message={"role": "assistant", "calls": [call]},
        calls=(AskedCall(id="1", name=asked.tool, arguments=asked.arguments),),
        referring=Referring.LITERAL,
    )
