-- +goose Up
-- Views and functions for people and programs that use SQL: docs/queue-sql.md and docs/lock-sql.md. Nothing here holds
-- data, and no program needs it. Making it takes further rights; where these are missing it is left out, and dbcron
-- migrate prompt makes it, or makes it anew, at any time. So nothing here minds what is there already.
--
-- Functions that take a lock or a job obey the rules of the programs: docs/architecture.md.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}sql_name(word TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE AS $wrong$
    SELECT CASE
        WHEN COALESCE(word, '') = '' THEN 'it is empty'
        WHEN char_length(word) > 200 THEN 'it has more than 200 characters'
        WHEN word <> btrim(word, E' \t\n\x0b\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000')
            THEN 'it begins or ends with a blank'
        WHEN word ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN 'it has control characters'
    END
$wrong$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}acquire(name TEXT, owner TEXT, lease INTERVAL DEFAULT INTERVAL '30 seconds', meta TEXT DEFAULT '')
RETURNS BIGINT LANGUAGE plpgsql SECURITY DEFINER AS $acquire$
#variable_conflict use_variable
DECLARE
    wrong TEXT := {prefix}sql_name(name);
    known TEXT; -- the state
    given BIGINT; -- the fence
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}acquire: name "%s": %s', left(name, 200), wrong);
    ELSIF {prefix}sql_name(owner) IS NOT NULL OR char_length(owner) > 128 THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}acquire: owner: it has to be fresh for each taking, such as host:pid:random, with up to 128 characters, and without blanks at its ends';
    ELSIF lease IS NULL OR lease < INTERVAL '500 milliseconds' OR lease > INTERVAL '366 days' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}acquire: lease: it is not 0.5 seconds to 366 days';
    END IF;
    FOR try IN 1..2 LOOP
        -- One UPDATE of one row: concurrent calls pass one after the other.
        UPDATE {prefix}lock AS l SET
            takeovers = l.takeovers + CASE WHEN l.state <> 'FREE' AND l.released_at IS NULL THEN 1 ELSE 0 END,
            lock_by = owner, state = 'LOCK', lock_at = statement_timestamp(), released_at = NULL, extends = 0,
            meta = COALESCE(meta, ''), session = '', fence = l.fence + 1, update_time = statement_timestamp(), expire_at = statement_timestamp() + lease,
            waiters = CASE WHEN l.waiting_until > statement_timestamp() THEN l.waiters[2:] ELSE '{}' END
        WHERE l.name = name AND l.slot = 0
            AND (l.state = 'FREE' OR l.state IN ('LOCK', 'EXTEND') AND l.expire_at <= statement_timestamp())
        RETURNING l.fence INTO given;
        EXIT WHEN given IS NOT NULL OR try = 2;
        SELECT l.state INTO known FROM {prefix}lock AS l WHERE l.name = name AND l.slot = 0;
        IF known = 'POOL' THEN
            RAISE wrong_object_type USING MESSAGE = format('{name}acquire: "%s" is a pool', name);
        END IF;
        EXIT WHEN FOUND;
        -- The floor is the highest fence of the rows that were purged, which a purge does not raise before we end.
        INSERT INTO {prefix}lock (name, fence) SELECT name, f.fence FROM {prefix}lock_fence AS f WHERE f.name = '' AND f.slot = 0 FOR SHARE
        ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN given;
END
$acquire$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}renew(name TEXT, owner TEXT, fence BIGINT, lease INTERVAL DEFAULT INTERVAL '30 seconds')
RETURNS BOOLEAN LANGUAGE plpgsql SECURITY DEFINER AS $renew$
#variable_conflict use_variable
BEGIN
    IF lease IS NULL OR lease < INTERVAL '500 milliseconds' OR lease > INTERVAL '366 days' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}renew: lease: it is not 0.5 seconds to 366 days';
    END IF;
    UPDATE {prefix}lock AS l SET state = 'EXTEND', extends = l.extends + 1, update_time = statement_timestamp(),
        expire_at = GREATEST(l.expire_at, statement_timestamp() + lease)
    WHERE l.name = name AND l.slot = 0 AND l.lock_by = owner AND l.fence = fence
        AND l.state IN ('LOCK', 'EXTEND') AND l.released_at IS NULL AND l.expire_at > statement_timestamp();
    RETURN FOUND;
END
$renew$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}release(name TEXT, owner TEXT, fence BIGINT)
RETURNS BOOLEAN LANGUAGE plpgsql SECURITY DEFINER AS $release$
#variable_conflict use_variable
DECLARE
    waiter TEXT;
BEGIN
    UPDATE {prefix}lock AS l SET state = 'FREE', released_at = statement_timestamp(), update_time = statement_timestamp()
    WHERE l.name = name AND l.slot = 0 AND l.lock_by = owner AND l.fence = fence
        AND l.state IN ('LOCK', 'EXTEND') AND l.released_at IS NULL AND l.expire_at > statement_timestamp()
    RETURNING CASE WHEN l.waiting_until > statement_timestamp() THEN l.waiters[1] END INTO waiter;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    IF waiter IS NOT NULL THEN
        PERFORM pg_notify('dbcron_lock_' || waiter, name);
    END IF;
    RETURN TRUE;
END
$release$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}sql_us(setting TEXT) RETURNS BIGINT LANGUAGE plpgsql IMMUTABLE AS $microseconds$
BEGIN -- of a setting of a queue; docs/queue.md says how durations are written
    IF setting !~ '^([0-9]+w)?([0-9]+d)?(([0-9]+\.?[0-9]*|\.[0-9]+)(h|ms|us|µs|μs|ns|m|s))*$' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('"%s" is not a duration; write for example 500ms, 90s, 1h30m or 30d', setting);
    END IF;
    RETURN COALESCE((SELECT SUM(part[1]::NUMERIC * CASE part[2] WHEN 'w' THEN 604800000000 WHEN 'd' THEN 86400000000 WHEN 'h' THEN 3600000000
        WHEN 'm' THEN 60000000 WHEN 's' THEN 1000000 WHEN 'ms' THEN 1000 WHEN 'ns' THEN 0.001 ELSE 1 END)
        FROM regexp_matches(setting, '([0-9]+\.?[0-9]*|\.[0-9]+)(w|d|h|ms|us|µs|μs|ns|m|s)', 'g') AS found (part)), 0);
END
$microseconds$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}take(queue TEXT DEFAULT 'default', lease INTERVAL DEFAULT INTERVAL '30 seconds', kinds TEXT[] DEFAULT NULL)
RETURNS TABLE (job BIGINT, token TEXT, kind TEXT, payload JSON, payload_bin BYTEA, job_key TEXT, attempt INT, max_attempts INT, expire_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER AS $take$
#variable_conflict use_column
DECLARE
    wanted ALIAS FOR $1;
    lasts  ALIAS FOR $2;
    doing  ALIAS FOR $3;
    q      RECORD; -- the queue
    b      RECORD; -- a block
    h      RECORD; -- its row, locked
    j      RECORD; -- a job
    chosen BIGINT; -- its id
    ours   TEXT;
    limits TEXT[]; -- kinds that are limited
    gone   TEXT;
    guilty {prefix}job_running;
    settings {prefix}queue;
    n      BIGINT;
BEGIN
    IF lasts IS NULL OR lasts < INTERVAL '1 second' OR lasts > INTERVAL '12 hours' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}take: lease: it is not 1 second to 12 hours';
    END IF;
    wanted := COALESCE(NULLIF(wanted, ''), 'default');
    SELECT t.* INTO q FROM {prefix}queue AS t WHERE t.name = wanted;
    IF NOT FOUND THEN
        RAISE NOTICE '{name}take: there is no queue "%" yet', wanted;
        RETURN;
    ELSIF q.state = 'deleted' THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = format('{name}take: queue "%s" was deleted', wanted);
    ELSIF q.state <> 'active' THEN
        RAISE NOTICE '{name}take: queue "%" is paused', wanted;
        RETURN;
    END IF;
    SELECT COALESCE(array_agg(l.kind), '{}') INTO limits FROM {prefix}queue_limit AS l WHERE l.queue_id = q.queue_id AND (l.max_running > 0 OR l.rate > 0);
    IF '' = ANY (limits) THEN
        RAISE feature_not_supported USING MESSAGE = format('{name}take: queue "%s" has a limit, which only workers obey: claim its jobs over HTTP', wanted);
    END IF;
    IF EXISTS (SELECT 1 FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = q.queue_id AND w.busy = 2 AND n.state = 'live' AND n.expire_at > statement_timestamp()) THEN
        RETURN; -- it moves the jobs elsewhere, and is to have all blocks
    END IF;

    -- Blocks that nobody holds who is live, that with the oldest job first. Of a queue with keys
    -- those of a new generation come when the ones before are empty, and can get nothing any more.
    FOR b IN
        SELECT c.divided FROM (
            SELECT k.divided, k.generation, LEAST(
                (SELECT x.priority::NUMERIC * 9223372036854775808 + x.id FROM {prefix}job AS x WHERE x.queue_id = k.queue_id AND x.divided = k.divided ORDER BY x.priority, x.id LIMIT 1),
                (SELECT x.priority::NUMERIC * 9223372036854775808 + x.id FROM {prefix}job_delayed AS x WHERE x.queue_id = k.queue_id AND x.divided = k.divided AND x.run_at <= statement_timestamp() ORDER BY x.run_at, x.id LIMIT 1),
                (SELECT x.priority::NUMERIC * 9223372036854775808 + x.id FROM {prefix}job_running AS x WHERE x.queue_id = k.queue_id AND x.divided = k.divided
                    AND (x.state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = x.lock_by AND m.state = 'live' AND m.expire_at > statement_timestamp())) LIMIT 1)) AS head
            FROM {prefix}queue_block AS k WHERE k.queue_id = q.queue_id
                AND (k.state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = k.lock_by AND m.state = 'live' AND m.expire_at > statement_timestamp()))
                AND (q.ordered <> 'yes' AND NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS f WHERE f.queue_id = q.queue_id AND f.fifo = 'yes')
                    OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS o WHERE o.queue_id = q.queue_id AND o.generation < k.generation
                        AND (k.insert_time > statement_timestamp() - INTERVAL '8 seconds'
                            OR EXISTS (SELECT 1 FROM {prefix}job AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                            OR EXISTS (SELECT 1 FROM {prefix}job_delayed AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                            OR EXISTS (SELECT 1 FROM {prefix}job_running AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided))))
        ) AS c WHERE c.head IS NOT NULL ORDER BY c.head
    LOOP
        -- With its row locked nobody else takes the block: whoever wants to waits for our end, and
        -- finds another fence than the one that it saw. The block stays what it was otherwise, so
        -- that whoever gets it after a worker that was lost knows of that.
        SELECT k.* INTO h FROM {prefix}queue_block AS k WHERE k.queue_id = q.queue_id AND k.divided = b.divided FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        IF h.state <> 'FREE' THEN
            UPDATE {prefix}node AS m SET state = 'lost' WHERE m.name = h.lock_by AND m.state = 'live' AND m.expire_at <= statement_timestamp();
            CONTINUE WHEN EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = h.lock_by AND m.state = 'live');
        END IF;
        ours := format('sql:%s.%s:%s', q.queue_id, b.divided, replace(gen_random_uuid()::TEXT, '-', ''));
        chosen := NULL;

        -- Jobs whose workers have ended come first. The others of a key wait for the first one of
        -- the key that runs, or waits for its retry.
        FOR j IN
            SELECT r.*, 'running' AS stands FROM {prefix}job_running AS r WHERE r.queue_id = q.queue_id AND r.divided = b.divided
                AND (r.state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = r.lock_by AND m.state = 'live' AND m.expire_at > statement_timestamp()))
                AND (doing IS NULL OR r.kind = ANY (doing)) AND r.kind <> ALL (limits)
                AND (r.job_key IS NULL AND h.fifo <> 'yes'
                    OR NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = r.queue_id AND o.divided = r.divided AND o.id < r.id AND (h.fifo = 'yes' OR o.job_key = r.job_key))
                    AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = r.queue_id AND o.divided = r.divided AND o.id < r.id AND (h.fifo = 'yes' AND o.hold_key IS NOT NULL OR o.hold_key = r.job_key)))
            ORDER BY r.id LIMIT 20 FOR UPDATE OF r SKIP LOCKED
        LOOP
            gone := j.lock_by;
            UPDATE {prefix}node AS m SET state = 'lost' WHERE m.name = gone AND m.state = 'live' AND m.expire_at <= statement_timestamp() AND j.state <> 'handed';
            CONTINUE WHEN j.state <> 'handed' AND EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = gone AND m.state = 'live');
            j.crashes := j.crashes + CASE WHEN j.state = 'handed' THEN 0 ELSE 1 END;
            IF gone LIKE 'sql:%' THEN
                DELETE FROM {prefix}node AS m WHERE m.name = gone;
            END IF;
            UPDATE {prefix}job_running AS r SET crashes = j.crashes, state = 'alone', lock_by = ours, fence = h.fence + 1, started_at = statement_timestamp()
            WHERE r.queue_id = q.queue_id AND r.divided = b.divided AND r.id = j.id;
            chosen := j.id;
            EXIT WHEN j.state = 'handed' OR j.crashes < q.max_crashes * CASE WHEN j.state = 'alone' THEN 1 ELSE 4 END;
            chosen := NULL;
            SELECT t.* INTO settings FROM {prefix}queue AS t WHERE t.queue_id = q.queue_id;
            SELECT r.* INTO guilty FROM {prefix}job_running AS r WHERE r.queue_id = q.queue_id AND r.divided = b.divided AND r.id = j.id;
            PERFORM {prefix}sql_bury(guilty, settings, format('%s workers died with it', j.crashes), j.attempt);
            PERFORM {prefix}sql_count(guilty, 0, 0, 1);
        END LOOP;

        IF chosen IS NULL THEN
            SELECT c.* INTO j FROM (
                (SELECT x.id, x.priority, x.id::NUMERIC AS place, 'ready' AS stands FROM {prefix}job AS x WHERE x.queue_id = q.queue_id AND x.divided = b.divided
                    AND (doing IS NULL OR x.kind = ANY (doing)) AND x.kind <> ALL (limits)
                    AND (x.job_key IS NULL AND h.fifo <> 'yes' OR (
                        NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (h.fifo = 'yes' OR o.job_key = x.job_key))
                        AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (h.fifo = 'yes' AND o.hold_key IS NOT NULL OR o.hold_key = x.job_key))
                        AND NOT EXISTS (SELECT 1 FROM {prefix}job AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.priority = x.priority AND o.id < x.id AND (h.fifo = 'yes' OR o.job_key = x.job_key))))
                ORDER BY x.priority, x.id LIMIT 1)
                UNION ALL
                SELECT d.id, d.priority, d.place, 'delayed' FROM (
                    SELECT x.*, CASE WHEN x.hold_key IS NULL THEN EXTRACT(EPOCH FROM x.run_at - TIMESTAMPTZ '2020-01-01 00:00:00+00') * 4096000000 ELSE x.id END AS place
                    FROM {prefix}job_delayed AS x WHERE x.queue_id = q.queue_id AND x.divided = b.divided AND x.run_at <= statement_timestamp()
                        AND (doing IS NULL OR x.kind = ANY (doing)) AND x.kind <> ALL (limits)
                        AND (x.job_key IS NULL AND h.fifo <> 'yes' OR (
                            NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (h.fifo = 'yes' OR o.job_key = x.job_key))
                            AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (x.hold_key IS NULL OR o.id < x.id)
                                AND (h.fifo = 'yes' AND o.hold_key IS NOT NULL OR o.hold_key = x.job_key))))
                    ORDER BY x.run_at, x.id LIMIT 100) AS d
            ) AS c ORDER BY c.priority, c.place LIMIT 1;
            CONTINUE WHEN NOT FOUND;
            IF j.stands = 'ready' THEN
                INSERT INTO {prefix}job_running (queue_id, divided, id, priority, attempt, state, lock_by, fence, started_at,
                    kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
                SELECT x.queue_id, x.divided, x.id, x.priority, 1, 'alone', ours, h.fence + 1, statement_timestamp(),
                    x.kind, x.job_key, x.payload, x.payload_bin, x.max_attempts, x.timeout, x.trace, x.unique_key, x.unique_until, x.group_id, x.endpoint, x.tenant, x.cost
                FROM {prefix}job AS x WHERE x.queue_id = q.queue_id AND x.divided = b.divided AND x.priority = j.priority AND x.id = j.id FOR UPDATE SKIP LOCKED;
            ELSE
                INSERT INTO {prefix}job_running (queue_id, divided, id, priority, attempt, crashes, error, errors, snapshot, percent, message, state, lock_by, fence, started_at,
                    kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
                SELECT x.queue_id, x.divided, x.id, x.priority, x.attempt + 1, x.crashes, x.error, x.errors, x.snapshot, x.percent, x.message, 'alone', ours, h.fence + 1, statement_timestamp(),
                    x.kind, x.job_key, x.payload, x.payload_bin, x.max_attempts, x.timeout, x.trace, x.unique_key, x.unique_until, x.group_id, x.endpoint, x.tenant, x.cost
                FROM {prefix}job_delayed AS x WHERE x.queue_id = q.queue_id AND x.divided = b.divided AND x.id = j.id FOR UPDATE SKIP LOCKED;
            END IF;
            CONTINUE WHEN NOT FOUND; -- somebody cancels it, or moves it
            chosen := j.id;
            IF j.stands = 'ready' THEN
                DELETE FROM {prefix}job AS x WHERE x.queue_id = q.queue_id AND x.divided = b.divided AND x.priority = j.priority AND x.id = j.id;
            ELSE
                DELETE FROM {prefix}job_delayed AS x WHERE x.queue_id = q.queue_id AND x.divided = b.divided AND x.id = j.id;
            END IF;
            -- One that has its unique key until it begins loses it.
            DELETE FROM {prefix}job_unique AS u USING {prefix}job_running AS r WHERE r.queue_id = q.queue_id AND r.divided = b.divided AND r.id = j.id AND r.unique_until = 'begin'
                AND u.queue_id = r.queue_id AND u.unique_key = r.unique_key AND u.job = r.id AND (u.free_at IS NULL OR u.free_at <= statement_timestamp());
            UPDATE {prefix}job_unique AS u SET pending = 'no' FROM {prefix}job_running AS r WHERE r.queue_id = q.queue_id AND r.divided = b.divided AND r.id = j.id AND r.unique_until = 'begin'
                AND u.queue_id = r.queue_id AND u.unique_key = r.unique_key AND u.job = r.id;
        END IF;
        UPDATE {prefix}queue_block AS k SET fence = k.fence + 1 WHERE k.queue_id = q.queue_id AND k.divided = b.divided;
        -- A worker with one job: the holder of the block takes the job over when the worker's lease has ended.
        INSERT INTO {prefix}node (name, state, expire_at, version) VALUES (ours, 'live', statement_timestamp() + lasts, 'SQL prompt');
        RETURN QUERY SELECT r.id, ours, r.kind::TEXT, r.payload, r.payload_bin, r.job_key::TEXT, r.attempt, COALESCE(r.max_attempts, q.max_attempts), statement_timestamp() + lasts
            FROM {prefix}job_running AS r WHERE r.queue_id = q.queue_id AND r.divided = b.divided AND r.id = chosen;
        RETURN;
    END LOOP;
    SELECT COUNT(*) INTO n FROM {prefix}queue_block AS k JOIN {prefix}node AS m ON m.name = k.lock_by
    WHERE k.queue_id = q.queue_id AND k.state = 'LEASED' AND m.state = 'live' AND m.expire_at > statement_timestamp();
    IF n > 0 THEN
        RAISE NOTICE '{name}take: workers have % blocks of queue "%", whose jobs are theirs', n, wanted;
    END IF;
END
$take$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}sql_end(r {prefix}job_running, became TEXT, made JSON, why TEXT)
RETURNS VOID LANGUAGE plpgsql AS $part$
BEGIN -- ends a job that somebody has, whose row is locked: its row goes, and its unique key, and its group is told
    DELETE FROM {prefix}job_running AS x WHERE x.queue_id = r.queue_id AND x.divided = r.divided AND x.id = r.id;
    IF r.unique_key IS NOT NULL THEN
        DELETE FROM {prefix}job_unique AS u WHERE u.queue_id = r.queue_id AND u.unique_key = r.unique_key AND u.job = r.id AND (u.free_at IS NULL OR u.free_at <= statement_timestamp());
        UPDATE {prefix}job_unique AS u SET pending = 'no' WHERE u.queue_id = r.queue_id AND u.unique_key = r.unique_key AND u.job = r.id;
    END IF;
    IF r.group_id > 0 THEN
        UPDATE {prefix}job_member AS m SET state = became, result = made::TEXT, error = why WHERE m.group_id = r.group_id AND m.job = r.id;
    END IF;
END
$part$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}sql_bury(r {prefix}job_running, q {prefix}queue, why TEXT, tries INT)
RETURNS VOID LANGUAGE plpgsql AS $bury$
DECLARE
    keep BIGINT := {prefix}sql_us(NULLIF(q.keep_dead, 'forever'));
BEGIN
    INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, attempt, crashes, error, errors, snapshot, percent, message, died_at, purge_at,
        kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
    VALUES (r.queue_id, r.divided, r.id, r.priority, tries, r.crashes, why,
        left(concat((EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::BIGINT, ' ', r.attempt, ' ', replace(left(why, 500), E'\n', E'\n\t'), E'\n', r.errors), 4000),
        r.snapshot, r.percent, r.message, statement_timestamp(), statement_timestamp() + keep * INTERVAL '1 microsecond',
        r.kind, r.job_key, r.payload, r.payload_bin, r.max_attempts, r.timeout, r.trace, r.unique_key, r.unique_until, r.group_id, r.endpoint, r.tenant, r.cost);
    PERFORM {prefix}sql_end(r, 'dead', NULL, why);
END
$bury$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}sql_mine(job BIGINT, token TEXT) RETURNS {prefix}job_running LANGUAGE plpgsql AS $mine$
DECLARE
    r {prefix}job_running;
    at TEXT[] := regexp_match(token, '^sql:([0-9]{1,9})\.([0-9]{1,9}):');
BEGIN -- locks the row of a job that was taken, and ours; then nobody takes it over before we end
    SELECT x.* INTO r FROM {prefix}job_running AS x WHERE x.queue_id = at[1]::INT AND x.divided = at[2]::INT AND x.id = job AND x.lock_by = token FOR UPDATE;
    IF r.id IS NOT NULL THEN
        PERFORM 1 FROM {prefix}node AS n WHERE n.name = token AND n.state = 'live' AND n.expire_at > statement_timestamp() FOR UPDATE;
        IF NOT FOUND THEN
            r := NULL;
        END IF;
    END IF;
    RETURN r;
END
$mine$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}sql_count(r {prefix}job_running, did INT, not_yet INT, never INT) RETURNS VOID LANGUAGE sql AS $count$
    INSERT INTO {prefix}job_count AS c (minute, queue_id, kind, done, failed, dead, wait_us, run_us)
    SELECT date_trunc('minute', statement_timestamp()), r.queue_id, r.kind, did, not_yet, never,
        GREATEST(0, EXTRACT(EPOCH FROM r.started_at - TIMESTAMPTZ '2020-01-01 00:00:00+00') * 1000000 - (r.id >> 12))::BIGINT,
        GREATEST(0, EXTRACT(EPOCH FROM statement_timestamp() - r.started_at) * 1000000)::BIGINT
    ON CONFLICT ON CONSTRAINT {name}job_count_key DO UPDATE SET done = c.done + EXCLUDED.done, failed = c.failed + EXCLUDED.failed,
        dead = c.dead + EXCLUDED.dead, wait_us = c.wait_us + EXCLUDED.wait_us, run_us = c.run_us + EXCLUDED.run_us
$count$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}complete(job BIGINT, token TEXT, result JSON DEFAULT NULL)
RETURNS BOOLEAN LANGUAGE plpgsql SECURITY DEFINER AS $complete$
DECLARE
    r {prefix}job_running := {prefix}sql_mine(job, token);
    keep BIGINT;
BEGIN
    IF octet_length(result::TEXT) > 1048576 THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}complete: result: it is longer than 1 MiB';
    END IF;
    IF r.id IS NULL THEN
        RETURN FALSE;
    END IF;
    SELECT {prefix}sql_us(q.keep_done) INTO keep FROM {prefix}queue AS q WHERE q.queue_id = r.queue_id;
    IF keep > 0 THEN
        INSERT INTO {prefix}job_done (queue_id, divided, id, priority, attempt, crashes, outcome, error, errors, snapshot, percent, message, result, worker, started_at, ended_at, purge_at,
            kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
        VALUES (r.queue_id, r.divided, r.id, r.priority, r.attempt, r.crashes, 'done', '', r.errors, r.snapshot, r.percent, r.message, result::TEXT, token, r.started_at, statement_timestamp(),
            statement_timestamp() + keep * INTERVAL '1 microsecond',
            r.kind, r.job_key, r.payload, r.payload_bin, r.max_attempts, r.timeout, r.trace, r.unique_key, r.unique_until, r.group_id, r.endpoint, r.tenant, r.cost);
    END IF;
    PERFORM {prefix}sql_end(r, 'done', result, '');
    DELETE FROM {prefix}node AS n WHERE n.name = token;
    PERFORM {prefix}sql_count(r, 1, 0, 0);
    RETURN TRUE;
END
$complete$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}fail(job BIGINT, token TEXT, error TEXT DEFAULT '', retry_in INTERVAL DEFAULT NULL, dead BOOLEAN DEFAULT FALSE)
RETURNS TEXT LANGUAGE plpgsql SECURITY DEFINER AS $fail$
#variable_conflict use_column
DECLARE
    why   TEXT := left(COALESCE($3, ''), 4000);
    r     {prefix}job_running;
    q     {prefix}queue;
    delay DOUBLE PRECISION; -- µs
    most  DOUBLE PRECISION;
BEGIN
    IF retry_in < INTERVAL '0' OR retry_in > INTERVAL '36500 days' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}fail: retry_in: it is not 0 to 100 years';
    END IF;
    r := {prefix}sql_mine({name}fail.job, {name}fail.token);
    IF r.id IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT t.* INTO q FROM {prefix}queue AS t WHERE t.queue_id = r.queue_id;
    DELETE FROM {prefix}node AS n WHERE n.name = $2;
    IF $5 OR r.attempt >= COALESCE(r.max_attempts, q.max_attempts) THEN
        PERFORM {prefix}sql_bury(r, q, why, r.attempt);
        PERFORM {prefix}sql_count(r, 0, 0, 1);
        RETURN 'dead';
    END IF;
    -- The delay doubles with each attempt, and half of it is random.
    most := {prefix}sql_us(q.retry_max_delay);
    delay := {prefix}sql_us(q.retry_delay);
    IF r.attempt > 1 AND delay < most THEN
        delay := LEAST(most, delay * 2.0 ^ LEAST(r.attempt - 1, 60));
    END IF;
    delay := COALESCE(EXTRACT(EPOCH FROM retry_in) * 1000000, delay / 2 + random() * delay / 2);
    INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, priority, attempt, crashes, hold_key, error, errors, snapshot, percent, message,
        kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
    SELECT r.queue_id, r.divided, r.id, statement_timestamp() + delay * INTERVAL '1 microsecond', r.priority, r.attempt, r.crashes,
        CASE WHEN q.key_retry = 'hold' THEN COALESCE(r.job_key, (SELECT ' fifo' FROM {prefix}queue_block AS k WHERE k.queue_id = r.queue_id AND k.divided = r.divided AND k.fifo = 'yes')) END,
        why, left(concat((EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::BIGINT, ' ', r.attempt, ' ', replace(left(why, 500), E'\n', E'\n\t'), E'\n', r.errors), 4000),
        r.snapshot, r.percent, r.message,
        r.kind, r.job_key, r.payload, r.payload_bin, r.max_attempts, r.timeout, r.trace, r.unique_key, r.unique_until, r.group_id, r.endpoint, r.tenant, r.cost;
    DELETE FROM {prefix}job_running AS x WHERE x.queue_id = r.queue_id AND x.divided = r.divided AND x.id = r.id;
    PERFORM {prefix}sql_count(r, 0, 1, 0);
    RETURN 'delayed';
END
$fail$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}give_back(job BIGINT, token TEXT) RETURNS BOOLEAN LANGUAGE plpgsql SECURITY DEFINER AS $give$
DECLARE
    r {prefix}job_running := {prefix}sql_mine(job, token);
BEGIN
    IF r.id IS NULL THEN
        RETURN FALSE;
    END IF;
    UPDATE {prefix}job_running AS x SET state = 'handed' WHERE x.queue_id = r.queue_id AND x.divided = r.divided AND x.id = r.id;
    DELETE FROM {prefix}node AS n WHERE n.name = token;
    RETURN TRUE;
END
$give$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}extend(job BIGINT, token TEXT, lease INTERVAL DEFAULT INTERVAL '30 seconds') RETURNS BOOLEAN LANGUAGE plpgsql SECURITY DEFINER AS $extend$
DECLARE
    r {prefix}job_running;
BEGIN
    IF lease IS NULL OR lease < INTERVAL '1 second' OR lease > INTERVAL '12 hours' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}extend: lease: it is not 1 second to 12 hours';
    END IF;
    r := {prefix}sql_mine(job, token);
    UPDATE {prefix}node AS n SET expire_at = GREATEST(n.expire_at, statement_timestamp() + lease), heartbeats = n.heartbeats + 1 WHERE n.name = token AND r.id IS NOT NULL;
    RETURN FOUND;
END
$extend$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}enqueue(queue TEXT, kind TEXT, payload JSON DEFAULT NULL, key TEXT DEFAULT NULL, run_at TIMESTAMPTZ DEFAULT NULL,
    unique_key TEXT DEFAULT NULL, priority INT DEFAULT NULL, attempts INT DEFAULT NULL, timeout INTERVAL DEFAULT NULL, unique_for INTERVAL DEFAULT NULL,
    tenant TEXT DEFAULT NULL, unique_until TEXT DEFAULT NULL, debounce INTERVAL DEFAULT NULL, cost INT DEFAULT NULL)
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
    had   BIGINT; -- the id under which this has taken the unique key
    other RECORD; -- who has it
    free  TIMESTAMPTZ; -- until when it is in use
    wait  TIMESTAMPTZ; -- up to when a later job may replace this one
    us    BIGINT := (EXTRACT(EPOCH FROM timeout) * 1000000)::BIGINT;
    bytes BYTEA;
    hi    BIGINT; -- the hash, in halves: bigints have a sign
    lo    BIGINT;
BEGIN
    queue := COALESCE(NULLIF(queue, ''),
        (SELECT r.queue FROM {prefix}route AS r WHERE r.kind = kind), (SELECT r.queue FROM {prefix}route AS r WHERE r.kind = '*'), 'default');
    -- The same checks as in the programs.
    key := NULLIF(key, '');
    unique_key := NULLIF(unique_key, '');
    tenant := NULLIF(tenant, '');
    unique_until := NULLIF(NULLIF(unique_until, ''), 'end');
    FOR i IN 1..5 LOOP
        word := (ARRAY[queue, kind, key, unique_key, tenant])[i];
        CONTINUE WHEN i > 2 AND word IS NULL;
        wrong := {prefix}sql_name(word);
        IF wrong IS NOT NULL THEN
            RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: %s: name "%s": %s', (ARRAY['queue', 'kind', 'key', 'unique_key', 'tenant'])[i], left(word, 200), wrong);
        END IF;
    END LOOP;
    IF run_at > TIMESTAMPTZ '9999-01-01 00:00:00+00' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: run_at: it is after the year 9998';
    ELSIF priority NOT BETWEEN 1 AND 4 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: priority: %s is not 1 (urgent) to 4 (idle)', priority);
    ELSIF attempts NOT BETWEEN 0 AND 1000000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: attempts: %s is not 0 to 1000000', attempts);
    ELSIF cost NOT BETWEEN 0 AND 1000 THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: cost: %s is not 1 to 1000', cost);
    ELSIF us NOT BETWEEN 0 AND 3153600000000000 THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: timeout: it is not 0 to 100 years';
    ELSIF unique_for < INTERVAL '0' OR unique_for > INTERVAL '366 days' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: unique_for: it is not 0 to 366 days';
    ELSIF unique_for > INTERVAL '0' AND unique_key IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: unique_for: there is no unique_key that it is about';
    ELSIF unique_until <> 'begin' THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: unique_until: "%s" is none of end, begin', left(unique_until, 100));
    ELSIF unique_until IS NOT NULL AND unique_key IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: unique_until: there is no unique_key that it is about';
    ELSIF debounce < INTERVAL '0' OR debounce > INTERVAL '366 days' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: debounce: it is not 0 to 366 days';
    ELSIF debounce > INTERVAL '0' AND unique_key IS NULL THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: debounce: there is no unique_key that says which job it replaces';
    ELSIF debounce > INTERVAL '0' AND (run_at IS NULL OR run_at > clock_timestamp() + debounce) THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: debounce: it is the longest wait, and run_at has to say when the job starts within it if nothing changes';
    ELSIF debounce > INTERVAL '0' AND unique_for > INTERVAL '0' THEN
        RAISE invalid_parameter_value USING MESSAGE = '{name}enqueue: debounce: the job has its key until it begins, and not for a time; leave unique_for out';
    END IF;
    unique_until := CASE WHEN debounce > INTERVAL '0' THEN 'begin' ELSE unique_until END;

    SELECT t.queue_id, t.state, t.ordered, t.max_payload, t.max_timeout, t.timeout INTO q FROM {prefix}queue AS t WHERE t.name = queue;
    IF size > COALESCE(q.max_payload, 1048576) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: payload: it has %s bytes, and queue "%s" takes %s; store it elsewhere and enqueue its name, or raise max_payload',
            size, queue, COALESCE(q.max_payload, 1048576));
    ELSIF us > 0 AND COALESCE(q.max_timeout, '1h') <> '' AND us > GREATEST({prefix}sql_us(COALESCE(q.max_timeout, '1h')), {prefix}sql_us(q.timeout)) THEN
        RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: timeout: it is longer than queue "%s" takes, %s; leave it out, or raise max_timeout',
            queue, COALESCE(q.max_timeout, '1h'));
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
        -- seconds before or earlier, or else the oldest.
        SELECT MIN(b.divided) AS first, COUNT(*) AS blocks, MAX(b.fifo) AS fifo INTO g FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id GROUP BY b.generation
        ORDER BY CASE WHEN MIN(b.insert_time) <= at - INTERVAL '4 seconds' THEN b.generation ELSE -b.generation END DESC LIMIT 1;
        IF g.blocks IS NULL THEN
            -- One of several creates the queue, by its name, and its blocks under the lock on
            -- its row; the others wait for that, and find them.
            INSERT INTO {prefix}queue (name) VALUES (queue) ON CONFLICT DO NOTHING;
            SELECT t.queue_id, t.state, t.ordered, t.max_payload INTO q FROM {prefix}queue AS t WHERE t.name = queue FOR UPDATE;
            INSERT INTO {prefix}queue_block (queue_id, divided, generation)
            SELECT q.queue_id, n, 1 FROM generate_series(0, 15) AS n WHERE NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id);
            CONTINUE;
        END IF;
        IF g.fifo = 'yes' AND priority <> 2 THEN
            RAISE invalid_parameter_value USING MESSAGE = format('{name}enqueue: priority: queue "%s" is FIFO: its jobs have no priority', queue);
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

        -- A unique key belongs to this job, or to another that has not ended; concurrent callers wait for us.
        IF unique_key IS NOT NULL AND had IS NOT NULL THEN
            UPDATE {prefix}job_unique AS u SET job = id WHERE u.queue_id = q.queue_id AND u.unique_key = unique_key AND u.job = had;
            had := id;
        ELSIF unique_key IS NOT NULL THEN
            free := CASE WHEN unique_for > INTERVAL '0' THEN at + unique_for END;
            wait := CASE WHEN debounce > INTERVAL '0' THEN at + debounce END;
            FOR again IN 1..100 LOOP
                INSERT INTO {prefix}job_unique (queue_id, unique_key, job, free_at, wait_until) VALUES (q.queue_id, unique_key, id, free, wait) ON CONFLICT DO NOTHING;
                EXIT WHEN FOUND;
                IF wait IS NOT NULL THEN -- those who shared it would wait for each other
                    PERFORM 1 FROM {prefix}job_unique AS u WHERE u.queue_id = q.queue_id AND u.unique_key = unique_key FOR UPDATE;
                END IF;
                SELECT u.job, u.wait_until, u.pending = 'no' AND COALESCE(u.free_at <= statement_timestamp(), FALSE) AS over INTO other
                FROM {prefix}job_unique AS u WHERE u.queue_id = q.queue_id AND u.unique_key = unique_key FOR SHARE;
                CONTINUE WHEN NOT FOUND; -- it was freed meanwhile
                IF NOT other.over AND wait IS NOT NULL AND other.wait_until IS NOT NULL THEN
                    -- It replaces a job that waits. One whose turn has come stays, and has its key no more, unless no job of the queue begins.
                    DELETE FROM {prefix}job_delayed AS j USING {prefix}queue_block AS b WHERE b.queue_id = q.queue_id
                        AND (other.wait_until > at OR q.state = 'paused' OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS s WHERE s.queue_id = q.queue_id AND s.state = 'LEASED'))
                        AND j.queue_id = b.queue_id AND j.divided = b.divided AND j.id = other.job AND j.unique_key = unique_key;
                    IF FOUND THEN
                        wait := other.wait_until;
                        run_at := LEAST(run_at, wait);
                    END IF;
                    UPDATE {prefix}job_unique AS u SET job = id, wait_until = wait WHERE u.queue_id = q.queue_id AND u.unique_key = unique_key AND u.job = other.job;
                    EXIT;
                ELSIF NOT other.over THEN
                    RETURN other.job;
                END IF;
                UPDATE {prefix}job_unique AS u SET job = id, pending = 'yes', free_at = free, wait_until = wait
                WHERE u.queue_id = q.queue_id AND u.unique_key = unique_key AND u.job = other.job AND u.pending = 'no' AND u.free_at <= statement_timestamp();
                EXIT WHEN FOUND;
                IF again = 100 THEN
                    RAISE lock_not_available USING MESSAGE = '{name}enqueue: unique_key: it changes hands all the time; try again';
                END IF;
            END LOOP;
            had := id;
        END IF;

        -- A taken id is no error, which would end the caller's transaction: another one is
        -- drawn.
        IF run_at > at OR wait IS NOT NULL THEN
            INSERT INTO {prefix}job_delayed (queue_id, divided, priority, id, kind, job_key, payload, run_at, unique_key, unique_until, max_attempts, timeout, tenant, cost)
            VALUES (q.queue_id, g.first, COALESCE(priority, 2), id, kind, key, payload, run_at, unique_key, unique_until, NULLIF(attempts, 0), NULLIF(us, 0), tenant, NULLIF(NULLIF(cost, 0), 1)) ON CONFLICT DO NOTHING;
        ELSE
            INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key, payload, unique_key, unique_until, max_attempts, timeout, tenant, cost)
            VALUES (q.queue_id, g.first, COALESCE(priority, 2), id, kind, key, payload, unique_key, unique_until, NULLIF(attempts, 0), NULLIF(us, 0), tenant, NULLIF(NULLIF(cost, 0), 1)) ON CONFLICT DO NOTHING;
        END IF;
        IF FOUND THEN
            RETURN id;
        END IF;
    END LOOP;
    RAISE unique_violation USING MESSAGE = '{name}enqueue: no id is free';
END
$enqueue$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $path$
BEGIN
    IF (SELECT proacl FROM pg_proc WHERE oid = '{prefix}enqueue(text, text, json, text, timestamptz, text, int, int, interval, interval, text, text, interval, int)'::REGPROCEDURE) IS NULL THEN
        REVOKE ALL ON FUNCTION {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ, TEXT, INT, INT, INTERVAL, INTERVAL, TEXT, TEXT, INTERVAL, INT) FROM PUBLIC; -- it is here for the first time, and everybody's
    END IF;
    EXECUTE format('ALTER FUNCTION {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ, TEXT, INT, INT, INTERVAL, INTERVAL, TEXT, TEXT, INTERVAL, INT) SET search_path = pg_catalog, %s, pg_temp',
        (SELECT relnamespace::REGNAMESPACE FROM pg_class WHERE oid = '{prefix}queue'::REGCLASS));
END
$path$;
-- +goose StatementEnd
COMMENT ON FUNCTION {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ, TEXT, INT, INT, INTERVAL, INTERVAL, TEXT, TEXT, INTERVAL, INT) IS 'Enqueues a job and returns its id, or the id of the job that has its unique key. It exists if and when the transaction commits';

-- Words that nobody knows, and what is no duration, are refused when they are written, and not when a daemon reads them. These are
-- no CHECKs, which PostgreSQL reads anew for every statement, and old rows need not obey them. Claims write none of the columns, and call nothing.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION {prefix}sql_word() RETURNS TRIGGER LANGUAGE plpgsql AS $word$
DECLARE
    rule TEXT; -- column=word|word, or a column with a duration
    word TEXT;
BEGIN
    FOREACH rule IN ARRAY TG_ARGV LOOP
        word := to_jsonb(NEW) ->> split_part(rule, '=', 1);
        IF strpos(rule, '=') = 0 THEN
            IF word !~ '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$' THEN
                RAISE check_violation USING MESSAGE = format('%s: %s: "%s" is not a duration; write for example 500ms, 90s, 1h30m or 30d', TG_TABLE_NAME, rule, word),
                    TABLE = TG_TABLE_NAME, COLUMN = rule;
            END IF;
        ELSIF word <> ALL (string_to_array(split_part(rule, '=', 2), '|')) THEN
            RAISE check_violation USING MESSAGE = format('%s: %s: "%s" is none of %s', TG_TABLE_NAME, split_part(rule, '=', 1), word,
                btrim(replace(split_part(rule, '=', 2), '|', ', '), ', ')), TABLE = TG_TABLE_NAME, COLUMN = split_part(rule, '=', 1);
        END IF;
    END LOOP;
    RETURN NEW;
END
$word$;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}schedule_words ON {prefix}schedule;
CREATE TRIGGER {name}schedule_words BEFORE INSERT OR UPDATE OF dst, missed, overlap, first_run, retry_past_next, repeatable, job_priority, job_unique_until ON {prefix}schedule FOR EACH ROW
    WHEN (NEW.dst NOT IN ('', 'vixie', 'wall') OR NEW.missed NOT IN ('', 'skip', 'once', 'all') OR NEW.overlap NOT IN ('', 'forbid', 'allow', 'queue', 'replace') OR NEW.first_run NOT IN ('', 'next', 'now') OR NEW.retry_past_next NOT IN ('', 'no', 'yes') OR NEW.repeatable NOT IN ('', 'no', 'yes') OR NEW.job_priority NOT IN (1, 2, 3, 4) OR NEW.job_unique_until NOT IN ('', 'end', 'begin'))
    EXECUTE FUNCTION {prefix}sql_word('dst=|vixie|wall', 'missed=|skip|once|all', 'overlap=|forbid|allow|queue|replace', 'first_run=|next|now', 'retry_past_next=|no|yes', 'repeatable=|no|yes', 'job_priority=1|2|3|4', 'job_unique_until=|end|begin');
DROP TRIGGER IF EXISTS {name}queue_words ON {prefix}queue;
CREATE TRIGGER {name}queue_words BEFORE INSERT OR UPDATE OF state, ordered, key_retry, fair ON {prefix}queue FOR EACH ROW
    WHEN (NEW.state NOT IN ('active', 'paused', 'deleted') OR NEW.ordered NOT IN ('no', 'yes') OR NEW.key_retry NOT IN ('hold', 'pass') OR NEW.fair NOT IN ('no', 'yes'))
    EXECUTE FUNCTION {prefix}sql_word('state=active|paused|deleted', 'ordered=no|yes', 'key_retry=hold|pass', 'fair=no|yes');
DROP TRIGGER IF EXISTS {name}schedule_durations ON {prefix}schedule;
CREATE TRIGGER {name}schedule_durations BEFORE INSERT OR UPDATE OF missed_window, retry_delay, retry_max_delay, timeout, stall, kill_grace, linger, jitter, keep_for, job_timeout, job_unique_for ON {prefix}schedule FOR EACH ROW
    WHEN (concat_ws(chr(31), NEW.missed_window, NEW.retry_delay, NEW.retry_max_delay, NEW.timeout, NEW.stall, NEW.kill_grace, NEW.linger, NEW.jitter, NEW.keep_for, NEW.job_timeout, NEW.job_unique_for) !~ '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)(\u001f(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*))*$')
    EXECUTE FUNCTION {prefix}sql_word('missed_window', 'retry_delay', 'retry_max_delay', 'timeout', 'stall', 'kill_grace', 'linger', 'jitter', 'keep_for', 'job_timeout', 'job_unique_for');
DROP TRIGGER IF EXISTS {name}queue_durations ON {prefix}queue;
CREATE TRIGGER {name}queue_durations BEFORE INSERT OR UPDATE OF retry_delay, retry_max_delay, timeout, max_timeout, keep_dead, keep_done, poll_min, poll_max ON {prefix}queue FOR EACH ROW
    WHEN (concat_ws(chr(31), NEW.retry_delay, NEW.retry_max_delay, NEW.timeout, NEW.max_timeout, NEW.keep_dead, NEW.keep_done, NEW.poll_min, NEW.poll_max) !~ '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)(\u001f(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*))*$')
    EXECUTE FUNCTION {prefix}sql_word('retry_delay', 'retry_max_delay', 'timeout', 'max_timeout', 'keep_dead', 'keep_done', 'poll_min', 'poll_max');
DROP TRIGGER IF EXISTS {name}queue_limit_durations ON {prefix}queue_limit;
CREATE TRIGGER {name}queue_limit_durations BEFORE INSERT OR UPDATE OF rate_per ON {prefix}queue_limit FOR EACH ROW
    WHEN (concat_ws(chr(31), NEW.rate_per) !~ '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)(\u001f(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*))*$')
    EXECUTE FUNCTION {prefix}sql_word('rate_per');
DROP TRIGGER IF EXISTS {name}endpoint_durations ON {prefix}endpoint;
CREATE TRIGGER {name}endpoint_durations BEFORE INSERT OR UPDATE OF timeout ON {prefix}endpoint FOR EACH ROW
    WHEN (concat_ws(chr(31), NEW.timeout) !~ '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)(\u001f(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*))*$')
    EXECUTE FUNCTION {prefix}sql_word('timeout');

-- They run with their owner's rights, so that who calls them needs none on the tables: nobody
-- may slip other tables under them by a search_path, and nobody may call them unasked.
-- +goose StatementBegin
DO $path$
DECLARE
    home REGNAMESPACE := (SELECT relnamespace FROM pg_class WHERE oid = '{prefix}queue'::REGCLASS);
    f REGPROCEDURE;
BEGIN
    FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = home AND proname IN ('{name}sql_word', '{name}acquire', '{name}renew', '{name}release', '{name}take', '{name}complete', '{name}fail', '{name}give_back', '{name}extend', '{name}sql_name', '{name}sql_us', '{name}sql_end', '{name}sql_bury', '{name}sql_mine', '{name}sql_count') LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, %s, pg_temp', f, home);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', f);
    END LOOP;
END
$path$;
-- +goose StatementEnd
COMMENT ON FUNCTION {prefix}acquire(TEXT, TEXT, INTERVAL, TEXT) IS 'Takes a lock and returns its fence; NULL: somebody else has it';
COMMENT ON FUNCTION {prefix}renew(TEXT, TEXT, BIGINT, INTERVAL) IS 'Renews the lease of a lock; false: it has ended';
COMMENT ON FUNCTION {prefix}release(TEXT, TEXT, BIGINT) IS 'Releases a lock; false: its lease had ended';
COMMENT ON FUNCTION {prefix}take(TEXT, INTERVAL, TEXT[]) IS 'Takes a job of a queue, from a block that no worker has, for a lease';
COMMENT ON FUNCTION {prefix}complete(BIGINT, TEXT, JSON) IS 'Completes a taken job; false: it is no longer yours';
COMMENT ON FUNCTION {prefix}fail(BIGINT, TEXT, TEXT, INTERVAL, BOOLEAN) IS 'Fails a taken job, and returns its new state: delayed or dead; NULL: it is no longer yours';
COMMENT ON FUNCTION {prefix}give_back(BIGINT, TEXT) IS 'Gives a taken job back; false: it is no longer yours';
COMMENT ON FUNCTION {prefix}extend(BIGINT, TEXT, INTERVAL) IS 'Renews the lease of a taken job; false: it is no longer yours';

-- What people look at.
-- By each block and priority, so that a job is found by the key in each if its id is given.
CREATE OR REPLACE VIEW {prefix}v_job AS
SELECT 'ready' AS state, q.name AS queue, j.id, j.kind, j.job_key, j.priority,
    TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond' AS enqueued_at,
    0 AS attempt, CAST(NULL AS TIMESTAMPTZ) AS run_at, CAST(NULL AS TIMESTAMPTZ) AS since, CAST(NULL AS TEXT) AS worker, '' AS error, j.divided AS block,
    CAST(NULL AS SMALLINT) AS percent, CAST(NULL AS TEXT) AS message, CAST(NULL AS TIMESTAMPTZ) AS started_at, CAST(NULL AS TEXT) AS result, CAST(NULL AS TEXT) AS outcome
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id CROSS JOIN (VALUES (1), (2), (3), (4)) AS p (priority)
    JOIN {prefix}job AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority
UNION ALL
SELECT 'delayed', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, j.run_at, NULL, NULL, j.error, j.divided, j.percent, j.message, NULL, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided
UNION ALL
SELECT 'running', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, NULL, j.started_at, j.lock_by, j.error, j.divided, j.percent, j.message, j.started_at, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}job_running AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'dead', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, NULL, j.died_at, NULL, j.error, j.divided, j.percent, j.message, NULL, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}job_dead AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'done', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPTZ '2020-01-01 00:00:00+00' + (j.id >> 12) * INTERVAL '1 microsecond',
    j.attempt, NULL, j.ended_at, j.worker, j.error, j.divided, j.percent, j.message, j.started_at, j.result, j.outcome
FROM {prefix}queue AS q JOIN {prefix}job_done AS j ON j.queue_id = q.queue_id;
COMMENT ON VIEW {prefix}v_job IS 'The jobs of all queues in all states. With a queue and an id it looks into each block; else it reads all';

CREATE OR REPLACE VIEW {prefix}v_queue AS
SELECT q.name, q.state,
    -- As in all lists of queues, delayed jobs that are due count as ready.
    (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = q.queue_id)
        + (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id AND j.run_at <= statement_timestamp()) AS ready_jobs,
    (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id AND j.run_at > statement_timestamp()) AS delayed_jobs,
    (SELECT COUNT(*) FROM {prefix}job_running AS j WHERE j.queue_id = q.queue_id) AS running_jobs,
    (SELECT COUNT(*) FROM {prefix}job_dead AS j WHERE j.queue_id = q.queue_id) AS dead_jobs,
    -- By each block and priority, where the first entry is the oldest. 0 stands for delayed jobs that are due.
    CAST(EXTRACT(EPOCH FROM statement_timestamp() - TIMESTAMPTZ '2020-01-01 00:00:00+00') - (
        SELECT MIN(CASE p.priority
            WHEN 0 THEN (SELECT CAST(EXTRACT(EPOCH FROM j.run_at - TIMESTAMPTZ '2020-01-01 00:00:00+00') * 1000000 AS BIGINT)
                FROM {prefix}job_delayed AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.run_at <= statement_timestamp() ORDER BY j.run_at, j.id LIMIT 1)
            ELSE (SELECT j.id >> 12 FROM {prefix}job AS j
                WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority ORDER BY j.id LIMIT 1) END)
        FROM {prefix}queue_block AS b CROSS JOIN (VALUES (0), (1), (2), (3), (4)) AS p (priority) WHERE b.queue_id = q.queue_id) / 1000000.0 AS DOUBLE PRECISION) AS oldest_ready_seconds,
    (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id
        AND b.generation = (SELECT MAX(n.generation) FROM {prefix}queue_block AS n WHERE n.queue_id = q.queue_id)) AS blocks,
    (SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > statement_timestamp()) AS workers,
    (SELECT COUNT(*) FROM {prefix}job_done AS j WHERE j.queue_id = q.queue_id) AS done_jobs
FROM {prefix}queue AS q;
COMMENT ON VIEW {prefix}v_queue IS 'The queues with how many jobs they have, counted one by one';

CREATE OR REPLACE VIEW {prefix}v_schedule AS
SELECT s.name, s.state, s.reason, s.spec, s.time_zone, CASE WHEN s.state = 'active' THEN s.due_at END AS next_at,
    CASE WHEN s.state = 'active' THEN CAST(EXTRACT(EPOCH FROM s.due_at - statement_timestamp()) AS DOUBLE PRECISION) END AS next_in_seconds,
    s.kind, s.command, s.tag, s.source,
    CASE s.job_priority WHEN 1 THEN 'urgent' WHEN 2 THEN 'normal' WHEN 3 THEN 'low' WHEN 4 THEN 'idle' END AS job_priority,
    (SELECT COUNT(*) FROM {prefix}run AS o WHERE o.schedule = s.name AND o.next_exec IS NOT NULL AND o.state = 'running') AS running_runs,
    r.state AS last_state, r.due_at AS last_at, r.started_at AS last_started_at, r.finished_at AS last_finished_at, r.error AS last_error, s.failures
FROM {prefix}schedule AS s LEFT JOIN {prefix}run AS r ON r.id = (
    SELECT l.id FROM {prefix}run AS l WHERE l.schedule = s.name AND l.next_exec IS NULL ORDER BY l.due_at DESC, l.attempt DESC LIMIT 1);
COMMENT ON VIEW {prefix}v_schedule IS 'The schedules, with the next slot and the outcome of the last ended run of each';

CREATE OR REPLACE VIEW {prefix}v_run AS
SELECT r.id, r.schedule, r.due_at, r.due_to, r.slots, r.attempt, r.state,
    CASE r.cause WHEN 'hand' THEN 'run by hand' ELSE r.cause END AS cause, r.exec_by AS daemon,
    r.started_at, r.finished_at, CAST(EXTRACT(EPOCH FROM r.started_at - r.due_at) AS DOUBLE PRECISION) AS late_seconds,
    CASE WHEN r.started_at IS NOT NULL THEN CAST(EXTRACT(EPOCH FROM COALESCE(r.finished_at, statement_timestamp()) - r.started_at) AS DOUBLE PRECISION) END AS took_seconds,
    r.exit_code, r.error, r.output, r.cancel, r.by_run
FROM {prefix}run AS r;
COMMENT ON VIEW {prefix}v_run IS 'The outcome of each slot: a row for each attempt, or for a stretch of slots that did not run';

-- +goose Down
DROP TRIGGER IF EXISTS {name}schedule_words ON {prefix}schedule;
DROP TRIGGER IF EXISTS {name}queue_words ON {prefix}queue;
DROP TRIGGER IF EXISTS {name}schedule_durations ON {prefix}schedule;
DROP TRIGGER IF EXISTS {name}queue_durations ON {prefix}queue;
DROP TRIGGER IF EXISTS {name}queue_limit_durations ON {prefix}queue_limit;
DROP TRIGGER IF EXISTS {name}endpoint_durations ON {prefix}endpoint;
DROP FUNCTION IF EXISTS {prefix}sql_word();
DROP VIEW IF EXISTS {prefix}v_run;
DROP VIEW IF EXISTS {prefix}v_schedule;
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
DROP FUNCTION IF EXISTS {prefix}enqueue(TEXT, TEXT, JSON, TEXT, TIMESTAMPTZ, TEXT, INT, INT, INTERVAL, INTERVAL, TEXT, TEXT, INTERVAL, INT);
DROP FUNCTION IF EXISTS {prefix}acquire(TEXT, TEXT, INTERVAL, TEXT);
DROP FUNCTION IF EXISTS {prefix}renew(TEXT, TEXT, BIGINT, INTERVAL);
DROP FUNCTION IF EXISTS {prefix}release(TEXT, TEXT, BIGINT);
DROP FUNCTION IF EXISTS {prefix}take(TEXT, INTERVAL, TEXT[]);
DROP FUNCTION IF EXISTS {prefix}complete(BIGINT, TEXT, JSON);
DROP FUNCTION IF EXISTS {prefix}fail(BIGINT, TEXT, TEXT, INTERVAL, BOOLEAN);
DROP FUNCTION IF EXISTS {prefix}give_back(BIGINT, TEXT);
DROP FUNCTION IF EXISTS {prefix}extend(BIGINT, TEXT, INTERVAL);
DROP FUNCTION IF EXISTS {prefix}sql_name(TEXT);
DROP FUNCTION IF EXISTS {prefix}sql_us(TEXT);
DROP FUNCTION IF EXISTS {prefix}sql_end({prefix}job_running, TEXT, JSON, TEXT);
DROP FUNCTION IF EXISTS {prefix}sql_bury({prefix}job_running, {prefix}queue, TEXT, INT);
DROP FUNCTION IF EXISTS {prefix}sql_mine(BIGINT, TEXT);
DROP FUNCTION IF EXISTS {prefix}sql_count({prefix}job_running, INT, INT, INT);
