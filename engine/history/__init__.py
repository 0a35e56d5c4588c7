"""The history of a conversation, in any provider's form: is it whole, and how does it get shorter?

    from laneway import history

    history.check(messages)                 # what a provider would refuse it for
    history.repair(messages)                # each call answered once; the same bytes each time
    history.compact(messages, keep=20)      # the older part gives way to a summary
    history.prune(messages)                 # old results lose their content
    history.Compaction(limit_tokens=…)      # all of it, before each request

    parts ─▶ rows, blocks, items (the formats) ─▶ wires (which one?) ─▶ pairing (what answers what?)
      ─▶ faults, repairing     ─▶ cutting ─▶ compacting (summarising)     ─▶ pruning

All but `Compaction` are functions of the history alone: no clock, no dice, nothing remembered. What
they are given they never change, and they give back what they were given: a list for a list, and
for the body of a request such a body.
"""

from collections.abc import Collection
from typing import Any

from laneway.engine.history.compacting import Summary, compacted
from laneway.engine.history.compaction import Compaction
from laneway.engine.history.estimate import tokens
from laneway.engine.history.faults import Fault, faults
from laneway.engine.history.pairing import paired
from laneway.engine.history.pruning import pruned
from laneway.engine.history.repairing import mended
from laneway.engine.history.wires import WIRES, given

__all__ = ["FORMATS", "Compaction", "Fault", "check", "compact", "prune", "repair", "tokens"]

FORMATS = tuple(wire.name for wire in WIRES)
"""The formats that are known."""


def check(
    history: object,
    *,
    format: str = "",  # noqa: A002 - what it is called everywhere
    open_end: bool = False,
) -> tuple[Fault, ...]:
    """Say for what a provider would refuse a history; nothing if it is whole.

    Args:
        history: a list of messages, or the body of a request with one.
        format: one of `FORMATS`; told from the messages if empty.
        open_end: the calls of the last message may be unanswered: they are being worked on.

    Raises:
        HistoryError: it cannot be read; names the place.
    """
    read = given(history, format)
    pairing = paired(read)
    return faults(pairing, read.key, continued=read.continued, open_end=open_end)


def repair(
    history: object,
    *,
    format: str = "",  # noqa: A002 - what it is called everywhere
    open_end: bool = False,
) -> Any:
    """Make a history whole.

    A call without a result is answered with an error that says so; a result without a call is
    dropped, and so is a second one; a result elsewhere is put where the provider wants it; a
    call with the id of an earlier one, or with none, is given an id. What is right is not touched.

    Args:
        history: as for `check`.
        format: as for `check`.
        open_end: as for `check`.

    Returns:
        The history in the form that was given, sharing the messages that nothing was done to.

    Raises:
        HistoryError: it cannot be read, and stays as it is; names the place.
    """
    read = given(history, format)
    return read.back(mended(paired(read), continued=read.continued, open_end=open_end))


def compact(
    history: object,
    *,
    keep: int | None = None,
    keep_tokens: int | None = None,
    summary: Summary | str | None = None,
    format: str = "",  # noqa: A002 - what it is called everywhere
    open_end: bool = False,
) -> Any:
    """Repair a history, and put a summary in place of its older part.

    The messages of the system at its beginning stay. A call and its result stay together or go
    together; with `keep`, more stays than was asked for where the cut would part them.

    Args:
        history: as for `check`.
        keep: how many of the latest messages stay, at least.
        keep_tokens: how many tokens of the latest messages stay, at most; give one of the two.
        summary: of what is left out: a text, or a function from those messages to one. None for
            an outline of what was said, called and answered.
        format: as for `check`.
        open_end: as for `check`.

    Returns:
        The history in the form that was given; repaired only, where nothing can be left out.

    Raises:
        HistoryError: it cannot be read.
        UsageError: it is not said how much stays.
    """
    read = given(history, format)
    return compacted(read, keep=keep, keep_tokens=keep_tokens, summary=summary, open_end=open_end)


def prune(
    history: object,
    *,
    keep_tokens: int = 40_000,
    protected_turns: int = 2,
    least_tokens: int = 20_000,
    keep_tools: Collection[str] = (),
    format: str = "",  # noqa: A002 - what it is called everywhere
) -> Any:
    """Take the content out of old results.

    Args:
        history: as for `check`.
        keep_tokens: of results, counted from the last, that stay.
        protected_turns: answers of the model, counted from the last, whose results stay in any
            case.
        least_tokens: what must be saved at once, as a provider's cache is lost by it.
        keep_tools: tools whose results stay.
        format: as for `check`.

    Raises:
        HistoryError: it cannot be read.
    """
    return pruned(
        given(history, format),
        keep_tokens=keep_tokens,
        protected_turns=protected_turns,
        least_tokens=least_tokens,
        keep_tools=keep_tools,
    )
