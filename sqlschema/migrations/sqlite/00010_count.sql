-- +goose Up
CREATE TABLE {prefix}job_count ( -- What workers have done, by minute, queue and kind
    minute          TEXT NOT NULL, -- When it ended, the beginning of the minute
    queue_id        INTEGER NOT NULL, -- The queue
    kind            TEXT NOT NULL, -- What the jobs are
    done            INTEGER NOT NULL DEFAULT 0, -- Jobs that were done, or discarded
    failed          INTEGER NOT NULL DEFAULT 0, -- Attempts that failed, and were followed by another
    dead            INTEGER NOT NULL DEFAULT 0, -- Jobs that were given up
    wait_us         INTEGER NOT NULL DEFAULT 0, -- For how long they had waited, in µs, all together
    run_us          INTEGER NOT NULL DEFAULT 0, -- How long they took, in µs, all together
    CONSTRAINT {name}job_count_key PRIMARY KEY (minute, queue_id, kind)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}job_count;
