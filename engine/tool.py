"""A tool: a callable that the model may ask for, with all that the scheduler must know of it.

    @tool(effect=Effect.WRITE, claims=["write file:{path}"], timeout=20)
    async def edit_file(path: str, old: str, new: str) -> str: ...

Reads functions, JSON Schemas and declarations; feeds admission (`check`, `claims`), policies
(`spec`) and execution (`function`). A mistake in a declaration is a ToolError, at once.
"""

import copy
import functools
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Generic, Unpack, overload

from typing_extensions import ParamSpec, TypeVar

from laneway.effects import Effect
from laneway.engine.callables import Callee, examine
from laneway.engine.checking import Bindings, Check, Checked, Fit, invalid
from laneway.engine.claiming import claim_source
from laneway.engine.probing import probe_of
from laneway.engine.providers.definitions import FORMS, definition
from laneway.engine.secrets.declaring import secret_places
from laneway.engine.spec import (
    NARROW_NAME,
    Declarations,
    ToolSpec,
    bound_of,
    spec_of,
    tool_name,
)
from laneway.engine.undoing.compensation import compensation_of
from laneway.errors import ToolError, UsageError
from laneway.outcomes import Failure

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)


@overload
def tool(function: Callable[P, R], /) -> "Tool[P, R]": ...
@overload
def tool(
    **declarations: Unpack[Declarations],
) -> "Callable[[Callable[P, R]], Tool[P, R]]": ...
@overload
def tool(function: Callable[P, R], /, **declarations: Unpack[Declarations]) -> "Tool[P, R]": ...
def tool(
    function: Callable[..., Any] | None = None, /, **declarations: Unpack[Declarations]
) -> Any:
    """Make a tool of a function: `@tool`, `@tool(effect=…)` or `tool(function, effect=…)`.

    Name, description and schema come from the function: its name, its docstring (first paragraph,
    Google-style `Args:`), its annotations (what pydantic reads from JSON, `Annotated[…, Field(…)]`
    included). A parameter annotated `ToolContext` receives one and is not part of the schema. What
    comes back can be called as the function itself.

    With nothing declared it is taken for the worst case: it runs alone in its run, is not repeated,
    and its effect is unknown after a crash.

    Args:
        function: a function or coroutine function, method, partial or object with `__call__`.
        declarations: see `Declarations`.

    Raises:
        ToolError: it cannot be made into a tool; says why and what to do.
    """
    if function is None:
        return functools.partial(Tool.of, **declarations)
    return Tool.of(function, **declarations)


class Tool(Generic[P, R]):
    """One tool, made by `tool`, `Tool.of` or `Tool.from_schema`; never changed afterwards."""

    __name__: str

    def __init__(self, callee: Callee, check: Check, said: Declarations) -> None:
        """Put a tool together; `tool` and the class methods are the way to one."""
        self.secret_arguments, self.secret_result = secret_places(
            tool_name(callee, said),
            callee,
            check.schema,
            bound_of(callee, said),
            said.get("secret", ()),
        )
        """Where secrets stand, in arguments and in what a body returns; None if nowhere."""
        self.spec: ToolSpec = spec_of(callee, check.schema, said)
        self.function: Callable[..., Any] = callee.function
        """What is entered: with keyword arguments, in a thread if `spec.sync`."""
        self.claims = claim_source(
            self.spec.name,
            said.get("claims"),
            said.get("claims_at_most", ("write file:",)),
            self.spec.effect,
            check.schema.get("properties", ()),
            said=self.spec.declared,
        )
        """Says what a call takes; None if it takes nothing."""
        self._effect_of = said.get("effect_of")
        self.probe = probe_of(
            self.spec.name,
            said.get("reconcile"),
            {*check.schema.get("properties", ()), *callee.parameters},
            takes_any=callee.takes_any,
        )
        """Finds out what became of a call whose end nobody saw; None if the tool has none."""
        self.compensation = compensation_of(
            self.spec.name, said.get("compensate"), self.spec.effect
        )
        """Undoes a call; None if the tool has none."""
        self.asynchronous = not callee.sync
        """Whether the function itself is a coroutine function."""
        self.context_parameter = callee.context
        self.wants_context = bool(callee.context)
        """Whether the function has a parameter for a ToolContext."""
        self._check = check
        self._fit = check.check
        self._bindings = Bindings(check, tuple(sorted(self.spec.bound)), callee.context)
        self._must_be_bound = tuple(sorted(self.spec.bound & callee.required))
        self.__name__ = self.spec.name
        functools.update_wrapper(self, callee.function, updated=())

    @classmethod
    def of(cls, function: Callable[P, R], /, **declarations: Unpack[Declarations]) -> "Tool[P, R]":
        """Make a tool whose schema is the function's signature.

        Raises:
            ToolError: it cannot be made into a tool.
        """
        from laneway.engine.signatures import SignatureCheck  # noqa: PLC0415  # pydantic, 0.1 s

        callee, name, bound = _begin(function, declarations)
        strict = declarations.get("strict", False)
        if callee.takes_any:
            raise ToolError(
                name,
                "its parameters cannot be listed (it has **kwargs, or no signature); write them "
                "out, or give a JSON Schema with Tool.from_schema",
            )
        return cls(callee, SignatureCheck(callee, name, bound, strict=strict), declarations)

    @classmethod
    def from_schema(
        cls,
        function: Callable[P, R],
        /,
        *,
        schema: Mapping[str, Any],
        **declarations: Unpack[Declarations],
    ) -> "Tool[P, R]":
        """Make a tool that comes with a JSON Schema; the function gets the arguments by name.

        Args:
            function: takes each property, or `**kwargs`.
            schema: of an object, in any draft from 4 to 2020-12; nothing is fetched for it.
            declarations: see `Declarations`.

        Raises:
            ToolError: the schema is not valid or does not match the function.
        """
        from laneway.engine.schemas import SchemaCheck  # noqa: PLC0415  # jsonschema-rs, 0.03 s

        callee, name, bound = _begin(function, declarations)
        strict = declarations.get("strict", False)
        return cls(callee, SchemaCheck(schema, callee, name, bound, strict=strict), declarations)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without engine, checks or claims."""
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<Tool {self.spec.name}: {self.spec.effect}>"

    def check(self, arguments: dict[str, Any], /) -> Checked | Failure:
        """Check arguments, and make them canonical.

        Args:
            arguments: plain JSON, as `read_arguments` gives it; not changed.

        Returns:
            What passed, or INVALID_ARGUMENTS with every fault named.
        """
        found = self._fit(arguments)
        if type(found) is Fit:
            return Checked(found.arguments, found.values, self._bindings)
        return self._refused(found)

    def check_unresolved(
        self, arguments: dict[str, Any], unresolved: Collection[str], /
    ) -> Checked | Failure:
        """Check what can be known while some parameters refer to results that are not there yet.

        Required and unknown fields, and the parameters that are known; the others stay as they
        are. `check` follows once they are resolved.
        """
        found = self._check.check_known(arguments, unresolved)
        if type(found) is Fit:
            return Checked(found.arguments, found.values, self._bindings)
        return self._refused(found)

    def effect_of(self, arguments: Mapping[str, Any], /) -> Effect:
        """Say how far a call with these arguments reaches: at most as far as `spec.effect`.

        Args:
            arguments: as `check` has made them; all known.
        """
        most = self.spec.effect
        if self._effect_of is None:
            return most
        try:
            return min(Effect(self._effect_of(MappingProxyType(dict(arguments)))), most, key=_REACH)
        except Exception:  # noqa: BLE001 - the host's code meets the model's arguments here
            return most

    def unbound(self, bound: Collection[str]) -> tuple[str, ...]:
        """Name the parameters that the host must set and has not."""
        return tuple(name for name in self._must_be_bound if name not in bound)

    def definition(self, provider: str) -> dict[str, Any]:
        """Write the tool as the provider wants it in a request.

        Args:
            provider: the name of a wire format, for instance `openai-chat`.

        Raises:
            UsageError: a provider that is not known.
            ToolError: the provider does not take the tool's name.
        """
        see_that_known(provider)
        spec = self.spec
        if not NARROW_NAME.fullmatch(spec.name):
            raise ToolError(
                spec.name,
                f"{provider} takes no such name (letters, digits, _ and -, up to 64); give the "
                "tool another with name=",
            )
        schema = copy.deepcopy(spec.schema)
        return definition(provider, spec.name, spec.description, schema)

    def _refused(self, found: Any) -> Failure:
        return invalid(self.spec.name, found, self.spec.schema)


def see_that_known(provider: str) -> None:
    """See that there is a form of tool definitions for a provider.

    Raises:
        UsageError: there is none.
    """
    if provider not in FORMS:
        raise UsageError(
            f"no form of a tool definition is known for {provider!r} (known: {', '.join(FORMS)})"
        )


_REACH = list(Effect).index


def _begin(function: object, said: Declarations) -> tuple[Callee, str, frozenset[str]]:
    if unknown := said.keys() - Declarations.__annotations__.keys():
        known = ", ".join(Declarations.__annotations__)
        raise TypeError(
            f"tool() got an unexpected keyword argument {min(unknown)!r} (it takes {known})"
        )
    callee = examine(function, said.get("name") or "")
    return callee, tool_name(callee, said), bound_of(callee, said)
