-- +goose Up
ALTER TABLE {prefix}token ADD COLUMN old_hash VARCHAR(64) COLLATE "C";
ALTER TABLE {prefix}token ADD COLUMN old_until TIMESTAMPTZ(6);
CREATE UNIQUE INDEX {name}token_old_hash ON {prefix}token (old_hash);
COMMENT ON COLUMN {prefix}token.old_hash IS 'Hash of the previous secret; NULL: there was none, or it ended at once';
COMMENT ON COLUMN {prefix}token.old_until IS 'When the previous secret expires';

-- +goose Down
DROP INDEX {prefix}token_old_hash;
ALTER TABLE {prefix}token DROP COLUMN old_until;
ALTER TABLE {prefix}token DROP COLUMN old_hash;
