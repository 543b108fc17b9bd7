-- +goose Up
CREATE TABLE {prefix}queue_limit (
    queue_id        INT NOT NULL,
    kind            VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '',
    max_running     INT,
    rate            INT,
    rate_per        VARCHAR(40) NOT NULL DEFAULT '1s',
    burst           INT NOT NULL DEFAULT 1,
    drawn_at        TIMESTAMPTZ(6),
    waiting_by      VARCHAR(128) COLLATE "C" NOT NULL DEFAULT '',
    waiting_until   TIMESTAMPTZ(6),
    insert_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    update_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name}queue_limit_key PRIMARY KEY (queue_id, kind)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);

COMMENT ON TABLE {prefix}queue_limit IS 'How many jobs may run at a time, and begin in a time, over all workers';
COMMENT ON COLUMN {prefix}queue_limit.queue_id IS 'The queue';
COMMENT ON COLUMN {prefix}queue_limit.kind IS 'Of the jobs, compared by bytes; empty: all of the queue together';
COMMENT ON COLUMN {prefix}queue_limit.max_running IS 'How many may run at a time; NULL: any number';
COMMENT ON COLUMN {prefix}queue_limit.rate IS 'How many may begin in rate_per; NULL: any number';
COMMENT ON COLUMN {prefix}queue_limit.rate_per IS 'A duration, such as 1s or 1m';
COMMENT ON COLUMN {prefix}queue_limit.burst IS 'How many may begin at once after a pause';
COMMENT ON COLUMN {prefix}queue_limit.drawn_at IS 'Until when the rate has been used up; what is in the past may be used';
COMMENT ON COLUMN {prefix}queue_limit.waiting_by IS 'A worker that waits for a permit';
COMMENT ON COLUMN {prefix}queue_limit.waiting_until IS 'Until when it is taken to wait';
COMMENT ON COLUMN {prefix}queue_limit.insert_time IS 'When the row was made';
COMMENT ON COLUMN {prefix}queue_limit.update_time IS 'When the row last changed';

CREATE TABLE {prefix}queue_permit (
    queue_id        INT NOT NULL,
    kind            VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '',
    slot            INT NOT NULL,
    state           VARCHAR(16) NOT NULL DEFAULT 'FREE',
    lock_by         VARCHAR(128) COLLATE "C" NOT NULL DEFAULT '',
    lock_at         TIMESTAMPTZ(6),
    fence           BIGINT NOT NULL DEFAULT 0,
    CONSTRAINT {name}queue_permit_key PRIMARY KEY (queue_id, kind, slot)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);

COMMENT ON TABLE {prefix}queue_permit IS 'Permits to run a job that is limited: as many as the limit''s max_running, made when they are first needed';
COMMENT ON COLUMN {prefix}queue_permit.queue_id IS 'The queue';
COMMENT ON COLUMN {prefix}queue_permit.kind IS 'As in {prefix}queue_limit';
COMMENT ON COLUMN {prefix}queue_permit.slot IS 'From 0';
COMMENT ON COLUMN {prefix}queue_permit.state IS 'FREE or LEASED';
COMMENT ON COLUMN {prefix}queue_permit.lock_by IS 'The worker that has it, or had it last: see {prefix}node';
COMMENT ON COLUMN {prefix}queue_permit.lock_at IS 'When it was last taken';
COMMENT ON COLUMN {prefix}queue_permit.fence IS 'Rises whenever it is taken';

-- +goose Down
DROP TABLE {prefix}queue_permit;
DROP TABLE {prefix}queue_limit;
