-- +goose Up
-- It looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}token' AND column_name = 'old_hash'),
    'ALTER TABLE {prefix}token ADD COLUMN old_hash VARCHAR(64) COMMENT ''Hash of the previous secret; NULL: there was none, or it ended at once'', ADD COLUMN old_until DATETIME(6) COMMENT ''When the previous secret expires'', ADD UNIQUE KEY {name}token_old_hash (old_hash)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}token' AND column_name = 'old_hash'),
    'ALTER TABLE {prefix}token DROP KEY {name}token_old_hash, DROP COLUMN old_until, DROP COLUMN old_hash', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
