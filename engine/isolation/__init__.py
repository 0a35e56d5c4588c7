"""Where a body runs, besides in the event loop and in threads: in a process, and seen from outside.

declaring   what a tool says of it
parent      the engine's end of a process: gate, result, progress, an end to its group
child       the process's end: limits, the body, and what came of it
frames      what the two say to each other
carried     context variables on their way into a process
watchdog    who keeps the event loop from turning
"""
