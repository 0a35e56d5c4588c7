"""Benchmarks: what the engine costs above a bare gather and a raw write of its rows.

The map, in the direction of flow::

    workloads ─▶ references, durable, subject ─▶ checks ─▶ harness ─▶ records ─▶ targets ─▶ command
    (who waits    (one timed repetition           (did all  (in turns,  (medians,  (gate and
     for whom)     of a contender)                 of it     one run)    ratios)    goal)
                                                   happen?)

Run it with ``python -m laneway.benchmarks [--quick] [--json]``.
"""

from laneway.benchmarks.command import main

__all__ = ["main"]
