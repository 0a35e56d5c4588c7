"""Whether something that is kept with marks in it may be what is given now, with its secrets.

Serves whoever is given the same once more: secrets are not kept, and so cannot be compared.
"""

# Values are JSON, told apart at run time.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false

import json
import re
from typing import Any

from laneway.engine.secrets.facts import is_signed
from laneway.engine.secrets.marks import MARK


def alike(kept: Any, given: Any) -> bool:
    """Compare two plain values; a mark in the kept one stands for any text or value."""
    if kept in (given, MARK):
        return True
    if type(kept) is str:
        return MARK in kept and type(given) is str and _texts_alike(kept, given)
    if type(kept) is dict and type(given) is dict:
        return kept.keys() == given.keys() and all(alike(kept[k], given[k]) for k in kept)
    if type(kept) is list and type(given) is list:
        if len(kept) < len(given):  # A block that was signed and held a secret is not kept.
            kept, given = ([one for one in each if not is_signed(one)] for each in (kept, given))
        return len(kept) == len(given) and all(map(alike, kept, given))
    return False


def _texts_alike(kept: str, given: str) -> bool:
    try:
        return alike(json.loads(kept), json.loads(given))
    except ValueError:
        pattern = ".*".join(map(re.escape, kept.split(MARK)))
        return re.fullmatch(pattern, given, re.DOTALL) is not None
