-- +goose Up
ALTER TABLE {prefix}schedule ADD COLUMN job_unique TEXT NOT NULL DEFAULT ''; -- Unique key of the job; while a job of the queue has it, slots are skipped; empty: none
ALTER TABLE {prefix}schedule ADD COLUMN job_unique_for TEXT NOT NULL DEFAULT ''; -- How long the job keeps its unique key at least, such as 24h; empty: until it has ended

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN job_unique_for;
ALTER TABLE {prefix}schedule DROP COLUMN job_unique;
