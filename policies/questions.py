"""What a policy is asked about a call, and what it answers.

Reads the vocabulary of the root; feeds every policy and the engine, which alone acts on a verdict.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from laneway.claims import Claim
from laneway.effects import Effect
from laneway.outcomes import Code, Failure


class Decision(StrEnum):
    """What becomes of a call: deny beats ask, and ask beats allow."""

    ALLOW = "allow"
    ASK = "ask"
    """A human decides first; the call waits without a lane."""
    DENY = "deny"


ALLOW: Final = Decision.ALLOW
"""For whoever asks on the path of each call; see `states`."""
DENY: Final = Decision.DENY


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as it would run: all that a policy may look at."""

    tool: str
    arguments: Mapping[str, Any] | None
    """Checked JSON, the same value that the tool will get, host-bound arguments absent.
    None where they are not known: then nothing passes that they might have forbidden."""
    effect: Effect = Effect.EXTERNAL
    """Of this call, where it depends on the arguments."""
    mode: str = "build"
    claims: tuple[Claim, ...] = ()
    """Canonical and final."""
    declared: bool = True
    """False for a tool that says nothing of itself: it is judged as external."""
    asks: bool = False
    """The tool's own `approval=True`."""
    server: str = ""
    """The MCP server that the tool is of; empty for a tool of the host's own."""
    agent: str = ""
    """The named agent that the tool is; empty for a tool that is none."""
    risk: str = ""
    """What the tool says is at stake: low, medium, high, or another word; empty for nothing."""
    command_lines: tuple[str, ...] = ()
    """The arguments that hold a command line, or a program with its arguments in a list."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer, and who gave it."""

    decision: Decision
    rule: str
    """`policy.toml:12 (no-prod-writes)`, `mode plan`, `tool asks` or `default`; where there are
    layers, behind the name of one: `host: policy.toml:12 (no-prod-writes)`."""
    reason: str
    """One sentence for the model and for the human who is asked."""


MODE = "mode "
"""What the rule of a verdict begins with that a mode has given."""


def denied(verdict: Verdict, /) -> Failure:
    """Write a denial as the outcome that the model reads."""
    if verdict.rule.startswith(MODE):
        return Failure(
            code=Code.POLICY_DENIED,
            message=f"{verdict.reason} ({verdict.rule})",
            hint="Do not try it in another way. Say what you would do, and that it takes another "
            "mode: only the user or the host can change that.",
        )
    return Failure(
        code=Code.POLICY_DENIED,
        message=f"{verdict.reason} ({verdict.rule})",
        hint="Do not try it in another way. Go on without it, or tell the user what you wanted to "
        "do, so that they can do it themselves or change the policy.",
    )
