-- +goose Up
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'job_unique'),
    'ALTER TABLE {prefix}schedule
    ADD COLUMN job_unique VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''Unique key of the job; while a job of the queue has it, slots are skipped; empty: none'',
    ADD COLUMN job_unique_for VARCHAR(32) NOT NULL DEFAULT '''' COMMENT ''How long the job keeps its unique key at least, such as 24h; empty: until it has ended''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'job_unique'),
    'ALTER TABLE {prefix}schedule DROP COLUMN job_unique_for, DROP COLUMN job_unique', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
