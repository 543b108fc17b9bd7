-- +goose Up
-- No CHECKs: see postgres.
CREATE TABLE {prefix}lock ( -- Who may work: a row for each lock and each slot of a pool. Rows are made on first use
    name          TEXT NOT NULL, -- Compared by bytes
    slot          INTEGER NOT NULL DEFAULT 0, -- 0: a lock, or the head of a pool; from 1 on: a slot of the pool
    state         TEXT NOT NULL DEFAULT 'FREE', -- FREE, LOCK (taken), EXTEND (taken and renewed since), POOL (head of a pool), CLOSED (slot that the pool no longer has)
    lock_by       TEXT NOT NULL DEFAULT '', -- Its holder, also the last one: host:pid:random
    lock_at       TEXT, -- When it was last taken
    expire_at     TEXT, -- When others may take it, in LOCK and EXTEND
    released_at   TEXT, -- When its holder gave it up; NULL: not, so it is held or has expired
    fence         INTEGER NOT NULL DEFAULT 0, -- Rises whenever it is taken, and never falls
    extends       INTEGER NOT NULL DEFAULT 0, -- How often its holder has renewed it
    takeovers     INTEGER NOT NULL DEFAULT 0, -- How often it was taken because a lease had run out
    meta          TEXT NOT NULL DEFAULT '', -- What its holder says about itself
    session       TEXT NOT NULL DEFAULT '', -- Elections: the session lock that its holder has as well
    forced_by     TEXT NOT NULL DEFAULT '', -- Who last released it by force
    forced_fence  INTEGER, -- The fence of the lease that was ended so
    forced_at     TEXT, -- When
    forced_why    TEXT NOT NULL DEFAULT '', -- Why, and whose it was
    insert_time   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT {name}lock_key PRIMARY KEY (name, slot)
) WITHOUT ROWID;

CREATE TABLE {prefix}lock_fence ( -- What keeps late holders out of guarded transactions; apart from the locks, so that a long transaction does not keep its own lease from being renewed
    name          TEXT NOT NULL, -- Of the lock; the empty name stands for all locks whose rows were purged
    slot          INTEGER NOT NULL DEFAULT 0, -- Of the lock
    fence         INTEGER NOT NULL DEFAULT 0, -- The highest that has guarded a transaction, or, of the empty name, that was purged
    guards        INTEGER NOT NULL DEFAULT 0, -- How often the row was used
    CONSTRAINT {name}lock_fence_key PRIMARY KEY (name, slot)
) WITHOUT ROWID;

INSERT INTO {prefix}lock_fence (name, slot) VALUES ('', 0);

-- +goose Down
DROP TABLE {prefix}lock_fence;
DROP TABLE {prefix}lock;
