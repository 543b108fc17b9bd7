-- +goose Up
-- IF NOT EXISTS: see 00001. The last step looks whether it was done: see 00003.
CREATE TABLE IF NOT EXISTS {prefix}notice (
    subject         VARCHAR(8) NOT NULL COMMENT 'schedule; dead (letters of a queue); behind (a queue whose oldest job waits too long)',
    name            VARCHAR(200) NOT NULL COMMENT 'Name of the schedule or the queue',
    problem         VARCHAR(16) NOT NULL COMMENT 'failed, timeout, lost, missed, late or given-up; dead or behind',
    detail          TEXT NOT NULL COMMENT 'The reason in words',
    target          TEXT NOT NULL COMMENT 'Who is notified, separated by blanks; empty: as the daemons say',
    run_id          BIGINT NOT NULL COMMENT 'The newest run that failed; 0: none',
    due_at          DATETIME(6) COMMENT 'The slot of that run: a later one that ends well is the recovery',
    times           BIGINT NOT NULL COMMENT 'Number of failures since the last success; of dead letters: their number',
    begun_at        DATETIME(6) NOT NULL COMMENT 'The first failure',
    last_at         DATETIME(6) NOT NULL COMMENT 'The newest failure',
    tell_at         DATETIME(6) COMMENT 'Since when there is something to send; NULL: nothing new',
    told_at         DATETIME(6) COMMENT 'When it was sent; NULL: not yet',
    well_at         DATETIME(6) COMMENT 'When the recovery was seen; NULL: not recovered',
    told_to         TEXT NOT NULL DEFAULT ('') COMMENT 'Who was notified, and will be notified of the recovery',
    PRIMARY KEY (subject, name),
    KEY {name}notice_tell (tell_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Current problems and who was notified: a row from the first failure until the recovery was sent';

CREATE TABLE IF NOT EXISTS {prefix}notice_target (
    target          VARCHAR(700) NOT NULL COMMENT 'An address or a URL; empty: the row that a daemon locks while it gathers notifications',
    sent_at         DATETIME(6) NOT NULL COMMENT 'When the last message was made; of the empty target: when schedules and queues were last checked',
    hour_at         DATETIME(6) NOT NULL COMMENT 'Start of the hour in which messages are counted',
    sent            INT NOT NULL COMMENT 'Number of messages in this hour',
    PRIMARY KEY (target)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'How many notifications each target was recently sent';

SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'notify'),
    'ALTER TABLE {prefix}schedule ADD COLUMN notify TEXT NOT NULL DEFAULT ('''') COMMENT ''Who is notified when it fails: addresses and URLs separated by blanks, or none; empty: as the daemons say''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'notify'),
    'ALTER TABLE {prefix}schedule DROP COLUMN notify', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
DROP TABLE IF EXISTS {prefix}notice_target;
DROP TABLE IF EXISTS {prefix}notice;
