-- +goose Up
ALTER TABLE {prefix}endpoint ADD COLUMN batch INTEGER NOT NULL DEFAULT 1; -- Maximum number of jobs in a request, as a JSON array; 1: each request is a job

-- +goose Down
ALTER TABLE {prefix}endpoint DROP COLUMN batch;
