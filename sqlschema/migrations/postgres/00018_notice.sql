-- +goose Up
CREATE TABLE {prefix}notice (
    subject         VARCHAR(8) COLLATE "C" NOT NULL,
    name            VARCHAR(200) COLLATE "C" NOT NULL,
    problem         VARCHAR(16) COLLATE "C" NOT NULL,
    detail          TEXT COLLATE "C" NOT NULL,
    target          TEXT COLLATE "C" NOT NULL,
    run_id          BIGINT NOT NULL,
    due_at          TIMESTAMPTZ(6),
    times           BIGINT NOT NULL,
    begun_at        TIMESTAMPTZ(6) NOT NULL,
    last_at         TIMESTAMPTZ(6) NOT NULL,
    tell_at         TIMESTAMPTZ(6),
    told_at         TIMESTAMPTZ(6),
    well_at         TIMESTAMPTZ(6),
    told_to         TEXT COLLATE "C" NOT NULL DEFAULT '',
    CONSTRAINT {name}notice_key PRIMARY KEY (subject, name)
);
CREATE INDEX {name}notice_tell ON {prefix}notice (tell_at);

COMMENT ON TABLE {prefix}notice IS 'Current problems and who was notified: a row from the first failure until the recovery was sent';
COMMENT ON COLUMN {prefix}notice.subject IS 'schedule; dead (letters of a queue); behind (a queue whose oldest job waits too long)';
COMMENT ON COLUMN {prefix}notice.name IS 'Name of the schedule or the queue';
COMMENT ON COLUMN {prefix}notice.problem IS 'failed, timeout, lost, missed, late or given-up; dead or behind';
COMMENT ON COLUMN {prefix}notice.detail IS 'The reason in words';
COMMENT ON COLUMN {prefix}notice.target IS 'Who is notified, separated by blanks; empty: as the daemons say';
COMMENT ON COLUMN {prefix}notice.run_id IS 'The newest run that failed; 0: none';
COMMENT ON COLUMN {prefix}notice.due_at IS 'The slot of that run: a later one that ends well is the recovery';
COMMENT ON COLUMN {prefix}notice.times IS 'Number of failures since the last success; of dead letters: their number';
COMMENT ON COLUMN {prefix}notice.begun_at IS 'The first failure';
COMMENT ON COLUMN {prefix}notice.last_at IS 'The newest failure';
COMMENT ON COLUMN {prefix}notice.tell_at IS 'Since when there is something to send; NULL: nothing new';
COMMENT ON COLUMN {prefix}notice.told_at IS 'When it was sent; NULL: not yet';
COMMENT ON COLUMN {prefix}notice.well_at IS 'When the recovery was seen; NULL: not recovered';
COMMENT ON COLUMN {prefix}notice.told_to IS 'Who was notified, and will be notified of the recovery';

CREATE TABLE {prefix}notice_target (
    target          VARCHAR(700) COLLATE "C" NOT NULL,
    sent_at         TIMESTAMPTZ(6) NOT NULL,
    hour_at         TIMESTAMPTZ(6) NOT NULL,
    sent            INT NOT NULL,
    CONSTRAINT {name}notice_target_key PRIMARY KEY (target)
);

COMMENT ON TABLE {prefix}notice_target IS 'How many notifications each target was recently sent';
COMMENT ON COLUMN {prefix}notice_target.target IS 'An address or a URL; empty: the row that a daemon locks while it gathers notifications';
COMMENT ON COLUMN {prefix}notice_target.sent_at IS 'When the last message was made; of the empty target: when schedules and queues were last checked';
COMMENT ON COLUMN {prefix}notice_target.hour_at IS 'Start of the hour in which messages are counted';
COMMENT ON COLUMN {prefix}notice_target.sent IS 'Number of messages in this hour';

ALTER TABLE {prefix}schedule ADD COLUMN notify TEXT COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}schedule.notify IS 'Who is notified when it fails: addresses and URLs separated by blanks, or none; empty: as the daemons say';

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN notify;
DROP TABLE {prefix}notice_target;
DROP TABLE {prefix}notice;
