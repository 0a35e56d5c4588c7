-- Every statement that a journal file is given. Each has a name, and a word on why it is as it is.
-- The file is plain SQLite in WAL mode and can be read by hand:
--
--     sqlite3 -readonly runs.db "SELECT seq, kind, call, body FROM journal WHERE run = 'fix-42'"
--
-- application_id is 1281453669, the letters "Lane"; user_version is the format, 3.

-- name: create_runs
-- A run, and the lease of its driver. `id` orders runs over the whole file and is never used
-- again (AUTOINCREMENT), so that a driver of a deleted run can't write into a newer one.
-- `token` is the fencing token: it grows with each take, and an append must show it.
-- `driver` is JSON, or NULL once the run was left. `beat` is the driver's last sign of life, in
-- Unix seconds; `pulse` the same in seconds since its host was booted, which no clock set anew can
-- move, or 0 where that is not known.
CREATE TABLE runs (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    name   TEXT NOT NULL UNIQUE,
    token  INTEGER NOT NULL,
    driver TEXT,
    beat   REAL NOT NULL,
    pulse  REAL NOT NULL DEFAULT 0
)

-- name: create_facts
-- A fact. `place` is run * 2^32 + seq: one integer that is unique, ordered by run and then by
-- sequence number, and the key of the only b-tree, so that an append is one write at the end of
-- its run's range. (PRIMARY KEY (run, seq) WITHOUT ROWID costs the same for small bodies and
-- twice as much for 3 KB; a rowid with a UNIQUE index is a second tree.) `wall` is Unix seconds,
-- `mono` the monotonic seconds of the driver, `hash` the link of the run's chain (see chain.py),
-- `body` the JSON of the fact. What stands in these is not stored again; generated columns would
-- be computed with each append, so there are none.
CREATE TABLE facts (
    place INTEGER PRIMARY KEY,
    wall  REAL NOT NULL,
    mono  REAL NOT NULL,
    hash  BLOB NOT NULL,
    body  TEXT NOT NULL
)

-- name: create_archives
-- All facts of a run that was compacted, compressed, in place of their rows; see archives.py.
-- `opened` and `touched` are the Unix seconds of the first and the last, `hash` is the last link.
CREATE TABLE archives (
    run     INTEGER PRIMARY KEY,
    facts   INTEGER NOT NULL,
    opened  REAL NOT NULL,
    touched REAL NOT NULL,
    hash    BLOB NOT NULL,
    body    BLOB NOT NULL
)

-- name: create_lost
-- Damaged facts that a human gave up, as they were found; nothing in the code reads them.
CREATE TABLE lost (
    run      TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    given_up REAL NOT NULL,
    wall     REAL,
    mono     REAL,
    hash     BLOB,
    body     TEXT
)

-- name: create_inbox
-- What is said to a run by somebody who does not drive it, and so may write no facts of it. `id` is
-- never used again: the fact of an answer that was taken up names it, so that whoever dies between
-- the fact and the removal of the line leaves one answer, not two. `run` is the number of the run,
-- not its name, which a later run may have. `sent` is Unix seconds, `body` JSON (see inbox.py),
-- `refused` why it does not count, NULL while nobody has looked at it.
CREATE TABLE inbox (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    run     INTEGER NOT NULL,
    sent    REAL NOT NULL,
    body    TEXT NOT NULL,
    refused TEXT
)

-- name: create_journal
-- The facts for people. Nothing in the code reads it.
CREATE VIEW journal (run, seq, kind, call, wall, mono, body) AS
SELECT runs.name, facts.place & 4294967295,
    coalesce(json_extract(facts.body, '$.was'), json_extract(facts.body, '$.fact')),
    json_extract(facts.body, '$.call'), facts.wall, facts.mono, facts.body
FROM runs
JOIN facts ON facts.place BETWEEN runs.id << 32 AND runs.id << 32 | 4294967295

-- name: append
-- A batch of facts, in one statement, so that outside a transaction it is one commit. {rows} is
-- `(?, ?, ?, ?, ?, ?, ?)`, repeated: run, token, seq, wall, mono, hash, body as bytes. A row whose
-- token is no longer that of its run is left out, as are the rows of NULLs that pad the batch to a
-- shape that is already prepared: the number of changes tells. CROSS JOIN keeps SQLite from first
-- copying the values into a table of its own, half a microsecond a row.
INSERT INTO facts (place, wall, mono, hash, body)
SELECT new.column1 << 32 | new.column3, new.column4, new.column5, new.column6,
    CAST(new.column7 AS TEXT)
FROM (VALUES {rows}) AS new
CROSS JOIN runs
WHERE runs.id = new.column1 AND runs.token = new.column2

-- name: append_of_one
-- The same where all facts are of one run: whether it is still driven is asked once, and all of the
-- batch is kept or nothing. {rows} is `(?, ?, ?, ?, ?)`, repeated: place, wall, mono, hash, body as
-- bytes; then follow run and token. Three quarters of the price of `append`.
INSERT INTO facts (place, wall, mono, hash, body)
SELECT new.column1, new.column2, new.column3, new.column4, CAST(new.column5 AS TEXT)
FROM (VALUES {rows}) AS new
WHERE new.column1 IS NOT NULL AND EXISTS (SELECT 1 FROM runs WHERE id = ? AND token = ?)

-- name: owner
-- Who drives a run. The answer may be old by the time it is read; `take` is not fooled by that.
SELECT token, driver, beat, pulse FROM runs WHERE name = :run

-- name: take
-- Become the driver, if the run is still as `owner` found it, its last sign of life included:
-- compare and swap, so that of two that saw the same dead owner one gets no row back and looks
-- again, and an owner that was silent for long and has just woken up keeps the run.
INSERT INTO runs (name, token, driver, beat, pulse)
VALUES (:run, 1, :driver, :now, :pulse)
ON CONFLICT (name) DO UPDATE
SET token = token + 1, driver = excluded.driver, beat = excluded.beat, pulse = excluded.pulse
WHERE token = :seen_token AND driver IS :seen_driver AND beat IS :seen_beat
RETURNING id, token

-- name: beat
-- A sign of life of a driver, if it still is the driver: the number of changes tells.
UPDATE runs SET beat = ?, pulse = ? WHERE id = ? AND token = ?

-- name: leave
-- Stop being the driver, if one still is.
UPDATE runs SET driver = NULL WHERE id = ? AND token = ?

-- name: read
-- All facts of a run. The body comes as bytes: the decoder wants no text.
SELECT place & 4294967295, wall, mono, hash, CAST(body AS BLOB)
FROM facts
WHERE place BETWEEN (SELECT id << 32 FROM runs WHERE name = :run)
                AND (SELECT id << 32 | 4294967295 FROM runs WHERE name = :run)
ORDER BY place

-- name: archive
-- All facts of a run that was compacted, in one piece.
SELECT body, hash FROM archives WHERE run = (SELECT id FROM runs WHERE name = :run)

-- name: unpack
-- Put a fact of an archive back in its place. Whoever died before the archive was removed finds
-- both, which say the same.
INSERT OR IGNORE INTO facts (place, wall, mono, hash, body)
VALUES ((SELECT id FROM runs WHERE name = ?) << 32 | ?, ?, ?, ?, CAST(? AS TEXT))

-- name: unpacked
-- Remove an archive whose facts are back in their places.
DELETE FROM archives WHERE run = (SELECT id FROM runs WHERE name = :run)

-- name: send
-- Put an answer into the inbox of a run; without such a run nothing is put anywhere.
INSERT INTO inbox (run, sent, body) SELECT id, :now, :body FROM runs WHERE name = :run
RETURNING id

-- name: letters
-- The inbox of a run, or of all runs.
SELECT inbox.id, runs.name, inbox.sent, CAST(inbox.body AS BLOB), inbox.refused
FROM inbox JOIN runs ON runs.id = inbox.run
WHERE :run IS NULL OR runs.name = :run
ORDER BY inbox.id

-- name: addressed
-- The runs that have something in their inbox that nobody has looked at: the heartbeat asks for it
-- each second.
SELECT DISTINCT run FROM inbox WHERE refused IS NULL

-- name: taken
-- An answer is a fact now.
DELETE FROM inbox WHERE id = :id AND refused IS NULL

-- name: refuse
-- An answer does not count. Whoever sent it is told why; what it would have run with is forgotten.
UPDATE inbox SET refused = :refused, body = json_remove(body, '$.arguments')
WHERE id = :id AND refused IS NULL

-- name: runs
-- The runs that have facts, with the number of facts and the wall time of the first and the last.
-- Three look-ups for each run, however many facts it has.
SELECT runs.name, coalesce(latest.place & 4294967295, archives.facts),
    coalesce(earliest.wall, archives.opened), coalesce(latest.wall, archives.touched)
FROM runs
LEFT JOIN facts AS earliest ON earliest.place = (
    SELECT min(place) FROM facts
    WHERE place BETWEEN runs.id << 32 AND runs.id << 32 | 4294967295)
LEFT JOIN facts AS latest ON latest.place = (
    SELECT max(place) FROM facts
    WHERE place BETWEEN runs.id << 32 AND runs.id << 32 | 4294967295)
LEFT JOIN archives ON archives.run = runs.id
WHERE latest.place IS NOT NULL OR archives.run IS NOT NULL
ORDER BY runs.id DESC
