-- +goose Up
ALTER TABLE {prefix}schedule
    ADD COLUMN kind VARCHAR(8) NOT NULL DEFAULT 'shell' CHECK (kind IN ('shell', 'argv', 'http', 'sql', 'func')),
    ADD COLUMN headers TEXT NOT NULL DEFAULT '{}',
    ADD COLUMN dir TEXT NOT NULL DEFAULT '',
    ADD COLUMN run_as VARCHAR(64) NOT NULL DEFAULT '',
    ADD COLUMN tag VARCHAR(64) COLLATE "C" NOT NULL DEFAULT 'default',
    ADD COLUMN missed VARCHAR(8) NOT NULL DEFAULT 'once',
    ADD COLUMN missed_window VARCHAR(32) NOT NULL DEFAULT '',
    ADD COLUMN overlap VARCHAR(8) NOT NULL DEFAULT 'forbid',
    ADD COLUMN first_run VARCHAR(8) NOT NULL DEFAULT 'next',
    ADD COLUMN max_attempts INT NOT NULL DEFAULT 1,
    ADD COLUMN retry_delay VARCHAR(32) NOT NULL DEFAULT '10s',
    ADD COLUMN retry_max_delay VARCHAR(32) NOT NULL DEFAULT '1h',
    ADD COLUMN retry_past_next VARCHAR(3) NOT NULL DEFAULT 'no',
    ADD COLUMN timeout VARCHAR(32) NOT NULL DEFAULT '',
    ADD COLUMN kill_grace VARCHAR(32) NOT NULL DEFAULT '',
    ADD COLUMN jitter VARCHAR(32) NOT NULL DEFAULT '',
    ADD COLUMN starts_at TIMESTAMPTZ(6),
    ADD COLUMN ends_at TIMESTAMPTZ(6),
    ADD COLUMN max_failures INT NOT NULL DEFAULT 0,
    ADD COLUMN keep_runs INT NOT NULL DEFAULT 1000,
    ADD COLUMN keep_for VARCHAR(32) NOT NULL DEFAULT '30d',
    ADD COLUMN on_success VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN on_failure VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN failures INT NOT NULL DEFAULT 0,
    ADD COLUMN fence BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN lane VARCHAR(300) COLLATE "C" GENERATED ALWAYS AS (CASE WHEN kind = 'func' THEN tag || ' func ' || LEFT(command, 200) ELSE tag END) STORED,
    DROP CONSTRAINT {name}schedule_state_check,
    ADD CONSTRAINT {name}schedule_state_check CHECK (state IN ('active', 'paused', 'ended', 'failed')),
    ADD CONSTRAINT {name}schedule_range CHECK (starts_at BETWEEN '1971-01-01' AND '9999-12-30' AND ends_at BETWEEN '1971-01-01' AND '9999-12-30');
DROP INDEX {prefix}schedule_next;
CREATE INDEX {name}schedule_next ON {prefix}schedule (state, lane, next_exec);

COMMENT ON COLUMN {prefix}schedule.kind IS 'What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function)';
COMMENT ON COLUMN {prefix}schedule.headers IS 'Of a request, a JSON object of strings';
COMMENT ON COLUMN {prefix}schedule.dir IS 'Where a command starts; empty: the daemon says';
COMMENT ON COLUMN {prefix}schedule.run_as IS 'The user a command runs as, if the daemon is root; empty: the daemon''s';
COMMENT ON COLUMN {prefix}schedule.tag IS 'Daemons that are given this tag run it';
COMMENT ON COLUMN {prefix}schedule.missed IS 'Slots that passed while no daemon could run them: skip, once (the newest runs) or all';
COMMENT ON COLUMN {prefix}schedule.missed_window IS 'How late a slot may still run, such as 90s or 2h; empty: 1m with skip, else any time';
COMMENT ON COLUMN {prefix}schedule.overlap IS 'A slot that comes while the run before is under way: forbid (skipped), allow, queue or replace';
COMMENT ON COLUMN {prefix}schedule.first_run IS 'When a new schedule runs first: next (slot) or now';
COMMENT ON COLUMN {prefix}schedule.max_attempts IS 'How often a slot is tried whose work fails';
COMMENT ON COLUMN {prefix}schedule.retry_delay IS 'Before the second attempt; doubles with each further one';
COMMENT ON COLUMN {prefix}schedule.retry_max_delay IS 'Between two attempts at the most';
COMMENT ON COLUMN {prefix}schedule.retry_past_next IS 'Whether attempts go on when the next slot has come: yes or no';
COMMENT ON COLUMN {prefix}schedule.timeout IS 'When a run is ended, such as 15m; empty: never';
COMMENT ON COLUMN {prefix}schedule.kill_grace IS 'From SIGTERM to SIGKILL; empty: the daemon says';
COMMENT ON COLUMN {prefix}schedule.jitter IS 'Slots run up to so much later, to spread them; empty: not at all';
COMMENT ON COLUMN {prefix}schedule.starts_at IS 'There are no slots before';
COMMENT ON COLUMN {prefix}schedule.ends_at IS 'There are no slots after';
COMMENT ON COLUMN {prefix}schedule.max_failures IS 'After so many failed slots in a row the schedule fails; 0: never';
COMMENT ON COLUMN {prefix}schedule.keep_runs IS 'How many runs the history keeps, about; -1: all';
COMMENT ON COLUMN {prefix}schedule.keep_for IS 'How long the history keeps runs; forever: always';
COMMENT ON COLUMN {prefix}schedule.on_success IS 'The schedule that starts when a run of this one has ended well';
COMMENT ON COLUMN {prefix}schedule.on_failure IS 'The schedule that starts when a slot of this one has failed for good';
COMMENT ON COLUMN {prefix}schedule.failures IS 'Slots that failed in a row';
COMMENT ON COLUMN {prefix}schedule.fence IS 'Grows with each attempt that begins';
COMMENT ON COLUMN {prefix}schedule.lane IS 'Which daemons may claim it: the tag and, for a function, its name';
COMMENT ON COLUMN {prefix}schedule.state IS 'active, paused, ended (its end is past), or failed (see reason)';
COMMENT ON COLUMN {prefix}schedule.command IS 'What is run, with the rights of the daemon; kind says how it is read';
COMMENT ON COLUMN {prefix}schedule.stdin IS 'Text for a command''s standard input, the body of a request, or the input of a function';

ALTER TABLE {prefix}run
    ADD COLUMN lane VARCHAR(300) COLLATE "C" NOT NULL DEFAULT 'default',
    ADD COLUMN cause VARCHAR(8) NOT NULL DEFAULT 'slot',
    ADD COLUMN fence BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN failures INT NOT NULL DEFAULT 0,
    ADD COLUMN crashes INT NOT NULL DEFAULT 0,
    ADD COLUMN cancel VARCHAR(255),
    ADD COLUMN purge_at TIMESTAMPTZ(6),
    DROP CONSTRAINT {name}run_state_check,
    ADD CONSTRAINT {name}run_state_check CHECK (state IN ('waiting', 'running', 'retry', 'ok', 'failed', 'timeout', 'lost', 'cancelled', 'skipped', 'missed'));
DROP INDEX {prefix}run_next;
DROP INDEX {prefix}run_claim;
CREATE INDEX {name}run_next ON {prefix}run (lane, next_exec) WHERE next_exec IS NOT NULL;
CREATE INDEX {name}run_open ON {prefix}run (schedule) WHERE next_exec IS NOT NULL;
CREATE INDEX {name}run_purge ON {prefix}run (purge_at) WHERE purge_at IS NOT NULL;
UPDATE {prefix}run SET purge_at = statement_timestamp() + interval '30 days' WHERE next_exec IS NULL;

COMMENT ON COLUMN {prefix}run.lane IS 'Of the schedule, when the run was made';
COMMENT ON COLUMN {prefix}run.cause IS 'Why it is run: slot, hand (run now), backfill or chain';
COMMENT ON COLUMN {prefix}run.fence IS 'Larger than that of every attempt of the schedule that began before';
COMMENT ON COLUMN {prefix}run.failures IS 'Attempts at the slot that have failed before this one';
COMMENT ON COLUMN {prefix}run.crashes IS 'Attempts at the slot that were lost before this one';
COMMENT ON COLUMN {prefix}run.cancel IS 'Somebody wants the run to end, and why; NULL: nobody does';
COMMENT ON COLUMN {prefix}run.purge_at IS 'When the row is removed from the history; NULL: never, or it has not ended';
COMMENT ON COLUMN {prefix}run.state IS 'waiting (for its time, or for the run before), running, retry (handed back), ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)';
COMMENT ON COLUMN {prefix}run.next_exec IS 'When a daemon may take it: waiting: its time; running: the end of its lease; NULL once it has ended';
COMMENT ON COLUMN {prefix}run.attempt IS '1, or more after a crash or a failure';
COMMENT ON COLUMN {prefix}run.exit_code IS 'Of a command, 128 + signal if a signal ended it; of a request, its status';

-- +goose Down
DROP INDEX {prefix}run_next;
DROP INDEX {prefix}run_open;
DROP INDEX {prefix}run_purge;
UPDATE {prefix}run SET state = 'cancelled', next_exec = NULL, error = 'waited when the tables were taken back' WHERE state = 'waiting';
ALTER TABLE {prefix}run
    DROP COLUMN lane,
    DROP COLUMN cause,
    DROP COLUMN fence,
    DROP COLUMN failures,
    DROP COLUMN crashes,
    DROP COLUMN cancel,
    DROP COLUMN purge_at,
    DROP CONSTRAINT {name}run_state_check,
    ADD CONSTRAINT {name}run_state_check CHECK (state IN ('running', 'retry', 'ok', 'failed', 'timeout', 'lost', 'cancelled', 'skipped', 'missed'));
CREATE INDEX {name}run_next ON {prefix}run (next_exec) WHERE next_exec IS NOT NULL;
CREATE INDEX {name}run_claim ON {prefix}run (claim) WHERE claim IS NOT NULL;
-- What the older program cannot run it must not take for a line for the shell.
UPDATE {prefix}schedule SET state = 'failed', next_exec = NULL, reason = 'the tables were taken back to a version without this kind of schedule'
WHERE kind <> 'shell' OR state = 'ended' OR spec = '@manual';
DROP INDEX {prefix}schedule_next;
ALTER TABLE {prefix}schedule
    DROP COLUMN lane,
    DROP CONSTRAINT {name}schedule_range,
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
    DROP CONSTRAINT {name}schedule_state_check,
    ADD CONSTRAINT {name}schedule_state_check CHECK (state IN ('active', 'paused', 'failed'));
CREATE INDEX {name}schedule_next ON {prefix}schedule (state, next_exec);
