"""What a host writes down for whoever reads the journal."""

import pytest

from laneway.engine.run import Run
from laneway.errors import UsageError
from laneway.facts import HostNoted
from laneway.testing import Stage
from laneway.testing.theatre import Theatre


def test_a_note_is_kept_and_the_model_never_sees_it() -> None:
    theatre = Theatre(Stage())

    async def host(run: Run) -> None:
        await run.note({"build": 42, "why": ["nightly"]})
        assert run.history() == []
        assert [one.note for one in run.view.notes] == [{"build": 42, "why": ["nightly"]}]

    theatre.enter(host)

    assert theatre.kept(HostNoted) == [HostNoted(note={"build": 42, "why": ["nightly"]})]


def test_a_note_that_json_cannot_hold_is_refused_and_nothing_is_written() -> None:
    theatre = Theatre(Stage())

    async def host(run: Run) -> None:
        with pytest.raises(UsageError, match="a note cannot be kept as JSON"):
            await run.note(float("nan"))

    theatre.enter(host)

    assert theatre.kept(HostNoted) == []
