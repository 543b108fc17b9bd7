-- +goose Up
CREATE TABLE {prefix}topic_queue ( -- Which queues get a copy of what is published to a topic
    topic           TEXT NOT NULL, -- Compared by bytes
    queue           TEXT NOT NULL, -- The name of the queue
    insert_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    CONSTRAINT {name}topic_queue_key PRIMARY KEY (topic, queue)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}topic_queue;
