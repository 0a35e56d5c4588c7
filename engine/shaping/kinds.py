"""The shapers, one for each type of tool: from a value that is too long to what is told of it.

Each reads what tools of its type usually return (a text, or an object with the usual fields) and
gives at most so many characters; what it does not recognise it takes for a text.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from laneway.engine.kinds import is_list, is_object
from laneway.engine.results import json_text
from laneway.engine.shaping.excerpts import beginning, ending, excerpt
from laneway.engine.shaping.shares import shares

_LINE = 240
"""Characters of one line that is picked out."""
_FAULT = re.compile(
    r"\b(error|errors|fail|failed|failure|fatal|panic|exception|traceback|warning|denied|"
    r"not found|no such|cannot|undefined)\b",
    re.IGNORECASE,
)
_OUTLINE = re.compile(
    r"\s*(def |async def |class |func |function |fn |pub |impl |interface |struct |enum |type |"
    r"module |namespace |export |#{1,4} |\[[\w.-]+\]\s*$)"
)
_FAILING = re.compile(
    r"^\s*(FAILED|FAIL:|FAIL\b|ERROR\b|--- FAIL:|not ok\b|✗|✕|×|●)|\.\.\. FAILED$|\bFAILED\b\s*\["
)
_TOTAL = re.compile(r"\b\d+ (passed|failed|passing|failing|errors?|tests?)\b")
_STACK = re.compile(r"^(Traceback|_{3,} |E  |\s+File \"|\s+at \S|panicked at|AssertionError)|^>\s")
_NODE = re.compile(r"(?:FAILED|ERROR) (\S+::\S+)")
_GO = re.compile(r"--- FAIL: (\w+)")


def of_text(value: Any, room: int, items: int | None) -> str:  # noqa: ARG001 - as all of them
    """Beginning and end."""
    return excerpt(text_of(value), room)


def of_file(value: Any, room: int, items: int | None) -> str:  # noqa: ARG001 - as all of them
    """The first and last lines with their numbers, and an outline of what is between."""
    text = _field(value, ("content", "text"), value)
    lines = text_of(text).split("\n")
    if len(lines) <= 1:
        return excerpt(lines[0], room)
    first = _fitting(lines, room // 2 - 40)
    last = _fitting(lines[len(first) :][::-1], room // 5)[::-1]
    end = len(lines) - len(last)
    between = [
        f"{number}: {line[:_LINE].rstrip()}"
        for number, line in enumerate(lines[len(first) : end], len(first) + 1)
        if _OUTLINE.match(line)
    ]
    told = f"[{len(lines)} lines; here 1-{len(first)}, and {end + 1}-{len(lines)} at the end]"
    middle = [f"[lines {len(first) + 1}-{end} left out]"]
    used = len(told) + len(middle[0]) + sum(len(line) + 1 for line in [*first, *last]) + 40
    outline = _fitting(between, room - used)
    if outline:
        middle += ["[in them:]", *outline]
    return excerpt("\n".join([told, *first, *middle, *last]), room)


def of_search(value: Any, room: int, items: int | None) -> str:
    """The first hits, each in a line with its path and line number."""
    hits = hits_of(value)
    lines = [beginning(_hit(hit), _LINE) for hit in hits[:items]]
    shown = _fitting(lines, room - 60)
    total = max(len(hits), _count(value))
    return beginning("\n".join([f"[{len(shown)} of {total} hits]", *shown]), room)


def of_shell(value: Any, room: int, items: int | None) -> str:  # noqa: ARG001 - as all of them
    """How it ended, what it said of faults, lines that tell something, and the end."""
    how, stdout, stderr = _ran(value)
    lines = stdout.split("\n")
    left = room - len(how) - 80
    faults = excerpt(stderr.strip("\n"), left * 2 // 5)
    left -= len(faults)
    key = [f"{n}: {line[:_LINE]}" for n, line in enumerate(lines, 1) if _FAULT.search(line)]
    picked = _fitting(key, left // 2)
    left -= sum(len(line) + 1 for line in picked)
    told = [how] if how else []
    if faults:
        told += ["[stderr]", faults]
    if picked:
        told += [f"[{len(picked)} of {len(key)} lines that tell of faults]", *picked]
    if stdout.strip():
        told += ["[the end]", ending(stdout.rstrip("\n"), left)]
    return beginning("\n".join(told), room)


def of_tests(value: Any, room: int, items: int | None) -> str:  # noqa: ARG001 - as all of them
    """What failed, the stack of it, how to run it again, and the count."""
    how, stdout, stderr = _ran(value)
    lines = [*stdout.split("\n"), *stderr.split("\n")]
    failing = list(dict.fromkeys(line.strip()[:_LINE] for line in lines if _FAILING.search(line)))
    totals = [line.strip()[:_LINE] for line in lines if _TOTAL.search(line)][-2:]
    again = _again(value, failing)
    told = [*([how] if how else []), *totals]
    left = room - sum(len(line) + 1 for line in told) - len(again) - 80
    listed = _fitting(failing, left // 3)
    if listed:
        told += [f"[{len(listed)} of {len(failing)} that failed]", *listed]
    left -= sum(len(line) + 1 for line in listed)
    stack = _stack(lines)
    if stack:
        told += ["[stack]", excerpt(stack, left)]
    elif not listed:
        told += [ending("\n".join(lines).strip(), left)]
    if again:
        told += [f"[to repeat] {again}"]
    return excerpt("\n".join(told), room)


def of_browser(value: Any, room: int, items: int | None) -> str:  # noqa: ARG001 - as all of them
    """Title and address, the text, and where the screenshot is."""
    if not is_object(value):
        return excerpt(text_of(value), room)
    told = [f"{name}: {str(value[name])[:_LINE]}" for name in ("title", "url") if value.get(name)]
    picture = value.get("screenshot")
    if isinstance(picture, str) and picture:
        short = picture if len(picture) <= _LINE else f"({len(picture):,} characters)"
        told.append(f"screenshot: {short}")
    left = room - sum(len(line) + 1 for line in told)
    text = _field(value, ("text", "content", "markdown", "snapshot"), "")
    return beginning("\n".join([*told, excerpt(text_of(text), max(left, 0))]), room)


def of_database(value: Any, room: int, items: int | None) -> str:
    """JSON of the first rows, with their count."""
    rows = rows_of(value)
    if rows is None:
        return excerpt(text_of(value), room)
    most = len(rows) if items is None else items
    around: dict[str, Any] = {}
    if is_object(value) and len(json_text(value.get("columns"))) < room // 4:
        around = {"columns": value["columns"]} if "columns" in value else {}
    empty = json_text({**around, "rows": [], "shown": len(rows), "total": len(rows)})
    left = room - len(empty)
    shown: list[Any] = []
    for row in rows[:most]:
        left -= len(json_text(row)) + 1
        if left < 0:
            break
        shown.append(row)
    told = {**around, "rows": shown, "shown": len(shown), "total": len(rows)}
    return beginning(json_text(told), room)


def of_agent(value: Any, room: int, items: int | None) -> str:  # noqa: ARG001 - as all of them
    """What it came to, why, what is left, and what it made; each has its share of the room."""
    if not is_object(value):
        return excerpt(text_of(value), room)
    known = [name for name in _OF_AGENT if value.get(name) not in (None, "", [], {})]
    others = [name for name in value if name not in _OF_AGENT]
    more = f"[also: {', '.join(others)}]"[: room // 4] if others else ""
    texts = [text_of(value[name]) for name in known]
    left = room - sum(len(name) + 3 for name in known) - len(more) - 1
    parts = shares([len(text) for text in texts], max(left, 0), 0)
    told = [
        f"{name}: {excerpt(text, part)}"
        for name, text, part in zip(known, texts, parts, strict=True)
    ]
    return beginning("\n".join([*told, *([more] if more else [])]), room)


_OF_AGENT = (
    *("success", "conclusion", "summary", "error", "results", "evidence", "unfinished"),
    *("artifacts", "warnings"),
)

Shaper = Callable[[Any, int, int | None], str]
SHAPERS: Mapping[str, Shaper] = {
    "text": of_text,
    "file": of_file,
    "search": of_search,
    "shell": of_shell,
    "tests": of_tests,
    "browser": of_browser,
    "database": of_database,
    "agent": of_agent,
}


def count_of(kind: str, value: Any) -> int:
    """How many hits or rows a value has; 0 for a kind of which nothing is counted."""
    if kind == "search":
        return len(hits_of(value))
    if kind == "database":
        return len(rows_of(value) or ())
    return 0


def hits_of(value: Any) -> Sequence[Any]:
    """The hits of a search, in order."""
    for name in ("hits", "matches", "results", "items"):
        if is_object(value) and is_list(value.get(name)):
            return list(value[name])
    if is_list(value):
        return list(value)
    return [line for line in text_of(value).split("\n") if line.strip()]


def rows_of(value: Any) -> list[Any] | None:
    """The rows of a query; None if it has none."""
    rows = value.get("rows") if is_object(value) else value
    return list(rows) if is_list(rows) else None


def text_of(value: Any) -> str:
    """A value as the model would be shown it."""
    return value if isinstance(value, str) else json_text(value)


def _field(value: Any, names: Sequence[str], default: Any) -> Any:
    if is_object(value):
        return next((value[name] for name in names if name in value), default)
    return default


def _fitting(lines: Sequence[str], room: int) -> list[str]:
    """The first lines that have room together."""
    found: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        found.append(line)
    return found


def _hit(hit: Any) -> str:
    if not is_object(hit):
        return text_of(hit)
    path = _field(hit, ("path", "file", "uri", "url"), "")
    line = _field(hit, ("line", "line_number", "lineno"), "")
    text = _field(hit, ("text", "snippet", "content", "match", "title"), "")
    if not path:
        return json_text(hit)
    place = f"{path}:{line}" if line != "" else str(path)
    return f"{place}: {' '.join(text_of(text).split())}"


def _count(value: Any) -> int:
    total = _field(value, ("total", "count"), 0)
    return total if type(total) is int else 0


def _ran(value: Any) -> tuple[str, str, str]:
    """How a command ended, its output, and what it said of faults."""
    if not is_object(value):
        text = text_of(value)
        first, _, rest = text.partition("\n")
        if re.match(r"(exit code|killed by)\b", first):
            return first[:_LINE], rest, ""
        return "", text, ""
    code = _field(value, ("exit_code", "returncode", "exitCode", "code", "status"), None)
    stdout = text_of(_field(value, ("stdout", "output", "text"), ""))
    stderr = text_of(_field(value, ("stderr", "error"), "") or "")
    return "" if code is None else f"exit code {code}"[:_LINE], stdout, stderr


def _stack(lines: Sequence[str]) -> str:
    """From the first line that looks like a stack to the last."""
    places = [at for at, line in enumerate(lines) if _STACK.search(line)]
    return "\n".join(lines[places[0] : places[-1] + 2]).strip("\n") if places else ""


def _again(value: Any, failing: Sequence[str]) -> str:
    said = _field(value, ("reproduce", "command"), "")
    if isinstance(said, str) and said:
        return said[:_LINE]
    for line in failing:
        if node := _NODE.search(line):
            return f"pytest {node[1]}"[:_LINE]
        if name := _GO.search(line):
            return f"go test -run '^{name[1]}$'"[:_LINE]
    return ""
