"""Tables of a TOML file that know where they stand, so that a fault is shown with its line.

Reads a text; feeds the readers of policy files.
"""

import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NoReturn, TypeVar, cast

from laneway.errors import PolicyError
from laneway.policies.lines import Lines, Place
from laneway.policies.names import closest

Name = TypeVar("Name", bound=StrEnum)

_POSITION = re.compile(r"(.*) \(at line (\d+), column (\d+)\)", re.DOTALL)


def read_table(text: str, file: str, /) -> "Table":
    """Parse TOML.

    Raises:
        PolicyError: the text is not TOML; the message has line and column.
    """
    try:
        values: Mapping[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        if found := _POSITION.fullmatch(message):
            raise PolicyError(f"{file}:{found[2]}:{found[3]}", f"not TOML: {found[1]}") from None
        raise PolicyError(file, f"not TOML: {message}") from None
    except RecursionError:
        raise PolicyError(file, "not a policy: its values are nested too deeply") from None
    return Table(values, file, Lines(text))


class Table:
    """The keys of one table, each read as what it must be, or refused by name and line."""

    def __init__(
        self, values: Mapping[str, object], file: str, lines: Lines, place: Place = ()
    ) -> None:
        """Put the values of a table in their place."""
        self._values = values
        self._file = file
        self._lines = lines
        self._place = place

    def __contains__(self, key: str) -> bool:
        """Whether a key is there, whatever its value."""
        return key in self._values

    @property
    def source(self) -> str:
        """Where the table begins: `policy.toml:12`."""
        return f"{self._file}:{self._lines.of(*self._place)}"

    def refuse(self, fault: str, *keys: str) -> NoReturn:
        """Raise a PolicyError for the table, at the line of a key if one is to blame."""
        where = f"{self._file}:{self._lines.of(*self._place, *keys)}"
        if self._place:
            kind, position = self._place
            name = self._values.get("name")
            known = name if isinstance(name, str) and name else f"{kind} {int(position) + 1}"
            where += f" ({known})"
        raise PolicyError(where, fault)

    def check_keys(self, known: Collection[str]) -> None:
        """Refuse keys that mean nothing here."""
        for key in self._values:
            if key not in known:
                self.refuse(f"unknown key {key!r}{closest(key, known)}", key)

    def text(self, key: str) -> str:
        """Read a text; absent is empty."""
        value = self._values.get(key, "")
        if not isinstance(value, str):
            self.refuse(f"{key} must be a text, not {value!r}", key)
        return value

    def texts(self, key: str) -> Sequence[str]:
        """Read a list of texts, or one text for a list of one; absent is empty."""
        value = self._values.get(key, ())
        many = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
        texts = [one for one in many if isinstance(one, str)]
        if len(texts) != len(many):
            self.refuse(f"{key} must be a text or a list of texts, not {value!r}", key)
        if not texts and key in self._values:
            self.refuse(f"{key} is empty, so nothing would fit; leave it out to mean all", key)
        return texts

    def flag(self, key: str) -> bool:
        """Read true or false; absent is false."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            self.refuse(f"{key} must be true or false, not {value!r}", key)
        return value

    def number(self, key: str, default: int) -> int:
        """Read a whole number; absent is the default."""
        value = self._values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(f"{key} must be a whole number, not {value!r}", key)
        return value

    def choice(self, key: str, kind: type[Name], default: Name | None = None) -> Name:
        """Read one of the names of an enum; absent is the default, if there is one."""
        names = [member.value for member in kind]
        value = self._values.get(key, default)
        if value is None:
            self.refuse(f"{key} is missing; write one of {', '.join(names)}")
        if not isinstance(value, str) or value not in names:
            self.refuse(f"unknown {key} {value!r}{closest(str(value), names)}", key)
        return kind(value)

    def table(self, key: str) -> Mapping[str, object]:
        """Read a table as plain values; absent is empty."""
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            self.refuse(f'{key} must be a table, such as {key}.path = "src/*"', key)
        return cast("Mapping[str, object]", value)

    def tables(self, key: str) -> Sequence["Table"]:
        """Read an array of tables; absent is empty."""
        value = self._values.get(key, [])
        many = cast("Sequence[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(one, dict) for one in many):
            self.refuse(f"write [[{key}]], with two brackets, above each {key}", key)
        return [
            Table(cast("Mapping[str, object]", one), self._file, self._lines, (key, position))
            for position, one in enumerate(many)
        ]
