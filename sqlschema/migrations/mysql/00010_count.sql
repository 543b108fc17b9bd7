-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}job_count (
    minute          DATETIME(6) NOT NULL COMMENT 'When it ended, the beginning of the minute',
    queue_id        INT NOT NULL COMMENT 'The queue',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the jobs are',
    done            BIGINT NOT NULL DEFAULT 0 COMMENT 'Jobs that were done, or discarded',
    failed          BIGINT NOT NULL DEFAULT 0 COMMENT 'Attempts that failed, and were followed by another',
    dead            BIGINT NOT NULL DEFAULT 0 COMMENT 'Jobs that were given up',
    wait_us         BIGINT NOT NULL DEFAULT 0 COMMENT 'For how long they had waited, in µs, all together',
    run_us          BIGINT NOT NULL DEFAULT 0 COMMENT 'How long they took, in µs, all together',
    PRIMARY KEY (minute, queue_id, kind)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'What workers have done, by minute, queue and kind';

-- +goose Down
DROP TABLE IF EXISTS {prefix}job_count;
