-- +goose Up
CREATE TABLE {prefix}job_group ( -- Groups of jobs, and the callback of each
    id              INTEGER NOT NULL, -- As ids in {prefix}job
    name            TEXT NOT NULL DEFAULT '', -- For people
    state           TEXT NOT NULL DEFAULT 'open', -- open (it does not end), sealed (it ends as soon as none of its jobs is pending) or done
    callback        TEXT, -- The job that is enqueued when it ends, as JSON; NULL: none
    keep            INTEGER NOT NULL DEFAULT 604800000000, -- How long it is kept after its end, in µs; negative: always
    error           TEXT NOT NULL DEFAULT '', -- Why its callback could not be enqueued
    created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was made
    ended_at        TEXT, -- When it ended
    purge_at        TEXT, -- When it is removed; NULL: never, or it has not ended
    CONSTRAINT {name}job_group_key PRIMARY KEY (id)
);
CREATE INDEX {name}job_group_state ON {prefix}job_group (state, id);
CREATE INDEX {name}job_group_purge ON {prefix}job_group (purge_at) WHERE purge_at IS NOT NULL;

CREATE TABLE {prefix}job_member ( -- The jobs of groups, and what has become of each
    group_id        INTEGER NOT NULL, -- The group
    job             INTEGER NOT NULL, -- The job's id
    queue_id        INTEGER NOT NULL, -- The queue that it was enqueued in
    kind            TEXT NOT NULL, -- What the job is
    state           TEXT NOT NULL DEFAULT 'pending', -- pending (it has yet to end), done, dead or cancelled
    result          TEXT, -- What its handler has made of it, JSON
    error           TEXT NOT NULL DEFAULT '', -- Why it is dead
    CONSTRAINT {name}job_member_key PRIMARY KEY (group_id, job)
) WITHOUT ROWID;
CREATE INDEX {name}job_member_state ON {prefix}job_member (group_id, state);

-- +goose Down
DROP TABLE {prefix}job_member;
DROP TABLE {prefix}job_group;
