"""What a call takes of a resource, and how resources are written."""

from enum import StrEnum

import msgspec


class Access(StrEnum):
    """Any number of shared holders, or one exclusive."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


class Claim(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """One resource, canonical, and the access a call wants to it.

    A resource is `scheme:path`, its path split by `/` into levels: a claim on `file:/w` covers
    `file:/w/a.py`. A `lane:` claim is always exclusive and takes one slot of the lane.
    """

    resource: str
    access: Access

    def __str__(self) -> str:
        return f"{self.access} {self.resource}"


def shared(resource: str, /) -> Claim:
    """Claim a canonical resource beside other shared holders."""
    return Claim(resource, Access.SHARED)


def exclusive(resource: str, /) -> Claim:
    """Claim a canonical resource, and everything below it, alone."""
    return Claim(resource, Access.EXCLUSIVE)
