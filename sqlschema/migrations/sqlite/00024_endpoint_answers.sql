-- +goose Up
CREATE TABLE {prefix}endpoint_answers ( -- The recent answers of the endpoint of a queue; dispatchers write the row every few seconds while they send
    queue_id        INTEGER NOT NULL, -- The queue
    answers         TEXT NOT NULL, -- Some of the newest answers, the newest first, as JSON
    update_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT {name}endpoint_answers_key PRIMARY KEY (queue_id)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}endpoint_answers;
