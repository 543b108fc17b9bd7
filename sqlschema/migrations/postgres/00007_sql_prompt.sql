-- +goose Up
-- What is here holds no data and can be made anew at any time: dbcron migrate prompt.
-- So nothing here is without OR REPLACE.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}enqueue(queue TEXT, kind TEXT, payload JSON DEFAULT NULL, key TEXT DEFAULT NULL, run_at TIMESTAMPTZ DEFAULT NULL)
RETURNS BIGINT LANGUAGE plpgsql SECURITY DEFINER AS $enqueue$
#variable_conflict use_variable
DECLARE
    word  TEXT;
    wrong TEXT;
    size  INT := COALESCE(octet_length(payload::TEXT), 0);
    q     RECORD; -- the queue
    g     RECORD; -- the blocks that jobs of now go to
    tick  BIGINT; -- µs since 2020
    last  BIGINT; -- that of the session's newest id
    at    TIMESTAMPTZ;
    id    BIGINT;
    bytes BYTEA;
    hi    BIGINT; -- the hash, in halves: bigints have a sign
    lo    BIGINT;
BEGIN
    queue := COALESCE(NULLIF(queue, ''),
        (SELECT r.queue FROM {prefix}route AS r WHERE r.kind = kind), (SELECT r.queue FROM {prefix}route AS r WHERE r.kind = '*'), 'default');
    -- The same checks as of queue.Job, in Go.
    key := NULLIF(key, '');
    FOR i IN 1..3 LOOP
        word := (ARRAY[queue, kind, key])[i];
        CONTINUE WHEN i = 3 AND word IS NULL;
        wrong := CASE
            WHEN COALESCE(word, '') = '' THEN 'it is empty'
            WHEN char_length(word) > 200 THEN 'it has more than 200 characters'
            WHEN word <> btrim(word, E' \t\n\x0b\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000')
                THEN 'it begins or ends with a blank'
            WHEN word ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN 'it has control characters'
        END;
        IF wrong IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: %s: name "%s": %s', (ARRAY['queue', 'kind', 'key'])[i], left(word, 200), wrong);
        END IF;
    END LOOP;
    IF run_at > TIMESTAMPTZ '9999-01-01 00:00:00+00' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: run_at: it is after the year 9998';
    END IF;

    SELECT t.queue_id, t.state, t.ordered, t.max_payload INTO q FROM {prefix}queue AS t WHERE t.name = queue;
    IF size > COALESCE(q.max_payload, 1048576) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: payload: it has %s bytes, and queue "%s" takes %s; store it elsewhere and enqueue its name, or raise max_payload',
            size, queue, COALESCE(q.max_payload, 1048576));
    ELSIF q.state = 'deleted' THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format('{name}enqueue: queue "%s" was deleted', queue);
    END IF;

    FOR try IN 1..4 LOOP
        -- The clock as it is now, and not when the statement began: that may have waited
        -- for a row that another transaction had locked, which enqueued before us.
        tick := EXTRACT(EPOCH FROM clock_timestamp() - TIMESTAMPTZ '2020-01-01 00:00:00+00') * 1000000;
        last := NULLIF(current_setting('{name}queue.tick', TRUE), '');
        IF last BETWEEN tick AND tick + 60000000 THEN
            tick := last + 1; -- the ids of a session rise, also when the clock is set back a little
        END IF;
        PERFORM set_config('{name}queue.tick', tick::TEXT, FALSE);
        at := TIMESTAMPTZ '2020-01-01 00:00:00+00' + tick * INTERVAL '1 microsecond';
        id := (tick << 12) + floor(random() * 4096)::BIGINT;

        -- The generation that the id's time belongs to: the newest that was made four
        -- seconds before or earlier, or else the oldest. See queue/generation.go.
        SELECT MIN(b.divided) AS first, COUNT(*) AS blocks INTO g FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id GROUP BY b.generation
        ORDER BY CASE WHEN MIN(b.insert_time) <= at - INTERVAL '4 seconds' THEN b.generation ELSE -b.generation END DESC LIMIT 1;
        IF g.blocks IS NULL THEN
            -- One of several makes the queue, by its name, and its blocks under the lock on
            -- its row; the others wait for that, and find them.
            INSERT INTO {prefix}queue (name) VALUES (queue) ON CONFLICT DO NOTHING;
            SELECT t.queue_id, t.state, t.ordered, t.max_payload INTO q FROM {prefix}queue AS t WHERE t.name = queue FOR UPDATE;
            INSERT INTO {prefix}queue_block (queue_id, divided, generation)
            SELECT q.queue_id, n, 1 FROM generate_series(0, 15) AS n WHERE NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id);
            CONTINUE;
        END IF;
        IF key IS NOT NULL AND q.ordered <> 'yes' THEN
            -- Before the first job with a key, or at the same moment. Others that do so wait.
            UPDATE {prefix}queue AS t SET ordered = 'yes', update_time = statement_timestamp() WHERE t.queue_id = q.queue_id AND t.ordered <> 'yes';
            q.ordered := 'yes';
        END IF;

        -- FNV-1a: times 2^40 + 435, modulo 2^64.
        bytes := convert_to(COALESCE(key, id::TEXT), 'UTF8');
        hi := 3421674724;
        lo := 2216829733;
        FOR i IN 0..length(bytes) - 1 LOOP
            lo := lo # get_byte(bytes, i);
            hi := (hi * 435 + ((lo * 435) >> 32) + (lo << 8)) & 4294967295;
            lo := (lo * 435) & 4294967295;
        END LOOP;
        g.first := g.first + ((hi % g.blocks) * (4294967296 % g.blocks) + lo % g.blocks) % g.blocks;

        -- A taken id is no error, which would end the caller's transaction: another one is
        -- drawn.
        IF run_at > at THEN
            INSERT INTO {prefix}job_delayed (queue_id, divided, priority, id, kind, job_key, payload, run_at)
            VALUES (q.queue_id, g.first, 2, id, kind, key, payload, run_at) ON CONFLICT DO NOTHING;
        ELSE
            INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key, payload)
            VALUES (q.queue_id, g.first, 2, id, kind, key, payload) ON CONFLICT DO NOTHING;
        END IF;
        IF FOUND THEN
            RETURN id;
        END IF;
    END LOOP;
    RAISE unique_violation USING MESSAGE = '{name}enqueue: no id is free';
END
$enqueue$;
-- +goose StatementEnd

-- It runs with its owner's rights, so that who enqueues needs none on the tables: nobody
-- may slip other tables under it by a search_path, and nobody may call it unasked.
-- +goose StatementBegin
DO $path$
BEGIN
    EXECUTE format('ALTER FUNCTION {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ) SET search_path = pg_catalog, %s, pg_temp',
        (SELECT relnamespace::REGNAMESPACE FROM pg_class WHERE oid = '{prefix}queue'::REGCLASS));
END
$path$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ) FROM PUBLIC;
COMMENT ON FUNCTION {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ) IS 'Enqueues a job and returns its id. It is there if and when the transaction commits';

-- By each block and priority, so that a job is found by the key in each if its id is given.
CREATE OR REPLACE VIEW {prefix}v_job AS
SELECT 'ready' AS state, q.name AS queue, j.id, j.kind, j.job_key, j.priority,
    TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond' AS enqueued_at,
    0 AS attempt, CAST(NULL AS TIMESTAMPTZ) AS run_at, CAST(NULL AS TIMESTAMPTZ) AS since, CAST(NULL AS TEXT) AS worker, '' AS error, j.divided AS block,
    CAST(NULL AS SMALLINT) AS percent, CAST(NULL AS TEXT) AS message, CAST(NULL AS TIMESTAMPTZ) AS started_at
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id CROSS JOIN (VALUES (1), (2), (3), (4)) AS p (priority)
    JOIN {prefix}job AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority
UNION ALL
SELECT 'delayed', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, j.run_at, NULL, NULL, j.error, j.divided, j.percent, j.message, NULL
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided
UNION ALL
SELECT 'running', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, NULL, j.started_at, j.lock_by, j.error, j.divided, j.percent, j.message, j.started_at
FROM {prefix}queue AS q JOIN {prefix}job_running AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'dead', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, NULL, j.died_at, NULL, j.error, j.divided, j.percent, j.message, NULL
FROM {prefix}queue AS q JOIN {prefix}job_dead AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'done', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, NULL, j.ended_at, j.worker, j.error, j.divided, j.percent, j.message, j.started_at
FROM {prefix}queue AS q JOIN {prefix}job_done AS j ON j.queue_id = q.queue_id;
COMMENT ON VIEW {prefix}v_job IS 'The jobs of all queues in all states. With a queue and an id it looks into each block; else it reads all';

CREATE OR REPLACE VIEW {prefix}v_queue AS
SELECT q.name, q.state,
    (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = q.queue_id) AS ready_jobs,
    (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id) AS delayed_jobs,
    (SELECT COUNT(*) FROM {prefix}job_running AS j WHERE j.queue_id = q.queue_id) AS running_jobs,
    (SELECT COUNT(*) FROM {prefix}job_dead AS j WHERE j.queue_id = q.queue_id) AS dead_jobs,
    -- By each block and priority, where the first entry is the oldest.
    CAST(EXTRACT(EPOCH FROM statement_timestamp() - TIMESTAMPTZ '2020-01-01 00:00:00+00') - (
        SELECT MIN((SELECT j.id FROM {prefix}job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority ORDER BY j.id LIMIT 1))
        FROM {prefix}queue_block AS b CROSS JOIN (VALUES (1), (2), (3), (4)) AS p (priority) WHERE b.queue_id = q.queue_id) / 4096 / 1000000.0 AS DOUBLE PRECISION) AS oldest_ready_seconds,
    (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id
        AND b.generation = (SELECT MAX(n.generation) FROM {prefix}queue_block AS n WHERE n.queue_id = q.queue_id)) AS blocks,
    (SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > statement_timestamp()) AS workers,
    (SELECT COUNT(*) FROM {prefix}job_done AS j WHERE j.queue_id = q.queue_id) AS done_jobs
FROM {prefix}queue AS q;
COMMENT ON VIEW {prefix}v_queue IS 'The queues with how many jobs they have, counted one by one';

-- +goose Down
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
DROP FUNCTION IF EXISTS {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ);
