-- +goose Up
ALTER TABLE {prefix}endpoint ADD COLUMN batch INT NOT NULL DEFAULT 1;
COMMENT ON COLUMN {prefix}endpoint.batch IS 'Maximum number of jobs in a request, as a JSON array; 1: each request is a job';

-- +goose Down
ALTER TABLE {prefix}endpoint DROP COLUMN batch;
