"""The check of a tool that comes with a JSON Schema of its own: compiled once, by jsonschema-rs.

Nothing is ever fetched: a reference that leads out of the schema is refused when the tool is made.
"""

# Schemas are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Collection, Mapping
from itertools import takewhile
from typing import Any, NoReturn

import jsonschema_rs
import msgspec

from laneway.engine.callables import Callee
from laneway.engine.checking import Faults, Fit, at, met
from laneway.engine.closing import closed
from laneway.engine.plain import NotPlainError, plain
from laneway.engine.telling import place_of
from laneway.engine.unwrapping import unwrapped
from laneway.errors import ToolError

_COPY = msgspec.json.Decoder().decode
_ENCODE = msgspec.json.Encoder().encode


class SchemaCheck:
    """Checks arguments against a JSON Schema, draft 4 to 2020-12, as its `$schema` says.

    Nothing is coerced; doubly encoded values are read, unless the tool is strict.
    """

    def __init__(
        self,
        schema: Mapping[str, Any],
        callee: Callee,
        tool: str,
        bound: Collection[str],
        *,
        strict: bool,
    ) -> None:
        """Compile the schema.

        Args:
            schema: of the arguments, an object.
            callee: the function, called with the arguments by name.
            tool: its name as a tool.
            bound: properties that the host sets; taken out of the schema.
            strict: no unknown fields wherever fields are listed, nothing unwrapped.

        Raises:
            ToolError: no valid schema, one that refers to something outside itself, or one that
                the function's parameters do not match.
        """
        own = _without(_object(schema, tool), bound)
        self.schema = closed(own) if strict else own
        self._strict = strict
        self._bound = bound
        self._validator = _compiled(self.schema, tool)
        self._is_valid: Callable[[Any], bool] = self._validator.is_valid
        _match(callee, tool, self.schema, bound)
        self._takes = None if callee.takes_any else callee.parameters.keys() - set(bound)
        self._barred = frozenset(bound)

    def check(self, arguments: dict[str, Any], /) -> Fit | Faults:
        """Fit complete arguments."""
        try:
            if self._is_valid(arguments) and not self._strange(arguments):
                return Fit(arguments, arguments)
            read = arguments if self._strict else unwrapped(arguments, self.schema)
            told = self._told(read)
        except (ValueError, TypeError):
            return _unreadable(arguments)
        return Faults(told) if told else Fit(read, read)

    def check_known(
        self, arguments: dict[str, Any], unresolved: Collection[str], /
    ) -> Fit | Faults:
        """Fit what can be known while some parameters are not; those stay as they are."""
        read = arguments
        try:
            if not self._strict:
                # Also in what waits: a text put into JSON later could change what the JSON says.
                read = unwrapped(arguments, self.schema)
            told = self._told(read, unresolved)
        except (ValueError, TypeError):
            return _unreadable(arguments)
        return Faults(told) if told else Fit(read, {})

    def values(self, arguments: dict[str, Any], /) -> dict[str, Any]:
        """Copy the arguments, all the way down."""
        return _COPY(_ENCODE(arguments))  # type: ignore[no-any-return]

    def _strange(self, arguments: dict[str, Any]) -> bool:
        """Whether there is an argument that the function cannot be called with."""
        takes = self._takes
        if takes is None:
            return bool(self._barred) and not self._barred.isdisjoint(arguments)
        return not arguments.keys() <= takes

    def _told(self, arguments: dict[str, Any], unresolved: Collection[str] = ()) -> list[str]:
        told: list[str] = []
        strange = {
            name
            for name in arguments
            if name in self._barred or (self._takes is not None and name not in self._takes)
        }
        for name in arguments:
            if name in self._barred:
                told.append(f"{at([name])} is set by the host and must be left out")
            elif name in strange:
                told.append(f"{at([name])} is unknown")
        for error in self._validator.iter_errors(arguments):
            if not unresolved or _is_certain(error, unresolved):
                told.extend(_fault(error, strange))
        return list(dict.fromkeys(told))


def _object(schema: Mapping[str, Any], tool: str) -> dict[str, Any]:
    """Copy the schema, and see that it is one of an object."""
    if not isinstance(schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ToolError(tool, f"its schema is of type {type(schema).__name__}; give a dict")
    try:
        own: dict[str, Any] = plain(schema)
    except NotPlainError as error:
        raise ToolError(tool, f"its schema is not JSON: {error}") from None
    named = own.setdefault("type", "object")
    if named != "object" and "object" not in named:
        raise ToolError(tool, f"its schema is of type {named!r}; arguments are always an object")
    return own


def _without(schema: dict[str, Any], bound: Collection[str]) -> dict[str, Any]:
    for name in bound:
        schema.get("properties", {}).pop(name, None)
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in bound]
    return schema


def _compiled(schema: dict[str, Any], tool: str) -> Any:
    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, mask="it")
    except jsonschema_rs.ValidationError as error:
        fault = error.message
        if path := error.instance_path:
            fault = f"{fault}, met {met(error.instance)}"
        place = place_of(path or _reference(schema, fault))
        raise ToolError(tool, f"its schema is not valid at {place}: {fault}") from None


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} would have to be fetched; put what it refers to under $defs")


def _reference(schema: Any, message: str) -> list[str | int]:
    """Find the reference that a message speaks of; the message has no place of its own."""
    waiting: list[tuple[list[str | int], Any]] = [([], schema)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str) and reference.lstrip("#") in message:
                return [*path, "$ref"]
            waiting += [([*path, name], item) for name, item in value.items()]
        elif isinstance(value, list):
            waiting += [([*path, index], item) for index, item in enumerate(value)]
    return []


def _match(callee: Callee, tool: str, schema: dict[str, Any], bound: Collection[str]) -> None:
    """See that the function can be called with whatever the schema lets through."""
    properties, required = schema.get("properties", ()), schema.get("required", ())
    combined = not _COMBINED.isdisjoint(schema)
    for name in properties:
        if not callee.takes_any and name not in callee.parameters:
            raise ToolError(tool, f"its schema has {name!r}, which its function does not take")
    for name in callee.required - set(bound):
        if name not in properties:
            raise ToolError(
                tool,
                f"its function needs {name!r}, which its schema does not have; give it a default, "
                "or name it in bound=",
            )
        if name not in required and not combined:
            raise ToolError(
                tool,
                f"its function needs {name!r}, which its schema does not require; give it a "
                "default",
            )


_CONDITIONAL = frozenset({"anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


_COMBINED = _CONDITIONAL | {"allOf", "$ref", "$dynamicRef", "dependentRequired", "dependencies"}
"""Where one of these stands, the fields in `required` may not be all that are."""


def _is_certain(error: jsonschema_rs.ValidationError, unresolved: Collection[str]) -> bool:
    """Whether a fault stands whatever the unresolved parameters will be."""
    path = error.instance_path
    way = takewhile(lambda word: word not in {"properties", "patternProperties"}, error.schema_path)
    if not _CONDITIONAL.isdisjoint(way):
        return False
    if path:
        return path[0] not in unresolved
    return isinstance(
        error.kind,
        _KIND.Required
        | _KIND.AdditionalProperties
        | _KIND.MinProperties
        | _KIND.MaxProperties
        | _KIND.PropertyNames,
    )


_KIND = jsonschema_rs.ValidationErrorKind


def _fault(error: jsonschema_rs.ValidationError, told: Collection[str]) -> list[str]:
    """Put a fault into words; `told` are the unknown names that have been told already."""
    path, kind = error.instance_path, error.kind
    match kind:
        case _KIND.Required():
            return [f"{at([*path, kind.property])} is missing"]
        case _KIND.AdditionalProperties() | _KIND.UnevaluatedProperties():
            names = [name for name in kind.unexpected if path or name not in told]
            return [f"{at([*path, name])} is unknown" for name in names]
        case _KIND.Type():
            wanted = f"should be of type {' or '.join(kind.types)}"
        case _KIND.Enum():
            wanted = f"should be one of {', '.join(map(met, kind.options[:20]))}"
        case _KIND.AnyOf() | _KIND.OneOfNotValid():
            wanted = "fits none of the forms that are allowed there"
        case _:
            wanted = (
                error.message if len(error.message) <= _LONGEST else error.message[:_LONGEST] + "…"
            )
    return [f"{at(path)}: {wanted}, met {met(error.instance)}"]


_LONGEST = 200


def _unreadable(arguments: dict[str, Any]) -> Faults:
    try:
        plain(arguments)
    except NotPlainError as error:
        return Faults([str(error)])
    return Faults(["the arguments are no plain JSON"])
