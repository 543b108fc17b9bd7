-- +goose Up
-- Two processes can draw one id for two jobs, which are in different blocks then: in one
-- block the key of {prefix}job keeps the second out. So the block is part of these keys, too.
-- SQLite changes no key, so the tables are made anew: not by RENAME, which the views forbid.
CREATE TABLE {prefix}job_dead_old AS SELECT * FROM {prefix}job_dead;
DROP TABLE {prefix}job_dead;
CREATE TABLE {prefix}job_dead ( -- Jobs that were given up
    queue_id        INTEGER NOT NULL, -- The queue
    id              INTEGER NOT NULL, -- As in {prefix}job
    divided         INTEGER NOT NULL, -- Its block
    priority        INTEGER NOT NULL DEFAULT 2, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt         INTEGER NOT NULL DEFAULT 0, -- How many attempts there were
    crashes         INTEGER NOT NULL DEFAULT 0, -- How many workers died with it
    error           TEXT NOT NULL DEFAULT '', -- Why
    detail          TEXT NOT NULL DEFAULT '', -- The stack of a panic, or what the worker said
    snapshot        BLOB, -- What its handler has stored for the next attempt
    percent         INTEGER, -- How much of it is done, as its handler says: 1 to 100
    message         TEXT, -- How far it is, in its handler's words
    died_at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was given up
    purge_at        TEXT, -- When it is removed; NULL: never
    kind            TEXT NOT NULL, -- What the job is, which picks the handler
    job_key         TEXT, -- Jobs of one key are done one after the other, in order
    payload         TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin     BLOB, -- The same in another codec
    max_attempts    INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout         INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace           TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key      TEXT, -- What no other job of the queue may have meanwhile: see {prefix}job_unique
    group_id        INTEGER, -- The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is
    endpoint        TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
    CONSTRAINT {name}job_dead_key PRIMARY KEY (queue_id, id, divided)
) WITHOUT ROWID;
CREATE INDEX {name}job_dead_purge ON {prefix}job_dead (purge_at);
INSERT INTO {prefix}job_dead SELECT * FROM {prefix}job_dead_old;
DROP TABLE {prefix}job_dead_old;

CREATE TABLE {prefix}job_done_old AS SELECT * FROM {prefix}job_done;
DROP TABLE {prefix}job_done;
CREATE TABLE {prefix}job_done ( -- Jobs that are done, of queues that keep them
    queue_id        INTEGER NOT NULL, -- The queue
    id              INTEGER NOT NULL, -- As in {prefix}job
    divided         INTEGER NOT NULL, -- The block that it was in
    priority        INTEGER NOT NULL, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt         INTEGER NOT NULL, -- How many attempts there were
    crashes         INTEGER NOT NULL, -- How many workers died with it
    outcome         TEXT NOT NULL, -- done, or discarded (its handler said that it need not be done)
    error           TEXT NOT NULL, -- Why it was discarded
    snapshot        BLOB, -- What its handler has stored last
    percent         INTEGER, -- How much of it was done then, as its handler said: 1 to 100
    message         TEXT, -- How far it was then, in its handler's words
    worker          TEXT NOT NULL, -- The worker that has done it
    started_at      TEXT NOT NULL, -- When the last attempt began
    ended_at        TEXT NOT NULL, -- When its end was written
    purge_at        TEXT NOT NULL, -- When it is removed
    kind            TEXT NOT NULL, -- What the job is, which picks the handler
    job_key         TEXT, -- Jobs of one key are done one after the other, in order
    payload         TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin     BLOB, -- The same in another codec
    max_attempts    INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout         INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace           TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key      TEXT, -- What no other job of the queue may have meanwhile: see {prefix}job_unique
    group_id        INTEGER, -- The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is
    endpoint        TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
    CONSTRAINT {name}job_done_key PRIMARY KEY (queue_id, id, divided)
) WITHOUT ROWID;
CREATE INDEX {name}job_done_purge ON {prefix}job_done (purge_at);
INSERT INTO {prefix}job_done SELECT * FROM {prefix}job_done_old;
DROP TABLE {prefix}job_done_old;

-- +goose Down
-- Of two jobs with one id one has to be deleted before.
CREATE TABLE {prefix}job_done_old AS SELECT * FROM {prefix}job_done;
DROP TABLE {prefix}job_done;
CREATE TABLE {prefix}job_done ( -- Jobs that are done, of queues that keep them
    queue_id        INTEGER NOT NULL, -- The queue
    id              INTEGER NOT NULL, -- As in {prefix}job
    divided         INTEGER NOT NULL, -- The block that it was in
    priority        INTEGER NOT NULL, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt         INTEGER NOT NULL, -- How many attempts there were
    crashes         INTEGER NOT NULL, -- How many workers died with it
    outcome         TEXT NOT NULL, -- done, or discarded (its handler said that it need not be done)
    error           TEXT NOT NULL, -- Why it was discarded
    snapshot        BLOB, -- What its handler has stored last
    percent         INTEGER, -- How much of it was done then, as its handler said: 1 to 100
    message         TEXT, -- How far it was then, in its handler's words
    worker          TEXT NOT NULL, -- The worker that has done it
    started_at      TEXT NOT NULL, -- When the last attempt began
    ended_at        TEXT NOT NULL, -- When its end was written
    purge_at        TEXT NOT NULL, -- When it is removed
    kind            TEXT NOT NULL, -- What the job is, which picks the handler
    job_key         TEXT, -- Jobs of one key are done one after the other, in order
    payload         TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin     BLOB, -- The same in another codec
    max_attempts    INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout         INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace           TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key      TEXT, -- What no other job of the queue may have meanwhile: see {prefix}job_unique
    group_id        INTEGER, -- The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is
    endpoint        TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
    CONSTRAINT {name}job_done_key PRIMARY KEY (queue_id, id)
) WITHOUT ROWID;
CREATE INDEX {name}job_done_purge ON {prefix}job_done (purge_at);
INSERT INTO {prefix}job_done SELECT * FROM {prefix}job_done_old;
DROP TABLE {prefix}job_done_old;

CREATE TABLE {prefix}job_dead_old AS SELECT * FROM {prefix}job_dead;
DROP TABLE {prefix}job_dead;
CREATE TABLE {prefix}job_dead ( -- Jobs that were given up
    queue_id        INTEGER NOT NULL, -- The queue
    id              INTEGER NOT NULL, -- As in {prefix}job
    divided         INTEGER NOT NULL, -- Its block
    priority        INTEGER NOT NULL DEFAULT 2, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt         INTEGER NOT NULL DEFAULT 0, -- How many attempts there were
    crashes         INTEGER NOT NULL DEFAULT 0, -- How many workers died with it
    error           TEXT NOT NULL DEFAULT '', -- Why
    detail          TEXT NOT NULL DEFAULT '', -- The stack of a panic, or what the worker said
    snapshot        BLOB, -- What its handler has stored for the next attempt
    percent         INTEGER, -- How much of it is done, as its handler says: 1 to 100
    message         TEXT, -- How far it is, in its handler's words
    died_at         TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was given up
    purge_at        TEXT, -- When it is removed; NULL: never
    kind            TEXT NOT NULL, -- What the job is, which picks the handler
    job_key         TEXT, -- Jobs of one key are done one after the other, in order
    payload         TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin     BLOB, -- The same in another codec
    max_attempts    INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout         INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace           TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key      TEXT, -- What no other job of the queue may have meanwhile: see {prefix}job_unique
    group_id        INTEGER, -- The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is
    endpoint        TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
    CONSTRAINT {name}job_dead_key PRIMARY KEY (queue_id, id)
) WITHOUT ROWID;
CREATE INDEX {name}job_dead_purge ON {prefix}job_dead (purge_at);
INSERT INTO {prefix}job_dead SELECT * FROM {prefix}job_dead_old;
DROP TABLE {prefix}job_dead_old;
