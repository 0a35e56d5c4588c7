"""How calls and engines are brought to an end; `laneway.engine.shutdown` drains with it.

signals    SIGTERM and Ctrl-C, once and again
layers     the limits of one call beside that of an attempt: in queues, in all, without progress
siblings   a call that failed and takes the others of its turn along
"""
