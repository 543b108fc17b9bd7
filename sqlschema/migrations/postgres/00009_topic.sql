-- +goose Up
CREATE TABLE {prefix}topic_queue (
    topic           VARCHAR(200) COLLATE "C" NOT NULL,
    queue           VARCHAR(200) COLLATE "C" NOT NULL,
    insert_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name}topic_queue_key PRIMARY KEY (topic, queue)
);

COMMENT ON TABLE {prefix}topic_queue IS 'Which queues get a copy of what is published to a topic';
COMMENT ON COLUMN {prefix}topic_queue.topic IS 'Compared by bytes';
COMMENT ON COLUMN {prefix}topic_queue.queue IS 'The name of the queue';
COMMENT ON COLUMN {prefix}topic_queue.insert_time IS 'When the row was made';

-- +goose Down
DROP TABLE {prefix}topic_queue;
