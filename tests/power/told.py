"""What had been said by a point: what was to be kept, what was acknowledged, what had begun.

Hears operations one by one and takes in the notes among them; feeds the oracle. What is wrong with
the words themselves, whatever the disk, it finds by itself.
"""

import msgspec

from tests.power.operations import Kind, Note, Operation, note_of

Place = tuple[str, int]
"""A run and a sequence number."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that must not be."""

    kind: str
    text: str

    def __str__(self) -> str:
        """Show it as a line of a report."""
        return f"{self.kind}: {self.text}"


class Told:
    """What was said so far: batches, what came of them, bodies that were entered."""

    def __init__(self) -> None:
        """Begin before the first word."""
        self.batches: list[dict[Place, str]] = []
        self.acknowledged: set[int] = set()
        """The batches, by number, whose commit returned."""
        self.begun: set[tuple[Place, str]] = set()
        """Every fact that was to be kept."""
        self.kept: dict[Place, str] = {}
        """What was acknowledged, or read by a later life."""
        self.entered: list[str] = []
        self.faults: list[Fault] = []
        """What was wrong with the words themselves."""
        self._poison = ""
        self._struck = ""

    def hear(self, operation: Operation) -> None:
        """Take in an operation, if it says something."""
        if operation.kind is Kind.FAILED:
            self._struck = operation.name
        if operation.kind is Kind.NOTED:
            self._note(note_of(operation))

    def _note(self, note: Note) -> None:
        match note["note"]:
            case "born":
                self._poison = ""
            case "begun":
                self.batches.append(_places(note))
                self.begun |= self.batches[-1].items()
            case "kept":
                if self._poison:
                    self._wrong("TAKEN AFTER A FAILED COMMIT", self._poison)
                self.kept |= self.batches[-1]
                self.acknowledged.add(len(self.batches) - 1)
            case "failed":
                # What failed before anything was tried leaves the store as it was.
                if self._struck.startswith("runs.db") and "-values" not in self._struck:
                    self._poison = note["error"]
            case "told":
                self._read(note["run"], _places(note))
            case "entered":
                if self._poison:
                    self._wrong("ENTERED AFTER A FAILED COMMIT", note["call"])
                self.entered.append(note["call"])
            case _:
                pass

    def _read(self, run: str, rows: dict[Place, str]) -> None:
        for place, what in self.kept.items():
            if place[0] == run and rows.get(place) != what:
                self._wrong("LOST", f"fact {place[1]} of run {run}, when it was read again")
        self.kept |= rows

    def _wrong(self, kind: str, text: str) -> None:
        self.faults.append(Fault(kind, text))


def _places(note: Note) -> dict[Place, str]:
    return {(run, seq): what for run, seq, what in note["rows"]}
