"""`laneway replay RUN --execute`, over the recorded journals."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from laneway.engine.cli.app import app
from laneway.journal.migrate import FORMAT

GOLDEN = Path(__file__).parent / "golden" / f"format-{FORMAT}.db"
NO_PAYMENTS = '[[rule]]\nname = "no payments"\ntools = ["pay"]\ndecision = "deny"\n'


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    shutil.copyfile(GOLDEN, path)
    return path


def replay(journal: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["replay", *arguments, "--journal", str(journal)])
    return done.exit_code, done.output


def test_a_run_is_decided_again_as_it_was(journal: Path) -> None:
    code, said = replay(journal, "mixed", "--execute")

    assert code == 0
    assert "mixed: the same, 36 decisions alike" in said


def test_another_policy_shows_what_it_would_have_stopped(journal: Path) -> None:
    policy = journal.with_name("policy.toml")
    policy.write_text(NO_PAYMENTS)

    code, said = replay(journal, "finished", "--execute", "--policy", str(policy))

    assert code == 1
    assert "no payments" in said
    assert "t2.1" in said
    code, said = replay(journal, "finished", "--execute", "--policy", str(policy), "--json")
    assert code == 1
    assert json.loads(said)["divergences"][0]["call"] == "t2.1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--policy", "p.toml"), "belong to --execute"),
        (("--all",), "belong to --execute"),
        (("--execute", "--at", "3"), "--execute goes over all of a run"),
        (("--execute", "--state", "RUNNING"), "--execute goes over all of a run"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(
    journal: Path, arguments: tuple[str, ...], says: str
) -> None:
    code, said = replay(journal, "mixed", *arguments)

    assert code == 2
    assert says in said
