"""Makes the schema of a tool, and the check of its arguments, from a Python signature by pydantic.

The parameters become a typed dictionary: what validation gives is the keyword arguments, with only
what was sent in them, so that the function's own defaults hold. Reads `Callee`s; feeds tools.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NotRequired, cast

import msgspec
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from laneway.engine.callables import Callee
from laneway.engine.checking import Faults, Fit, at, met
from laneway.engine.closing import closed
from laneway.engine.docstrings import parameters as described
from laneway.engine.plain import NotPlainError, plain
from laneway.engine.secrets.hints import of_hint
from laneway.engine.unwrapping import unwrapped
from laneway.errors import ToolError

_ENCODE = msgspec.json.Encoder().encode


class SignatureCheck:
    """Checks arguments against the parameters of a function.

    First as they are, in pydantic's strict mode for JSON: arguments that pass stay as they were
    sent. If the tool is not strict, then with its coercions (`"5"` for an int), and at last with
    doubly encoded values read; the canonical arguments then say what was understood.
    """

    def __init__(self, callee: Callee, tool: str, bound: Collection[str], *, strict: bool) -> None:
        """Build schema and validator.

        Args:
            callee: the function.
            tool: its name as a tool.
            bound: parameters that the host sets.
            strict: no coercion, no unknown fields at any depth.

        Raises:
            ToolError: a parameter that JSON Schema cannot describe.
        """
        sent = {name: one for name, one in callee.parameters.items() if name not in bound}
        self._hints = {name: callee.hints.get(name, Any) for name in sent}
        self._bound = bound
        self._strict = strict
        self._tool = tool
        try:
            self._whole = _Validator(tool, self._hints, callee.required, closed=strict)
            schema = self._whole.schema()
        except PydanticUserError as error:
            fault = str(error).partition("\n")[0]
            raise ToolError(
                tool,
                f"a parameter's type cannot be described as JSON: {fault}; annotate it with JSON "
                "types, a pydantic model or a dataclass, or mark it Bound",
            ) from error
        self._validate = self._whole.validate
        self._required: list[str] = schema.get("required", [])
        _describe(schema, sent, described(callee.docstring), tool)
        self.schema = closed(schema) if strict else schema

    def check(self, arguments: dict[str, Any], /) -> Fit | Faults:
        """Fit complete arguments."""
        try:
            return Fit(arguments, self._validate(_ENCODE(arguments), strict=True))
        except Exception as error:  # noqa: BLE001  # a parameter's own validator may raise anything
            return self._slowly(self._whole, arguments, error)

    def check_known(
        self, arguments: dict[str, Any], unresolved: Collection[str], /
    ) -> Fit | Faults:
        """Fit arguments of which some parameters are not known yet; those stay as they are."""
        if not self._strict:
            # Read them now: a text put into JSON later could change what the JSON says.
            read = unwrapped(arguments, self.schema)
            arguments = {
                name: read[name] if name in unresolved else value
                for name, value in arguments.items()
            }
        known = {name: value for name, value in arguments.items() if name not in unresolved}
        told = [f"{name} is missing" for name in self._required if name not in arguments]
        told += [
            self._unknown(name)
            for name in arguments
            if name in unresolved and name not in self._hints
        ]
        try:
            fit: Fit | Faults = Fit(known, self._partly.validate(_ENCODE(known), strict=True))
        except Exception as error:  # noqa: BLE001  # as in `check`
            fit = self._slowly(self._partly, known, error)
        if isinstance(fit, Faults):
            return Faults([*told, *fit.told])
        if told:
            return Faults(told)
        whole = {name: fit.arguments.get(name, value) for name, value in arguments.items()}
        return Fit(whole, fit.values)

    def values(self, arguments: dict[str, Any], /) -> dict[str, Any]:
        """Make the function's values anew from canonical arguments."""
        return self._validate(_ENCODE(arguments))

    @cached_property
    def _partly(self) -> "_Validator":
        return _Validator(self._tool, self._hints, (), closed=self._strict)

    def _slowly(
        self, validator: "_Validator", arguments: dict[str, Any], error: Exception
    ) -> Fit | Faults:
        """Find out what the arguments can be understood as, or else what is wrong with them."""
        if not isinstance(error, ValidationError):
            return _raised(error)
        if self._strict:
            return Faults(self._told(error))
        try:
            return validator.understood(arguments)
        except ValidationError as fault:
            error = fault
        read = unwrapped(arguments, self.schema)
        if read is arguments:
            return Faults(self._told(error))
        try:
            return validator.understood(read)
        except ValidationError as fault:
            return Faults(self._told(fault))

    def _told(self, error: ValidationError) -> list[str]:
        told: list[str] = []
        for fault in error.errors(include_url=False, include_context=False):
            path, kind = fault["loc"], fault["type"]
            if kind == "missing":
                told.append(f"{at(path)} is missing")
            elif kind == "extra_forbidden" and len(path) == 1:
                told.append(self._unknown(str(path[0])))
            elif kind == "extra_forbidden":
                told.append(f"{at(path)} is unknown")
            else:
                wanted = fault["msg"].replace("Input should be", "should be", 1)
                told.append(f"{at(path)}: {wanted}, met {met(fault['input'])}")
        return told

    def _unknown(self, name: str) -> str:
        if name in self._bound:
            return f"{at([name])} is set by the host and must be left out"
        return f"{at([name])} is unknown"


class _Validator:
    """pydantic's view of the parameters."""

    def __init__(
        self, tool: str, hints: Mapping[str, Any], required: Collection[str], *, closed: bool
    ) -> None:
        fields = {
            name: hint if name in required else NotRequired[hint] for name, hint in hints.items()
        }
        # Made at run time, and so beyond the type checkers.
        shape = cast("Any", TypedDict)(tool, fields)
        shape.__pydantic_config__ = ConfigDict(extra="forbid")
        self.adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)
        self._secret = {name for name, hint in hints.items() if of_hint(hint) is not None}
        validate: Callable[..., Any] = self.adapter.validator.validate_json
        if closed:
            validate = partial(validate, extra="forbid")
        self.validate: Callable[..., dict[str, Any]] = validate

    def schema(self) -> dict[str, Any]:
        return self.adapter.json_schema(mode="validation", schema_generator=_Untitled)

    def understood(self, arguments: dict[str, Any]) -> Fit:
        """Fit with coercions; the canonical arguments say what the coerced ones became.

        What became something that JSON cannot say, or that would become something else if it were
        read again, stays as sent. So does all that needed no coercion, and what holds a secret,
        which pydantic would write as asterisks.

        Raises:
            ValidationError: they do not fit even so.
        """
        values = self.validate(_ENCODE(arguments))
        coerced = self._coerced(arguments)
        if not coerced:
            return Fit(arguments, values)
        try:
            written = self._written(values, coerced)
            again = self._written(self.validate(_ENCODE({**arguments, **written})), coerced)
            stable = {name: value for name, value in written.items() if again.get(name) == value}
            canonical = {**arguments, **stable}
            return Fit(canonical, self.validate(_ENCODE(canonical)))
        except (ValidationError, PydanticSerializationError):
            return Fit(arguments, values)

    def _coerced(self, arguments: dict[str, Any]) -> set[str]:
        try:
            self.validate(_ENCODE(arguments), strict=True)
        except ValidationError as error:
            told = error.errors(include_url=False)
            return {str(fault["loc"][0]) for fault in told} - self._secret
        return set()

    def _written(self, values: dict[str, Any], names: set[str]) -> dict[str, Any]:
        written = self.adapter.dump_python(
            values,
            mode="json",
            include=names,
            by_alias=True,
            exclude_unset=True,
            round_trip=True,
            warnings=False,
        )
        found: dict[str, Any] = {}
        for name, value in written.items():
            with suppress(NotPlainError):
                found[name] = plain(value)
        return found


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes of names: tokens that tell a model nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # pydantic's hook
        return False


def _raised(error: Exception) -> Faults:
    return Faults([f"the arguments made a check of the tool raise {type(error).__name__}"])


def _describe(
    schema: dict[str, Any],
    parameters: Mapping[str, inspect.Parameter],
    told: Mapping[str, str],
    tool: str,
) -> None:
    """Add what pydantic cannot know: defaults, and the words of the docstring."""
    schema.pop("title", None)
    properties: dict[str, Any] = schema.setdefault("properties", {})
    for name, parameter in parameters.items():
        described = properties[name]
        if name in told:
            described.setdefault("description", told[name])
        if isinstance(parameter.default, FieldInfo):
            raise ToolError(
                tool,
                f"the default of parameter {name!r} is a Field; write Annotated[type, Field(…)], "
                "and the default itself",
            )
        if parameter.default is not inspect.Parameter.empty:
            _note_default(described, parameter.default)


def _note_default(described: dict[str, Any], default: object) -> None:
    try:
        described.setdefault("default", plain(default))
    except NotPlainError:
        described.pop("default", None)  # the model need not know what JSON cannot say
