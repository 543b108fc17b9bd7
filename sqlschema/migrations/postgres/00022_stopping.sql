-- +goose Up
ALTER TABLE {prefix}schedule ADD COLUMN repeatable VARCHAR(3) NOT NULL DEFAULT 'yes';
ALTER TABLE {prefix}node
    ADD COLUMN drained_at TIMESTAMPTZ(6),
    ADD COLUMN drained_by VARCHAR(200) NOT NULL DEFAULT '',
    ADD COLUMN tags VARCHAR(1000) NOT NULL DEFAULT '';

COMMENT ON COLUMN {prefix}schedule.repeatable IS 'no: a run whose daemon died or was stopped is lost, and not run again; else yes';
COMMENT ON COLUMN {prefix}node.drained_at IS 'Since when it takes no new work, and finishes what it has; NULL: it takes work';
COMMENT ON COLUMN {prefix}node.drained_by IS 'Who drained it';
COMMENT ON COLUMN {prefix}node.tags IS 'Of a daemon that runs schedules: their tags, separated by commas';

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN tags, DROP COLUMN drained_by, DROP COLUMN drained_at;
ALTER TABLE {prefix}schedule DROP COLUMN repeatable;
