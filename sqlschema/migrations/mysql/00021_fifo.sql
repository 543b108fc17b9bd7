-- +goose Up
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue_block' AND column_name = 'fifo'),
    'ALTER TABLE {prefix}queue_block ADD COLUMN fifo VARCHAR(3) NOT NULL DEFAULT ''no'' COMMENT ''Whether its jobs run one after the other, as if they had one key: yes or no''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue_block' AND column_name = 'fifo'),
    'ALTER TABLE {prefix}queue_block DROP COLUMN fifo', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
