"""What a recorded message holds beyond what its provider is sent: ids where the form has none.

Google's models often give a call no id, and Ollama's never do: such calls are paired with their
results by position. Laneway still names each call, so the names stand in the recorded message, with
the list of those that are not the provider's; the renderer takes them out again.
"""

from collections.abc import Collection, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.providers.reply import Asked, Message

FIELD = "laneway"
"""The field of a recorded message for what is Laneway's own; never sent."""


def note_unsent(message: Message, name: str, value: Any) -> None:
    """Write something of Laneway's own into a message, if there is anything to write."""
    if value:
        message[FIELD] = {**unsent(message), name: value}


def unsent(message: Message) -> dict[str, Any]:
    """What a message holds that is Laneway's own."""
    own = message.get(FIELD)
    return own if is_object(own) else {}


def sent(message: Message) -> Message:
    """The message without what is Laneway's own."""
    if FIELD not in message:
        return message
    return {name: value for name, value in message.items() if name != FIELD}


def minted_in(message: Message, given: Sequence[object], calls: Sequence[Asked]) -> list[str]:
    """Name the ids that are not the provider's.

    Args:
        message: as recorded, or fresh.
        given: the ids that stood in the payload, in any order.
        calls: as they were read.
    """
    known: Collection[object] = [one for one in given if isinstance(one, str)]
    earlier = unsent(message).get("minted")
    old: list[Any] = earlier if is_list(earlier) else []
    return [call.id for call in calls if call.id not in known or call.id in old]
