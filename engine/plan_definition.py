"""What a model sees of the plan tool: a description with an example, and a schema.

Feeds `planning`, which makes the tool. The schema only shows what is meant; what is wrong with a
plan is found when it is read, all of it at once.
"""

from typing import Any

MAX_CALLS = 1_000
"""Of one plan."""

DESCRIPTION = """\
Submit several tool calls at once, with what each of them needs. Calls that do not depend on one \
another run side by side; the others start the moment that what they need is there.

Each call has an id of your choice, a tool and its arguments. Where an argument depends on the \
result of another call, refer to it: "${id}" or "${id.items[0].name}" inside a text, or \
{"$from": "id", "path": "items[0].name"} in place of a whole value, which keeps its type. "$${" \
is a literal "${". A call waits for every call that it refers to. List in needs what must succeed \
first without being referred to, in after what must merely have ended first.

Example:
{"calls": [
  {"id": "found", "tool": "search", "arguments": {"query": "invoices"}},
  {"id": "first", "tool": "read", "arguments": {"path": "${found[0].path}"}},
  {"id": "note", "tool": "write", "arguments": {"path": "n.md", "text": "${first}"}, \
"after": ["found"]}
]}
(The tools in it are only examples: use those that you have.)

The result is {"results": {id: ...}}, with {"value": ...} or {"error": {"code", "message", ...}} \
for each call. A call whose needs did not succeed is not run. A plan cannot hold another plan. """
REFUSED_WHOLE = """\
A plan with a fault (an unknown tool, arguments that do not fit, a dependency on a call that is \
not there or on itself) is refused as a whole, and the faults are named."""
FAULT_BY_FAULT = """\
A call with a fault (an unknown tool, arguments that do not fit, a dependency on a call that is \
not there or on itself) fails; what does not need it runs all the same."""

_IDS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "calls": {
            "type": "array",
            "description": f"The calls, at most {MAX_CALLS:,}, in any order.",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "Your name for the call."},
                    "tool": {"type": "string", "description": "The tool to call."},
                    "arguments": {
                        "type": "object",
                        "description": "Its arguments; may refer to results of other calls.",
                    },
                    "needs": {**_IDS, "description": "Ids of calls that must succeed first."},
                    "after": {**_IDS, "description": "Ids of calls that must have ended first."},
                },
                "required": ["id", "tool", "arguments"],
            },
        }
    },
    "required": ["calls"],
}
