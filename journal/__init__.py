"""The journal: facts, written before what they announce, and the fold that reads them.

A map, in the order in which a fact travels:

- `writer` gathers the facts of all runs into batches: group commit, one task.
- `store` says what a journal must be able to do; `memory` and `sqlite` do it.
- `codec` turns a fact into the JSON of its row, and back; it refuses what JSON would falsify.
- `lease` tells the driver of a run from every other process, and the living from the dead.
- `leases` holds, keeps alive and gives back what one store drives in its file.
- `connection` is the way to the file: one hop to its thread for each thing done.
- `migrate` opens a file: whose it is, which format it has, how it is created.
- `schema.sql` holds every statement that the file is given, `statements` reads it.
- `faults` says what to do about an error of the disk.
- `fold` makes the state of a run out of its facts.
"""
