"""A campaign of real deaths: random programs, killed anywhere, judged from outside the engine.

    programs    what a case is: the calls of its turns, and how its processes die; all from a seed
    casting     the tools; each writes its start and its end to a log that no engine knows of
    dying       a journal store in a process that dies at a chosen moment
    lives       one life: fork, play, die; and a case: life after life, at last to the end
    evidence    what a case leaves behind: the log, the lives, the journal after each of them
    judge       reads the evidence and names every promise that was not kept
    controls    doubles with a fault built in, which the judge must find
    campaign    two cases side by side, until so many deaths have been died

Run `python -m tests.deaths --help` in the root of the checkout.
"""
