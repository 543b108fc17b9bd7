-- +goose Up
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_running' AND column_name = 'losses'),
    'ALTER TABLE {prefix}job_running ADD COLUMN losses INT NOT NULL DEFAULT 0 COMMENT ''How many workers lost their leases while it was running, and live''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_running' AND column_name = 'charged'),
    'ALTER TABLE {prefix}job_running ADD COLUMN charged VARCHAR(400) NOT NULL DEFAULT '''' COMMENT ''The workers whose loss counts in crashes, by the ends of their names: one that lives takes its own back''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_running' AND column_name = 'losses'),
    'ALTER TABLE {prefix}job_running DROP COLUMN losses', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_running' AND column_name = 'charged'),
    'ALTER TABLE {prefix}job_running DROP COLUMN charged', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
