-- +goose Up
CREATE TABLE {prefix}endpoint_answers (
    queue_id        INT NOT NULL,
    answers         TEXT NOT NULL,
    update_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name}endpoint_answers_key PRIMARY KEY (queue_id)
);

COMMENT ON TABLE {prefix}endpoint_answers IS 'The recent answers of the endpoint of a queue; dispatchers write the row every few seconds while they send';
COMMENT ON COLUMN {prefix}endpoint_answers.queue_id IS 'The queue';
COMMENT ON COLUMN {prefix}endpoint_answers.answers IS 'Some of the newest answers, the newest first, as JSON';
COMMENT ON COLUMN {prefix}endpoint_answers.update_time IS 'When the row last changed';

-- +goose Down
DROP TABLE {prefix}endpoint_answers;
