"""Tools that do what a list of steps says, and remember what was done.

For tests of hosts and of the engine alike: a `Stage` makes tools from steps, counts how often each
body was entered, notes when it ran, and keeps an effect log that can outlive the process.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laneway.effects import Effect
from laneway.engine.claiming import ClaimsOf
from laneway.engine.tools import Tool
from laneway.testing.clock import VirtualClock
from laneway.testing.simulator import Span

PLACE = re.compile(r"\{(\w+)")


@dataclass(frozen=True, slots=True)
class Sleep:
    """Await, cancellably, on the engine's clock."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Block:
    """Block the thread of a synchronous tool, uninterruptibly, for virtual seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Log:
    """Append to the effect log; `{x}` stands for argument x."""

    text: str


@dataclass(frozen=True, slots=True)
class Return:
    """Return a value; in a text `{x}` stands for argument x."""

    value: Any


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Do:
    """Call a function with the arguments, await what it gives, and return it unless it is None."""

    function: Callable[[Mapping[str, Any]], Any]


ScriptStep = Sleep | Block | Log | Return | Raise | Do


@dataclass(slots=True)
class Execution:
    """One entry into a body."""

    tool: str
    arguments: Mapping[str, Any]
    start: float
    end: float | None = None

    @property
    def span(self) -> Span:
        """From entry to end, in seconds of the loop's clock."""
        assert self.end is not None
        return Span(start=self.start, end=self.end)


@dataclass(slots=True)
class Stage:
    """Where scripted tools play."""

    log_path: Path | None = None
    """A file for the effect log, written at once and with O_APPEND; None keeps it in memory."""
    entered: Counter[str] = field(default_factory=Counter[str])
    executions: list[Execution] = field(default_factory=list[Execution])
    clock: VirtualClock | None = None
    makespan: float = 0.0
    """For whoever plays on the stage to note: seconds from submission to the last outcome."""
    _log: list[str] = field(default_factory=list[str])

    @property
    def log(self) -> list[str]:
        """The effect log."""
        if self.log_path is None:
            return self._log
        return self.log_path.read_text().splitlines() if self.log_path.exists() else []

    def note(self, text: str) -> None:
        """Append to the effect log, so that it survives the process."""
        if self.log_path is None:
            self._log.append(text)
            return
        handle = os.open(self.log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, f"{text}\n".encode())
        finally:
            os.close(handle)

    def make_clock(self) -> VirtualClock:
        """For `Engine(clock=stage.make_clock)`."""
        self.clock = VirtualClock()
        return self.clock

    def of(self, tool: str, **arguments: Any) -> Execution:
        """Find the one execution of a tool with these arguments."""
        found = [
            one
            for one in self.executions
            if one.tool == tool and arguments.items() <= dict(one.arguments).items()
        ]
        if len(found) != 1:
            raise LookupError(f"{len(found)} executions of {tool} with {arguments}, not one")
        return found[0]

    def tool(
        self,
        name: str,
        *steps: ScriptStep,
        effect: Effect = Effect.READ,
        schema: Mapping[str, Any] | None = None,
        claims: Sequence[str] | ClaimsOf = (),
        sync: bool = False,
        **declared: Any,
    ) -> Tool:
        """Make a tool.

        Args:
            name: of the tool.
            steps: what its body does.
            effect: its class.
            schema: JSON Schema of its arguments; any object if left out.
            claims: templates, or a function; none means that it is free, and says so.
            sync: whether it runs in a thread.
            **declared: whatever else `Tool.from_schema` takes.
        """
        if schema is None:
            templates = () if callable(claims) else claims
            parameters = {place for claim in templates for place in PLACE.findall(claim)}
            schema = {"type": "object", "properties": {one: {} for one in sorted(parameters)}}
        plays = self._sync_body(name, steps) if sync else self._body(name, steps)
        return Tool.from_schema(
            plays,
            name=name,
            description=f"Scripted {name}.",
            schema=dict(schema),
            effect=effect,
            claims=claims if callable(claims) else list(claims),
            **declared,
        )

    def _body(self, name: str, steps: Sequence[ScriptStep]) -> Callable[..., Any]:
        async def body(**arguments: Any) -> Any:
            execution = self._enter(name, arguments)
            try:
                for step in steps:
                    if isinstance(step, Sleep):
                        await asyncio.sleep(step.seconds)
                        continue
                    value = self._play(step, arguments)
                    if asyncio.iscoroutine(value):
                        value = await value
                    if value is not None:
                        return value
                return None
            finally:
                execution.end = asyncio.get_running_loop().time()

        return body

    def _sync_body(self, name: str, steps: Sequence[ScriptStep]) -> Callable[..., Any]:
        def body(**arguments: Any) -> Any:
            execution = self._enter(name, arguments)
            try:
                for step in steps:
                    if isinstance(step, Block):
                        self._clock.block(step.seconds)
                        continue
                    value = self._play(step, arguments)
                    if value is not None:
                        return value
                return None
            finally:
                execution.end = self._clock.monotonic()

        return body

    @property
    def _clock(self) -> VirtualClock:
        assert self.clock is not None, "give the engine clock=stage.make_clock"
        return self.clock

    def _enter(self, name: str, arguments: Mapping[str, Any]) -> Execution:
        now = self.clock.monotonic() if self.clock else asyncio.get_running_loop().time()
        execution = Execution(name, arguments, now)
        self.entered[name] += 1
        self.executions.append(execution)
        return execution

    def _play(self, step: ScriptStep, arguments: Mapping[str, Any]) -> Any:
        match step:
            case Log():
                self.note(filled(step.text, arguments))
                return None
            case Return():
                return filled(step.value, arguments)
            case Raise():
                raise step.error
            case Do():
                return step.function(arguments)
            case _:
                raise TypeError(f"{step!r} does not fit this kind of tool")


def filled(value: Any, arguments: Mapping[str, Any]) -> Any:
    """Put arguments in place of `{name}` in a text; anything else is given as it is."""
    if not isinstance(value, str):
        return value
    return re.sub(r"\{(\w+)\}", lambda place: str(arguments.get(place[1], place[0])), value)
