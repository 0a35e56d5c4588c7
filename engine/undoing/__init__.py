"""What the calls of a run have done is undone, once it is given up.

compensation   the function of a tool that undoes one of its calls
abandoning     all of them, in reverse order, each once
"""
