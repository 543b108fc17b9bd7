-- +goose Up
ALTER TABLE {prefix}schedule ADD COLUMN job_unique VARCHAR(200) NOT NULL DEFAULT '';
ALTER TABLE {prefix}schedule ADD COLUMN job_unique_for VARCHAR(32) NOT NULL DEFAULT '';

COMMENT ON COLUMN {prefix}schedule.job_unique IS 'Unique key of the job; while a job of the queue has it, slots are skipped; empty: none';
COMMENT ON COLUMN {prefix}schedule.job_unique_for IS 'How long the job keeps its unique key at least, such as 24h; empty: until it has ended';

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN job_unique_for;
ALTER TABLE {prefix}schedule DROP COLUMN job_unique;
