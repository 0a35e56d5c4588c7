"""Where the secrets of one tool stand: by its annotations, its schema, and what was declared.

Reads what Python and the host say of a tool; feeds the tool, once, when it is made.
"""

# Values are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

from typing import TYPE_CHECKING, Any

from laneway.engine.secrets.hints import of_hint
from laneway.engine.secrets.shapes import EVERY, Shape, merged, of_path, of_schema
from laneway.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Collection

    from laneway.engine.callables import Callee

RESULT = "return"
"""The first step of a path into the result, as in `__annotations__`: no parameter can be called so.
"""


def secret_places(
    tool: str,
    callee: "Callee",
    schema: dict[str, Any],
    bound: "Collection[str]",
    paths: "Collection[str]",
) -> tuple[Shape | None, Shape | None]:
    """Find the secrets in a tool's arguments and in its result; defaults of secrets are left out.

    Args:
        tool: its name.
        callee: its function.
        schema: of its arguments; loses the defaults of what is secret, which no model is to see.
        bound: parameters that the host sets.
        paths: as declared with `secret=`.

    Raises:
        ToolError: a path that cannot be read, or begins with what is no parameter.
    """
    if isinstance(paths, str):
        raise ToolError(tool, f"secret={paths!r} is a text; give a tuple of paths")
    hinted = Shape()
    for name in callee.parameters:
        if name not in bound and (found := of_hint(callee.hints.get(name))) is not None:
            hinted.at(name).add(found)
    split = [_steps(tool, path) for path in paths]
    known = {*schema.get("properties", ()), *callee.parameters} - {*bound}
    for steps in split:
        if steps[0] not in known | {RESULT, EVERY} and not callee.takes_any:
            names = ", ".join(sorted(known)) or "none"
            raise ToolError(
                tool,
                f"secret= names {steps[0]!r}, no parameter of it (it has: {names}); what a result "
                f"holds begins with {RESULT!r}",
            )
    inside = [of_path(steps) for steps in split if steps[0] != RESULT]
    arguments = merged(of_schema(schema), hinted, *inside)
    returned = [of_path(steps[1:]) for steps in split if steps[0] == RESULT]
    for name, one in schema.get("properties", {}).items():
        if arguments is not None and isinstance(one, dict) and arguments.below(name) is not None:
            one.pop("default", None)
    return arguments, merged(of_hint(callee.hints.get(RESULT)), *returned)


def _steps(tool: str, path: str) -> list[str]:
    steps = path.replace("[]", "").split(".")
    if not all(steps):
        raise ToolError(tool, f"secret= names {path!r}, no path; write field.field")
    return steps
