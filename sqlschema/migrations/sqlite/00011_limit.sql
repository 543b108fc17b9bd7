-- +goose Up
CREATE TABLE {prefix}queue_limit ( -- How many jobs may run at a time, and begin in a time, over all workers
    queue_id        INTEGER NOT NULL, -- The queue
    kind            TEXT NOT NULL DEFAULT '', -- Of the jobs, compared by bytes; empty: all of the queue together
    max_running     INTEGER, -- How many may run at a time; NULL: any number
    rate            INTEGER, -- How many may begin in rate_per; NULL: any number
    rate_per        TEXT NOT NULL DEFAULT '1s', -- A duration, such as 1s or 1m
    burst           INTEGER NOT NULL DEFAULT 1, -- How many may begin at once after a pause
    drawn_at        TEXT, -- Until when the rate has been used up; what is in the past may be used
    waiting_by      TEXT NOT NULL DEFAULT '', -- A worker that waits for a permit
    waiting_until   TEXT, -- Until when it is taken to wait
    insert_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT {name}queue_limit_key PRIMARY KEY (queue_id, kind)
) WITHOUT ROWID;

CREATE TABLE {prefix}queue_permit ( -- Permits to run a job that is limited: as many as the limit's max_running, made when they are first needed
    queue_id        INTEGER NOT NULL, -- The queue
    kind            TEXT NOT NULL DEFAULT '', -- As in {prefix}queue_limit
    slot            INTEGER NOT NULL, -- From 0
    state           TEXT NOT NULL DEFAULT 'FREE', -- FREE or LEASED
    lock_by         TEXT NOT NULL DEFAULT '', -- The worker that has it, or had it last: see {prefix}node
    lock_at         TEXT, -- When it was last taken
    fence           INTEGER NOT NULL DEFAULT 0, -- Rises whenever it is taken
    CONSTRAINT {name}queue_permit_key PRIMARY KEY (queue_id, kind, slot)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}queue_permit;
DROP TABLE {prefix}queue_limit;
