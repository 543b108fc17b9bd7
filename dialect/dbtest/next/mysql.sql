-- +goose Up
-- A migration as the next version may have one, for tests of upgrades: see postgres.sql.
-- MySQL commits each ALTER TABLE at once, and has no ADD COLUMN IF NOT EXISTS: each step looks whether it was done, so
-- that a migration that died half way can be run again.
CREATE TABLE IF NOT EXISTS {prefix}made_up (
    name VARCHAR(200) NOT NULL COMMENT 'Of nothing',
    note TEXT NOT NULL DEFAULT ('') COMMENT 'About nothing',
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Nothing';
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue' AND column_name = 'made_up'),
    'ALTER TABLE {prefix}queue ADD COLUMN made_up VARCHAR(32) NOT NULL DEFAULT '''' COMMENT ''Of a queue, nothing''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'made_up'),
    'ALTER TABLE {prefix}schedule ADD COLUMN made_up VARCHAR(200) COMMENT ''Of a schedule, its name when the column was made'', ADD KEY {name}schedule_made_up (made_up)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
UPDATE {prefix}schedule SET made_up = name WHERE made_up IS NULL;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'made_up'),
    'ALTER TABLE {prefix}schedule DROP KEY {name}schedule_made_up, DROP COLUMN made_up', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}queue' AND column_name = 'made_up'),
    'ALTER TABLE {prefix}queue DROP COLUMN made_up', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
DROP TABLE IF EXISTS {prefix}made_up;
