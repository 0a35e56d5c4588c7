"""Takes the content out of old results: what was read long ago is seldom read again.

Calls and results stay, so the pairs do. As each change of an old message costs a provider's cache,
nothing is done before much can be saved at once. Feeds hosts, and compaction before it summarises.
"""

from collections.abc import Collection
from typing import Any

from laneway.engine.history.estimate import tokens
from laneway.engine.history.pairing import Pairing, Spot, paired
from laneway.engine.history.parts import Message
from laneway.engine.history.summarising import texts
from laneway.engine.history.wires import Given

PRUNED = "(old result left out: about "
"""How a result without its content begins."""
LEAST_RESULT_TOKENS = 50
"""A smaller result is not worth the words that would stand for it."""


def pruned(
    history: Given,
    *,
    keep_tokens: int,
    protected_turns: int,
    least_tokens: int,
    keep_tools: Collection[str],
) -> Any:
    """Take the content out of old results; itself where too little would be saved."""
    pairing = paired(history)
    found = _old(pairing, keep_tokens, protected_turns, keep_tools)
    if sum(size for _, size in found) < max(least_tokens, 1):
        return history.back(history.messages)
    messages = list(history.messages)
    for line in sorted({result.line for result, _ in found}):
        there = {result.at: size for result, size in found if result.line == line}
        messages[line] = _emptied(pairing, line, there)
    return history.back(messages)


def _old(
    pairing: Pairing, keep_tokens: int, protected_turns: int, keep_tools: Collection[str]
) -> list[tuple[Spot, int]]:
    """The results to be emptied, with the tokens of each."""
    asking = sorted({call.run for call in pairing.calls})
    protected = frozenset(asking[len(asking) - protected_turns :] if protected_turns else ())
    found: list[tuple[Spot, int]] = []
    room = keep_tokens
    for result in reversed(pairing.results):
        size = tokens(result.part.raw)
        call = result.other
        room -= size
        if call is None or call.run in protected or room >= 0 or size < LEAST_RESULT_TOKENS:
            continue
        kept = call.part.name in keep_tools or texts(result.part.raw).startswith(PRUNED)
        if not kept and pairing.wire.answered(result.part, "") != result.part.raw:
            found.append((result, size))
    return found


def _emptied(pairing: Pairing, line: int, there: dict[int, int]) -> Message:
    taken = pairing.lines[line]
    parts = [
        type(part)(
            kind=part.kind,
            raw=pairing.wire.answered(part, f"{PRUNED}{there[at]:,} tokens)"),
            id=part.id,
            name=part.name,
        )
        if at in there
        else part
        for at, part in enumerate(taken.parts)
    ]
    if parts[0].raw is not taken.parts[0].raw and taken.parts[0].raw is taken.message:
        raw: Message = parts[0].raw
        return raw
    return pairing.wire.build(taken.message, parts)
