"""The statements of schema.sql, by name."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

ROW = "(?, ?, ?, ?, ?, ?, ?)"
"""The parameters of one row of `append`."""

ROW_PARAMETERS = 7
ROW_OF_ONE = "(?, ?, ?, ?, ?)"
"""The parameters of one row of `append_of_one`."""
ROW_OF_ONE_PARAMETERS = 5


def append(rows: int) -> str:
    """Give the statement that appends so many rows at once."""
    return STATEMENTS["append"].format(rows=", ".join([ROW] * rows))


def append_of_one(rows: int) -> str:
    """Give the statement that appends so many rows of one run at once."""
    return STATEMENTS["append_of_one"].format(rows=", ".join([ROW_OF_ONE] * rows))


def _parse(text: str) -> Iterator[tuple[str, str]]:
    for section in text.split("-- name: ")[1:]:
        name, _, rest = section.partition("\n")
        lines = (line for line in rest.splitlines() if not line.startswith("--"))
        yield name.strip(), "\n".join(lines).strip()


STATEMENTS: Mapping[str, str] = MappingProxyType(
    dict(_parse(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")))
)
