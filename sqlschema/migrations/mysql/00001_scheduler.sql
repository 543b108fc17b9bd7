-- +goose Up
-- What is no instant (zero dates, infinity, text) is refused here: a poll asks
-- for the smallest next_exec, and must be able to read it.
-- MySQL commits each CREATE TABLE at once. IF NOT EXISTS lets a migration that
-- died half way be run again.
CREATE TABLE IF NOT EXISTS {prefix}schedule (
    id          BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'Grows with each schedule that is made',
    name        VARCHAR(200) NOT NULL COMMENT 'Compared by bytes; in the history of runs too',
    source      VARCHAR(255) COMMENT 'The file that the schedule comes from, which alone changes or removes it; NULL: made by hand',
    source_key  VARCHAR(255) COMMENT 'What the schedule is recognized by in its source',
    spec        VARCHAR(256) NOT NULL COMMENT 'Five cron fields, or a macro such as @daily or @every 90s',
    time_zone   VARCHAR(64) NOT NULL DEFAULT 'UTC' COMMENT 'Zone of the tz database that the spec is read in',
    dst         VARCHAR(8) NOT NULL DEFAULT 'vixie' COMMENT 'When clocks change: vixie (fixed times run once) or wall (as the wall clock shows)',
    command     MEDIUMTEXT NOT NULL COMMENT 'What the shell runs, with the rights of the daemon',
    stdin       MEDIUMTEXT NOT NULL DEFAULT ('') COMMENT 'Text for its standard input',
    env         MEDIUMTEXT NOT NULL DEFAULT ('{}') COMMENT 'Its environment beside the defaults, a JSON object of strings; SHELL names the shell',
    state       VARCHAR(16) NOT NULL DEFAULT 'active' COMMENT 'active, paused, or failed (cannot be planned; see reason)' CHECK (state IN ('active', 'paused', 'failed')),
    reason      TEXT NOT NULL DEFAULT ('') COMMENT 'Why it is paused or failed',
    due_at      DATETIME(6) COMMENT 'The next slot',
    next_exec   DATETIME(6) COMMENT 'When a daemon may claim that slot',
    insert_time DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the schedule was made',
    update_time DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row last changed',
    UNIQUE KEY {name}schedule_name (name),
    UNIQUE KEY {name}schedule_source (source, source_key),
    KEY {name}schedule_next (state, next_exec),
    CONSTRAINT {name}schedule_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30'),
    CONSTRAINT {name}schedule_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30'),
    CONSTRAINT {name}schedule_order CHECK (due_at <= next_exec),
    CONSTRAINT {name}schedule_named CHECK (name <> '')
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'What runs when. A row with next_exec NULL and state active is planned by the next daemon';

CREATE TABLE IF NOT EXISTS {prefix}run (
    id          BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY COMMENT 'Grows with each row',
    schedule    VARCHAR(200) NOT NULL COMMENT 'Name of the schedule; the row stays when the schedule goes',
    due_at      DATETIME(6) NOT NULL COMMENT 'The slot',
    attempt     INT NOT NULL COMMENT '1, or more after a crash',
    state       VARCHAR(16) NOT NULL COMMENT 'running, retry, ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)' CHECK (state IN ('running', 'retry', 'ok', 'failed', 'timeout', 'lost', 'cancelled', 'skipped', 'missed')),
    due_to      DATETIME(6) COMMENT 'skipped and missed: the last slot of the stretch that due_at begins',
    slots       BIGINT NOT NULL DEFAULT 1 COMMENT 'skipped and missed: how many slots the stretch has; 10000 is that many or more',
    exec_by     VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'The daemon: host:pid:random',
    claim       VARCHAR(32) COMMENT 'Token of the transaction that claimed the run; NULL once it has ended',
    next_exec   DATETIME(6) COMMENT 'running: the end of its lease, when another daemon takes over; NULL once it has ended',
    renewals    BIGINT NOT NULL DEFAULT 0 COMMENT 'How often the lease was renewed',
    started_at  DATETIME(6) COMMENT 'When the attempt began',
    finished_at DATETIME(6) COMMENT 'When it ended, or was given up',
    exit_code   INT COMMENT 'Of the command; 128 + signal if a signal ended it',
    error       TEXT NOT NULL DEFAULT ('') COMMENT 'Why it did not end well',
    output      MEDIUMTEXT NOT NULL DEFAULT ('') COMMENT 'Standard output and error, head and tail',
    UNIQUE KEY {name}run_slot (schedule, due_at, attempt),
    KEY {name}run_next (next_exec),
    KEY {name}run_claim (claim),
    CONSTRAINT {name}run_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30'),
    CONSTRAINT {name}run_due_to CHECK (due_to BETWEEN '1971-01-01' AND '9999-12-30'),
    CONSTRAINT {name}run_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30'),
    CONSTRAINT {name}run_started_at CHECK (started_at BETWEEN '1971-01-01' AND '9999-12-30'),
    CONSTRAINT {name}run_finished_at CHECK (finished_at BETWEEN '1971-01-01' AND '9999-12-30')
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'What became of each slot: one row for each attempt, or for a stretch of slots that did not run';

-- +goose Down
DROP TABLE IF EXISTS {prefix}run;
DROP TABLE IF EXISTS {prefix}schedule;
