"""The examples run as they stand, with nothing but this package, and show what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
ENVIRONMENT = {
    # Coverage would import the package first and asyncio twice, with two kinds of CancelledError.
    **{name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
    "PYTHONPATH": str(ROOT / "src"),
}
LAST_WORDS = {
    "mcp_server.py": "count figs → SUCCEEDED Success(value={'result': '4 figs'})",
    "stop_and_go_on.py": "stopped: None",
    "quickstart.py": "There were 12 pears; 5 are left.",
    "anthropic_loop.py": "Meeting on Friday, 10:00.",
    "openai_loop.py": "Invoice 17 is paid; 21 is still open.",
    "budgets.py": "0 calls and 49180 tokens are left",
    "telemetry.py": "laneway.turn.duration: 1 series",
    "plan_in_one_call.py": "basket: {'pears': 3}",
    "approvals.py": "granted by ann for such calls in this run (t1.1.a1): sent to bob@example.org",
    "long_results.py": "[lines 79,999-80,001 of 80,001]",
}


def shown_by(name: str, *arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_listed_here() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == LAST_WORDS.keys()


@pytest.mark.parametrize("name", LAST_WORDS)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    assert LAST_WORDS[name] in shown_by(name, folder=tmp_path).strip().splitlines()[-1]


def test_calls_on_one_thing_keep_their_order_in_the_quickstart(tmp_path: Path) -> None:
    shown = shown_by("quickstart.py", folder=tmp_path)

    results = ["'content': '12'", "'content': '40'", "10 pears are left", "5 pears are left"]
    places = [shown.index(result) for result in results]
    assert places == sorted(places)


def test_a_conversation_in_a_journal_is_not_held_again(tmp_path: Path) -> None:
    first = shown_by("anthropic_loop.py", "notes.db", folder=tmp_path)

    again = shown_by("anthropic_loop.py", "notes.db", folder=tmp_path)

    # The same messages, but nothing was done to the new folder.
    assert again.rpartition("# Notes")[0] == first.rpartition("# Notes")[0]
    assert "Meeting on Thursday" in again.rpartition("# Notes")[2]


def test_the_human_is_asked_in_the_example_for_openai(tmp_path: Path) -> None:
    shown = shown_by("openai_loop.py", folder=tmp_path)

    assert shown.startswith("approved: pay {'number': 17, 'cents': 12900}\n")
