"""What is never written down: arguments that the host binds, and fields that are marked secret.

    marks     the marker of a field, and the mark that stands for its value
    shapes    where secrets stand in a value, from annotations, JSON Schemas and paths
    forms     how a text looks once it has been escaped, quoted or encoded
    vault     what is to be found nowhere, and the search for it
    facts     which fields of facts are searched
    losses    what is said where a secret is missing
    declaring where the secrets of a tool stand
    alike     comparing what is kept with what is given again

`engine/sealing.py` puts them to use: the secrets of one run, and its calls without them.

Live calls have the values, in memory. Policies, claims, approvals, the journal and the model have
marks in their place; what a body is entered with has not.
"""
