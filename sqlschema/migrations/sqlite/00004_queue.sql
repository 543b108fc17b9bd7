-- +goose Up
-- No index on the ready jobs beside the key: see postgres.
CREATE TABLE {prefix}queue ( -- The queues and what is set for each. Rows are made on first use and never removed
    queue_id        INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each queue
    name            TEXT NOT NULL, -- Compared by bytes
    state           TEXT NOT NULL DEFAULT 'active', -- active, paused (jobs are taken, and wait) or deleted
    reason          TEXT NOT NULL DEFAULT '', -- Why it is paused, and by whom
    ordered         TEXT NOT NULL DEFAULT 'no', -- Whether it has had jobs with keys: yes or no
    key_retry       TEXT NOT NULL DEFAULT 'hold', -- When a job of a key waits for its retry, the next ones of the key hold or pass
    max_attempts    INTEGER NOT NULL DEFAULT 10, -- After so many failed attempts a job is dead
    max_crashes     INTEGER NOT NULL DEFAULT 3, -- After so many workers died with a job it is dead
    retry_delay     TEXT NOT NULL DEFAULT '10s', -- Before the second attempt; doubles with each further one
    retry_max_delay TEXT NOT NULL DEFAULT '1h', -- Between two attempts at the most
    timeout         TEXT NOT NULL DEFAULT '', -- How long an attempt may take; empty: as long as it likes
    max_payload     INTEGER NOT NULL DEFAULT 1048576, -- How many bytes a payload may have
    keep_dead       TEXT NOT NULL DEFAULT '90d', -- How long dead jobs are kept; forever: always
    keep_dead_max   INTEGER NOT NULL DEFAULT 0, -- How many dead jobs are kept, about; 0: all, for as long as keep_dead says
    keep_done       TEXT NOT NULL DEFAULT '', -- How long jobs that are done are kept; empty: they are not
    poll_min        TEXT NOT NULL DEFAULT '2ms', -- How soon it is looked again after there was something, where nobody is notified
    poll_max        TEXT NOT NULL DEFAULT '250ms', -- How long it is waited between two looks at the most
    insert_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT {name}queue_name UNIQUE (name)
);

CREATE TABLE {prefix}queue_block ( -- Which worker has which block of a queue's jobs. Their number is that of the newest generation's rows
    queue_id        INTEGER NOT NULL, -- The queue
    divided         INTEGER NOT NULL, -- The block
    generation      INTEGER NOT NULL DEFAULT 1, -- Grows when the number of blocks is changed; new jobs go to the newest
    state           TEXT NOT NULL DEFAULT 'FREE', -- FREE or LEASED
    lock_by         TEXT NOT NULL DEFAULT '', -- The worker that has it, or had it last: host:pid:random, see {prefix}node
    lock_at         TEXT, -- When it was last taken
    fence           INTEGER NOT NULL DEFAULT 0, -- Rises whenever it is taken
    batch           INTEGER NOT NULL DEFAULT 100, -- How many jobs its worker reads at a time: so many may have ended it
    suspects        INTEGER NOT NULL DEFAULT 0, -- How often in a row its worker died with it
    insert_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    CONSTRAINT {name}queue_block_key PRIMARY KEY (queue_id, divided)
) WITHOUT ROWID;

CREATE TABLE {prefix}node ( -- The processes that take part. What a worker holds is its own for as long as its row says live
    name            TEXT NOT NULL, -- host:pid:random
    state           TEXT NOT NULL DEFAULT 'live', -- live, lost (it was not heard of until expire_at) or gone (it has ended)
    expire_at       TEXT, -- When others may take what it has, unless it is heard of before
    heartbeats      INTEGER NOT NULL DEFAULT 0, -- How often it was heard of
    started_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it started
    bell_at         TEXT NOT NULL DEFAULT '', -- Where it hears of new jobs, an address and a port of UDP; empty: nowhere
    bell_key        TEXT NOT NULL DEFAULT '', -- The key that signs what is sent there
    CONSTRAINT {name}node_key PRIMARY KEY (name)
) WITHOUT ROWID;

CREATE TABLE {prefix}queue_worker ( -- Which processes work on which queue, to share its blocks
    queue_id        INTEGER NOT NULL, -- The queue
    node            TEXT NOT NULL, -- The process
    busy            INTEGER NOT NULL DEFAULT 0, -- 1: all that it may do at a time are jobs that take long; it leaves blocks to others. 2: it moves jobs to another queue; others leave it all blocks
    CONSTRAINT {name}queue_worker_key PRIMARY KEY (queue_id, node)
) WITHOUT ROWID;

CREATE TABLE {prefix}job ( -- Jobs that are ready. A row is inserted, and deleted when the job is done; never updated
    queue_id        INTEGER NOT NULL, -- The queue
    divided         INTEGER NOT NULL, -- The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls
    priority        INTEGER NOT NULL, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    id              INTEGER NOT NULL, -- Grows with time: µs since 2020 times 4096, and 12 random bits
    kind            TEXT NOT NULL, -- What the job is, which picks the handler
    job_key         TEXT, -- Jobs of one key are done one after the other, in order
    payload         TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin     BLOB, -- The same in another codec
    max_attempts    INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout         INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace           TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key      TEXT, -- What no other job of the queue may have meanwhile: see {prefix}job_unique
    group_id        INTEGER, -- The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is
    CONSTRAINT {name}job_key PRIMARY KEY (queue_id, divided, priority, id)
) WITHOUT ROWID;

CREATE TABLE {prefix}job_delayed ( -- Jobs whose time has yet to come, and failed ones that wait for their retry
    queue_id        INTEGER NOT NULL, -- The queue
    divided         INTEGER NOT NULL, -- The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls
    id              INTEGER NOT NULL, -- As in {prefix}job
    run_at          TEXT NOT NULL, -- When it is due
    priority        INTEGER NOT NULL DEFAULT 2, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt         INTEGER NOT NULL DEFAULT 0, -- How many attempts there were
    crashes         INTEGER NOT NULL DEFAULT 0, -- How many workers died with it
    hold_key        TEXT, -- The key whose other jobs wait for this one
    error           TEXT NOT NULL DEFAULT '', -- Why it failed last
    snapshot        BLOB, -- What its handler has stored for the next attempt
    percent         INTEGER, -- How much of it is done, as its handler says: 1 to 100
    message         TEXT, -- How far it is, in its handler's words
    kind            TEXT NOT NULL, -- What the job is, which picks the handler
    job_key         TEXT, -- Jobs of one key are done one after the other, in order
    payload         TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin     BLOB, -- The same in another codec
    max_attempts    INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout         INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace           TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key      TEXT, -- What no other job of the queue may have meanwhile: see {prefix}job_unique
    group_id        INTEGER, -- The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is
    CONSTRAINT {name}job_delayed_key PRIMARY KEY (queue_id, divided, id)
) WITHOUT ROWID;
CREATE INDEX {name}job_delayed_due ON {prefix}job_delayed (queue_id, divided, run_at, id);
CREATE INDEX {name}job_delayed_hold ON {prefix}job_delayed (queue_id, divided, hold_key) WHERE hold_key IS NOT NULL;

CREATE TABLE {prefix}job_running ( -- Jobs that have been running for longer than a second, or that may have ended their worker
    queue_id        INTEGER NOT NULL, -- The queue
    divided         INTEGER NOT NULL, -- The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls
    id              INTEGER NOT NULL, -- As in {prefix}job
    priority        INTEGER NOT NULL DEFAULT 2, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt         INTEGER NOT NULL DEFAULT 0, -- How many attempts there were
    crashes         INTEGER NOT NULL DEFAULT 0, -- How many workers died with it
    state           TEXT NOT NULL DEFAULT 'running', -- running, or handed (its worker has ended and left it to others)
    lock_by         TEXT NOT NULL, -- The worker that runs it
    fence           INTEGER NOT NULL DEFAULT 0, -- Of the block, when it was taken
    started_at      TEXT, -- When the attempt began
    expire_at       TEXT, -- When others may take it; NULL: when its worker is lost
    error           TEXT NOT NULL DEFAULT '', -- Why it failed last
    snapshot        BLOB, -- What its handler has stored for the next attempt
    percent         INTEGER, -- How much of it is done, as its handler says: 1 to 100
    message         TEXT, -- How far it is, in its handler's words
    kind            TEXT NOT NULL, -- What the job is, which picks the handler
    job_key         TEXT, -- Jobs of one key are done one after the other, in order
    payload         TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin     BLOB, -- The same in another codec
    max_attempts    INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout         INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace           TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key      TEXT, -- What no other job of the queue may have meanwhile: see {prefix}job_unique
    group_id        INTEGER, -- The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is
    CONSTRAINT {name}job_running_key PRIMARY KEY (queue_id, divided, id)
) WITHOUT ROWID;

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
    CONSTRAINT {name}job_dead_key PRIMARY KEY (queue_id, id)
) WITHOUT ROWID;
CREATE INDEX {name}job_dead_purge ON {prefix}job_dead (purge_at);

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
    CONSTRAINT {name}job_done_key PRIMARY KEY (queue_id, id)
) WITHOUT ROWID;
CREATE INDEX {name}job_done_purge ON {prefix}job_done (purge_at);

CREATE TABLE {prefix}job_unique ( -- Keys that are in use: a job is not enqueued whose key another one of its queue has
    queue_id        INTEGER NOT NULL, -- The queue
    unique_key      TEXT NOT NULL, -- Compared by bytes
    job             INTEGER NOT NULL, -- The id of the job that has it
    pending         TEXT NOT NULL DEFAULT 'yes', -- Whether that job has yet to end: yes or no
    free_at         TEXT, -- Until when it is in use in any case; NULL: until the job has ended
    CONSTRAINT {name}job_unique_key PRIMARY KEY (queue_id, unique_key)
) WITHOUT ROWID;
CREATE INDEX {name}job_unique_job ON {prefix}job_unique (queue_id, job);
CREATE INDEX {name}job_unique_free ON {prefix}job_unique (free_at) WHERE free_at IS NOT NULL;

-- +goose Down
DROP TABLE {prefix}job_unique;
DROP TABLE {prefix}job_done;
DROP TABLE {prefix}job_dead;
DROP TABLE {prefix}job_running;
DROP TABLE {prefix}job_delayed;
DROP TABLE {prefix}job;
DROP TABLE {prefix}queue_worker;
DROP TABLE {prefix}node;
DROP TABLE {prefix}queue_block;
DROP TABLE {prefix}queue;
