"""Power failures at every point of a recording, each tried in several ways.

Takes a recording, lets the power fail at each sync and at points between, and gives the count of
images and the faults that the oracle finds in them. The same image is opened once.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.power.disk import Chance, Disk, Image
from tests.power.operations import Kind, Operation
from tests.power.oracle import Found, judged, lay, opened
from tests.power.recording import Recording
from tests.power.told import Fault, Told

_ENDS = {Kind.SYNCED, Kind.FOLDER_SYNCED, Kind.NOTED, Kind.FAILED, Kind.DELETED}
"""Before and after one of these, a failure is tried in every case."""


class Findings(msgspec.Struct):
    """What came of a recording."""

    operations: Counter[str] = msgspec.field(default_factory=Counter[str])
    failures: int = 0
    """Points times ways in which the power failed."""
    images: int = 0
    """The different images among what that left; each was opened and carried on."""
    faults: Counter[str] = msgspec.field(default_factory=Counter[str])
    examples: dict[str, str] = {}
    """The first fault of each kind, and how to see it again."""

    def add(self, other: "Findings") -> None:
        """Count another recording in."""
        self.operations += other.operations
        self.failures += other.failures
        self.images += other.images
        self.faults += other.faults
        self.examples = {**other.examples, **self.examples}

    def blame(self, fault: Fault, where: str) -> None:
        """Count a fault."""
        self.faults[fault.kind] += 1
        self.examples.setdefault(fault.kind, f"{fault}\n    {where}")


def try_failures(
    recording: Recording, folder: Path, *, images: int, seed: int = 0, since: int = 0
) -> Findings:
    """Let the power fail until so many different images have been tried, or no new one comes.

    Args:
        recording: what was recorded.
        folder: a scratch folder; an image is laid in it.
        images: how many, at most.
        seed: of the coins that say what has reached the disk.
        since: after how many operations the power may fail.
    """
    trial = _Trial(recording, folder, images, since)
    if recording.died:
        trial.findings.blame(Fault("DIED", recording.died), recording.job.fault or "no fault")
    spent = -1
    round_ = 0
    while trial.findings.images not in (images, spent):
        spent = trial.findings.images
        trial.run(random.Random(f"{seed}/{round_}"), first=round_ == 0)
        round_ += 1
    return trial.findings


class _Trial:
    """One recording, walked through again and again."""

    def __init__(self, recording: Recording, folder: Path, images: int, since: int) -> None:
        self.findings = Findings(
            operations=Counter(one.kind.name.lower() for one in recording.operations)
        )
        self._recording = recording
        self._folder = folder
        self._most = images
        self._since = since
        self._seen: dict[bytes, Found] = {}

    def run(self, dice: random.Random, *, first: bool) -> None:
        """Walk through once, with an equal share of the images for each stretch of the way."""
        points = [
            one
            for one in _points(self._recording.operations, dice, every=0.2)
            if one >= self._since
        ]
        left = self._most - self.findings.images
        ways = 3 if first else 1
        if len(points) * ways > left:
            points = sorted(dice.sample(points, max(1, min(len(points), left // ways))))
        disk, told, done = Disk(), Told(), 0
        for point in points:
            for operation in self._recording.operations[done:point]:
                disk.do(operation)
                told.hear(operation)
            done = point
            for chance in _extremes(dice) if first else [_chance(dice)]:
                if self.findings.images == self._most:
                    return
                self._fail(disk.image(chance), told, point)
        if first:
            for operation in self._recording.operations[done:]:
                told.hear(operation)
            for fault in told.faults:
                self.findings.blame(fault, f"job {self._recording.job}")

    def _fail(self, image: Image, told: Told, point: int) -> None:
        self.findings.failures += 1
        key = _digest(image)
        if key not in self._seen:
            self.findings.images += 1
            path = lay(image, self._folder / "image", random.Random(key))
            self._seen[key] = opened(path, plays=self._recording.job.plays)
        where = f"power failed after operation {point} ({self._recording.operations[point - 1]})"
        for fault in {one.kind: one for one in judged(self._seen[key], told)}.values():
            self.findings.blame(fault, f"{where} of {self._recording.job}")


def _points(operations: Sequence[Operation], dice: random.Random, *, every: float) -> Iterator[int]:
    """Give the places to fail at: how many operations came before."""
    for place, operation in enumerate(operations, 1):
        following = operations[place] if place < len(operations) else None
        is_end = operation.kind in _ENDS or following is None or following.kind in _ENDS
        if is_end or dice.random() < every:
            yield place


def _extremes(dice: random.Random) -> tuple[Chance, ...]:
    """Only what is sure; all bytes and no names; all names and no bytes."""
    return (
        Chance(dice=dice, names=0.0, writes=0.0),
        Chance(dice=dice, names=0.0, writes=1.0),
        Chance(dice=dice, names=1.0, writes=0.0),
    )


def _chance(dice: random.Random) -> Chance:
    return Chance(
        dice=dice,
        names=dice.choice((0.0, 0.5, 1.0)),
        writes=dice.choice((0.1, 0.5, 0.9, 1.0)),
        torn=dice.choice((0.0, 0.2, 1.0)),
    )


def _digest(image: Image) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for path, content in image.items():
        digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.digest()
