-- +goose Up
ALTER TABLE {prefix}node ADD COLUMN version VARCHAR(64) COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}node.version IS 'Of the program, as it says itself; empty: it does not say';

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN version;
