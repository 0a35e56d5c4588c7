"""How messages speak of values: a place, a short quotation, a kind; never an address, never all.

Reads anything; feeds the failures that a model is told, and the errors that a host is told.
"""

import inspect
from collections.abc import Sequence
from json import dumps

_LONGEST = 40
_MOST_STEPS = 12


def whole_text(text: str, /) -> str:
    """Replace each lone half of a surrogate pair by U+FFFD; join halves that belong together."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def place_of(path: Sequence[str | int], /) -> str:
    """Write a path as `$.items[1]["a b"]`, short enough for a message."""
    steps = [_step(step) for step in path]
    if len(steps) > _MOST_STEPS:
        steps[8:-3] = [" … "]  # both ends tell more than the middle
    return "$" + "".join(steps)


def excerpt(text: str, /) -> str:
    """Quote a text as JSON does, its first 40 characters at most."""
    shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return dumps(whole_text(shown), ensure_ascii=False)


def named(value: object, /) -> str:
    """Say what a value is, never showing its content or its address."""
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if inspect.ismodule(value):
        return f"the module {value.__name__}"
    if inspect.isroutine(value):
        return f"the function {value.__qualname__}"
    if inspect.iscoroutine(value):
        if inspect.getcoroutinestate(value) == inspect.CORO_CREATED:
            value.close()  # else the interpreter warns, later and elsewhere, that nobody awaited it
        return "a coroutine that nobody awaited"
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        return "a generator (return a list of what it yields)"
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"of type {module}{kind.__qualname__}"


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() and len(step) <= _LONGEST else f"[{excerpt(step)}]"
