-- +goose Up
CREATE TABLE {prefix}job_count (
    minute          TIMESTAMPTZ(6) NOT NULL,
    queue_id        INT NOT NULL,
    kind            VARCHAR(200) COLLATE "C" NOT NULL,
    done            BIGINT NOT NULL DEFAULT 0,
    failed          BIGINT NOT NULL DEFAULT 0,
    dead            BIGINT NOT NULL DEFAULT 0,
    wait_us         BIGINT NOT NULL DEFAULT 0,
    run_us          BIGINT NOT NULL DEFAULT 0,
    CONSTRAINT {name}job_count_key PRIMARY KEY (minute, queue_id, kind)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);

COMMENT ON TABLE {prefix}job_count IS 'What workers have done, by minute, queue and kind';
COMMENT ON COLUMN {prefix}job_count.minute IS 'When it ended, the beginning of the minute';
COMMENT ON COLUMN {prefix}job_count.queue_id IS 'The queue';
COMMENT ON COLUMN {prefix}job_count.kind IS 'What the jobs are';
COMMENT ON COLUMN {prefix}job_count.done IS 'Jobs that were done, or discarded';
COMMENT ON COLUMN {prefix}job_count.failed IS 'Attempts that failed, and were followed by another';
COMMENT ON COLUMN {prefix}job_count.dead IS 'Jobs that were given up';
COMMENT ON COLUMN {prefix}job_count.wait_us IS 'For how long they had waited, in µs, all together';
COMMENT ON COLUMN {prefix}job_count.run_us IS 'How long they took, in µs, all together';

-- +goose Down
DROP TABLE {prefix}job_count;
