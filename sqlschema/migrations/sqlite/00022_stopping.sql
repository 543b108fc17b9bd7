-- +goose Up
ALTER TABLE {prefix}schedule ADD COLUMN repeatable TEXT NOT NULL DEFAULT 'yes'; -- no: a run whose daemon died or was stopped is lost, and not run again; else yes
ALTER TABLE {prefix}node ADD COLUMN drained_at TEXT; -- Since when it takes no new work, and finishes what it has; NULL: it takes work
ALTER TABLE {prefix}node ADD COLUMN drained_by TEXT NOT NULL DEFAULT ''; -- Who drained it
ALTER TABLE {prefix}node ADD COLUMN tags TEXT NOT NULL DEFAULT ''; -- Of a daemon that runs schedules: their tags, separated by commas

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN tags;
ALTER TABLE {prefix}node DROP COLUMN drained_by;
ALTER TABLE {prefix}node DROP COLUMN drained_at;
ALTER TABLE {prefix}schedule DROP COLUMN repeatable;
