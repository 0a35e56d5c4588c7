"""Many tools: which of them the model is shown, how it finds the others, and which it never uses.

    tools ─ options (all of them, or by search?) ─▶ catalogue ─▶ definitions of a request
                     index (BM25) ◀─ search_tools ◀─ the model asks
    journals ─▶ unused        tools ─▶ cost (tokens)        tools, policy ─▶ prompt

What is shown is a hint: a call of any tool is taken, judged and run, shown or not.
"""
