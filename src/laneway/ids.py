"""The names things go by: plain strings on the wire and on disk, distinct types in the code."""

import re
from typing import NewType

RunId = NewType("RunId", str)
"""A conversation's work, named by the host: `fix-42`."""

CallId = NewType("CallId", str)
"""Laneway's own name of a call, unique in its run: `t3.2` is the second call of the third turn,
`t3.2/1` the first of those that are part of it."""

ApprovalId = NewType("ApprovalId", str)
"""One question to a human, unique in its run, the same before and after a restart."""


def call_id(turn: int, position: int) -> CallId:
    """Name the call at `position` (from 1) of the `turn` (from 1)."""
    return CallId(f"t{turn}.{position}")


def inner_id(parent: CallId, position: int) -> CallId:
    """Name the call at `position` (from 1) of those that are part of `parent`: `t3.2/1`."""
    return CallId(f"{parent}/{position}")


def is_own(name: str, /) -> bool:
    """Whether a name looks like one that Laneway gives to calls and approvals: `t3.2`, `t3.2.a1`.

    A model must not name its calls so: a human who answers `t3.2.a1` would answer another question.
    """
    return _OWN.fullmatch(name) is not None


_OWN = re.compile(r"t[0-9]+\.[0-9]+(?:/[0-9]+)*(?:\.a[0-9]+)?")
