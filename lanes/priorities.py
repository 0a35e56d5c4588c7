"""What a priority is: so many steps, each worth a time of waiting.

Said of tools and runs; read by the lane table.
"""

from typing_extensions import TypeIs

AGEING_SECONDS = 30.0
"""How much earlier a request comes for each step of priority."""
PRIORITIES = range(-1000, 1001)
PRIORITY_HINT = f"give a whole number from {PRIORITIES[0]} to {PRIORITIES[-1]}"


def is_priority(priority: object) -> TypeIs[int]:
    """Whether this is a priority that the table takes."""
    return type(priority) is int and priority in PRIORITIES


def bounded(priority: int) -> int:
    """The nearest priority that the table takes."""
    return max(PRIORITIES[0], min(priority, PRIORITIES[-1]))
