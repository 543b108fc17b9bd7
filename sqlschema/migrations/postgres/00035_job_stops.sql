-- +goose Up
ALTER TABLE {prefix}job_delayed ADD COLUMN stops INT NOT NULL DEFAULT 0, ADD COLUMN stopped_at TIMESTAMPTZ;
CREATE INDEX {name}job_delayed_stopped ON {prefix}job_delayed (stopped_at) WHERE stopped_at IS NOT NULL;

COMMENT ON COLUMN {prefix}job_delayed.stops IS 'How many workers in a row were stopped within a minute after they had begun it';
COMMENT ON COLUMN {prefix}job_delayed.stopped_at IS 'When the last of them handed it back; NULL: none did';

-- +goose Down
DROP INDEX {prefix}job_delayed_stopped;
ALTER TABLE {prefix}job_delayed DROP COLUMN stops, DROP COLUMN stopped_at;
