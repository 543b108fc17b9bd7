-- +goose Up
CREATE TABLE {prefix}notice ( -- What is wrong now and who has been told: a row from the first failure until the recovery was told
    subject         TEXT NOT NULL, -- schedule; dead (letters of a queue); behind (a queue whose oldest job waits too long)
    name            TEXT NOT NULL, -- Of the schedule or the queue
    problem         TEXT NOT NULL, -- failed, timeout, lost, missed, late or given-up; dead or behind
    detail          TEXT NOT NULL, -- The reason in words
    target          TEXT NOT NULL, -- Who is told, with blanks between; empty: as the daemons say
    run_id          INTEGER NOT NULL, -- The newest run that failed; 0: none
    due_at          TEXT, -- The slot of that run: a later one that ends well is the recovery
    times           INTEGER NOT NULL, -- How often it has failed since it was last well; of dead letters: how many there are
    begun_at        TEXT NOT NULL, -- The first failure
    last_at         TEXT NOT NULL, -- The newest failure
    tell_at         TEXT, -- Since when there is something to tell; NULL: there is nothing new
    told_at         TEXT, -- When it was told; NULL: not yet
    well_at         TEXT, -- When it was seen to be well again; NULL: it is not
    told_to         TEXT NOT NULL DEFAULT '', -- Who was told, and will be told of the recovery
    CONSTRAINT {name}notice_key PRIMARY KEY (subject, name)
) WITHOUT ROWID;
CREATE INDEX {name}notice_tell ON {prefix}notice (tell_at);

CREATE TABLE {prefix}notice_target ( -- How many notifications each target was sent of late
    target          TEXT NOT NULL, -- An address or a URL; empty: the row that a daemon locks while it gathers what is to be told
    sent_at         TEXT NOT NULL, -- When the last message was made; of the empty target: when schedules and queues were last looked at
    hour_at         TEXT NOT NULL, -- When the hour began in which messages are counted
    sent            INTEGER NOT NULL, -- Messages in this hour
    CONSTRAINT {name}notice_target_key PRIMARY KEY (target)
) WITHOUT ROWID;

ALTER TABLE {prefix}schedule ADD COLUMN notify TEXT NOT NULL DEFAULT ''; -- Who is told when it fails: addresses and URLs with blanks between, or none; empty: as the daemons say

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN notify;
DROP TABLE {prefix}notice_target;
DROP TABLE {prefix}notice;
