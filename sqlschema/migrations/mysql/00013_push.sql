-- +goose Up
-- Each step looks whether it was done: see 00003.
CREATE TABLE IF NOT EXISTS {prefix}endpoint (
    queue_id        INT NOT NULL COMMENT 'The queue',
    url             VARCHAR(1000) NOT NULL DEFAULT '' COMMENT 'Where its jobs are sent that do not say; empty: all say',
    format          VARCHAR(16) NOT NULL DEFAULT 'plain' COMMENT 'plain, or cloudevents (headers of its binary mode, too)',
    concurrency     INT NOT NULL DEFAULT 16 COMMENT 'How many are sent at a time by each dispatcher',
    timeout         VARCHAR(32) NOT NULL DEFAULT '30s' COMMENT 'Of a request, if neither job nor queue say less',
    secret          VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'The key that signs requests, as in Standard Webhooks: whsec_ and base64',
    old_secret      VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'The key before, which signs them as well; empty: none',
    insert_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row was made',
    update_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row last changed',
    PRIMARY KEY (queue_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Where the jobs of a queue are sent by HTTP. The jobs of a queue that has no row here are done by workers';

SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job ADD COLUMN endpoint VARCHAR(1000) COMMENT ''Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_delayed' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_delayed ADD COLUMN endpoint VARCHAR(1000) COMMENT ''Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_running' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_running ADD COLUMN endpoint VARCHAR(1000) COMMENT ''Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_dead' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_dead ADD COLUMN endpoint VARCHAR(1000) COMMENT ''Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_done' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_done ADD COLUMN endpoint VARCHAR(1000) COMMENT ''Where a dispatcher sends the job, a URL; NULL: where the queue says, see {prefix}endpoint''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'under'),
    'ALTER TABLE {prefix}node ADD COLUMN under VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''The lock under which it works: whoever gets that after it takes over what it has; empty: none''', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}node' AND column_name = 'under'),
    'ALTER TABLE {prefix}node DROP COLUMN under', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_done' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_done DROP COLUMN endpoint', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_dead' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_dead DROP COLUMN endpoint', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_running' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_running DROP COLUMN endpoint', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job_delayed' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job_delayed DROP COLUMN endpoint', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}job' AND column_name = 'endpoint'),
    'ALTER TABLE {prefix}job DROP COLUMN endpoint', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
DROP TABLE IF EXISTS {prefix}endpoint;
