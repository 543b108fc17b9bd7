-- +goose Up
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}run' AND column_name = 'stops'),
    'ALTER TABLE {prefix}run ADD COLUMN stops INT NOT NULL DEFAULT 0 COMMENT ''How many daemons in a row were stopped within a minute after they had begun this slot''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}run' AND column_name = 'stops'),
    'ALTER TABLE {prefix}run DROP COLUMN stops', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
