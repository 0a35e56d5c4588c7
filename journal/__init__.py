"""The journal: facts, written before what they announce, and the fold that reads them.

A map, in the order in which a fact travels:

- `writer` gathers the facts of all runs into batches: group commit, one task.
- `store` says what a journal must be able to do; `memory` and `sqlite` do it.
- `codec` turns a fact into the JSON of its row, and back; it refuses what JSON would falsify.
- `chain` links each fact to those before it; `spill` keeps large ones as files.
- `lease` tells the driver of a run from every other process, and the living from the dead.
- `leases` holds, keeps alive and gives back what one store drives in its file.
- `connection` is the way to the file: one hop to its thread for each thing done.
- `heartbeat` gives signs of life, from a thread of its own; `identity` knows one file by two names.
- `migrate` opens a file: whose it is, which format it has, how it is created; `upgrade` brings an
  older one up to date, `file` watches it while it is open.
- `schema.sql` holds every statement that the file is given, `statements` reads it.
- `faults` says what to do about an error of the disk.
- `fold` makes the state of a run out of its facts.

What reads a journal afterwards:

- `reading` looks at the file from outside, damaged or not; `verify` says whether it is whole, and
  `loss` gives up what is not.
- `overview` lists runs; `housekeeping` compacts, removes and copies them, `archives` packs them.
- `replay` steps through a run, `fork` begins another with its facts, `compare` holds two against
  each other (`bare`, `spent`).
- `timeline` puts a run on one axis; `answers` and `accounts` say why (`answered`); `export` writes
  it for other programs.
"""
