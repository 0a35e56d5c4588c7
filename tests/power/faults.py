"""Every kind of fault of a disk, at any of its operations, and power failures behind each.

Takes the number of operations of an undisturbed recording; plays the same with the n-th write,
sync, truncation or deletion failing, short, late, or the last that its process does; then lets the
power fail behind the fault.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.power.failures import Findings, try_failures
from tests.power.operations import Kind
from tests.power.recording import Player, Recording

WAYS = {
    "write": ("EIO", "ENOSPC", "short", "full", "kill"),
    "sync": ("EIO", "ENOSPC", "kill", "delay=20"),
    "truncate": ("EIO", "ENOSPC", "kill"),
    "unlink": ("EIO", "kill"),
    "shm": ("EIO", "ENOSPC"),
}
"""What can befall each kind of operation."""

_KINDS = {
    "write": {Kind.WROTE},
    "sync": {Kind.SYNCED, Kind.FOLDER_SYNCED},
    "truncate": {Kind.CUT},
    "unlink": {Kind.DELETED},
}
_SHM_WRITES = 4
"""How often a life enlarges the shared memory's file, about."""


class Struck(msgspec.Struct):
    """What came of faults of the disk."""

    findings: Findings = msgspec.field(default_factory=Findings)
    struck: Counter[str] = msgspec.field(default_factory=Counter[str])
    """How many faults really came to pass, by kind and way."""
    stopped: int = 0
    """How many of them stopped a life with a JournalError; the others were ridden out."""

    def add(self, other: "Struck") -> None:
        """Count other faults in."""
        self.findings.add(other.findings)
        self.struck += other.struck
        self.stopped += other.stopped


def specified(
    recording: Recording, dice: random.Random, ways: Mapping[str, Sequence[str]] = WAYS
) -> Iterator[str]:
    """Give faults without end, as the shim reads them, evenly over kinds and ways."""
    often = {
        kind: sum(one.kind in kinds for one in recording.operations)
        for kind, kinds in _KINDS.items()
    }
    every = [(kind, way) for kind, some in ways.items() for way in some]
    while True:
        dice.shuffle(every)
        for kind, way in every:
            at = dice.randint(1, max(often.get(kind, _SHM_WRITES), 1))
            onward = (
                "+" if way in {"EIO", "ENOSPC"} and ways is WAYS and dice.random() < 0.25 else ""
            )
            yield f"{kind}:{at}{onward}:{way}"


def strike(
    player: Player, folder: Path, faults: Sequence[str], *, images: int, job: Mapping[str, Any]
) -> Struck:
    """Play a job with each fault, and let the power fail so many times behind it."""
    result = Struck()
    for number, fault in enumerate(faults):
        recording = player.play(**job, fault=fault)
        first = _first_fault(recording)
        kind, _, way = fault.split(":")[:3]
        result.struck[f"{kind} {way}"] += first > 0
        result.stopped += any(b'"stopped"' in one.data for one in recording.operations)
        result.findings.add(
            try_failures(recording, folder, images=images, seed=number, since=first)
        )
    return result


def _first_fault(recording: Recording) -> int:
    numbered = enumerate(recording.operations, 1)
    return next((number for number, one in numbered if one.kind is Kind.FAILED), 0)
