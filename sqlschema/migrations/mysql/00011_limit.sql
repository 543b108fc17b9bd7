-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}queue_limit (
    queue_id        INT NOT NULL COMMENT 'The queue',
    kind            VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'Of the jobs, compared by bytes; empty: all of the queue together',
    max_running     INT COMMENT 'How many may run at a time; NULL: any number',
    rate            INT COMMENT 'How many may begin in rate_per; NULL: any number',
    rate_per        VARCHAR(40) NOT NULL DEFAULT '1s' COMMENT 'A duration, such as 1s or 1m',
    burst           INT NOT NULL DEFAULT 1 COMMENT 'How many may begin at once after a pause',
    drawn_at        DATETIME(6) COMMENT 'Until when the rate has been used up; what is in the past may be used',
    waiting_by      VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'A worker that waits for a permit',
    waiting_until   DATETIME(6) COMMENT 'Until when it is taken to wait',
    insert_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row was made',
    update_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row last changed',
    PRIMARY KEY (queue_id, kind)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'How many jobs may run at a time, and begin in a time, over all workers';

CREATE TABLE IF NOT EXISTS {prefix}queue_permit (
    queue_id        INT NOT NULL COMMENT 'The queue',
    kind            VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'As in {prefix}queue_limit',
    slot            INT NOT NULL COMMENT 'From 0',
    state           VARCHAR(16) NOT NULL DEFAULT 'FREE' COMMENT 'FREE or LEASED',
    lock_by         VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'The worker that has it, or had it last: see {prefix}node',
    lock_at         DATETIME(6) COMMENT 'When it was last taken',
    fence           BIGINT NOT NULL DEFAULT 0 COMMENT 'Rises whenever it is taken',
    PRIMARY KEY (queue_id, kind, slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Permits to run a job that is limited: as many as the limit''s max_running, made when they are first needed';

-- +goose Down
DROP TABLE IF EXISTS {prefix}queue_permit;
DROP TABLE IF EXISTS {prefix}queue_limit;
