"""How an engine ends: drained within a given time, by the host or by a signal.

shutdown   drains: refuse what is new, let go on what runs, park what waits, save
signals    SIGTERM and Ctrl-C, once and again
layers     the limits of one call beside that of an attempt: in queues, in all, without progress
siblings   a call that failed and takes the others of its turn along
"""
