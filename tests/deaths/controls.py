"""Doubles with a fault built in: a judge that finds nothing in them is no judge.

Each is played as the real thing is; the campaign must then report faults of the kinds named here.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from laneway.calls import CallRecord
from laneway.engine import run as runs
from laneway.facts import Driver, Fact, Row
from laneway.ids import RunId
from laneway.journal.fold import RunView
from tests.deaths.casting import cast
from tests.deaths.dying import DyingFile
from tests.deaths.lives import Double
from tests.deaths.programs import Call


class Hasty(DyingFile):
    """Write-ahead switched off: says that a batch is kept, and then begins to write it."""

    _writing: asyncio.Task[None] | None = None

    async def keep(self, batch: Sequence[Row]) -> None:
        """Say that it is kept."""
        before = self._writing

        async def write() -> None:
            if before is not None:
                await before
            await asyncio.sleep(0.005)
            await super(Hasty, self).keep(batch)

        self._writing = asyncio.ensure_future(write())

    async def flush(self) -> None:
        """Write what is left."""
        if self._writing is not None:
            await self._writing

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Take a run, as a store that knows what it has said."""
        await self.flush()
        return await super().take(run, driver)

    async def leave(self, run: RunId) -> None:
        """Leave a run, as a store that knows what it has said."""
        await self.flush()
        await super().leave(run)


class Forgetful(DyingFile):
    """Has the last batch in memory only: a death loses it."""

    _last: Sequence[Row] = ()

    async def keep(self, batch: Sequence[Row]) -> None:
        """Write the batch before this one."""
        await self.flush()
        self._last = tuple(batch)

    async def flush(self) -> None:
        """Write what is left."""
        last, self._last = self._last, ()
        if last:
            await super().keep(last)

    async def take(self, run: RunId, driver: Driver) -> Sequence[Row]:
        """Take a run, as a store that knows what it has said."""
        await self.flush()
        return await super().take(run, driver)

    async def leave(self, run: RunId) -> None:
        """Leave a run, as a store that knows what it has said."""
        await self.flush()
        await super().leave(run)


def repeat_whatever_was_running() -> None:
    """An engine that takes every call for one that is safe to repeat."""
    found_out: Callable[..., list[Fact]] = vars(runs)["found_out"]

    def all_repeatable(view: RunView, *rest: Any) -> list[Fact]:
        for call in view.calls.values():
            call.record = _repeatable(call.record)
        return found_out(view, *rest)

    setattr(runs, "found_out", all_repeatable)  # noqa: B010 - a name that it does not export


def _repeatable(record: CallRecord) -> CallRecord:
    return msgspec.structs.replace(record, idempotent=True)


def unordered(calls: Sequence[Call]) -> dict[str, Any]:
    """A plan without the edges that its author meant."""
    return {"calls": [{**call.asked(), "needs": [], "after": []} for call in calls]}


def one_less(calls: Sequence[Call]) -> dict[str, Any]:
    """A plan that lacks its last call."""
    return {"calls": [call.asked() for call in calls][:-1]}


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """A double, and what must be found of it."""

    double: Callable[[], Double]
    finds: Sequence[str]


CONTROLS = {
    "acknowledges-before-it-commits": Control(
        double=lambda: Double(store=Hasty),
        finds=("a body was entered whose start was not kept", "what was said to be kept was lost"),
    ),
    "loses-the-last-batch": Control(
        double=lambda: Double(store=Forgetful),
        finds=("a body was entered twice", "what was said to be kept was lost"),
    ),
    "repeats-what-is-uncertain": Control(
        double=lambda: Double(patch=repeat_whatever_was_running),
        finds=("a body was entered twice",),
    ),
    "asks-nobody": Control(
        double=lambda: Double(tools=cast(ask={"approval": False})),
        finds=("a body was entered that nobody had approved",),
    ),
    "claims-nothing": Control(
        double=lambda: Double(
            tools=cast(write={"claims": []}, put={"claims": []}, look={"claims": []})
        ),
        finds=(
            "two excluded each other and overlapped",
            "conflicting calls ran in the wrong order",
        ),
    ),
    "wide-lanes": Control(
        double=lambda: Double(
            tools=cast(pay={"claims": []}, ship={"claims": []}, lose={"claims": []}),
            lanes={"mail": 9},
        ),
        finds=("a lane was too full",),
    ),
    "drops-edges": Control(
        double=lambda: Double(asked=unordered),
        finds=("a call started before what it depends on was over",),
    ),
    "drops-a-call": Control(
        double=lambda: Double(asked=one_less), finds=("a call was left without an outcome",)
    ),
}
