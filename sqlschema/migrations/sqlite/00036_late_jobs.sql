-- +goose Up
ALTER TABLE {prefix}job_count ADD COLUMN late INTEGER NOT NULL DEFAULT 0; -- Jobs that were committed long after they were enqueued, and found late

-- +goose Down
ALTER TABLE {prefix}job_count DROP COLUMN late;
