-- +goose Up
-- SQLite changes no CHECK of a table that exists: the table is made anew. Lanes: see postgres.
CREATE TABLE {prefix}schedule_new ( -- What runs when. A row with next_exec NULL and state active is planned by the next daemon
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each schedule that is made
    name        TEXT NOT NULL, -- Compared by bytes; in the history of runs too
    source      TEXT, -- The file that the schedule comes from, which alone changes or removes it; NULL: made by hand
    source_key  TEXT, -- What the schedule is recognized by in its source
    spec        TEXT NOT NULL, -- Five cron fields, or a macro such as @daily or @every 90s
    time_zone   TEXT NOT NULL DEFAULT 'UTC', -- Zone of the tz database that the spec is read in
    dst         TEXT NOT NULL DEFAULT 'vixie', -- When clocks change: vixie (fixed times run once) or wall (as the wall clock shows)
    command     TEXT NOT NULL, -- What is run, with the rights of the daemon; kind says how it is read
    stdin       TEXT NOT NULL DEFAULT '', -- Text for a command's standard input, the body of a request, the input of a function, or the payload of a job (JSON; empty: which slot it is)
    env         TEXT NOT NULL DEFAULT '{}', -- Its environment beside the defaults, a JSON object of strings; SHELL names the shell
    state       TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended', 'failed')), -- active, paused, ended (its end is past), or failed (see reason)
    reason      TEXT NOT NULL DEFAULT '', -- Why it is paused or failed
    due_at      TEXT, -- The next slot
    next_exec   TEXT, -- When a daemon may claim that slot
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the schedule was made
    update_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    kind            TEXT NOT NULL DEFAULT 'shell' CHECK (kind IN ('shell', 'argv', 'http', 'sql', 'func', 'job')), -- What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function), job (the kind of a job that is enqueued)
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
    job_queue       TEXT NOT NULL DEFAULT '', -- Of a job: its queue, which is made if there is none; empty: as the route of its kind says
    job_key         TEXT NOT NULL DEFAULT '', -- Of a job: jobs of one key are done one after the other, in order; empty: it waits for nobody
    job_priority    INTEGER NOT NULL DEFAULT 2, -- Of a job: 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    job_max_attempts INTEGER NOT NULL DEFAULT 0, -- Of a job: after so many failed attempts it is dead; 0: the queue says
    job_timeout     TEXT NOT NULL DEFAULT '', -- Of a job: how long an attempt may take; empty: the queue says
    lane            TEXT GENERATED ALWAYS AS (CASE WHEN kind = 'func' THEN tag || ' func ' || substr(command, 1, 200) WHEN kind = 'job' THEN tag || ' job' ELSE tag END) STORED, -- Which daemons may claim it: the tag and, for a function, its name, or that it is a job
    CONSTRAINT {name}schedule_name UNIQUE (name),
    CONSTRAINT {name}schedule_source UNIQUE (source, source_key),
    CONSTRAINT {name}schedule_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT {name}schedule_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT {name}schedule_starts_at CHECK (starts_at BETWEEN '1971-01-01' AND '9999-12-30' AND starts_at IS strftime('%Y-%m-%d %H:%M:%f', starts_at)),
    CONSTRAINT {name}schedule_ends_at CHECK (ends_at BETWEEN '1971-01-01' AND '9999-12-30' AND ends_at IS strftime('%Y-%m-%d %H:%M:%f', ends_at)),
    CONSTRAINT {name}schedule_order CHECK (due_at <= next_exec),
    CONSTRAINT {name}schedule_named CHECK (name <> '')
);
INSERT INTO {prefix}schedule_new (id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time, kind, headers, dir, run_as, tag, missed, missed_window, overlap, first_run, max_attempts, retry_delay, retry_max_delay, retry_past_next, timeout, kill_grace, jitter, starts_at, ends_at, max_failures, keep_runs, keep_for, on_success, on_failure, failures, fence)
SELECT id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time, kind, headers, dir, run_as, tag, missed, missed_window, overlap, first_run, max_attempts, retry_delay, retry_max_delay, retry_past_next, timeout, kill_grace, jitter, starts_at, ends_at, max_failures, keep_runs, keep_for, on_success, on_failure, failures, fence FROM {prefix}schedule;
DROP TABLE {prefix}schedule;
ALTER TABLE {prefix}schedule_new RENAME TO {name}schedule;

CREATE INDEX {name}schedule_next ON {prefix}schedule (state, lane, next_exec);

-- +goose Down
-- What the older program cannot run it must not take for something else: no program has such a function.
UPDATE {prefix}run SET state = 'cancelled', next_exec = NULL, error = 'waited when the tables were taken back' WHERE state = 'waiting' AND lane LIKE '% job' AND lane NOT LIKE '% % job';
UPDATE {prefix}schedule SET kind = 'func', state = 'failed', next_exec = NULL, reason = 'the tables were taken back to a version without this kind of schedule' WHERE kind = 'job';
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
INSERT INTO {prefix}schedule_new (id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time, kind, headers, dir, run_as, tag, missed, missed_window, overlap, first_run, max_attempts, retry_delay, retry_max_delay, retry_past_next, timeout, kill_grace, jitter, starts_at, ends_at, max_failures, keep_runs, keep_for, on_success, on_failure, failures, fence)
SELECT id, name, source, source_key, spec, time_zone, dst, command, stdin, env, state, reason, due_at, next_exec, insert_time, update_time, kind, headers, dir, run_as, tag, missed, missed_window, overlap, first_run, max_attempts, retry_delay, retry_max_delay, retry_past_next, timeout, kill_grace, jitter, starts_at, ends_at, max_failures, keep_runs, keep_for, on_success, on_failure, failures, fence FROM {prefix}schedule;
DROP TABLE {prefix}schedule;
ALTER TABLE {prefix}schedule_new RENAME TO {name}schedule;

CREATE INDEX {name}schedule_next ON {prefix}schedule (state, lane, next_exec);
