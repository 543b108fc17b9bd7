-- +goose Up
-- SQLite changes no CHECK of a table that exists: the tables are made anew.
CREATE TABLE {prefix}schedule_new ( -- What runs when. A row with next_exec NULL and state active is planned by the next daemon
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each schedule that is made
    name        TEXT NOT NULL, -- Compared by bytes; in the history of runs too
    source      TEXT, -- The file that the schedule comes from, which alone changes or removes it; NULL: made by hand
    source_key  TEXT, -- What the schedule is recognized by in its source
    spec        TEXT NOT NULL, -- Five cron fields, or a macro such as @daily or @every 90s
    time_zone   TEXT NOT NULL DEFAULT 'UTC', -- Zone of the tz database that the spec is read in
    dst         TEXT NOT NULL DEFAULT 'vixie', -- When clocks change: vixie (fixed times run once) or wall (as the wall clock shows)
    command     TEXT NOT NULL, -- What is run, with the rights of the daemon; kind says how it is read
    stdin       TEXT NOT NULL DEFAULT '', -- Text for a command's standard input, the body of a request, or the input of a function
    env         TEXT NOT NULL DEFAULT '{}', -- Its environment beside the defaults, a JSON object of strings; SHELL names the shell
    state       TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended', 'failed')), -- active, paused, ended (its end is past), or failed (see reason)
    reason      TEXT NOT NULL DEFAULT '', -- Why it is paused or failed
    due_at      TEXT, -- The next slot
    next_exec   TEXT, -- When a daemon may claim that slot
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the schedule was made
    update_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    kind            TEXT NOT NULL DEFAULT 'shell' CHECK (kind IN ('shell', 'argv', 'http', 'sql', 'func')), -- What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function)
    headers         TEXT NOT NULL DEFAULT '{}', -- Of a request, a JSON object of strings
    dir             TEXT NOT NULL DEFAULT '', -- Where a command starts; empty: the daemon says
    run_as          TEXT NOT NULL DEFAULT '', -- The user a command runs as, if the daemon is root; empty: the daemon's
    tag             TEXT NOT NULL DEFAULT 'default', -- Daemons that are given this tag run it
    missed          TEXT NOT NULL DEFAULT 'once', -- Slots that passed while no daemon could run them: skip, once (the newest runs) or all
    missed_window   TEXT NOT NULL DEFAULT '', -- How late a slot may still run, such as 90s or 2h; empty: 1m with skip, else any time
    overlap         TEXT NOT NULL DEFAULT 'forbid', -- A slot that comes while the run before is under way: forbid (skipped), allow, queue or replace
    first_run       TEXT NOT NULL DEFAULT 'next', -- When a new schedule runs first: next (slot) or now
    max_attempts    INTEGER NOT NULL DEFAULT 1, -- How often a slot is tried whose work fails
    retry_delay     TEXT NOT NULL DEFAULT '10s', -- Before the second attempt; doubles with each further one
    retry_max_delay TEXT NOT NULL DEFAULT '1h', -- Between two attempts at the most
    retry_past_next TEXT NOT NULL DEFAULT 'no', -- Whether attempts go on when the next slot has come: yes or no
    timeout         TEXT NOT NULL DEFAULT '', -- When a run is ended, such as 15m; empty: never
    kill_grace      TEXT NOT NULL DEFAULT '', -- From SIGTERM to SIGKILL; empty: the daemon says
    jitter          TEXT NOT NULL DEFAULT '', -- Slots run up to so much later, to spread them; empty: not at all
    starts_at       TEXT, -- There are no slots before
    ends_at         TEXT, -- There are no slots after
    max_failures    INTEGER NOT NULL DEFAULT 0, -- After so many failed slots in a row the schedule fails; 0: never
    keep_runs       INTEGER NOT NULL DEFAULT 1000, -- How many runs the history keeps, about; -1: all
    keep_for        TEXT NOT NULL DEFAULT '30d', -- How long the history keeps runs; forever: always
    on_success      TEXT NOT NULL DEFAULT '', -- The schedule that starts when a run of this one has ended well
    on_failure      TEXT NOT NULL DEFAULT '', -- The schedule that starts when a slot of this one has failed for good
    failures        INTEGER NOT NULL DEFAULT 0, -- Slots that failed in a row
    fence           INTEGER NOT NULL DEFAULT 0, -- Grows with each attempt that begins
    lane            TEXT GENERATED ALWAYS AS (CASE WHEN kind = 'func' THEN tag || ' func ' || substr(command, 1, 200) ELSE tag END) STORED, -- Which daemons may claim it: the tag and, for a function, its name
    CONSTRAINT {name}schedule_name UNIQUE (name),
    CONSTRAINT {name}schedule_source UNIQUE (source, source_key),
    CONSTRAINT {name}schedule_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT {name}schedule_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT {name}schedule_starts_at CHECK (starts_at BETWEEN '1971-01-01' AND '9999-12-30' AND starts_at IS strftime('%Y-%m-%d %H:%M:%f', starts_at)),
    CONSTRAINT {name}schedule_ends_at CHECK (ends_at BETWEEN '1971-01-01' AND '9999-12-30' AND ends_at IS strftime('%Y-%m-%d %H:%M:%f', ends_at)),
    CONSTRAINT {name}schedule_order CHECK (due_at <= next_exec),
    CONSTRAINT {name}schedule_named CHECK (name <> '')
);
INSERT INTO {prefix}schedule_new (id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time)
SELECT id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time FROM {prefix}schedule;
DROP TABLE {prefix}schedule;
ALTER TABLE {prefix}schedule_new RENAME TO {name}schedule;

CREATE INDEX {name}schedule_next ON {prefix}schedule (state, lane, next_exec);

CREATE TABLE {prefix}run_new ( -- What became of each slot: one row for each attempt, or for a stretch of slots that did not run
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each row
    schedule    TEXT NOT NULL, -- Name of the schedule; the row stays when the schedule goes
    due_at      TEXT NOT NULL, -- The slot
    attempt     INTEGER NOT NULL, -- 1, or more after a crash or a failure
    state       TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'retry', 'ok', 'failed', 'timeout', 'lost', 'cancelled', 'skipped', 'missed')), -- waiting (for its time, or for the run before), running, retry (handed back), ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)
    due_to      TEXT, -- skipped and missed: the last slot of the stretch that due_at begins
    slots       INTEGER NOT NULL DEFAULT 1, -- skipped and missed: how many slots the stretch has; 10000 is that many or more
    exec_by     TEXT NOT NULL DEFAULT '', -- The daemon: host:pid:random
    claim       TEXT, -- Token of the transaction that claimed the run; NULL once it has ended
    next_exec   TEXT, -- When a daemon may take it: waiting: its time; running: the end of its lease; NULL once it has ended
    renewals    INTEGER NOT NULL DEFAULT 0, -- How often the lease was renewed
    started_at  TEXT, -- When the attempt began
    finished_at TEXT, -- When it ended, or was given up
    exit_code   INTEGER, -- Of a command, 128 + signal if a signal ended it; of a request, its status
    error       TEXT NOT NULL DEFAULT '', -- Why it did not end well
    output      TEXT NOT NULL DEFAULT '', -- Standard output and error, head and tail
    lane            TEXT NOT NULL DEFAULT 'default', -- Of the schedule, when the run was made
    cause           TEXT NOT NULL DEFAULT 'slot', -- Why it is run: slot, hand (run now), backfill or chain
    fence           INTEGER NOT NULL DEFAULT 0, -- Larger than that of every attempt of the schedule that began before
    failures        INTEGER NOT NULL DEFAULT 0, -- Attempts at the slot that have failed before this one
    crashes         INTEGER NOT NULL DEFAULT 0, -- Attempts at the slot that were lost before this one
    cancel          TEXT, -- Somebody wants the run to end, and why; NULL: nobody does
    purge_at        TEXT, -- When the row is removed from the history; NULL: never, or it has not ended
    CONSTRAINT {name}run_slot UNIQUE (schedule, due_at, attempt),
    CONSTRAINT {name}run_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT {name}run_due_to CHECK (due_to BETWEEN '1971-01-01' AND '9999-12-30' AND due_to IS strftime('%Y-%m-%d %H:%M:%f', due_to)),
    CONSTRAINT {name}run_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT {name}run_started_at CHECK (started_at BETWEEN '1971-01-01' AND '9999-12-30' AND started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT {name}run_finished_at CHECK (finished_at BETWEEN '1971-01-01' AND '9999-12-30' AND finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at))
);
INSERT INTO {prefix}run_new (id, schedule, due_at, attempt, state, due_to, slots, exec_by, claim, next_exec, renewals, started_at, finished_at, exit_code, error, output)
SELECT id, schedule, due_at, attempt, state, due_to, slots, exec_by, claim, next_exec, renewals, started_at, finished_at, exit_code, error, output FROM {prefix}run;
DROP TABLE {prefix}run;
ALTER TABLE {prefix}run_new RENAME TO {name}run;

UPDATE {prefix}run SET purge_at = strftime('%Y-%m-%d %H:%M:%f', 'now', '+30 days') WHERE next_exec IS NULL;
CREATE INDEX {name}run_next ON {prefix}run (lane, next_exec) WHERE next_exec IS NOT NULL;
CREATE INDEX {name}run_open ON {prefix}run (schedule) WHERE next_exec IS NOT NULL;
CREATE INDEX {name}run_purge ON {prefix}run (purge_at) WHERE purge_at IS NOT NULL;

-- +goose Down
UPDATE {prefix}run SET state = 'cancelled', next_exec = NULL, error = 'waited when the tables were taken back' WHERE state = 'waiting';
CREATE TABLE {prefix}run_new ( -- What became of each slot: one row for each attempt, or for a stretch of slots that did not run
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
INSERT INTO {prefix}run_new (id, schedule, due_at, attempt, state, due_to, slots, exec_by, claim, next_exec, renewals, started_at, finished_at, exit_code, error, output)
SELECT id, schedule, due_at, attempt, state, due_to, slots, exec_by, claim, next_exec, renewals, started_at, finished_at, exit_code, error, output FROM {prefix}run;
DROP TABLE {prefix}run;
ALTER TABLE {prefix}run_new RENAME TO {name}run;

CREATE INDEX {name}run_next ON {prefix}run (next_exec) WHERE next_exec IS NOT NULL;
CREATE INDEX {name}run_claim ON {prefix}run (claim) WHERE claim IS NOT NULL;

-- What the older program cannot run it must not take for a line for the shell.
UPDATE {prefix}schedule SET state = 'failed', next_exec = NULL, reason = 'the tables were taken back to a version without this kind of schedule'
WHERE kind <> 'shell' OR state = 'ended' OR spec = '@manual';
CREATE TABLE {prefix}schedule_new ( -- What runs when. A row with next_exec NULL and state active is planned by the next daemon
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
INSERT INTO {prefix}schedule_new (id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time)
SELECT id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time FROM {prefix}schedule;
DROP TABLE {prefix}schedule;
ALTER TABLE {prefix}schedule_new RENAME TO {name}schedule;

CREATE INDEX {name}schedule_next ON {prefix}schedule (state, next_exec);
