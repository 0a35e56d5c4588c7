"""How much of a result the model is shown, and in which shape; the whole stays in the journal.

    outcomes of a turn ─ shapes (by type of tool) ─ shares (fair, within a budget) ─▶ what is shown
                          read_result ◀─ the model asks for what was left out

Nothing here changes what is recorded, and what other calls refer to is always the full value. The
same facts, tools and `Shaping` give the same text, so that a provider's cache holds.
"""
