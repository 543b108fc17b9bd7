-- +goose Up
CREATE TABLE {prefix}endpoint ( -- Where the jobs of a queue are sent by HTTP. The jobs of a queue that has no row here are done by workers
    queue_id        INTEGER NOT NULL, -- The queue
    url             TEXT NOT NULL DEFAULT '', -- Where its jobs are sent that do not say; empty: all say
    format          TEXT NOT NULL DEFAULT 'plain', -- plain, or cloudevents (headers of its binary mode, too)
    concurrency     INTEGER NOT NULL DEFAULT 16, -- How many are sent at a time by each dispatcher
    timeout         TEXT NOT NULL DEFAULT '30s', -- Of a request, if neither job nor queue say less
    secret          TEXT NOT NULL DEFAULT '', -- The key that signs requests, as in Standard Webhooks: whsec_ and base64
    old_secret      TEXT NOT NULL DEFAULT '', -- The key before, which signs them as well; empty: none
    insert_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT {name}endpoint_key PRIMARY KEY (queue_id)
) WITHOUT ROWID;

ALTER TABLE {prefix}job ADD COLUMN endpoint TEXT; -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
ALTER TABLE {prefix}job_delayed ADD COLUMN endpoint TEXT; -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
ALTER TABLE {prefix}job_running ADD COLUMN endpoint TEXT; -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
ALTER TABLE {prefix}job_dead ADD COLUMN endpoint TEXT; -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
ALTER TABLE {prefix}job_done ADD COLUMN endpoint TEXT; -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint
ALTER TABLE {prefix}node ADD COLUMN under TEXT NOT NULL DEFAULT ''; -- The lock under which it works: whoever gets that after it takes over what it has; empty: none

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN under;
ALTER TABLE {prefix}job_done DROP COLUMN endpoint;
ALTER TABLE {prefix}job_dead DROP COLUMN endpoint;
ALTER TABLE {prefix}job_running DROP COLUMN endpoint;
ALTER TABLE {prefix}job_delayed DROP COLUMN endpoint;
ALTER TABLE {prefix}job DROP COLUMN endpoint;
DROP TABLE {prefix}endpoint;
