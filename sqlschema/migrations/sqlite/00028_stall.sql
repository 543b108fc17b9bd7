-- +goose Up
ALTER TABLE {prefix}schedule ADD COLUMN stall TEXT NOT NULL DEFAULT ''; -- How long a command may write nothing before it is stopped, such as 5m; empty: no limit

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN stall;
