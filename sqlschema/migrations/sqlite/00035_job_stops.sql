-- +goose Up
ALTER TABLE {prefix}job_delayed ADD COLUMN stops INTEGER NOT NULL DEFAULT 0; -- How many workers in a row were stopped within a minute after they had begun it
ALTER TABLE {prefix}job_delayed ADD COLUMN stopped_at TEXT; -- When the last of them handed it back; NULL: none did
CREATE INDEX {name}job_delayed_stopped ON {prefix}job_delayed (stopped_at) WHERE stopped_at IS NOT NULL;

-- +goose Down
DROP INDEX {prefix}job_delayed_stopped;
ALTER TABLE {prefix}job_delayed DROP COLUMN stops;
ALTER TABLE {prefix}job_delayed DROP COLUMN stopped_at;
