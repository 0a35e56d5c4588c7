"""What the pages about results and histories show is so."""

import asyncio
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("page", ["results.md", "history.md"])
def test_the_python_of_the_page_runs_from_top_to_bottom(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    assert blocks
    exec(compile("\n".join(blocks), page, "exec"), {})  # noqa: S102 - our own page


def test_the_example_of_long_results_shows_a_part_and_hands_on_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "long_results.py"))

    asyncio.run(example["main"]())

    told = capsys.readouterr().out
    built, counted, read = told.split("--- ")[1:]
    assert built.startswith("b1\nexit code 1\n[1 of 1 lines that tell of faults]\n80001: error")
    assert len(built) < 610
    assert counted.strip() == "c1\n80001"
    assert "error: no rule for part 80000" in read
    assert "- Ask for these together" in told
