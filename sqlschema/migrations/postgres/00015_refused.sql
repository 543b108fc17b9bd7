-- +goose Up
CREATE TABLE {prefix}job_refused (
    queue_id        INT NOT NULL,
    divided         INT NOT NULL,
    id              BIGINT NOT NULL,
    kind            VARCHAR(200) COLLATE "C" NOT NULL,
    what            VARCHAR(20) COLLATE "C" NOT NULL,
    error           TEXT COLLATE "C" NOT NULL,
    worker          VARCHAR(128) COLLATE "C" NOT NULL,
    tries           BIGINT NOT NULL,
    first_at        TIMESTAMPTZ(6) NOT NULL,
    last_at         TIMESTAMPTZ(6) NOT NULL,
    CONSTRAINT {name}job_refused_key PRIMARY KEY (queue_id, divided, id)
);
CREATE INDEX {name}job_refused_last ON {prefix}job_refused (last_at);

COMMENT ON TABLE {prefix}job_refused IS 'Jobs of which the database refuses to write what has become of them, as their workers say';
COMMENT ON COLUMN {prefix}job_refused.queue_id IS 'The queue';
COMMENT ON COLUMN {prefix}job_refused.divided IS 'The block';
COMMENT ON COLUMN {prefix}job_refused.id IS 'The job';
COMMENT ON COLUMN {prefix}job_refused.kind IS 'What the job is';
COMMENT ON COLUMN {prefix}job_refused.what IS 'What is refused: done, discarded, retry, dead, check-out (a row in {name}job_running), claim (of a worker that does jobs at most once) or forward (to a new block)';
COMMENT ON COLUMN {prefix}job_refused.error IS 'Why, in the words of the database';
COMMENT ON COLUMN {prefix}job_refused.worker IS 'The worker that has the job, and goes on trying';
COMMENT ON COLUMN {prefix}job_refused.tries IS 'How often it was refused';
COMMENT ON COLUMN {prefix}job_refused.first_at IS 'When it was refused first';
COMMENT ON COLUMN {prefix}job_refused.last_at IS 'When its worker wrote this last, once a minute';

-- +goose Down
DROP TABLE {prefix}job_refused;
