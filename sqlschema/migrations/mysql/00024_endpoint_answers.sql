-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}endpoint_answers (
    queue_id        INT NOT NULL COMMENT 'The queue',
    answers         MEDIUMTEXT NOT NULL COMMENT 'Some of the newest answers, the newest first, as JSON',
    update_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row last changed',
    PRIMARY KEY (queue_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'The recent answers of the endpoint of a queue; dispatchers write the row every few seconds while they send';

-- +goose Down
DROP TABLE IF EXISTS {prefix}endpoint_answers;
