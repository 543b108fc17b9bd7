-- +goose Up
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_delayed' AND column_name = 'stops'),
    'ALTER TABLE {prefix}job_delayed ADD COLUMN stops INT NOT NULL DEFAULT 0 COMMENT ''How many workers in a row were stopped within a minute after they had begun it'', ADD COLUMN stopped_at DATETIME(6) COMMENT ''When the last of them handed it back; NULL: none did'', ADD KEY {name}job_delayed_stopped (stopped_at)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_delayed' AND column_name = 'stops'),
    'ALTER TABLE {prefix}job_delayed DROP KEY {name}job_delayed_stopped, DROP COLUMN stops, DROP COLUMN stopped_at', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
