-- +goose Up
-- MySQL commits each ALTER TABLE at once, and has no ADD COLUMN IF NOT EXISTS:
-- each step looks whether it was done, so that a migration that died half way can
-- be run again. An unnamed CHECK is dropped by its name on MySQL, and replaced
-- with its column on MariaDB.
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.table_constraints WHERE constraint_schema = DATABASE() AND constraint_name = '{name}schedule_chk_1'),
    'ALTER TABLE {prefix}schedule DROP CONSTRAINT {name}schedule_chk_1', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.table_constraints WHERE constraint_schema = DATABASE() AND constraint_name = '{name}run_chk_1'),
    'ALTER TABLE {prefix}run DROP CONSTRAINT {name}run_chk_1', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'kind'),
    'ALTER TABLE {prefix}schedule
    ADD COLUMN kind VARCHAR(8) NOT NULL DEFAULT ''shell'' COMMENT ''What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function)'' CHECK (kind IN (''shell'', ''argv'', ''http'', ''sql'', ''func'')),
    ADD COLUMN headers TEXT NOT NULL DEFAULT (''{}'') COMMENT ''Of a request, a JSON object of strings'',
    ADD COLUMN dir TEXT NOT NULL DEFAULT ('''') COMMENT ''Where a command starts; empty: the daemon says'',
    ADD COLUMN run_as VARCHAR(64) NOT NULL DEFAULT '''' COMMENT ''The user a command runs as, if the daemon is root; empty: the daemon''''s'',
    ADD COLUMN tag VARCHAR(64) NOT NULL DEFAULT ''default'' COMMENT ''Daemons that are given this tag run it'',
    ADD COLUMN missed VARCHAR(8) NOT NULL DEFAULT ''once'' COMMENT ''Slots that passed while no daemon could run them: skip, once (the newest runs) or all'',
    ADD COLUMN missed_window VARCHAR(32) NOT NULL DEFAULT '''' COMMENT ''How late a slot may still run, such as 90s or 2h; empty: 1m with skip, else any time'',
    ADD COLUMN overlap VARCHAR(8) NOT NULL DEFAULT ''forbid'' COMMENT ''A slot that comes while the run before is under way: forbid (skipped), allow, queue or replace'',
    ADD COLUMN first_run VARCHAR(8) NOT NULL DEFAULT ''next'' COMMENT ''When a new schedule runs first: next (slot) or now'',
    ADD COLUMN max_attempts INT NOT NULL DEFAULT 1 COMMENT ''How often a slot is tried whose work fails'',
    ADD COLUMN retry_delay VARCHAR(32) NOT NULL DEFAULT ''10s'' COMMENT ''Before the second attempt; doubles with each further one'',
    ADD COLUMN retry_max_delay VARCHAR(32) NOT NULL DEFAULT ''1h'' COMMENT ''Between two attempts at the most'',
    ADD COLUMN retry_past_next VARCHAR(3) NOT NULL DEFAULT ''no'' COMMENT ''Whether attempts go on when the next slot has come: yes or no'',
    ADD COLUMN timeout VARCHAR(32) NOT NULL DEFAULT '''' COMMENT ''When a run is ended, such as 15m; empty: never'',
    ADD COLUMN kill_grace VARCHAR(32) NOT NULL DEFAULT '''' COMMENT ''From SIGTERM to SIGKILL; empty: the daemon says'',
    ADD COLUMN jitter VARCHAR(32) NOT NULL DEFAULT '''' COMMENT ''Slots run up to so much later, to spread them; empty: not at all'',
    ADD COLUMN starts_at DATETIME(6) COMMENT ''There are no slots before'',
    ADD COLUMN ends_at DATETIME(6) COMMENT ''There are no slots after'',
    ADD COLUMN max_failures INT NOT NULL DEFAULT 0 COMMENT ''After so many failed slots in a row the schedule fails; 0: never'',
    ADD COLUMN keep_runs INT NOT NULL DEFAULT 1000 COMMENT ''How many runs the history keeps, about; -1: all'',
    ADD COLUMN keep_for VARCHAR(32) NOT NULL DEFAULT ''30d'' COMMENT ''How long the history keeps runs; forever: always'',
    ADD COLUMN on_success VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''The schedule that starts when a run of this one has ended well'',
    ADD COLUMN on_failure VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''The schedule that starts when a slot of this one has failed for good'',
    ADD COLUMN failures INT NOT NULL DEFAULT 0 COMMENT ''Slots that failed in a row'',
    ADD COLUMN fence BIGINT NOT NULL DEFAULT 0 COMMENT ''Grows with each attempt that begins'',
    ADD COLUMN lane VARCHAR(300) GENERATED ALWAYS AS (CASE WHEN kind = ''func'' THEN CONCAT(tag, '' func '', LEFT(command, 200)) ELSE tag END) STORED COMMENT ''Which daemons may claim it: the tag and, for a function, its name'',
    MODIFY COLUMN state VARCHAR(16) NOT NULL DEFAULT ''active'' COMMENT ''active, paused, ended (its end is past), or failed (see reason)'' CHECK (state IN (''active'', ''paused'', ''ended'', ''failed'')),
    MODIFY COLUMN command MEDIUMTEXT NOT NULL COMMENT ''What is run, with the rights of the daemon; kind says how it is read'',
    MODIFY COLUMN stdin MEDIUMTEXT NOT NULL DEFAULT ('''') COMMENT ''Text for a command''''s standard input, the body of a request, or the input of a function'',
    ADD CONSTRAINT {name}schedule_range CHECK (starts_at BETWEEN ''1971-01-01'' AND ''9999-12-30'' AND ends_at BETWEEN ''1971-01-01'' AND ''9999-12-30''),
    DROP KEY {name}schedule_next,
    ADD KEY {name}schedule_next (state, lane, next_exec)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}run' AND column_name = 'lane'),
    'ALTER TABLE {prefix}run
    ADD COLUMN lane VARCHAR(300) NOT NULL DEFAULT ''default'' COMMENT ''Of the schedule, when the run was made'',
    ADD COLUMN cause VARCHAR(8) NOT NULL DEFAULT ''slot'' COMMENT ''Why it is run: slot, hand (run now), backfill or chain'',
    ADD COLUMN fence BIGINT NOT NULL DEFAULT 0 COMMENT ''Larger than that of every attempt of the schedule that began before'',
    ADD COLUMN failures INT NOT NULL DEFAULT 0 COMMENT ''Attempts at the slot that have failed before this one'',
    ADD COLUMN crashes INT NOT NULL DEFAULT 0 COMMENT ''Attempts at the slot that were lost before this one'',
    ADD COLUMN cancel VARCHAR(255) COMMENT ''Somebody wants the run to end, and why; NULL: nobody does'',
    ADD COLUMN purge_at DATETIME(6) COMMENT ''When the row is removed from the history; NULL: never, or it has not ended'',
    MODIFY COLUMN state VARCHAR(16) NOT NULL COMMENT ''waiting (for its time, or for the run before), running, retry (handed back), ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)'' CHECK (state IN (''waiting'', ''running'', ''retry'', ''ok'', ''failed'', ''timeout'', ''lost'', ''cancelled'', ''skipped'', ''missed'')),
    MODIFY COLUMN attempt INT NOT NULL COMMENT ''1, or more after a crash or a failure'',
    MODIFY COLUMN exit_code INT COMMENT ''Of a command, 128 + signal if a signal ended it; of a request, its status'',
    MODIFY COLUMN next_exec DATETIME(6) COMMENT ''When a daemon may take it: waiting: its time; running: the end of its lease; NULL once it has ended'',
    DROP KEY {name}run_next,
    DROP KEY {name}run_claim,
    ADD KEY {name}run_next (lane, next_exec),
    ADD KEY {name}run_open (schedule, next_exec),
    ADD KEY {name}run_purge (purge_at)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
UPDATE {prefix}run SET purge_at = UTC_TIMESTAMP(6) + INTERVAL 30 DAY WHERE next_exec IS NULL AND purge_at IS NULL;

-- +goose Down
UPDATE {prefix}run SET state = 'cancelled', next_exec = NULL, error = 'waited when the tables were taken back' WHERE state = 'waiting';
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.table_constraints WHERE constraint_schema = DATABASE() AND constraint_name = '{name}run_chk_1'),
    'ALTER TABLE {prefix}run DROP CONSTRAINT {name}run_chk_1', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.table_constraints WHERE constraint_schema = DATABASE() AND constraint_name = '{name}schedule_chk_1'),
    'ALTER TABLE {prefix}schedule DROP CONSTRAINT {name}schedule_chk_1', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}run' AND column_name = 'lane'),
    'ALTER TABLE {prefix}run
    MODIFY COLUMN state VARCHAR(16) NOT NULL COMMENT ''running, retry, ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)'' CHECK (state IN (''running'', ''retry'', ''ok'', ''failed'', ''timeout'', ''lost'', ''cancelled'', ''skipped'', ''missed'')),
    MODIFY COLUMN attempt INT NOT NULL COMMENT ''1, or more after a crash'',
    MODIFY COLUMN exit_code INT COMMENT ''Of the command; 128 + signal if a signal ended it'',
    MODIFY COLUMN next_exec DATETIME(6) COMMENT ''running: the end of its lease, when another daemon takes over; NULL once it has ended'',
    DROP KEY {name}run_next,
    DROP KEY {name}run_open,
    DROP KEY {name}run_purge,
    DROP COLUMN lane,
    DROP COLUMN cause,
    DROP COLUMN fence,
    DROP COLUMN failures,
    DROP COLUMN crashes,
    DROP COLUMN cancel,
    DROP COLUMN purge_at,
    ADD KEY {name}run_next (next_exec),
    ADD KEY {name}run_claim (claim)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
-- What the older program cannot run it must not take for a line for the shell.
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'kind'),
    'UPDATE {prefix}schedule SET state = ''failed'', next_exec = NULL, reason = ''the tables were taken back to a version without this kind of schedule'' WHERE kind <> ''shell'' OR state = ''ended'' OR spec = ''@manual''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'kind'),
    'ALTER TABLE {prefix}schedule
    DROP CONSTRAINT {name}schedule_range,
    MODIFY COLUMN state VARCHAR(16) NOT NULL DEFAULT ''active'' COMMENT ''active, paused, or failed (cannot be planned; see reason)'' CHECK (state IN (''active'', ''paused'', ''failed'')),
    MODIFY COLUMN command MEDIUMTEXT NOT NULL COMMENT ''What the shell runs, with the rights of the daemon'',
    MODIFY COLUMN stdin MEDIUMTEXT NOT NULL DEFAULT ('''') COMMENT ''Text for its standard input'',
    DROP KEY {name}schedule_next,
    DROP COLUMN lane,
    DROP COLUMN kind,
    DROP COLUMN headers,
    DROP COLUMN dir,
    DROP COLUMN run_as,
    DROP COLUMN tag,
    DROP COLUMN missed,
    DROP COLUMN missed_window,
    DROP COLUMN overlap,
    DROP COLUMN first_run,
    DROP COLUMN max_attempts,
    DROP COLUMN retry_delay,
    DROP COLUMN retry_max_delay,
    DROP COLUMN retry_past_next,
    DROP COLUMN timeout,
    DROP COLUMN kill_grace,
    DROP COLUMN jitter,
    DROP COLUMN starts_at,
    DROP COLUMN ends_at,
    DROP COLUMN max_failures,
    DROP COLUMN keep_runs,
    DROP COLUMN keep_for,
    DROP COLUMN on_success,
    DROP COLUMN on_failure,
    DROP COLUMN failures,
    DROP COLUMN fence,
    ADD KEY {name}schedule_next (state, next_exec)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
