"""Undoes a second layer of JSON around nested arguments, only where the schema leaves no choice.

Models now and then write an array or an object as a text that holds it in JSON. A text is taken
for that only if the schema at its place allows an array or an object and no text, and if it reads
strictly as what is allowed: a text that is meant as one is never touched. Called when arguments
have failed their schema; what it gives is checked again.
"""

# JSON and schemas are told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from collections.abc import Iterator
from typing import Any

from laneway.engine.arguments import read_json

Schema = dict[str, Any] | bool

_TYPES: dict[type[Any], str] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    type(None): "null",
}
_ALL = frozenset({"object", "array", "string", "number", "boolean", "null"})
_NESTED = frozenset({"object", "array"})
_MAX_STEPS = 10_000
_MAX_DEPTH = 64
"""Schemas looked at for one call, and one inside the other: they may refer to themselves."""


def unwrapped(arguments: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments with every doubly encoded value read; the same object if there is none.

    Args:
        arguments: that do not fit the schema.
        schema: JSON Schema of any draft; references within it are followed, others are not.
    """
    found = _Reader(schema).read(arguments, [schema])
    return found if isinstance(found, dict) else arguments


class _Reader:
    """One walk over arguments and schema together; a value stands under several schemas at once."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.steps = _MAX_STEPS

    def read(self, value: Any, schemas: list[Schema]) -> Any:
        """Read what is doubly encoded in a value to which all of these schemas apply."""
        if isinstance(value, str):
            allowed = self.types({"allOf": schemas}) - {"null", "boolean", "number"}
            if not allowed or "string" in allowed:
                return value
            inner = read_json(value)
            return self.read(inner, schemas) if _type_of(inner) in allowed else value
        if isinstance(value, dict):
            read: Any = {
                key: self.read(item, self.below({"allOf": schemas}, value, key))
                for key, item in value.items()
            }
            return read if any(read[key] is not value[key] for key in value) else value
        if isinstance(value, list):
            read = [
                self.read(item, self.below({"allOf": schemas}, value, at))
                for at, item in enumerate(value)
            ]
            return read if any(map(_differ, read, value)) else value
        return value

    def types(self, schema: Schema, depth: int = 0) -> frozenset[str]:
        """Say which types a schema allows, by its form; rather too many than too few."""
        self.steps -= 1
        if schema is True or self.steps < 0 or depth > _MAX_DEPTH:
            return _ALL
        if schema is False:
            return frozenset()
        allowed = _named_types(schema)
        for part in self.parts(schema):
            allowed &= self.types(part, depth + 1)
        for branches in _choices(schema):
            allowed &= frozenset[str]().union(*(self.types(one, depth + 1) for one in branches))
        return allowed

    def below(self, schema: Schema, container: Any, key: str | int, depth: int = 0) -> list[Schema]:
        """List the schemas that apply to what stands in a container under a key."""
        self.steps -= 1
        if isinstance(schema, bool) or self.steps < 0 or depth > _MAX_DEPTH:
            return []
        found = [_child(schema, key)]
        for part in self.parts(schema):
            found += self.below(part, container, key, depth + 1)
        for branches in _choices(schema):
            fitting = [branch for branch in branches if self.fits(branch, container)]
            inner = [self.below(branch, container, key, depth + 1) for branch in fitting]
            found.append({"anyOf": [{"allOf": schemas} for schemas in inner]})
        return found

    def fits(self, branch: Schema, container: Any) -> bool:
        """Whether a branch can be the one meant: by type, required keys and constant values."""
        if _type_of(container) not in self.types(branch):
            return False
        return all(
            _mentions(container, one)
            for one in [branch, *self.parts(branch)]
            if isinstance(one, dict) and isinstance(container, dict)
        )

    def parts(self, schema: Schema) -> Iterator[Schema]:
        """List the schemas that apply wherever this one does."""
        if isinstance(schema, bool):
            return
        yield from schema.get("allOf", ())
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            yield _target(self.root, reference)


def _named_types(schema: dict[str, Any]) -> frozenset[str]:
    if "const" in schema:
        return frozenset({_type_of(schema["const"])})
    if "enum" in schema:
        return frozenset(map(_type_of, schema["enum"]))
    named = schema.get("type")
    if named is None:
        return _ALL
    names = [named] if isinstance(named, str) else named
    return frozenset("number" if name == "integer" else name for name in names)


def _choices(schema: dict[str, Any]) -> list[list[Schema]]:
    return [schema[word] for word in ("anyOf", "oneOf") if word in schema]


def _child(schema: dict[str, Any], key: str | int) -> Schema:
    if isinstance(key, int):
        items = schema.get("items", True)
        first: list[Schema] = items if isinstance(items, list) else schema.get("prefixItems", [])
        rest: Schema = schema.get("additionalItems", True) if isinstance(items, list) else items
        return first[key] if key < len(first) else rest
    properties: dict[str, Schema] = schema.get("properties", {})
    if key in properties:
        return properties[key]
    others: Schema = schema.get("additionalProperties", True)
    return True if "patternProperties" in schema else others


def _mentions(container: dict[str, Any], schema: dict[str, Any]) -> bool:
    if not container.keys() >= set(schema.get("required", ())):
        return False
    return all(
        container[name] == one["const"]
        for name, one in schema.get("properties", {}).items()
        if name in container and isinstance(one, dict) and "const" in one
    )


def _target(root: dict[str, Any], reference: str) -> Schema:
    """Follow a JSON pointer (RFC 6901); what it doesn't lead to allows everything."""
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, dict) and name in found:
            found = found[name]
        else:
            return True
    return found if isinstance(found, dict | bool) else True


def _type_of(value: object) -> str:
    return _TYPES.get(type(value), "number" if isinstance(value, int | float) else "")


def _differ(one: object, other: object) -> bool:
    return one is not other
