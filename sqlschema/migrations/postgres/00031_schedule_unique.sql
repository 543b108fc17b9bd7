-- +goose Up
ALTER TABLE {prefix}schedule ADD COLUMN job_unique VARCHAR(200) NOT NULL DEFAULT '';
ALTER TABLE {prefix}schedule ADD COLUMN job_unique_for VARCHAR(32) NOT NULL DEFAULT '';

COMMENT ON COLUMN {prefix}schedule.job_unique IS 'Of a job: its unique key; while a job of the queue has it, slots are skipped; empty: none';
COMMENT ON COLUMN {prefix}schedule.job_unique_for IS 'Of a job: how long it keeps its unique key at least, such as 24h; empty: until it has ended';

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN job_unique_for;
ALTER TABLE {prefix}schedule DROP COLUMN job_unique;
