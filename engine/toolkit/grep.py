"""Searches files for a regular expression. Runs in a process of its own, which can be killed.

Python's `re` holds the interpreter while it matches, and some patterns take for ever: in the
process of the engine one such pattern would stop everything. Needs nothing but the standard
library, so that it starts at once. `search` calls it, and gives its output to the model.

    python grep.py PATTERN ROOT PATH FILES

Exit code 0 with the matches, or 2 with what is wrong with the pattern.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

MOST_MATCHES = 100
MOST_CHARACTERS = 300
"""Of one line that is shown."""
MOST_BYTES = 5_000_000
"""Of one file: larger ones are data."""
PASSED_OVER = frozenset({"__pycache__", "node_modules"})
"""Folders nobody means; those whose name begins with a dot are passed over too."""


def main(argv: Sequence[str]) -> int:
    """Search as the arguments say, and print what was found."""
    pattern, root, path, files = argv
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        sys.stdout.write(f"the pattern is no regular expression: {error}")
        return 2
    for line in found(wanted, Path(root), path, files):
        sys.stdout.write(f"{line}\n")
    return 0


def found(wanted: re.Pattern[str], root: Path, path: str, files: str) -> Iterator[str]:
    """Give the lines that match, and say so where there are none, or too many."""
    shown, searched = 0, 0
    for file in text_files(root / path, files):
        searched += 1
        for line in matches(wanted, file):
            shown += 1
            if shown > MOST_MATCHES:
                yield f"[only the first {MOST_MATCHES} matches; narrow pattern, path or files]"
                return
            yield f"{file.relative_to(root)}:{line}"
    if not shown:
        yield f"no match in {searched} file{'' if searched == 1 else 's'}"


def text_files(top: Path, files: str) -> Iterator[Path]:
    """Find the files to be searched, in order, never through a symbolic link."""
    if top.is_file():
        yield top
        return
    for folder, folders, names in os.walk(top):
        folders[:] = sorted(
            name for name in folders if name not in PASSED_OVER and not name.startswith(".")
        )
        for name in sorted(names):
            file = Path(folder, name)
            if not fnmatch(name, files) and not fnmatch(str(file.relative_to(top)), files):
                continue
            if file.is_symlink() or not file.is_file() or file.stat().st_size > MOST_BYTES:
                continue
            yield file


def matches(wanted: re.Pattern[str], file: Path) -> Iterator[str]:
    """Find the lines that match, each with its number; none in a file that is no text."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return
    for number, line in enumerate(text.splitlines(), 1):
        if wanted.search(line):
            cut = "…" if len(line) > MOST_CHARACTERS else ""
            yield f"{number}: {line[:MOST_CHARACTERS]}{cut}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
