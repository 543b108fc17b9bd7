-- +goose Up
-- A schedule whose spec, zone or rule for clock changes is changed by hand is planned anew.
-- Each step looks whether it was done: see 00003.
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'planned'),
    'ALTER TABLE {prefix}schedule ADD COLUMN planned VARCHAR(400) COMMENT ''From what the slot was planned: spec, time_zone and dst, separated by blanks; NULL: not planned yet, or by an older program''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
UPDATE {prefix}schedule SET planned = CONCAT(spec, ' ', time_zone, ' ', dst) WHERE next_exec IS NOT NULL AND planned IS NULL;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'stale'),
    'ALTER TABLE {prefix}schedule ADD COLUMN stale TINYINT GENERATED ALWAYS AS (CASE WHEN planned <> CONCAT(spec, '' '', time_zone, '' '', dst) THEN 1 END) STORED COMMENT ''1: these have changed since, by hand, so a daemon plans it anew; else NULL'', ADD KEY {name}schedule_stale (stale)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'stale'),
    'ALTER TABLE {prefix}schedule DROP KEY {name}schedule_stale, DROP COLUMN stale', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'planned'),
    'ALTER TABLE {prefix}schedule DROP COLUMN planned', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
