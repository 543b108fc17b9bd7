-- +goose Up
-- It looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_count' AND column_name = 'late'),
    'ALTER TABLE {prefix}job_count ADD COLUMN late BIGINT NOT NULL DEFAULT 0 COMMENT ''Jobs that were committed long after they were enqueued, and found late''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_count' AND column_name = 'late'),
    'ALTER TABLE {prefix}job_count DROP COLUMN late', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
