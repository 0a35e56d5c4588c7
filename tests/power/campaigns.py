"""What is tried: what each campaign plays, how often the power fails, and what must come of it.

A control has a fault built in that has to be found, else the whole proves nothing.
"""

import random
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from tests.power.failures import Findings, try_failures
from tests.power.faults import WAYS, Struck, specified, strike
from tests.power.recording import Player, scratch

CONTROLLED = 30
"""The images of a control, at least: enough to meet its fault."""
EACH_FAULT = 5
"""How many images are tried behind each fault of the disk."""


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """Some jobs of one kind."""

    name: str
    jobs: tuple[dict[str, Any], ...]
    share: float
    """Its part of all images."""
    ways: Mapping[str, Sequence[str]] = {}
    """The faults that the disk has besides: how each kind of operation goes wrong."""
    must_find: frozenset[str] = frozenset()
    """A control: the faults one of which has to be found."""
    may_find: frozenset[str] = frozenset()
    """The faults that are no surprise in it."""


LOSES = frozenset({"LOST"})
LOSES_AND_BREAKS = frozenset({"LOST", "DAMAGED"})
ANYTHING = LOSES_AND_BREAKS | {"HALF", "UNSEEN", "TWICE", "CHANGED", "INVENTED", "OUT OF ORDER"}
SHORT = ("closes", "dies")

CAMPAIGNS = (
    Campaign(
        name="runs, FULL",
        jobs=(
            {},
            {"lives": ("dies", "closes", "closes")},
            {"autocheckpoint": 3},
            {"autocheckpoint": 1000, "lives": ("closes", "closes"), "batches": 20},
        ),
        share=0.41,
    ),
    Campaign(
        name="turns, FULL", jobs=({"plays": "turns"}, {"plays": "turns", "lives": SHORT}), share=0.2
    ),
    Campaign(
        name="runs, faults of the disk",
        jobs=({"batches": 5}, {"batches": 5, "lives": ("dies", "dies")}),
        share=0.15,
        ways=WAYS,
    ),
    Campaign(
        name="turns, faults of the disk",
        jobs=({"plays": "turns", "lives": SHORT},),
        share=0.1,
        ways=WAYS,
    ),
    # SQLite takes the pages of a log that a dead process failed to sync for durable, as whoever
    # reads them from the kernel must. A store that closes leaves none.
    Campaign(
        name="beyond the promise: a sync fails, the process dies unclosed, the power fails",
        jobs=({"batches": 5, "lives": ("dies", "dies"), "abrupt": True},),
        share=0.02,
        ways={"sync": ("EIO",)},
        may_find=LOSES_AND_BREAKS | {"OUT OF ORDER"},
    ),
    Campaign(
        name="runs, NORMAL (may lose the last commits, and nothing else)",
        jobs=({"synchronous": "NORMAL", "batches": 8, "autocheckpoint": 40},),
        share=0.04,
        must_find=LOSES,
        may_find=LOSES,
    ),
    Campaign(
        name="control: runs, OFF behind the store's back",
        jobs=({"careless": True, "batches": 6},),
        share=0.02,
        must_find=LOSES_AND_BREAKS,
        may_find=ANYTHING,
    ),
    Campaign(
        name="control: turns, OFF behind the store's back",
        jobs=({"careless": True, "plays": "turns"},),
        share=0.02,
        must_find=LOSES_AND_BREAKS,
        may_find=ANYTHING,
    ),
    Campaign(
        name="control: batches that are kept fact by fact",
        jobs=({"split": True, "batches": 6, "lives": SHORT},),
        share=0.02,
        must_find=frozenset({"HALF"}),
        may_find=frozenset({"HALF"}),
    ),
    Campaign(
        name="control: a disk that does not sync",
        jobs=({"lies": True, "batches": 6},),
        share=0.02,
        must_find=LOSES_AND_BREAKS,
        may_find=ANYTHING,
    ),
)


class Line(msgspec.Struct, kw_only=True):
    """What a campaign came to."""

    campaign: Campaign
    findings: Findings
    struck: Struck | None = None
    """Set where the disk had faults."""
    checkpoints: int = 0

    def add(self, other: "Line") -> None:
        """Count another part of the same campaign in."""
        self.findings.add(other.findings)
        self.checkpoints += other.checkpoints
        if self.struck is not None and other.struck is not None:
            self.struck.add(other.struck)

    @property
    def caught(self) -> bool:
        """Whether a fault was found that is built in."""
        return bool(self.campaign.must_find & self.findings.faults.keys())

    @property
    def wrong(self) -> list[str]:
        """Say what must not be: a fault, or a control in which none was found."""
        found = self.findings.faults
        wrong = [
            f"{self.campaign.name}: {found[kind]} × {example}"
            for kind, example in self.findings.examples.items()
            if kind not in self.campaign.may_find
        ]
        if self.campaign.must_find and not self.caught:
            wrong.append(f"{self.campaign.name}: the fault that is built in was not found")
        return wrong

    def __str__(self) -> str:
        """Show the counts."""
        found = self.findings
        done = found.operations
        syncs = done["synced"] + done["folder_synced"]
        counts = [
            f"{done.total()} operations",
            f"{done['wrote']} writes, {syncs} syncs, {self.checkpoints} checkpoints",
            f"{found.failures} power failures",
            f"{found.images} images",
        ]
        if self.struck:
            counts.append(
                f"{self.struck.struck.total()} faults of the disk, "
                f"{self.struck.stopped} of which stopped the journal"
            )
        finds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.faults.items()))
        counts.append(f"found: {finds or 'nothing'}")
        return f"{self.campaign.name}: {'; '.join(counts)}"


def carry_out(
    campaign: Campaign, player: Player, folder: Path, *, images: int, seed: int = 0
) -> Line:
    """Carry a campaign out.

    Args:
        campaign: what is played.
        player: who plays it.
        folder: a scratch folder for images.
        images: how many may be tried.
        seed: of what is played, and of all coins.
    """
    line = Line(campaign=campaign, findings=Findings())
    if campaign.ways:
        line.struck = Struck()
    each = max(images // len(campaign.jobs), 1)
    for number, job in enumerate(campaign.jobs):
        asked = {**job, "seed": seed + number}
        recording = player.play(**asked)
        if not recording.is_seen:
            raise RuntimeError("the shim sees nothing of what SQLite does here")
        line.checkpoints += recording.checkpoints
        if line.struck is None:
            line.findings.add(try_failures(recording, folder, images=each, seed=seed))
            continue
        faults = islice(
            specified(recording, random.Random(f"{seed}/{number}"), campaign.ways),
            max(each // EACH_FAULT, 1),
        )
        struck = strike(player, folder, list(faults), images=EACH_FAULT, job=asked)
        line.struck.add(struck)
        line.findings.add(struck.findings)
    return line


def shares(images: int, campaigns: Sequence[Campaign] = CAMPAIGNS) -> list[int]:
    """Divide the images among campaigns."""
    return [
        max(round(images * one.share), CONTROLLED if one.must_find else len(one.jobs))
        for one in campaigns
    ]


def part(number: int, shim: Path, images: int, seed: int) -> Line:
    """Carry out a part of a campaign, in a process of its own."""
    with scratch() as folder, Player(folder, shim) as player:
        return carry_out(CAMPAIGNS[number], player, folder, images=images, seed=seed)
