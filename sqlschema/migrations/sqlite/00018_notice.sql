-- +goose Up
CREATE TABLE {prefix}notice ( -- Current problems and who was notified: a row from the first failure until the recovery was sent
    subject         TEXT NOT NULL, -- schedule; dead (letters of a queue); behind (a queue whose oldest job waits too long)
    name            TEXT NOT NULL, -- Name of the schedule or the queue
    problem         TEXT NOT NULL, -- failed, timeout, lost, missed, late or given-up; dead or behind
    detail          TEXT NOT NULL, -- The reason in words
    target          TEXT NOT NULL, -- Who is notified, separated by blanks; empty: as the daemons say
    run_id          INTEGER NOT NULL, -- The newest run that failed; 0: none
    due_at          TEXT, -- The slot of that run: a later one that ends well is the recovery
    times           INTEGER NOT NULL, -- Number of failures since the last success; of dead letters: their number
    begun_at        TEXT NOT NULL, -- The first failure
    last_at         TEXT NOT NULL, -- The newest failure
    tell_at         TEXT, -- Since when there is something to send; NULL: nothing new
    told_at         TEXT, -- When it was sent; NULL: not yet
    well_at         TEXT, -- When the recovery was seen; NULL: not recovered
    told_to         TEXT NOT NULL DEFAULT '', -- Who was notified, and will be notified of the recovery
    CONSTRAINT {name}notice_key PRIMARY KEY (subject, name)
) WITHOUT ROWID;
CREATE INDEX {name}notice_tell ON {prefix}notice (tell_at);

CREATE TABLE {prefix}notice_target ( -- How many notifications each target was recently sent
    target          TEXT NOT NULL, -- An address or a URL; empty: the row that a daemon locks while it gathers notifications
    sent_at         TEXT NOT NULL, -- When the last message was made; of the empty target: when schedules and queues were last checked
    hour_at         TEXT NOT NULL, -- Start of the hour in which messages are counted
    sent            INTEGER NOT NULL, -- Number of messages in this hour
    CONSTRAINT {name}notice_target_key PRIMARY KEY (target)
) WITHOUT ROWID;

ALTER TABLE {prefix}schedule ADD COLUMN notify TEXT NOT NULL DEFAULT ''; -- Who is notified when it fails: addresses and URLs separated by blanks, or none; empty: as the daemons say

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN notify;
DROP TABLE {prefix}notice_target;
DROP TABLE {prefix}notice;
