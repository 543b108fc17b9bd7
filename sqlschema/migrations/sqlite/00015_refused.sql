-- +goose Up
CREATE TABLE {prefix}job_refused ( -- Jobs of which the database refuses to write what has become of them, as their workers say
    queue_id        INTEGER NOT NULL, -- The queue
    divided         INTEGER NOT NULL, -- The block
    id              INTEGER NOT NULL, -- The job
    kind            TEXT NOT NULL, -- What the job is
    what            TEXT NOT NULL, -- What is refused: done, discarded, retry, dead, check-out (a row in {prefix}job_running), claim (of a worker that does jobs at most once) or forward (to a new block)
    error           TEXT NOT NULL, -- Why, in the words of the database
    worker          TEXT NOT NULL, -- The worker that has the job, and goes on trying
    tries           INTEGER NOT NULL, -- How often it was refused
    first_at        TEXT NOT NULL, -- When it was refused first
    last_at         TEXT NOT NULL, -- When its worker wrote this last, once a minute
    CONSTRAINT {name}job_refused_key PRIMARY KEY (queue_id, divided, id)
) WITHOUT ROWID;
CREATE INDEX {name}job_refused_last ON {prefix}job_refused (last_at);

-- +goose Down
DROP TABLE {prefix}job_refused;
