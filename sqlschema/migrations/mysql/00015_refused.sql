-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}job_refused (
    queue_id        INT NOT NULL COMMENT 'The queue',
    divided         INT NOT NULL COMMENT 'The block',
    id              BIGINT NOT NULL COMMENT 'The job',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the job is',
    what            VARCHAR(20) NOT NULL COMMENT 'What is refused: done, discarded, retry, dead, check-out (a row in {prefix}job_running), claim (of a worker that does jobs at most once) or forward (to a new block)',
    error           TEXT NOT NULL COMMENT 'Why, in the words of the database',
    worker          VARCHAR(128) NOT NULL COMMENT 'The worker that has the job, and goes on trying',
    tries           BIGINT NOT NULL COMMENT 'How often it was refused',
    first_at        DATETIME(6) NOT NULL COMMENT 'When it was refused first',
    last_at         DATETIME(6) NOT NULL COMMENT 'When its worker wrote this last, once a minute',
    PRIMARY KEY (queue_id, divided, id),
    KEY {name}job_refused_last (last_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Jobs of which the database refuses to write what has become of them, as their workers say';

-- +goose Down
DROP TABLE IF EXISTS {prefix}job_refused;
