-- +goose Up
-- What is no instant (zero dates, infinity, text) is refused here: a poll asks
-- for the smallest next_exec, and must be able to read it.
CREATE TABLE {prefix}schedule ( -- What runs when. A row with next_exec NULL and state active is planned by the next daemon
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
    CONSTRAINT {name}schedule_name UNIQUE (name),
    CONSTRAINT {name}schedule_source UNIQUE (source, source_key),
    CONSTRAINT {name}schedule_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT {name}schedule_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT {name}schedule_order CHECK (due_at <= next_exec),
    CONSTRAINT {name}schedule_named CHECK (name <> '')
);

CREATE INDEX {name}schedule_next ON {prefix}schedule (state, next_exec);

CREATE TABLE {prefix}run ( -- What became of each slot: one row for each attempt, or for a stretch of slots that did not run
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
    CONSTRAINT {name}run_slot UNIQUE (schedule, due_at, attempt),
    CONSTRAINT {name}run_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT {name}run_due_to CHECK (due_to BETWEEN '1971-01-01' AND '9999-12-30' AND due_to IS strftime('%Y-%m-%d %H:%M:%f', due_to)),
    CONSTRAINT {name}run_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT {name}run_started_at CHECK (started_at BETWEEN '1971-01-01' AND '9999-12-30' AND started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT {name}run_finished_at CHECK (finished_at BETWEEN '1971-01-01' AND '9999-12-30' AND finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at))
);

CREATE INDEX {name}run_next ON {prefix}run (next_exec) WHERE next_exec IS NOT NULL;
CREATE INDEX {name}run_claim ON {prefix}run (claim) WHERE claim IS NOT NULL;

-- +goose Down
DROP TABLE {prefix}run;
DROP TABLE {prefix}schedule;
