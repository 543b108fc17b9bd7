CREATE TABLE dbcron_lock ( -- Who may work: a row for each lock and each slot of a pool. Rows are made on first use
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
    CONSTRAINT dbcron_lock_key PRIMARY KEY (name, slot)
) WITHOUT ROWID;

CREATE TABLE dbcron_lock_fence ( -- What keeps late holders out of guarded transactions; apart from the locks, so that a long transaction does not keep its own lease from being renewed
    name          TEXT NOT NULL, -- Of the lock; the empty name stands for all locks whose rows were purged
    slot          INTEGER NOT NULL DEFAULT 0, -- Of the lock
    fence         INTEGER NOT NULL DEFAULT 0, -- The highest that has guarded a transaction, or, of the empty name, that was purged
    guards        INTEGER NOT NULL DEFAULT 0, -- How often the row was used
    CONSTRAINT dbcron_lock_fence_key PRIMARY KEY (name, slot)
) WITHOUT ROWID;

CREATE TABLE dbcron_migration (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    version_id INTEGER NOT NULL,
    is_applied INTEGER NOT NULL,
    tstamp TIMESTAMP DEFAULT (datetime('now'))
);

CREATE TABLE dbcron_run ( -- What became of each slot: one row for each attempt, or for a stretch of slots that did not run
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each row
    schedule    TEXT NOT NULL, -- Name of the schedule; the row stays when the schedule goes
    due_at      TEXT NOT NULL, -- The slot
    attempt     INTEGER NOT NULL, -- 1, or more after a crash
    state       TEXT NOT NULL CHECK (state IN ('running', 'retry', 'ok', 'failed', 'timeout', 'lost', 'cancelled', 'skipped', 'missed')), -- running, retry, ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)
    due_to      TEXT, -- skipped and missed: the last slot of the stretch that due_at begins
    slots       INTEGER NOT NULL DEFAULT 1, -- skipped and missed: how many slots the stretch has; 10000 is that many or more
    exec_by     TEXT NOT NULL DEFAULT '', -- The daemon: host:pid:random
    claim       TEXT, -- Token of the transaction that claimed the run; NULL once it has ended
    next_exec   TEXT, -- running: the end of its lease, when another daemon takes over; NULL once it has ended
    renewals    INTEGER NOT NULL DEFAULT 0, -- How often the lease was renewed
    started_at  TEXT, -- When the attempt began
    finished_at TEXT, -- When it ended, or was given up
    exit_code   INTEGER, -- Of the command; 128 + signal if a signal ended it
    error       TEXT NOT NULL DEFAULT '', -- Why it did not end well
    output      TEXT NOT NULL DEFAULT '', -- Standard output and error, head and tail
    CONSTRAINT dbcron_run_slot UNIQUE (schedule, due_at, attempt),
    CONSTRAINT dbcron_run_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT dbcron_run_due_to CHECK (due_to BETWEEN '1971-01-01' AND '9999-12-30' AND due_to IS strftime('%Y-%m-%d %H:%M:%f', due_to)),
    CONSTRAINT dbcron_run_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT dbcron_run_started_at CHECK (started_at BETWEEN '1971-01-01' AND '9999-12-30' AND started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT dbcron_run_finished_at CHECK (finished_at BETWEEN '1971-01-01' AND '9999-12-30' AND finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at))
);

CREATE INDEX dbcron_run_claim ON dbcron_run (claim) WHERE claim IS NOT NULL;

CREATE INDEX dbcron_run_next ON dbcron_run (next_exec) WHERE next_exec IS NOT NULL;

CREATE TABLE dbcron_schedule ( -- What runs when. A row with next_exec NULL and state active is planned by the next daemon
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each schedule that is made
    name        TEXT NOT NULL, -- Compared by bytes; in the history of runs too
    source      TEXT, -- The file that the schedule comes from, which alone changes or removes it; NULL: made by hand
    source_key  TEXT, -- What the schedule is recognized by in its source
    spec        TEXT NOT NULL, -- Five cron fields, or a macro such as @daily or @every 90s
    time_zone   TEXT NOT NULL DEFAULT 'UTC', -- Zone of the tz database that the spec is read in
    dst         TEXT NOT NULL DEFAULT 'vixie', -- When clocks change: vixie (fixed times run once) or wall (as the wall clock shows)
    command     TEXT NOT NULL, -- What the shell runs, with the rights of the daemon
    stdin       TEXT NOT NULL DEFAULT '', -- Text for its standard input
    env         TEXT NOT NULL DEFAULT '{}', -- Its environment beside the defaults, a JSON object of strings; SHELL names the shell
    state       TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'failed')), -- active, paused, or failed (cannot be planned; see reason)
    reason      TEXT NOT NULL DEFAULT '', -- Why it is paused or failed
    due_at      TEXT, -- The next slot
    next_exec   TEXT, -- When a daemon may claim that slot
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the schedule was made
    update_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_schedule_name UNIQUE (name),
    CONSTRAINT dbcron_schedule_source UNIQUE (source, source_key),
    CONSTRAINT dbcron_schedule_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT dbcron_schedule_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT dbcron_schedule_order CHECK (due_at <= next_exec),
    CONSTRAINT dbcron_schedule_named CHECK (name <> '')
);

CREATE INDEX dbcron_schedule_next ON dbcron_schedule (state, next_exec);
