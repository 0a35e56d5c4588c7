"""Max-min fairness: nobody gets more while somebody who wants more has less.

Source: Bertsekas and Gallager, "Data Networks", 2nd ed., section 6.5.2.
"""

from collections.abc import Sequence


def shares(wanted: Sequence[int], room: float, least: int) -> list[int]:
    """Divide some room.

    Args:
        wanted: by each, 0 or more.
        room: for all of them; may be infinite.
        least: what each gets in any case, if it wants as much.

    Returns:
        In the order given: what each wants, or the level that all get who want more.
    """
    if sum(wanted) <= room:
        return list(wanted)
    left = int(room)
    level = 0
    waiting = sorted(wanted)
    for at, want in enumerate(waiting):
        level = left // (len(waiting) - at)
        if want > level:
            break
        left -= want
    level = max(level, least)
    return [min(want, level) for want in wanted]
