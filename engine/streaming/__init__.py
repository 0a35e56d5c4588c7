"""Answers of a model that run while they are still being written.

`stream` is what a host holds; `source` takes in whatever it has; `early` starts calls ahead of the
end of their message, and makes them part of the turn, or gives them up; `left` does that for a
turn whose process has died.
"""
