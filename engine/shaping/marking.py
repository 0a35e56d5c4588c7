"""Marks that say: between these stands data, whatever it claims to be.

The key in the marks is made from what stands between them, so that nobody who writes the content
can write the closing mark into it.
"""

from hashlib import sha256

from laneway.engine.results import json_text

MARKS_CHARACTERS = 64
"""What the marks take beside the tool's name."""


def marked(text: str, tool: str) -> str:
    """Put a text between marks."""
    key, salt = "", 0
    while not key or key in text:
        key = sha256(f"{salt}/{text}".encode()).hexdigest()[:12]
        salt += 1
    return f"<data key={key} tool={json_text(tool)}>\n{text}\n</data key={key}>"
