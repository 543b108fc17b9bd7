-- +goose Up
ALTER TABLE {prefix}schedule ADD COLUMN stall VARCHAR(32) NOT NULL DEFAULT '';

COMMENT ON COLUMN {prefix}schedule.stall IS 'How long a command may write nothing before it is stopped, such as 5m; empty: no limit';

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN stall;
