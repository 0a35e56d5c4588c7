"""The documents tell what the code does."""

import re
from pathlib import Path

from laneway.states import ARROWS

ROOT = Path(__file__).resolve().parent.parent


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
