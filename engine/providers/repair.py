"""Makes ids unique and legal before anything is keyed by them, and names fit to be sent again.

Reads the entries of one reply; feeds the formats. The same reply is always repaired the same way.
"""

import re
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import Any

from laneway.engine.providers.faults import unnamed
from laneway.engine.providers.payload import ENCODE
from laneway.engine.providers.reply import Answer
from laneway.errors import UsageError
from laneway.outcomes import Code, Failure

UNNAMED = "unnamed_tool"
"""Stands in the conversation where the model wrote no name."""
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_LENGTH = 64
_REFUSED_UNREAD = frozenset({Code.UNKNOWN_TOOL, Code.MALFORMED_ARGUMENTS, Code.TRUNCATED_CALL})
"""What a call is refused with before anybody knows that its tool exists."""


def settled_ids(
    entries: Sequence[dict[str, Any]],
    *,
    is_legal: Callable[[str], object],
    content: Callable[[dict[str, Any]], object],
    mint: Callable[[str], str],
    key: str,
    taken: Collection[str] = (),
    field: str = "id",
) -> list[str | None]:
    """Give each entry an id of its own.

    The first of several calls under one id keeps it, a different one gets a new id, and the same
    call written twice, byte for byte, is one call.

    Args:
        entries: each with its id, if it has one.
        is_legal: whether the provider accepts such an id back.
        content: the name and arguments of an entry.
        mint: turns 64 hexadecimal digits into a legal id.
        key: the provider's id of the reply, so that two replies do not mint the same ids.
        taken: ids of the reply that stand elsewhere than in `entries`.
        field: where the id of an entry stands.

    Returns:
        The ids in order; None for an entry that repeats an earlier one.
    """
    found = [entry.get(field) for entry in entries]
    ids = [given for given in found if type(given) is str and is_legal(given)]
    used = set(ids)
    if len(used) == len(found) and used.isdisjoint(taken):
        return list(ids)

    used.update(taken)
    kept: set[str] = set(taken)
    written: set[tuple[str, bytes]] = set()
    settled: list[str | None] = []
    for position, (entry, given) in enumerate(zip(entries, found, strict=True)):
        text = ENCODE(content(entry))
        if type(given) is str and given and not given.isspace():
            if (given, text) in written:
                settled.append(None)
                continue
            written.add((given, text))
        if type(given) is not str or not is_legal(given) or given in kept:
            own = _minted(mint, used, f"{key}\n{position}\n".encode() + text)
        else:
            own = given
        kept.add(own)
        settled.append(own)
    return settled


def _minted(mint: Callable[[str], str], used: set[str], seed: bytes) -> str:
    while (minted := mint(sha256(seed).hexdigest())) in used:
        seed += b"+"
    used.add(minted)
    return minted


def named(part: dict[str, Any]) -> tuple[str, Failure | None]:
    """Read the name of a call, and leave one in `part` that can be sent again."""
    name = part.get("name")
    if type(name) is str and name and not name.isspace():
        return name, None
    part["name"] = UNNAMED
    return "", unnamed(name)


def paired(ids: Sequence[str], answers: Sequence[Answer]) -> Sequence[Answer]:
    """Bring answers into the order of the calls, exactly one for each.

    Raises:
        UsageError: a call has no answer or two, or an answer has no call.
    """
    if [answer.id for answer in answers] == ids:
        return answers
    by_id = {answer.id: answer for answer in answers}
    if len(by_id) != len(answers) or by_id.keys() != set(ids):
        given = ", ".join(answer.id for answer in answers) or "none"
        raise UsageError(
            f"each call takes exactly one answer: the calls are {', '.join(ids) or 'none'}, "
            f"the answers are for {given}"
        )
    return [by_id[call] for call in ids]


def misnamed(answers: Sequence[Answer]) -> dict[str, str]:
    """The names of refused calls that providers would not accept back, made legal, by call id.

    Models invent names such as `functions.read` or `read<|channel|>json`; OpenAI and Anthropic
    refuse every later request that holds one (`^[a-zA-Z0-9_-]{1,64}$`). The name of a call that
    ran, or could have run, is a tool's and was accepted before: it is left alone.
    """
    return {
        answer.id: _ILLEGAL.sub("_", answer.name)[:_NAME_LENGTH]
        for answer in answers
        if isinstance(answer.outcome, Failure)
        and answer.outcome.code in _REFUSED_UNREAD
        and (len(answer.name) > _NAME_LENGTH or _ILLEGAL.search(answer.name))
    }
