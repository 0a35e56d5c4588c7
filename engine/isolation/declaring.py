"""What a tool says of where it runs, and of how long it may be silent; checked where it is made."""

import inspect
from collections.abc import Mapping
from typing import Any

from laneway.engine.callables import Callee
from laneway.errors import ToolError

_KNOWN = ("thread", "process")


def isolation_of(tool: str, callee: Callee, said: Mapping[str, Any]) -> str:
    """Read `isolation=` and what belongs to it.

    Returns:
        `process`, or empty.

    Raises:
        ToolError: a word that is not known, or a tool that cannot run so.
    """
    given = said.get("isolation")
    if given not in (None, *_KNOWN):
        raise ToolError(tool, f"isolation={given!r} is none (known: {', '.join(_KNOWN)})")
    if given != "process":
        for word in ("memory_mb", "cpu_seconds"):
            if said.get(word) is not None:
                raise ToolError(tool, f'{word}= limits a process, so say isolation="process", too')
        if given == "thread" and not callee.sync:
            raise ToolError(
                tool,
                "a coroutine function runs in the event loop; leave isolation= out, or say "
                'isolation="process"',
            )
        return ""
    if not callee.importable or not inspect.isfunction(callee.function):
        raise ToolError(
            tool,
            'isolation="process" needs a function that another process can import: define it at '
            "the top of a module, and not as a method, lambda, partial or inner function",
        )
    return "process"


def idle_of(tool: str, callee: Callee, seconds: Any) -> float | None:
    """Read `idle_timeout=`.

    Raises:
        ToolError: it is no time, or the tool has no way to report.
    """
    if seconds is None:
        return None
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ToolError(
            tool, f"idle_timeout={seconds!r} is no time; give seconds, or math.inf for no limit"
        )
    if not callee.context:
        raise ToolError(
            tool,
            "idle_timeout= is for a tool that reports progress, and this one cannot: give it a "
            "parameter annotated ToolContext, and let it call context.progress(…)",
        )
    return float(seconds)
