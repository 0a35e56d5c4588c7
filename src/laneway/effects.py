"""What a tool does to the world: decides what may run beside it, again, or after a crash."""

from enum import StrEnum


class Effect(StrEnum):
    """How far a call reaches, from nothing to beyond recall."""

    PURE = "pure"
    """Same arguments, same result, no effect."""
    READ = "read"
    """No effect; the world may change between two calls."""
    WRITE = "write"
    """Changes the resources that it claims."""
    EXTERNAL = "external"
    """Leaves the system: mail, a payment, a deployment."""

    changes_nothing: bool
    """Whether running it again, or not at all, makes no difference to the world."""


for _effect in Effect:
    _effect.changes_nothing = _effect in (Effect.PURE, Effect.READ)
