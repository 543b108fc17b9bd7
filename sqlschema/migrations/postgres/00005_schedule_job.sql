-- +goose Up
-- Jobs have lanes of their own: daemons of an older version would take a schedule
-- of a kind that they do not know for one that is wrong.
ALTER TABLE {prefix}schedule
    DROP CONSTRAINT {name}schedule_kind_check,
    ADD CONSTRAINT {name}schedule_kind_check CHECK (kind IN ('shell', 'argv', 'http', 'sql', 'func', 'job')),
    ADD COLUMN job_queue VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN job_key VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN job_priority SMALLINT NOT NULL DEFAULT 2,
    ADD COLUMN job_max_attempts INT NOT NULL DEFAULT 0,
    ADD COLUMN job_timeout VARCHAR(32) NOT NULL DEFAULT '',
    DROP COLUMN lane,
    ADD COLUMN lane VARCHAR(300) COLLATE "C" GENERATED ALWAYS AS (CASE WHEN kind = 'func' THEN tag || ' func ' || LEFT(command, 200) WHEN kind = 'job' THEN tag || ' job' ELSE tag END) STORED;
CREATE INDEX {name}schedule_next ON {prefix}schedule (state, lane, next_exec);

COMMENT ON COLUMN {prefix}schedule.kind IS 'What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function), job (the kind of a job that is enqueued)';
COMMENT ON COLUMN {prefix}schedule.stdin IS 'Text for a command''s standard input, the body of a request, the input of a function, or the payload of a job (JSON; empty: which slot it is)';
COMMENT ON COLUMN {prefix}schedule.job_queue IS 'Of a job: its queue, which is made if there is none; empty: as the route of its kind says';
COMMENT ON COLUMN {prefix}schedule.job_key IS 'Of a job: jobs of one key are done one after the other, in order; empty: it waits for nobody';
COMMENT ON COLUMN {prefix}schedule.job_priority IS 'Of a job: 1 (urgent), 2 (normal), 3 (low) or 4 (idle)';
COMMENT ON COLUMN {prefix}schedule.job_max_attempts IS 'Of a job: after so many failed attempts it is dead; 0: the queue says';
COMMENT ON COLUMN {prefix}schedule.job_timeout IS 'Of a job: how long an attempt may take; empty: the queue says';
COMMENT ON COLUMN {prefix}schedule.lane IS 'Which daemons may claim it: the tag and, for a function, its name, or that it is a job';

-- +goose Down
-- What the older program cannot run it must not take for something else: no program has such a function.
UPDATE {prefix}run SET state = 'cancelled', next_exec = NULL, error = 'waited when the tables were taken back' WHERE state = 'waiting' AND lane LIKE '% job' AND lane NOT LIKE '% % job';
UPDATE {prefix}schedule SET kind = 'func', state = 'failed', next_exec = NULL, reason = 'the tables were taken back to a version without this kind of schedule' WHERE kind = 'job';
ALTER TABLE {prefix}schedule
    DROP COLUMN lane,
    DROP COLUMN job_queue,
    DROP COLUMN job_key,
    DROP COLUMN job_priority,
    DROP COLUMN job_max_attempts,
    DROP COLUMN job_timeout,
    DROP CONSTRAINT {name}schedule_kind_check,
    ADD CONSTRAINT {name}schedule_kind_check CHECK (kind IN ('shell', 'argv', 'http', 'sql', 'func')),
    ADD COLUMN lane VARCHAR(300) COLLATE "C" GENERATED ALWAYS AS (CASE WHEN kind = 'func' THEN tag || ' func ' || LEFT(command, 200) ELSE tag END) STORED;
CREATE INDEX {name}schedule_next ON {prefix}schedule (state, lane, next_exec);
COMMENT ON COLUMN {prefix}schedule.kind IS 'What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function)';
COMMENT ON COLUMN {prefix}schedule.stdin IS 'Text for a command''s standard input, the body of a request, or the input of a function';
COMMENT ON COLUMN {prefix}schedule.lane IS 'Which daemons may claim it: the tag and, for a function, its name';
