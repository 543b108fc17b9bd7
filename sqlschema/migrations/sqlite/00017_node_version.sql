-- +goose Up
ALTER TABLE {prefix}node ADD COLUMN version TEXT NOT NULL DEFAULT ''; -- Version of the program, as it reports it; empty: not reported

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN version;
