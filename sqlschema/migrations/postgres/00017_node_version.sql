-- +goose Up
ALTER TABLE {prefix}node ADD COLUMN version VARCHAR(64) COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}node.version IS 'Version of the program, as it reports it; empty: not reported';

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN version;
