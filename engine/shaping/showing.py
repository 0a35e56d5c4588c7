"""What the model is shown of the outcomes of a turn.

Reads a turn as the journal has it, and the shapes that its tools declare; feeds the renderers, with
outcomes whose text has been shortened. A result that fits is passed on as it is.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from laneway.engine.kinds import is_list, is_object
from laneway.engine.plain import whole_text
from laneway.engine.results import text_of
from laneway.engine.shape import TEXT, Shape
from laneway.engine.shaping.excerpts import beginning, excerpt
from laneway.engine.shaping.kinds import SHAPERS, count_of
from laneway.engine.shaping.marking import MARKS_CHARACTERS, marked
from laneway.engine.shaping.options import LEAST_CHARACTERS, Shaping
from laneway.engine.shaping.reading import ReadResult
from laneway.engine.shaping.shares import shares
from laneway.engine.tools import Toolset
from laneway.journal.fold import CallView
from laneway.outcomes import Failure, Outcome, Success

_ENCODE = msgspec.json.Encoder().encode
_AROUND_FAILURE = 160
"""Characters that are told of a failure beside its message and hint, at most."""
_MEDIA = frozenset({"image", "audio", "resource"})


class _Told(msgspec.Struct):
    """A result on its way to the model."""

    call: CallView
    outcome: Outcome
    shape: Shape
    around: int
    """Characters of notes and marks."""
    marks: bool
    text: str = ""
    shown: str | None = None
    """Shortened; None as long as all of it is shown."""

    @property
    def size(self) -> int:
        return self.around + len(self.text if self.shown is None else self.shown)


class Shown:
    """How one engine shows results."""

    def __init__(self, tools: Toolset, shaping: Shaping) -> None:
        """Show the results of these tools."""
        self._tools = tools
        self._shaping = shaping
        readers = [one.spec.name for one in tools if isinstance(one, ReadResult)]
        self._reader = readers[0] if readers else ""
        self._plain = shaping.as_data is False
        self._shaped = frozenset(one.spec.name for one in tools if one.spec.shape is not None)

    def outcomes(
        self, calls: Sequence[CallView], notes: Sequence[int] | None = None
    ) -> list[Outcome]:
        """Shape the outcomes of a turn's calls.

        Args:
            calls: of one turn, each with an outcome, in request order.
            notes: how many characters are told beside each.
        """
        if self._plain and self._fits(calls, notes):
            return [call.outcome for call in calls if call.outcome is not None]
        told = [
            self._told(call, 0 if notes is None else notes[at]) for at, call in enumerate(calls)
        ]
        for one in told:
            self._fit(one, min(one.shape.most_chars + one.around, self._shaping.result_chars))
        sizes = [one.size for one in told]
        if sum(sizes) > self._shaping.turn_chars:
            parts = shares(sizes, self._shaping.turn_chars, LEAST_CHARACTERS)
            for one, part in zip(told, parts, strict=True):
                self._fit(one, part)
        return [self._written(one) for one in told]

    def _fits(self, calls: Sequence[CallView], notes: Sequence[int] | None) -> bool:
        """Whether all is shown as it is; nearly always so, and looked at for every turn."""
        most, room = self._shaping.result_chars, self._shaping.turn_chars
        for at, call in enumerate(calls):
            outcome = call.outcome
            if call.record.tool in self._shaped:
                return False
            if type(outcome) is Success:
                value = outcome.value
                size = len(value) if type(value) is str else len(_ENCODE(value))
            elif type(outcome) is Failure:
                size = len(outcome.message) + len(outcome.hint) + _AROUND_FAILURE
            else:
                return False
            size += 0 if notes is None else notes[at]
            room -= size
            if size > most or room < 0:
                return False
        return True

    def _told(self, call: CallView, notes: int) -> _Told:
        outcome = call.outcome
        assert outcome is not None
        tool = self._tools.get(call.record.tool)
        shape = (tool.spec.shape if tool is not None else None) or TEXT
        marks = not self._plain and self._shaping.marks(call.record.tool)
        around = notes + (MARKS_CHARACTERS + 2 * len(call.record.tool) if marks else 0)
        told = _Told(call=call, outcome=outcome, shape=shape, around=around, marks=marks)
        if isinstance(outcome, Failure):
            told.text = outcome.message
            told.around += len(text_of(outcome)) - len(outcome.message)
        elif isinstance(outcome.value, str) or not _shows_media(outcome.value):
            told.text = text_of(outcome)
        return told

    def _fit(self, one: _Told, room: float) -> None:
        value = one.outcome.value if isinstance(one.outcome, Success) else None
        most, counted = one.shape.most_items, False
        if one.shown is None and most is not None:
            counted = count_of(one.shape.kind, value) > most
        if one.size <= room and not counted:
            return
        space = int(min(room, one.size + LEAST_CHARACTERS)) - one.around
        notice = self._notice(one, space)
        left = max(space - len(notice) - 1, 0)
        if isinstance(one.outcome, Failure):
            one.shown = _joined(excerpt(one.text, left), notice)
        else:
            one.shown = _joined(_shaped(one, value, left), notice)

    def _notice(self, one: _Told, space: int) -> str:
        """How large the result is, and how to get at the rest."""
        handle, size = one.call.id, f"{len(one.text):,} characters"
        ways = [f'all of it for another call: {{"$from": "{one.call.record.provider_id}"}}']
        if self._reader:
            ways.insert(0, f'more of it: {self._reader}(result="{handle}")')
        if isinstance(one.outcome, Failure):
            del ways[-1]
        full = f"[result {handle}, shortened; it has {size}{''.join(f'; {way}' for way in ways)}]"
        if len(full) <= min(space, LEAST_CHARACTERS):
            return full
        return beginning(f"[result {handle}: {size}]", max(space, 0))

    def _written(self, one: _Told) -> Outcome:
        text = one.shown
        if one.marks and one.text:  # Pictures and files stay what they are.
            text = marked(whole_text(one.text if text is None else text), one.call.record.tool)
        if text is None:
            return one.outcome
        if isinstance(one.outcome, Success):
            return Success(value=text)
        return msgspec.structs.replace(one.outcome, message=text)


def _joined(text: str, notice: str) -> str:
    return f"{text}\n{notice}" if text else notice


def _shaped(one: _Told, value: Any, room: int) -> str:
    if one.shape.by is not None:
        try:
            return excerpt(whole_text(str(one.shape.by(value, room))), room)
        except Exception:  # noqa: BLE001 - the host's code; a result is shown in any case
            return excerpt(one.text, room)
    return whole_text(SHAPERS[one.shape.kind](value, room, one.shape.most_items))


def _shows_media(value: Any) -> bool:
    """Whether a value is, or holds in its list, a picture or file that is shown as such."""
    if is_object(value):
        if value.get("type") in _MEDIA:
            return True
        value = value.get("content")
    return is_list(value) and any(is_object(one) and one.get("type") in _MEDIA for one in value)
