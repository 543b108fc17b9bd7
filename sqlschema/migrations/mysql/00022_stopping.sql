-- +goose Up
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'repeatable'),
    'ALTER TABLE {prefix}schedule ADD COLUMN repeatable VARCHAR(3) NOT NULL DEFAULT ''yes'' COMMENT ''no: a run whose daemon died or was stopped is lost, and not run again; else yes''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'drained_at'),
    'ALTER TABLE {prefix}node ADD COLUMN drained_at DATETIME(6) COMMENT ''Since when it takes no new work, and finishes what it has; NULL: it takes work''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'drained_by'),
    'ALTER TABLE {prefix}node ADD COLUMN drained_by VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''Who drained it''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'tags'),
    'ALTER TABLE {prefix}node ADD COLUMN tags VARCHAR(1000) NOT NULL DEFAULT '''' COMMENT ''Of a daemon that runs schedules: their tags, separated by commas''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'tags'),
    'ALTER TABLE {prefix}node DROP COLUMN tags', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'drained_by'),
    'ALTER TABLE {prefix}node DROP COLUMN drained_by', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'drained_at'),
    'ALTER TABLE {prefix}node DROP COLUMN drained_at', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'repeatable'),
    'ALTER TABLE {prefix}schedule DROP COLUMN repeatable', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
