"""Facts without secrets: which fields of which fact may hold a text that came from outside.

Reads facts that are about to be kept; ids, claims, edges and the names of tools stay as they are,
for they are how facts find one another.
"""

# Values are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from typing import Any

import msgspec

from laneway.engine.secrets.vault import Vault
from laneway.facts import (
    ApprovalAnswered,
    ApprovalAsked,
    AttemptEnded,
    CallEnded,
    CallProbed,
    CallSettled,
    CompensationEnded,
    Fact,
    HolderStopped,
    HostNoted,
    MessageSaid,
    RunAbandoned,
    RunStopped,
    TaskEnded,
    TurnSubmitted,
)
from laneway.outcomes import Outcome, Success

_TEXTS: dict[type[Any], tuple[str, ...]] = {
    ApprovalAsked: ("arguments", "reason"),
    ApprovalAnswered: ("reason",),
    AttemptEnded: ("cause",),
    HolderStopped: ("late",),
    CallProbed: ("detail",),
    HostNoted: ("note",),
    RunStopped: ("detail",),
    RunAbandoned: ("reason",),
}
"""Fields whose whole value is scrubbed."""

STRUCTURE = frozenset(
    {"id", "type", "role", "name", "tool", "tool_call_id", "tool_use_id", "signature"}
    | {"call_id", "toolUseId", "minted", "thoughtSignature", "thought_signature"}
    | {"encrypted_content"}
)
"""Fields of messages by which providers and formats find their way."""


def sealed_fact(fact: Fact, vault: Vault) -> Fact:
    """Put marks in place of the secrets in a fact; the same object if there are none."""
    changes: dict[str, Any]
    match fact:
        case TurnSubmitted():
            changes = _of_turn(fact, vault)
        case ApprovalAnswered(edit=edit, grant=grant) if edit is not None or grant is not None:
            changes = {"reason": vault.scrubbed(fact.reason)}
            if edit is not None:
                arguments = vault.scrubbed(edit.arguments)
                same = arguments is edit.arguments
                changes["edit"] = edit if same else _replace(edit, arguments=arguments)
            if grant is not None:
                pattern = vault.scrubbed(grant.pattern)
                same = pattern is grant.pattern
                changes["grant"] = grant if same else _replace(grant, pattern=pattern)
        case CallEnded() | CallSettled() | TaskEnded() | CompensationEnded():
            changes = {"outcome": sealed_outcome(fact.outcome, vault)}
        case MessageSaid():
            changes = {"message": vault.scrubbed(fact.message, leave=STRUCTURE)}
        case _:
            names = _TEXTS.get(type(fact), ())
            changes = {name: vault.scrubbed(getattr(fact, name)) for name in names}
    if all(getattr(fact, name) is value for name, value in changes.items()):
        return fact
    return msgspec.structs.replace(fact, **changes)


_replace = msgspec.structs.replace


def sealed_outcome(outcome: Outcome, vault: Vault) -> Outcome:
    """Put marks in place of the secrets in an outcome; the same object if there are none."""
    if isinstance(outcome, Success):
        value = vault.scrubbed(outcome.value)
        return outcome if value is outcome.value else Success(value=value)
    message, hint = vault.scrub(outcome.message), vault.scrub(outcome.hint)
    parts = {name: tuple(map(vault.scrub, getattr(outcome, name))) for name in ("done", "left")}
    changed = (message, hint, *parts.values())
    if changed == (outcome.message, outcome.hint, outcome.done, outcome.left):
        return outcome
    return msgspec.structs.replace(outcome, message=message, hint=hint, **parts)


def _of_turn(fact: TurnSubmitted, vault: Vault) -> dict[str, Any]:
    message = fact.message
    content = vault.scrubbed(message, leave=STRUCTURE)
    if content is not message:
        content = _without_signed(content, message)
    calls = tuple(
        msgspec.structs.replace(call, arguments=arguments, text=text)
        if arguments is not call.arguments or text is not call.text
        else call
        for call in fact.calls
        for arguments in (vault.scrubbed(call.arguments),)
        for text in (vault.scrub(call.text),)
    )
    same = all(one is was for one, was in zip(calls, fact.calls, strict=True))
    return {"message": content, "calls": fact.calls if same else calls}


def _without_signed(message: Any, given: Any) -> Any:
    """Leave out blocks that their provider has signed and would not take back otherwise."""
    field = "steps" if "steps" in message else "content"
    blocks, were = message.get(field), given.get(field)
    if type(blocks) is not list:
        return message
    kept = [
        block
        for block, was in zip(blocks, were, strict=True)
        if block is was or not is_signed(block)
    ]
    return {**message, field: kept} if len(kept) < len(blocks) else message


def is_signed(block: Any) -> bool:
    """Whether a provider refuses a block of a message that was changed."""
    if type(block) is not dict:
        return False
    reasoning = block.get("reasoningContent")
    return "signature" in block or (
        type(reasoning) is dict and "signature" in (reasoning.get("reasoningText") or ())
    )
