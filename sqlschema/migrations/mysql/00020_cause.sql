-- +goose Up
-- MySQL commits each statement by itself, so each must be able to run again: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}run' AND column_name = 'by_run'),
    'ALTER TABLE {prefix}run ADD COLUMN by_run BIGINT COMMENT ''Of the first attempt of a chain: the run that started it; NULL: none''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}run' AND column_name = 'by_run'),
    'ALTER TABLE {prefix}run DROP COLUMN by_run', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
