-- +goose Up
CREATE TABLE {prefix}endpoint (
    queue_id        INT NOT NULL,
    url             VARCHAR(1000) NOT NULL DEFAULT '',
    format          VARCHAR(16) NOT NULL DEFAULT 'plain',
    concurrency     INT NOT NULL DEFAULT 16,
    timeout         VARCHAR(32) NOT NULL DEFAULT '30s',
    secret          VARCHAR(200) NOT NULL DEFAULT '',
    old_secret      VARCHAR(200) NOT NULL DEFAULT '',
    insert_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    update_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name}endpoint_key PRIMARY KEY (queue_id)
);

COMMENT ON TABLE {prefix}endpoint IS 'Where the jobs of a queue are sent by HTTP. The jobs of a queue that has no row here are done by workers';
COMMENT ON COLUMN {prefix}endpoint.queue_id IS 'The queue';
COMMENT ON COLUMN {prefix}endpoint.url IS 'Where its jobs are sent that do not say; empty: all say';
COMMENT ON COLUMN {prefix}endpoint.format IS 'plain, or cloudevents (headers of its binary mode, too)';
COMMENT ON COLUMN {prefix}endpoint.concurrency IS 'How many are sent at a time by each dispatcher';
COMMENT ON COLUMN {prefix}endpoint.timeout IS 'Of a request, if neither job nor queue say less';
COMMENT ON COLUMN {prefix}endpoint.secret IS 'The key that signs requests, as in Standard Webhooks: whsec_ and base64';
COMMENT ON COLUMN {prefix}endpoint.old_secret IS 'The key before, which signs them as well; empty: none';
COMMENT ON COLUMN {prefix}endpoint.insert_time IS 'When the row was made';
COMMENT ON COLUMN {prefix}endpoint.update_time IS 'When the row last changed';

ALTER TABLE {prefix}job ADD COLUMN endpoint VARCHAR(1000);
COMMENT ON COLUMN {prefix}job.endpoint IS 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint';
ALTER TABLE {prefix}job_delayed ADD COLUMN endpoint VARCHAR(1000);
COMMENT ON COLUMN {prefix}job_delayed.endpoint IS 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint';
ALTER TABLE {prefix}job_running ADD COLUMN endpoint VARCHAR(1000);
COMMENT ON COLUMN {prefix}job_running.endpoint IS 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint';
ALTER TABLE {prefix}job_dead ADD COLUMN endpoint VARCHAR(1000);
COMMENT ON COLUMN {prefix}job_dead.endpoint IS 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint';
ALTER TABLE {prefix}job_done ADD COLUMN endpoint VARCHAR(1000);
COMMENT ON COLUMN {prefix}job_done.endpoint IS 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint';

ALTER TABLE {prefix}node ADD COLUMN under VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}node.under IS 'The lock under which it works: whoever gets that after it takes over what it has; empty: none';

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN under;
ALTER TABLE {prefix}job_done DROP COLUMN endpoint;
ALTER TABLE {prefix}job_dead DROP COLUMN endpoint;
ALTER TABLE {prefix}job_running DROP COLUMN endpoint;
ALTER TABLE {prefix}job_delayed DROP COLUMN endpoint;
ALTER TABLE {prefix}job DROP COLUMN endpoint;
DROP TABLE {prefix}endpoint;
