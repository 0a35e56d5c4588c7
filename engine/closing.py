"""Forbids unknown fields in a JSON Schema, for tools that are strict.

Reads the schema of a tool; gives the one that its check and the model see.
"""

# Schemas are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from typing import Any


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Forbid unknown fields in every object of a schema that lists its fields and no more.

    An object whose fields come from several schemas together (allOf, $ref …) is left as it is: each
    of them knows only a part.
    """
    rebuilt: dict[str, Any] = {}
    for word, value in schema.items():
        if word in {"properties", "$defs", "definitions"} and isinstance(value, dict):
            rebuilt[word] = {name: _closed_item(one) for name, one in value.items()}
        elif word in {"items", "prefixItems", "anyOf", "oneOf", "additionalProperties"}:
            rebuilt[word] = (
                [_closed_item(one) for one in value]
                if isinstance(value, list)
                else _closed_item(value)
            )
        else:
            rebuilt[word] = value
    if "properties" in schema and _OPEN.isdisjoint(schema):
        rebuilt["additionalProperties"] = False
    return rebuilt


_OPEN = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties"}
    | {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
)


def _closed_item(schema: Any) -> Any:
    return closed(schema) if isinstance(schema, dict) else schema
