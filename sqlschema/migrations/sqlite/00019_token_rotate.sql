-- +goose Up
ALTER TABLE {prefix}token ADD COLUMN old_hash TEXT; -- Hash of the previous secret; NULL: there was none, or it ended at once
ALTER TABLE {prefix}token ADD COLUMN old_until TEXT; -- When the previous secret expires
CREATE UNIQUE INDEX {name}token_old_hash ON {prefix}token (old_hash);

-- +goose Down
DROP INDEX {prefix}token_old_hash;
ALTER TABLE {prefix}token DROP COLUMN old_until;
ALTER TABLE {prefix}token DROP COLUMN old_hash;
