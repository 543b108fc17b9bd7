-- +goose Up
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue_worker' AND column_name = 'kinds'),
    'ALTER TABLE {prefix}queue_worker ADD COLUMN kinds MEDIUMTEXT COMMENT ''The kinds of jobs that it handles, as a JSON array; NULL: all''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue_block' AND column_name = 'for_kind'),
    'ALTER TABLE {prefix}queue_block ADD COLUMN for_kind VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''The kind of job for which its last holder handed it to workers of that kind; empty: any worker''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue_block' AND column_name = 'for_kind'),
    'ALTER TABLE {prefix}queue_block DROP COLUMN for_kind', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue_worker' AND column_name = 'kinds'),
    'ALTER TABLE {prefix}queue_worker DROP COLUMN kinds', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
