"""What a reader of replies itself answers: failures for the model, an error for the host."""

from laneway.engine.kinds import is_object
from laneway.engine.plain import whole_text
from laneway.engine.providers.payload import described
from laneway.errors import ProviderRefusedError
from laneway.outcomes import Code, Failure

_SHOWN = 40


def truncated(text: str = "") -> Failure:
    """The output limit ended the reply inside this call."""
    end = f" The last that arrived is {_excerpt(text)}." if text.strip() else ""
    return Failure(
        code=Code.TRUNCATED_CALL,
        message=f"The output limit cut this call off before it was complete; it was not run.{end}",
        retry=True,
        hint="Make the call again in full: with shorter arguments, or as several smaller calls.",
    )


def unnamed(name: object) -> Failure:
    """The call has no name that a tool could have."""
    return Failure(
        code=Code.UNKNOWN_TOOL,
        message=f"A call needs the name of a tool; this one has {described(name)}.",
        hint="Call one of the tools you were given, by its name.",
    )


def unknown_kind(kind: object) -> Failure:
    """The call is of a kind that nobody here can run."""
    return Failure(
        code=Code.UNKNOWN_TOOL,
        message=f"Only functions and custom tools can be called; this call's type is {kind!r}.",
        hint="Call one of the tools you were given, by its name.",
    )


def _excerpt(text: str) -> str:
    tail = whole_text(text[-_SHOWN:])
    return f"«{'…' if len(text) > _SHOWN else ''}{tail}»"


def refused(provider: str, error: object) -> ProviderRefusedError:
    """Pass on the error that a provider answered with instead of a message."""
    if not is_object(error):
        return ProviderRefusedError(provider, "error", str(error).rstrip(" ."))
    kind = next((error[key] for key in ("type", "code", "status") if error.get(key)), "error")
    told = error.get("message") or error.get("detail") or described(error)
    return ProviderRefusedError(provider, str(kind), str(told).rstrip(" ."))
