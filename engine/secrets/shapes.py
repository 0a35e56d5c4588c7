"""Where secrets stand in a value: worked out once, when a tool is made.

Reads annotations (`Annotated[…, Secret]`, pydantic's secret types), JSON Schemas (`writeOnly`, and
`format: password`, as OpenAPI and pydantic write them) and paths; gives a `Shape`, or None for
what holds no secret and so costs nothing. In doubt a place is secret: one that is so in any of the
forms that are allowed there, and all that lies deeper where a type holds itself.
"""

# Schemas are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from laneway.engine.secrets.marks import MARK

EVERY = "*"
"""In a path: any field."""


class Shape(msgspec.Struct, eq=False):
    """A place in a value. The elements of a list share one place."""

    whole: bool = False
    """All that stands here is secret."""
    fields: dict[str, "Shape"] = {}
    every: "Shape | None" = None
    """Fields of any name."""

    def at(self, name: str) -> "Shape":
        """The place of a field, made if need be."""
        return self.fields.setdefault(name, Shape())

    def of_each(self) -> "Shape":
        """The place of all fields, made if need be."""
        if self.every is None:
            self.every = Shape()
        return self.every

    def below(self, name: str) -> "Shape | None":
        """The place of a field, if there is a secret in it."""
        return self.fields.get(name, self.every)

    @property
    def reaches(self) -> bool:
        """Whether there is a secret here or below."""
        below = (*self.fields.values(), *(() if self.every is None else (self.every,)))
        return self.whole or any(one.reaches for one in below)

    def add(self, other: "Shape") -> None:
        """Mark all that another shape marks."""
        self.whole = self.whole or other.whole
        for name, one in other.fields.items():
            self.at(name).add(one)
        if other.every is not None:
            self.of_each().add(other.every)


def pruned(shape: Shape) -> Shape | None:
    """Leave out places without a secret; None if there is none at all."""
    if not shape.reaches:
        return None
    fields = {name: kept for name, one in shape.fields.items() if (kept := pruned(one))}
    every = None if shape.every is None else pruned(shape.every)
    if every is not None:  # A field with a place of its own is looked at by that alone.
        for one in fields.values():
            one.add(every)
    return Shape(shape.whole, fields, every)


def merged(*shapes: Shape | None) -> Shape | None:
    """Put shapes of one value on top of each other."""
    found = Shape()
    for one in shapes:
        if one is not None:
            found.add(one)
    return pruned(found)


def of_path(path: Sequence[str]) -> Shape:
    """The shape of one secret place, lists on the way to it passed through."""
    root = shape = Shape()
    for step in path:
        shape = shape.of_each() if step == EVERY else shape.at(step)
    shape.whole = True
    return root


Keep = Callable[[Any], bool]
"""Says of what stands at a secret place that it is none, such as a reference to another call."""


def hidden(value: Any, shape: Shape, keep: Keep) -> Any:
    """Put marks in place of the secrets of a plain value; the same object if there are none.

    A text where an object should be may hold one in JSON, so it is hidden whole.
    """
    if shape.whole or (type(value) is str and (shape.fields or shape.every)):
        return value if value is None or value == MARK or keep(value) else MARK
    if type(value) is dict:
        found = {
            name: one if (place := shape.below(name)) is None else hidden(one, place, keep)
            for name, one in value.items()
        }
        return found if any(found[name] is not value[name] for name in value) else value
    if type(value) is list:
        each = [hidden(one, shape, keep) for one in value]
        return each if any(one is not was for one, was in zip(each, value, strict=True)) else value
    return value


def secrets_in(value: Any, shape: Shape, keep: Keep) -> Iterator[Any]:
    """List what `hidden` hides."""
    if shape.whole or (type(value) is str and (shape.fields or shape.every)):
        if value is not None and not keep(value):
            yield value
    elif type(value) is dict:
        for name, one in value.items():
            if (place := shape.below(name)) is not None:
                yield from secrets_in(one, place, keep)
    elif type(value) is list:
        for one in value:
            yield from secrets_in(one, shape, keep)


def keep_nothing(_: Any) -> bool:
    """Nothing at a secret place is anything else."""
    return False


# From JSON Schemas


def of_schema(schema: dict[str, Any]) -> Shape | None:
    """Find the secrets that a JSON Schema tells of, by `writeOnly` and `format: password`."""
    if not _tells(schema):
        return None
    shape = Shape()
    _Schemas(schema).fill(shape, schema, {})
    return pruned(shape)


def _tells(value: Any) -> bool:
    if type(value) is dict:
        return _is_secret(value) or any(map(_tells, value.values()))
    return type(value) is list and any(map(_tells, value))


def _is_secret(schema: dict[str, Any]) -> bool:
    return schema.get("writeOnly") is True or schema.get("format") == "password"


_HERE = (
    *("allOf", "anyOf", "oneOf", "if", "then", "else"),
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"),
)
"""What is said of the place itself, or of the elements of a list there."""
_EACH = ("additionalProperties", "unevaluatedProperties")


class _Schemas:
    """One walk over a schema; `active` are the references on the way, which may lead back."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def fill(self, shape: Shape, schema: Any, active: dict[str, bool]) -> None:
        if type(schema) is list:
            for one in schema:
                self.fill(shape, one, active)
        if type(schema) is not dict:
            return
        shape.whole = shape.whole or _is_secret(schema)
        reference = schema.get("$ref", schema.get("$dynamicRef"))
        if type(reference) is str:
            target = _pointed(self._root, reference)
            if reference in active:
                shape.whole = shape.whole or _tells(target)
            else:
                self.fill(shape, target, {**active, reference: True})
        for one in (*map(schema.get, _HERE), *_values(schema.get("dependentSchemas"))):
            self.fill(shape, one, active)
        self._fields(shape, schema, active)

    def _fields(self, shape: Shape, schema: dict[str, Any], active: dict[str, bool]) -> None:
        for name, one in _items(schema.get("properties")):
            self.fill(shape.at(name), one, active)
        each = [schema.get(word) for word in _EACH]
        for one in (*each, *_values(schema.get("patternProperties"))):
            if type(one) is dict:
                self.fill(shape.of_each(), one, active)


def _items(given: Any) -> list[tuple[str, Any]]:
    return list(given.items()) if type(given) is dict else []


def _values(given: Any) -> list[Any]:
    return list(given.values()) if type(given) is dict else []


def _pointed(root: Any, reference: str) -> Any:
    """Follow a JSON pointer (RFC 6901); None where it leads nowhere."""
    found = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if type(found) is list and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif type(found) is dict:
            found = found.get(name)
        else:
            return None
    return found
