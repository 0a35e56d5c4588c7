"""For tests of the engine and of its hosts: virtual time, scripted tools, contract suites.

clock             an event loop whose time passes only when nothing else can happen
simulator         schedules with given durations, by the real scheduler
scripted          tools that do what a list of steps says, and remember it
null              a journal store that keeps nothing
journal_contract  what every journal store must do, as tests
dying             a store that takes its process with it at a chosen commit
ears              every span and metric that an engine tells, in memory
watched           a store whose commits a test sees, delays and refuses
"""

from laneway.testing.clock import HungError, VirtualClock, VirtualLoop, run_virtual
from laneway.testing.dying import DyingStore
from laneway.testing.journal_contract import JournalStoreContract
from laneway.testing.null import NullStore
from laneway.testing.scripted import Block, Do, Log, Raise, Return, Sleep, Stage
from laneway.testing.simulator import Job, Schedule, Span, simulate
from laneway.testing.watched import WatchedStore

__all__ = [
    "Block",
    "Do",
    "DyingStore",
    "HungError",
    "Job",
    "JournalStoreContract",
    "Log",
    "NullStore",
    "Raise",
    "Return",
    "Schedule",
    "Sleep",
    "Span",
    "Stage",
    "VirtualClock",
    "VirtualLoop",
    "WatchedStore",
    "run_virtual",
    "simulate",
]
