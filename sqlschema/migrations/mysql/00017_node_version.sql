-- +goose Up
-- MySQL commits each statement by itself, so each must be able to run again: see 00001.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'version'),
    'ALTER TABLE {prefix}node ADD COLUMN version VARCHAR(64) NOT NULL DEFAULT '''' COMMENT ''Version of the program, as it reports it; empty: not reported''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'version'),
    'ALTER TABLE {prefix}node DROP COLUMN version', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
