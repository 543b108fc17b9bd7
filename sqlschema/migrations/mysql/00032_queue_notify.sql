-- +goose Up
-- It looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue' AND column_name = 'notify'),
    'ALTER TABLE {prefix}queue ADD COLUMN notify TEXT NOT NULL DEFAULT ('''') COMMENT ''Who is notified when it has dead letters or is behind: addresses and URLs separated by blanks or commas, or none; empty: as the daemons say''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue' AND column_name = 'notify'),
    'ALTER TABLE {prefix}queue DROP COLUMN notify', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
