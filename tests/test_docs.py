"""The documents tell what the code does."""

import re
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

import laneway
from laneway import Loops, Recursion
from laneway.claims import exclusive, shared
from laneway.engine.providers import FORMATS
from laneway.lanes.names import Names
from laneway.states import ARROWS

ROOT = Path(__file__).resolve().parent.parent


def blocks(document: str) -> list[str]:
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_diagram_of_states_is_the_table_of_arrows() -> None:
    text = (ROOT / "docs" / "states.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^    (\S+) --> (\S+)$", text, re.MULTILINE))

    arrows = {
        (str(source), str(target)) for source, targets in ARROWS.items() for target in targets
    }
    final = {(str(state), "[*]") for state, targets in ARROWS.items() if not targets}
    assert drawn == arrows | final | {("[*]", "PENDING")}


def test_every_state_is_explained() -> None:
    text = (ROOT / "docs" / "states.md").read_text(encoding="utf-8")

    for state in ARROWS:
        assert f"| {state} |" in text


def test_every_fact_is_explained() -> None:
    text = (ROOT / "docs" / "journal.md").read_text(encoding="utf-8")
    source = (ROOT / "src" / "laneway" / "facts.py").read_text(encoding="utf-8")

    for tag in re.findall(r'tag="(\w+)"', source):
        assert f"`{tag}`" in text


def test_links_between_documents_lead_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
            assert (document.parent / link).exists(), (document.name, link)


@pytest.mark.parametrize("code", blocks("budgets.md"))
def test_every_piece_of_python_about_budgets_runs(code: str) -> None:
    exec(compile(code, "docs/budgets.md", "exec"), {})  # noqa: S102 - it is our own page


@pytest.mark.parametrize("code", blocks("telemetry.md"))
def test_every_piece_of_python_about_telemetry_runs(code: str) -> None:
    exec(compile(code, "docs/telemetry.md", "exec"), {})  # noqa: S102 - it is our own page


@pytest.mark.parametrize("code", blocks("resources.md"))
def test_every_piece_of_python_about_resources_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    exec(compile(code, "docs/resources.md", "exec"), {})  # noqa: S102 - it is our own page


@pytest.mark.parametrize("code", blocks("providers.md"))
def test_every_piece_of_python_about_providers_runs(code: str) -> None:
    exec(compile(code, "docs/providers.md", "exec"), {})  # noqa: S102 - it is our own page


def test_every_format_is_in_the_table_of_providers() -> None:
    text = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `([a-z0-9-]+)` \|[^|]*\|[^|]*\|[^|]*\|$", text, re.MULTILINE)

    assert set(told) == {wire.name for wire in FORMATS if wire.name != "plan"}


@pytest.mark.parametrize("code", blocks("loops.md"))
def test_every_piece_of_python_about_loops_runs(code: str) -> None:
    exec(compile(code, "docs/loops.md", "exec"), {})  # noqa: S102 - it is our own page


def test_the_limits_of_loops_and_recursion_are_what_the_page_says() -> None:
    text = (ROOT / "docs" / "loops.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `(\w+)`.*? \| ([\d.]+) \|", text, re.MULTILINE))

    limits = {**msgspec.structs.asdict(Loops()), **msgspec.structs.asdict(Recursion())}
    assert told.keys() == limits.keys() - {"warn_below", "block_below"}
    assert {name: float(value) for name, value in told.items()} == {
        name: float(limits[name]) for name in told
    }


def test_the_claims_of_the_first_calls_about_resources_are_what_the_page_says() -> None:
    shop: dict[str, Any] = {}
    exec(compile(blocks("resources.md")[0], "docs/resources.md", "exec"), shop)  # noqa: S102 - the same
    names = Names("/w")
    text = (ROOT / "docs" / "resources.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\((.*?)\)` \| `(\w+) (\S+)`", text, re.MULTILINE)

    assert len(rows) == 4
    for name, written, verb, resource in rows:
        arguments = eval(f"dict({written.replace(', …', '')})")  # noqa: S307 - the same
        (claim, *_) = shop[name].claims.claims(arguments, names)
        assert claim == (exclusive if verb == "write" else shared)(resource)


def test_the_reference_is_what_the_docstrings_say() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "reference.py"), run_name="reference")

    told = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")

    assert told == made["page"](), "renew it: python docs/reference.py"
    for name in laneway.__all__:
        assert name.startswith("__") or f"### `{name}`" in told
    assert ": \n" not in told, "something public has no docstring"
