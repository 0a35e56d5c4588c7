"""From what a server says of its tools to what the scheduler is told.

Annotations are hints, and a server may be wrong or lie: "clients MUST consider tool annotations to
be untrusted unless they come from trusted servers" (MCP specification 2025-11-25, server/tools).
So of a server that is not trusted only what makes a call more careful is believed.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any

from laneway.effects import Effect
from laneway.engine.spec import NARROW_NAME, Declarations

SERVER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}")
SCHEME = "mcp"
"""Of the resources that stand for what is behind a server: `mcp:files`."""
DESTRUCTIVE = "destructive"
"""The risk of a tool that says it may destroy something, for rules and lanes."""

_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 64


def declared(annotations: Any, *, server: str, trusted: bool, alone: bool) -> Declarations:
    """Say of a tool what its annotations allow to be said.

    | annotation (of a trusted server) | effect | claims |
    |---|---|---|
    | readOnlyHint | read | `read mcp:<server>` |
    | openWorldHint: false | write | `write mcp:<server>` |
    | neither | external | `write mcp:<server>` |

    idempotentHint is believed of a trusted server. destructiveHint is believed of all, where it is
    said: it makes the risk `destructive`.

    Args:
        annotations: the SDK's `ToolAnnotations`, or None.
        server: its name.
        trusted: whether the host trusts the server's hints.
        alone: of an untrusted server nothing is said, so that each call has its run alone; else it
            excludes all calls of MCP servers, over runs.
    """
    said: Declarations = {}
    if annotations is not None and annotations.destructive_hint and not annotations.read_only_hint:
        said["risk"] = DESTRUCTIVE
    if not trusted:
        if not alone:
            said["effect"] = Effect.EXTERNAL
            said["claims"] = [f"write {SCHEME}:"]
        return said
    if annotations is not None and annotations.read_only_hint:
        return {**said, "effect": Effect.READ, "claims": [f"read {SCHEME}:{server}"]}
    closed = annotations is not None and annotations.open_world_hint is False
    said["effect"] = Effect.WRITE if closed else Effect.EXTERNAL
    said["claims"] = [f"write {SCHEME}:{server}"]
    said["idempotent"] = annotations is not None and bool(annotations.idempotent_hint)
    return said


def overridden(said: Declarations, by_host: Mapping[str, Any]) -> Declarations:
    """Put what the host says over it: the host knows.

    Where the host names an effect and no claims, what the hints say of claims and repeats goes.
    """
    kept: Any = dict(said)
    if "effect" in by_host:
        kept.pop("idempotent", None)
        harmless = by_host["effect"] in {str(one) for one in Effect if one.changes_nothing}
        if "claims" in kept and "claims" not in by_host:
            kept["claims"] = [_as(claim, writes=not harmless) for claim in kept["claims"]]
    merged: Declarations = {**kept, **by_host}  # type: ignore[typeddict-item]
    return merged


def _as(claim: str, *, writes: bool) -> str:
    return f"{'write' if writes else 'read'} {claim.partition(' ')[2]}"


def names(prefix: str, tools: Collection[str]) -> dict[str, str]:
    """What the tools of a server are called for a model: `files__read_file`.

    What some provider takes for no name is replaced by `_`; a name that is then too long, or that
    of another tool, ends in a digest of what it was.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for tool in sorted(tools):
        name = _STRANGE.sub("_", f"{prefix}{tool}")
        if name in taken or not NARROW_NAME.fullmatch(name) or name != f"{prefix}{tool}":
            mark = hashlib.sha256(tool.encode()).hexdigest()[:6]
            name = f"{name[: _LONGEST - 7]}_{mark}"
        taken.add(name)
        found[tool] = name
    return found
