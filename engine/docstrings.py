"""Reads the docstring of a tool's function: what the model is told about it and its parameters."""

import inspect
import re

_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_ARGUMENTS = frozenset({"args:", "arguments:", "parameters:"})


def summary(docstring: str) -> str:
    """Give the first paragraph as one line."""
    return " ".join(inspect.cleandoc(docstring).split("\n\n", 1)[0].split())


def parameters(docstring: str) -> dict[str, str]:
    """Give the description of each parameter in a Google-style `Args:` section, each as one line.

    Source: Google Python Style Guide, section 3.8.3.
    """
    found: dict[str, list[str]] = {}
    section = entry = None
    for line in inspect.cleandoc(docstring).splitlines():
        indent = len(line) - len(line.lstrip())
        if section is None:
            section = indent if line.strip().lower() in _ARGUMENTS else None
        elif line.strip() and indent <= section:
            break
        elif line.strip():
            entry = indent if entry is None else entry
            match = _ENTRY.fullmatch(line.strip()) if indent <= entry else None
            if match:
                found[match[1]] = [match[2]]
            elif found:
                found[next(reversed(found))].append(line.strip())
    return {name: " ".join(lines).strip() for name, lines in found.items()}
