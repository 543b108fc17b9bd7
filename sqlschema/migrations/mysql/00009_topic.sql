-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}topic_queue (
    topic           VARCHAR(200) NOT NULL COMMENT 'Compared by bytes',
    queue           VARCHAR(200) NOT NULL COMMENT 'The name of the queue',
    insert_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row was made',
    PRIMARY KEY (topic, queue)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Which queues get a copy of what is published to a topic';

-- +goose Down
DROP TABLE IF EXISTS {prefix}topic_queue;
