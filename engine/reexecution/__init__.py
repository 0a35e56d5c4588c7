"""Re-execution: the real scheduler on recorded turns, with recorded results, no tool touched.

Answers "would this policy have stopped it?". Driven by the recorded order of facts, not by time:
what came from outside is given again in that order, and what the engine makes of it is held against
what it made of it then.
"""

from laneway.engine.reexecution.rerun import reexecute
from laneway.engine.reexecution.verdict import Divergence, Reexecution

__all__ = ["Divergence", "Reexecution", "reexecute"]
