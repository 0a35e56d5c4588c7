"""Makes a history shorter: its older part gives way to a summary, and pairs stay whole.

The cut falls where no call is parted from its result and no answer of the model is torn: rather
more is kept than was asked for. What is left out is told by the host's summary, or by an outline.
A second compaction with nothing new to leave out changes nothing, so that a cached prompt holds.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from laneway.engine.history.cutting import cuts, head
from laneway.engine.history.estimate import tokens
from laneway.engine.history.pairing import Pairing, paired
from laneway.engine.history.parts import Message, Side
from laneway.engine.history.repairing import mended
from laneway.engine.history.summarising import MARK, outline, summary_in, texts
from laneway.engine.history.wires import Given
from laneway.errors import UsageError

Summary = Callable[[list[Message]], str]
"""From the messages that are left out, an earlier summary among them, to what is said of them."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Where a whole history is cut."""

    pairing: Pairing
    messages: tuple[Message, ...]
    first: int
    """The messages of the system before it stay."""
    end: int

    @property
    def left_out(self) -> list[Message]:
        """What gives way to the summary."""
        return list(self.messages[self.first : self.end])


def whole(history: Given, *, open_end: bool = False) -> Given:
    """The same history with every call answered once; itself if it is so already."""
    found = mended(paired(history), continued=history.continued, open_end=open_end)
    return msgspec.structs.replace(history, messages=tuple(found))


def planned(history: Given, *, keep: int | None, keep_tokens: int | None) -> Cut | None:
    """Say where a whole history would be cut; None if nothing is gained.

    Raises:
        UsageError: it is not said how much stays.
    """
    if (keep is None) == (keep_tokens is None):
        raise UsageError("say how much stays: keep= messages, or keep_tokens=")
    if (keep if keep is not None else keep_tokens or 0) < 1:
        raise UsageError("something must stay: give keep= or keep_tokens= of 1 or more")
    pairing = paired(history)
    places = cuts(pairing)
    first = head(pairing)
    if keep is not None:
        wanted = len(history.messages) - keep
        end = max((at for at in places if at <= wanted), default=0)
    else:
        assert keep_tokens is not None
        wanted = _first_within(history.messages, keep_tokens)
        end = min((at for at in places if at >= wanted), default=places[-1] if places else 0)
    left_out = history.messages[first:end]
    if not left_out or all(_is_summary(history, message) for message in left_out):
        return None
    return Cut(pairing=pairing, messages=history.messages, first=first, end=end)


def carried_out(history: Given, cut: Cut, summary: str) -> list[Message]:
    """Write the history with a summary in place of what is left out."""
    wire = history.wire
    text = f"{MARK}\n{summary.strip()}"
    head_, tail = list(cut.messages[: cut.first]), list(cut.messages[cut.end :])
    if wire.alternates and tail and wire.side(tail[0]) is Side.USER:
        parts = cut.pairing.lines[cut.end].parts
        return [*head_, wire.build(tail[0], [wire.text(text), *parts]), *tail[1:]]
    return [*head_, wire.say(text), *tail]


def summarised(cut: Cut, summary: Summary | str | None) -> str:
    """What is said of the messages that are left out."""
    if summary is None:
        return outline(cut.pairing, cut.first, cut.end)
    return summary if isinstance(summary, str) else summary(cut.left_out)


def _is_summary(history: Given, message: Message) -> bool:
    parts = history.wire.parts(message, "message")
    return bool(parts) and all(summary_in(texts(part.raw)) for part in parts)


def _first_within(messages: Sequence[Message], most: int) -> int:
    room = most
    for at in range(len(messages) - 1, -1, -1):
        room -= tokens(messages[at])
        if room < 0:
            return at + 1
    return 0


def compacted(
    history: Given,
    *,
    keep: int | None,
    keep_tokens: int | None,
    summary: Summary | str | None,
    open_end: bool,
) -> Any:
    """Compact a history, in the form in which it was given."""
    sound = whole(history, open_end=open_end)
    cut = planned(sound, keep=keep, keep_tokens=keep_tokens)
    if cut is None:
        return history.back(sound.messages)
    return history.back(carried_out(sound, cut, summarised(cut, summary)))
