-- +goose Up
ALTER TABLE {prefix}job_count ADD COLUMN late BIGINT NOT NULL DEFAULT 0;

COMMENT ON COLUMN {prefix}job_count.late IS 'Jobs that were committed long after they were enqueued, and found late';

-- +goose Down
ALTER TABLE {prefix}job_count DROP COLUMN late;
