-- +goose Up
-- It looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}endpoint' AND column_name = 'batch'),
    'ALTER TABLE {prefix}endpoint ADD COLUMN batch INT NOT NULL DEFAULT 1 COMMENT ''Maximum number of jobs in a request, as a JSON array; 1: each request is a job''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}endpoint' AND column_name = 'batch'),
    'ALTER TABLE {prefix}endpoint DROP COLUMN batch', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
