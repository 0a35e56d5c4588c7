"""Globs in claims: the folder that covers all they may fit.

What a glob fits is the tool's affair; claimed is the longest folder before its first wildcard.
Reads globs of a tool's author and of models; feeds the templates of claims.
"""

import re

DECLARED = re.compile(r"\[([*?[])\]|[*?[]")
GIVEN = re.compile(r"\[([*?[])\]|[*?\[{(!\\]")
"""What some dialect of globs takes for more than a letter; `[*]` is a letter, as `glob.escape` has
it."""
_MAY_BE_ABSOLUTE = ("{", "(", "!", "\\")
_JOINING = str.maketrans("", "", "*?[]{}()!\\,|+@")


def parted(text: str, wild: re.Pattern[str]) -> tuple[str, str]:
    """Part a glob before its first wildcard; what comes first is read as the letters it means."""
    known, end = "", 0
    for found in wild.finditer(text):
        known += text[end : found.start()]
        if not found[1]:
            return known, text[found.start() :]
        known += found[1]
        end = found.end()
    return known + text[end:], ""


def leaves(known: str, glob: str) -> bool:
    """Whether a glob may fit what is not below the folder before it.

    Wildcards fit neither `.` nor `..`; what stands in braces may, once it is joined.
    """
    last = known.rpartition("/")[2]
    if ".." in f"{last}{glob}".translate(_JOINING):
        return True
    return known == "file:" and glob.startswith(_MAY_BE_ABSOLUTE) and "/" in glob
