"""Where secrets stand in a value of some Python type, and the values that pydantic hides.

Reads annotations of parameters and results, and what a body returned; gives shapes, and values
whose secret objects have become texts. pydantic is never imported for it.
"""

# Types and values of any kind are told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportMissingTypeArgument=false
# pyright: reportUnknownParameterType=false

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from laneway.engine.secrets.marks import Secret, is_marker
from laneway.engine.secrets.shapes import Shape, pruned
from laneway.engine.walk import dumped


def of_hint(hint: Any) -> Shape | None:
    """Find the secrets that an annotation tells of."""
    shape = Shape()
    walk = _Hints()
    walk.fill(shape, hint, {})
    for leaf, target in walk.loops:
        leaf.whole = leaf.whole or target.reaches
    return pruned(shape)


class _Hints:
    """One walk over annotations; `active` are the classes on the way, which may hold themselves."""

    def __init__(self) -> None:
        self.loops: list[tuple[Shape, Shape]] = []
        self._given: dict[Any, Any] = {}
        """What stands for the type variables of the classes on the way."""

    def fill(self, shape: Shape, hint: Any, active: dict[Any, Shape]) -> None:
        hint = self._put_in(hint)
        hint = getattr(hint, "__value__", hint)  # a type alias
        hint = getattr(hint, "__supertype__", hint)  # a NewType
        origin, arguments = get_origin(hint), get_args(hint)
        if is_secret_type(hint) or is_secret_type(origin):
            shape.whole = True
        elif origin is Annotated:
            shape.whole = shape.whole or any(map(is_marker, arguments[1:]))
            self.fill(shape, arguments[0], active)
        elif origin in (Union, UnionType) or str(origin) in _WRAPPERS:
            for one in arguments:
                self.fill(shape, one, active)
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            self.fill(shape, arguments[0], active)  # Keys that are secret hide the whole.
            self.fill(shape.of_each(), arguments[-1], active)
        elif isinstance(origin, type) and hasattr(origin, "__iter__"):
            for one in arguments:
                self.fill(shape, one, active)
        else:
            self._class(shape, origin or hint, arguments, active)

    def _put_in(self, hint: Any) -> Any:
        """Put what is known of type variables in their place."""
        return _with(hint, lambda of: self._given.get(of, Any))

    def _class(
        self, shape: Shape, kind: Any, arguments: tuple[Any, ...], active: dict[Any, Shape]
    ) -> None:
        if not isinstance(kind, type):
            return
        known = (kind, str(arguments))
        same = [one for one in active if one[0] is kind]
        if len(same) > _DEEPEST:
            known = same[0]
        if known in active:
            self.loops.append((shape, active[known]))
            return
        active = {**active, known: shape}
        before, self._given = self._given, {**self._given, **_given_to(kind, arguments)}
        self._fields(shape, kind, active)
        self._given = before

    def _fields(self, shape: Shape, kind: type, active: dict[Any, Shape]) -> None:
        for names, hint, marked in _members(kind):
            for name in dict.fromkeys(names):
                place = shape.at(name) if name else shape
                place.whole = place.whole or marked
                self.fill(place, hint, active)


_DEEPEST = 4
"""How often a generic class stands within itself, each time with other arguments."""


def _given_to(kind: type, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """What a generic class, and the classes that it inherits from, were given."""
    found: dict[Any, Any] = {}
    for one in reversed(kind.__mro__):
        for base in vars(one).get("__orig_bases__", ()):
            variables = getattr(get_origin(base), "__parameters__", ())
            found.update(zip(variables, get_args(base), strict=False))
    found.update(zip(getattr(kind, "__parameters__", ()), arguments, strict=False))
    # What is not given stands for anything: a variable must not be put in for itself.
    return {variable: _with(one, lambda of: found.get(of, Any)) for variable, one in found.items()}


def _with(hint: Any, given: Callable[[Any], Any]) -> Any:
    """Put what is given in the place of the variables of an annotation, once."""
    if isinstance(hint, TypeVar):
        found = given(hint)
        return Any if getattr(found, "__parameters__", ()) or isinstance(found, TypeVar) else found
    variables: Any = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    generic: Any = hint
    return generic[tuple(_with(one, given) for one in variables)] if variables else hint


_WRAPPERS = frozenset(
    f"{module}.{word}"
    for module in ("typing", "typing_extensions")
    for word in ("Required", "NotRequired", "ReadOnly", "Final", "ClassVar")
)

Member = tuple[tuple[str, ...], Any, bool]
"""The names that a field goes by (none for one that stands for the whole), its annotation, and
whether it is marked."""


def _members(kind: type) -> Iterator[Member]:
    found: Any = getattr(kind, "model_fields", None)
    if isinstance(found, dict):
        root = getattr(kind, "__pydantic_root_model__", False)
        for name, field in found.items():
            aliases = (field.alias, field.serialization_alias, field.validation_alias)
            choices = [getattr(one, "choices", [one]) for one in aliases]
            names = {name, *(one for each in choices for one in each if isinstance(one, str))}
            marked = any(map(is_marker, field.metadata))
            yield ("",) if root else tuple(names), field.annotation, marked
    elif is_dataclass(kind) or issubclass(kind, msgspec.Struct) or _is_typed(kind):
        written = {}
        if issubclass(kind, msgspec.Struct):
            written = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
        for name, hint in _resolved(kind).items():
            listed = issubclass(kind, tuple)  # a named tuple is told as a list
            yield ("",) if listed else (name, written.get(name, name)), hint, False


def _is_typed(kind: type) -> bool:
    return hasattr(kind, "__total__") or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _resolved(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation that is a text may raise anything
        classes = [one for one in reversed(kind.__mro__) if "__annotations__" in vars(one)]
        return {
            name: _alone(one, name, hint)
            for one in classes
            for name, hint in vars(one)["__annotations__"].items()
        }


def _alone(kind: type, name: str, hint: Any) -> Any:
    """Resolve one annotation of a class that holds others which cannot be; by its text if need be.

    A class may name what its own function, or only a type checker, knows.
    """
    holder = type(
        kind.__name__, (), {"__annotations__": {name: hint}, "__module__": kind.__module__}
    )
    try:
        return get_type_hints(holder, include_extras=True)[name]
    except Exception:  # noqa: BLE001 - as above
        told = hint if isinstance(hint, str) else repr(hint)
        return Annotated[Any, Secret] if "Secret" in told else Any


def is_secret_type(kind: Any) -> bool:
    """Whether values of a type hide what they hold, as pydantic's `SecretStr` do."""
    return isinstance(kind, type) and hasattr(kind, "get_secret_value")


def opened(value: Any) -> Any:
    """Give a value with the secret objects in it replaced by what they hide.

    Raises:
        Exception: whatever the value's own code raised.
    """
    kind = type(value)
    if is_secret_type(kind):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {key: opened(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [opened(one) for one in value]
    if isinstance(getattr(kind, "model_fields", None), dict):
        return _opened_model(value)
    if is_dataclass(kind):
        return {one.name: opened(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, msgspec.Struct) and any(map(_hides, msgspec.structs.astuple(value))):
        return {
            told: opened(getattr(value, name))
            for name, told in zip(
                value.__struct_fields__, value.__struct_encode_fields__, strict=True
            )
        }
    return value


def _opened_model(model: Any) -> Any:
    """As pydantic tells the model, but for the fields that it would tell as asterisks."""
    if getattr(type(model), "__pydantic_root_model__", False):
        return opened(model.root)
    told = dumped(model)
    by_alias = model.model_dump(mode="json", warnings=False, by_alias=True)
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if _hides(value):
            alias = field.serialization_alias or field.alias or name
            told[name if name in told or alias not in by_alias else alias] = opened(value)
    return told


def _hides(value: Any) -> bool:
    """Whether there is a secret object in a value."""
    kind = type(value)
    if is_secret_type(kind):
        return True
    if isinstance(value, dict):
        return any(map(_hides, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_hides, value))
    if isinstance(getattr(kind, "model_fields", None), dict):
        return any(_hides(getattr(value, name)) for name in kind.model_fields)
    if is_dataclass(kind):
        return any(_hides(getattr(value, one.name)) for one in fields(value))
    return isinstance(value, msgspec.Struct) and any(map(_hides, msgspec.structs.astuple(value)))
