"""What the host says in a conversation, as a message of a provider's form."""

from laneway.engine.kinds import is_object
from laneway.engine.plain import whole_text
from laneway.engine.providers.payload import copied, copied_slowly, described, opened
from laneway.engine.providers.reply import Message
from laneway.errors import PayloadError


def said_by_host(said: object) -> Message:
    """Make a user message of a text; take a message, or an SDK's object for one, as it is.

    So are the items and steps of forms that have types in place of roles.

    Raises:
        PayloadError: it is neither.
    """
    if isinstance(said, str):
        return {"role": "user", "content": whole_text(said)}
    given = opened(said)
    fast = copied(given)
    message = fast[0] if fast else copied_slowly(given, "message")
    if is_object(message) and isinstance(message.get("role", message.get("type")), str):
        return message
    raise PayloadError(
        "message",
        f"{described(message)} is no message",
        "Say a text, or a message with its role, or an item with its type",
    )
