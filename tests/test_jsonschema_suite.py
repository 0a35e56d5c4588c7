"""The validator in use, against every required test of the published suite of JSON Schema.

`test_tool_schemas` runs the suite through a tool; here each schema stands as it was published, with
the remote schemas that it refers to, which a tool never fetches.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SUITES: dict[str, tuple[Any, int]] = {
    "jsonschema_2020_12.jsonl": (jsonschema_rs.Draft202012Validator, 608),
    "jsonschema_draft7.jsonl": (jsonschema_rs.Draft7Validator, 465),
}
"""Each with its validator, and how many of its tests are required."""


def read(name: str) -> str:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not beside this checkout")
    return path.read_text(encoding="utf-8")


def remotes() -> jsonschema_rs.Registry:
    """The schemas that others refer to; those of draft 7 are known by their place alone."""
    found: dict[str, Any] = json.loads(read("jsonschema_remotes.json"))
    for place, schema in found.items():
        if "/draft7/" in place:
            schema.setdefault("$schema", "http://json-schema.org/draft-07/schema#")
    return jsonschema_rs.Registry(list(found.items()))


@pytest.mark.parametrize("name", SUITES)
def test_every_required_test_of_the_suite_is_answered_as_it_wants(name: str) -> None:
    validator_of, required = SUITES[name]
    registry = remotes()
    counted: Counter[str] = Counter()
    for line in read(name).splitlines():
        group = json.loads(line)
        if group.get("optional"):  # formats are not checked, as the drafts have it by default
            continue
        schema = group["schema"]
        validator = validator_of(schema, registry=registry)
        for test in group["tests"]:
            assert validator.is_valid(test["data"]) == test["valid"], (group["id"], test)
            counted["required"] += 1

    print(f"{name}: {dict(counted)}")  # part of the proof
    assert counted["required"] == required
