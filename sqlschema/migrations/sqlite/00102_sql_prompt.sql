-- +goose Up
-- Views and triggers for people and programs that use SQL: docs/queue-sql.md and docs/lock-sql.md. Nothing here holds
-- data, and no program needs it. dbcron migrate prompt makes it anew at any time. So nothing here minds what is there already.
-- There are no functions in SQLite. This view is for the statements of docs/queue-sql.md.
DROP VIEW IF EXISTS {prefix}v_next;
-- Of each block that no live worker holds the jobs that could begin now: one whose worker has
-- ended, the first that is ready, and the first that is due. Others of a key wait for the one that
-- runs or waits for its retry. Of a queue with keys the blocks of a new generation come when
-- those before are empty, and can get nothing any more.
CREATE VIEW {prefix}v_next AS
SELECT 'running' AS stands, q.name AS queue, j.queue_id, j.divided, j.id, j.priority, 0 AS place, j.attempt, j.crashes + (j.state <> 'handed') AS crashes, q.max_crashes,
    j.error, j.errors, j.snapshot, j.percent, j.message, j.kind, j.job_key, j.payload, j.payload_bin, j.max_attempts, j.timeout, j.trace, j.unique_key, j.unique_until, j.group_id, j.endpoint, j.tenant, j.cost
FROM {prefix}queue_block AS b JOIN {prefix}queue AS q ON q.queue_id = b.queue_id AND q.state = 'active'
    AND (b.state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = b.lock_by AND m.state = 'live' AND m.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now')))
    AND NOT EXISTS (SELECT 1 FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node WHERE w.queue_id = b.queue_id AND w.busy = 2 AND n.state = 'live' AND n.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now'))
    AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = b.queue_id AND l.kind = '')
    AND (q.ordered <> 'yes' AND NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS f WHERE f.queue_id = b.queue_id AND f.fifo = 'yes')
        OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS o WHERE o.queue_id = b.queue_id AND o.generation < b.generation
            AND (b.insert_time > strftime('%Y-%m-%d %H:%M:%f', 'now', '-8 seconds')
                OR EXISTS (SELECT 1 FROM {prefix}job AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                OR EXISTS (SELECT 1 FROM {prefix}job_delayed AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                OR EXISTS (SELECT 1 FROM {prefix}job_running AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided))))
    JOIN {prefix}job_running AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.id = (
        SELECT x.id FROM {prefix}job_running AS x WHERE x.queue_id = b.queue_id AND x.divided = b.divided
            AND (x.state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = x.lock_by AND m.state = 'live' AND m.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now'))) AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = x.queue_id AND l.kind = x.kind)
            AND (x.job_key IS NULL AND b.fifo <> 'yes' OR
                NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.id < x.id AND (b.fifo = 'yes' OR o.job_key = x.job_key))
                AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.id < x.id AND o.hold_key IS NOT NULL AND (b.fifo = 'yes' OR o.hold_key = x.job_key)))
        ORDER BY x.id LIMIT 1)
UNION ALL
SELECT 'ready', q.name, j.queue_id, j.divided, j.id, j.priority, j.id, 1, 0, q.max_crashes, '', NULL, NULL, NULL, NULL, j.kind, j.job_key, j.payload, j.payload_bin, j.max_attempts, j.timeout, j.trace, j.unique_key, j.unique_until, j.group_id, j.endpoint, j.tenant, j.cost
FROM {prefix}queue_block AS b JOIN {prefix}queue AS q ON q.queue_id = b.queue_id AND q.state = 'active'
    AND (b.state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = b.lock_by AND m.state = 'live' AND m.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now')))
    AND NOT EXISTS (SELECT 1 FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node WHERE w.queue_id = b.queue_id AND w.busy = 2 AND n.state = 'live' AND n.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now'))
    AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = b.queue_id AND l.kind = '')
    AND (q.ordered <> 'yes' AND NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS f WHERE f.queue_id = b.queue_id AND f.fifo = 'yes')
        OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS o WHERE o.queue_id = b.queue_id AND o.generation < b.generation
            AND (b.insert_time > strftime('%Y-%m-%d %H:%M:%f', 'now', '-8 seconds')
                OR EXISTS (SELECT 1 FROM {prefix}job AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                OR EXISTS (SELECT 1 FROM {prefix}job_delayed AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                OR EXISTS (SELECT 1 FROM {prefix}job_running AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided))))
    JOIN {prefix}job AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND (j.priority, j.id) = (
        SELECT x.priority, x.id FROM {prefix}job AS x WHERE x.queue_id = b.queue_id AND x.divided = b.divided AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = x.queue_id AND l.kind = x.kind)
            AND (x.job_key IS NULL AND b.fifo <> 'yes' OR
                NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (b.fifo = 'yes' OR o.job_key = x.job_key))
                AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.hold_key IS NOT NULL AND (b.fifo = 'yes' OR o.hold_key = x.job_key))
                AND NOT EXISTS (SELECT 1 FROM {prefix}job AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.priority = x.priority AND o.id < x.id AND (b.fifo = 'yes' OR o.job_key = x.job_key)))
        ORDER BY x.priority, x.id LIMIT 1)
UNION ALL
SELECT 'delayed', q.name, j.queue_id, j.divided, j.id, j.priority,
    CASE WHEN j.hold_key IS NULL THEN CAST(ROUND((julianday(j.run_at) - 2458849.5) * 86400000) AS INTEGER) * 4096000 ELSE j.id END,
    j.attempt + 1, j.crashes, q.max_crashes, j.error, j.errors, j.snapshot, j.percent, j.message, j.kind, j.job_key, j.payload, j.payload_bin, j.max_attempts, j.timeout, j.trace, j.unique_key, j.unique_until, j.group_id, j.endpoint, j.tenant, j.cost
FROM {prefix}queue_block AS b JOIN {prefix}queue AS q ON q.queue_id = b.queue_id AND q.state = 'active'
    AND (b.state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = b.lock_by AND m.state = 'live' AND m.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now')))
    AND NOT EXISTS (SELECT 1 FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node WHERE w.queue_id = b.queue_id AND w.busy = 2 AND n.state = 'live' AND n.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now'))
    AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = b.queue_id AND l.kind = '')
    AND (q.ordered <> 'yes' AND NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS f WHERE f.queue_id = b.queue_id AND f.fifo = 'yes')
        OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS o WHERE o.queue_id = b.queue_id AND o.generation < b.generation
            AND (b.insert_time > strftime('%Y-%m-%d %H:%M:%f', 'now', '-8 seconds')
                OR EXISTS (SELECT 1 FROM {prefix}job AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                OR EXISTS (SELECT 1 FROM {prefix}job_delayed AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided)
                OR EXISTS (SELECT 1 FROM {prefix}job_running AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided))))
    JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.id = (
        SELECT x.id FROM {prefix}job_delayed AS x WHERE x.queue_id = b.queue_id AND x.divided = b.divided AND x.run_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = x.queue_id AND l.kind = x.kind)
            AND (x.job_key IS NULL AND b.fifo <> 'yes' OR
                NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (b.fifo = 'yes' OR o.job_key = x.job_key))
                AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (x.hold_key IS NULL OR o.id < x.id) AND o.hold_key IS NOT NULL AND (b.fifo = 'yes' OR o.hold_key = x.job_key)))
        ORDER BY x.run_at, x.id LIMIT 1);

-- Words that nobody knows, and what is no duration, are refused when they are written, and not when a daemon reads them. A CHECK
-- cannot be added to a table that is there. Claims write none of the columns.
DROP TRIGGER IF EXISTS {name}schedule_words_new;
-- +goose StatementBegin
CREATE TRIGGER {name}schedule_words_new BEFORE INSERT ON {prefix}schedule BEGIN
    SELECT RAISE(ABORT, '{name}schedule: dst is none of vixie, wall') WHERE NEW.dst NOT IN ('', 'vixie', 'wall');
    SELECT RAISE(ABORT, '{name}schedule: missed is none of skip, once, all') WHERE NEW.missed NOT IN ('', 'skip', 'once', 'all');
    SELECT RAISE(ABORT, '{name}schedule: overlap is none of forbid, allow, queue, replace') WHERE NEW.overlap NOT IN ('', 'forbid', 'allow', 'queue', 'replace');
    SELECT RAISE(ABORT, '{name}schedule: first_run is none of next, now') WHERE NEW.first_run NOT IN ('', 'next', 'now');
    SELECT RAISE(ABORT, '{name}schedule: retry_past_next is none of no, yes') WHERE NEW.retry_past_next NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, '{name}schedule: repeatable is none of no, yes') WHERE NEW.repeatable NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, '{name}schedule: job_priority is none of 1, 2, 3, 4') WHERE NEW.job_priority NOT IN (1, 2, 3, 4);
    SELECT RAISE(ABORT, '{name}schedule: job_unique_until is none of end, begin') WHERE NEW.job_unique_until NOT IN ('', 'end', 'begin');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}schedule_words_set;
-- +goose StatementBegin
CREATE TRIGGER {name}schedule_words_set BEFORE UPDATE OF dst, missed, overlap, first_run, retry_past_next, repeatable, job_priority, job_unique_until ON {prefix}schedule BEGIN
    SELECT RAISE(ABORT, '{name}schedule: dst is none of vixie, wall') WHERE NEW.dst NOT IN ('', 'vixie', 'wall');
    SELECT RAISE(ABORT, '{name}schedule: missed is none of skip, once, all') WHERE NEW.missed NOT IN ('', 'skip', 'once', 'all');
    SELECT RAISE(ABORT, '{name}schedule: overlap is none of forbid, allow, queue, replace') WHERE NEW.overlap NOT IN ('', 'forbid', 'allow', 'queue', 'replace');
    SELECT RAISE(ABORT, '{name}schedule: first_run is none of next, now') WHERE NEW.first_run NOT IN ('', 'next', 'now');
    SELECT RAISE(ABORT, '{name}schedule: retry_past_next is none of no, yes') WHERE NEW.retry_past_next NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, '{name}schedule: repeatable is none of no, yes') WHERE NEW.repeatable NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, '{name}schedule: job_priority is none of 1, 2, 3, 4') WHERE NEW.job_priority NOT IN (1, 2, 3, 4);
    SELECT RAISE(ABORT, '{name}schedule: job_unique_until is none of end, begin') WHERE NEW.job_unique_until NOT IN ('', 'end', 'begin');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}queue_words_new;
-- +goose StatementBegin
CREATE TRIGGER {name}queue_words_new BEFORE INSERT ON {prefix}queue BEGIN
    SELECT RAISE(ABORT, '{name}queue: state is none of active, paused, deleted') WHERE NEW.state NOT IN ('active', 'paused', 'deleted');
    SELECT RAISE(ABORT, '{name}queue: ordered is none of no, yes') WHERE NEW.ordered NOT IN ('no', 'yes');
    SELECT RAISE(ABORT, '{name}queue: key_retry is none of hold, pass') WHERE NEW.key_retry NOT IN ('hold', 'pass');
    SELECT RAISE(ABORT, '{name}queue: fair is none of no, yes') WHERE NEW.fair NOT IN ('no', 'yes');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}queue_words_set;
-- +goose StatementBegin
CREATE TRIGGER {name}queue_words_set BEFORE UPDATE OF state, ordered, key_retry, fair ON {prefix}queue BEGIN
    SELECT RAISE(ABORT, '{name}queue: state is none of active, paused, deleted') WHERE NEW.state NOT IN ('active', 'paused', 'deleted');
    SELECT RAISE(ABORT, '{name}queue: ordered is none of no, yes') WHERE NEW.ordered NOT IN ('no', 'yes');
    SELECT RAISE(ABORT, '{name}queue: key_retry is none of hold, pass') WHERE NEW.key_retry NOT IN ('hold', 'pass');
    SELECT RAISE(ABORT, '{name}queue: fair is none of no, yes') WHERE NEW.fair NOT IN ('no', 'yes');
END;
-- +goose StatementEnd
-- There are no regular expressions in SQLite: what passes here and is none is found by dbcron doctor.
DROP TRIGGER IF EXISTS {name}schedule_durations_new;
-- +goose StatementBegin
CREATE TRIGGER {name}schedule_durations_new BEFORE INSERT ON {prefix}schedule BEGIN
    SELECT RAISE(ABORT, '{name}schedule: missed_window is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.missed_window NOT IN ('', 'none', 'forever') AND (NEW.missed_window GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.missed_window NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: stall is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.stall NOT IN ('', 'none', 'forever') AND (NEW.stall GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.stall NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: kill_grace is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.kill_grace NOT IN ('', 'none', 'forever') AND (NEW.kill_grace GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.kill_grace NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: linger is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.linger NOT IN ('', 'none', 'forever') AND (NEW.linger GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.linger NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: jitter is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.jitter NOT IN ('', 'none', 'forever') AND (NEW.jitter GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.jitter NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: keep_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_for NOT IN ('', 'none', 'forever') AND (NEW.keep_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_for NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: job_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_timeout NOT IN ('', 'none', 'forever') AND (NEW.job_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: job_unique_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_unique_for NOT IN ('', 'none', 'forever') AND (NEW.job_unique_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_unique_for NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}schedule_durations_set;
-- +goose StatementBegin
CREATE TRIGGER {name}schedule_durations_set BEFORE UPDATE OF missed_window, retry_delay, retry_max_delay, timeout, stall, kill_grace, linger, jitter, keep_for, job_timeout, job_unique_for ON {prefix}schedule BEGIN
    SELECT RAISE(ABORT, '{name}schedule: missed_window is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.missed_window NOT IN ('', 'none', 'forever') AND (NEW.missed_window GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.missed_window NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: stall is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.stall NOT IN ('', 'none', 'forever') AND (NEW.stall GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.stall NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: kill_grace is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.kill_grace NOT IN ('', 'none', 'forever') AND (NEW.kill_grace GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.kill_grace NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: linger is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.linger NOT IN ('', 'none', 'forever') AND (NEW.linger GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.linger NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: jitter is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.jitter NOT IN ('', 'none', 'forever') AND (NEW.jitter GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.jitter NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: keep_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_for NOT IN ('', 'none', 'forever') AND (NEW.keep_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_for NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: job_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_timeout NOT IN ('', 'none', 'forever') AND (NEW.job_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}schedule: job_unique_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_unique_for NOT IN ('', 'none', 'forever') AND (NEW.job_unique_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_unique_for NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}queue_durations_new;
-- +goose StatementBegin
CREATE TRIGGER {name}queue_durations_new BEFORE INSERT ON {prefix}queue BEGIN
    SELECT RAISE(ABORT, '{name}queue: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: max_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.max_timeout NOT IN ('', 'none', 'forever') AND (NEW.max_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.max_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: keep_dead is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_dead NOT IN ('', 'none', 'forever') AND (NEW.keep_dead GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_dead NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: keep_done is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_done NOT IN ('', 'none', 'forever') AND (NEW.keep_done GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_done NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: poll_min is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_min NOT IN ('', 'none', 'forever') AND (NEW.poll_min GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_min NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: poll_max is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_max NOT IN ('', 'none', 'forever') AND (NEW.poll_max GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_max NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}queue_durations_set;
-- +goose StatementBegin
CREATE TRIGGER {name}queue_durations_set BEFORE UPDATE OF retry_delay, retry_max_delay, timeout, max_timeout, keep_dead, keep_done, poll_min, poll_max ON {prefix}queue BEGIN
    SELECT RAISE(ABORT, '{name}queue: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: max_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.max_timeout NOT IN ('', 'none', 'forever') AND (NEW.max_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.max_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: keep_dead is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_dead NOT IN ('', 'none', 'forever') AND (NEW.keep_dead GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_dead NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: keep_done is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_done NOT IN ('', 'none', 'forever') AND (NEW.keep_done GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_done NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: poll_min is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_min NOT IN ('', 'none', 'forever') AND (NEW.poll_min GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_min NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, '{name}queue: poll_max is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_max NOT IN ('', 'none', 'forever') AND (NEW.poll_max GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_max NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}queue_limit_durations_new;
-- +goose StatementBegin
CREATE TRIGGER {name}queue_limit_durations_new BEFORE INSERT ON {prefix}queue_limit BEGIN
    SELECT RAISE(ABORT, '{name}queue_limit: rate_per is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.rate_per NOT IN ('', 'none', 'forever') AND (NEW.rate_per GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.rate_per NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}queue_limit_durations_set;
-- +goose StatementBegin
CREATE TRIGGER {name}queue_limit_durations_set BEFORE UPDATE OF rate_per ON {prefix}queue_limit BEGIN
    SELECT RAISE(ABORT, '{name}queue_limit: rate_per is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.rate_per NOT IN ('', 'none', 'forever') AND (NEW.rate_per GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.rate_per NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}endpoint_durations_new;
-- +goose StatementBegin
CREATE TRIGGER {name}endpoint_durations_new BEFORE INSERT ON {prefix}endpoint BEGIN
    SELECT RAISE(ABORT, '{name}endpoint: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd
DROP TRIGGER IF EXISTS {name}endpoint_durations_set;
-- +goose StatementBegin
CREATE TRIGGER {name}endpoint_durations_set BEFORE UPDATE OF timeout ON {prefix}endpoint BEGIN
    SELECT RAISE(ABORT, '{name}endpoint: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
END;
-- +goose StatementEnd

-- What people look at.
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
-- By each block and priority, so that a job is found by the key in each if its id is given.
CREATE VIEW {prefix}v_job AS
SELECT 'ready' AS state, q.name AS queue, j.id, j.kind, j.job_key, j.priority,
    strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch') AS enqueued_at,
    0 AS attempt, NULL AS run_at, NULL AS since, NULL AS worker, '' AS error, j.divided AS block,
    NULL AS percent, NULL AS message, NULL AS started_at, NULL AS result, NULL AS outcome
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    CROSS JOIN (SELECT 1 AS priority UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
    JOIN {prefix}job AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority
UNION ALL
SELECT 'delayed', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, j.run_at, NULL, NULL, j.error, j.divided, j.percent, j.message, NULL, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided
UNION ALL
SELECT 'running', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, NULL, j.started_at, j.lock_by, j.error, j.divided, j.percent, j.message, j.started_at, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}job_running AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'dead', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, NULL, j.died_at, NULL, j.error, j.divided, j.percent, j.message, NULL, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}job_dead AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'done', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, NULL, j.ended_at, j.worker, j.error, j.divided, j.percent, j.message, j.started_at, j.result, j.outcome
FROM {prefix}queue AS q JOIN {prefix}job_done AS j ON j.queue_id = q.queue_id;

CREATE VIEW {prefix}v_queue AS
SELECT q.name, q.state,
    -- As in all lists of queues, delayed jobs that are due count as ready.
    (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = q.queue_id)
        + (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id AND j.run_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) AS ready_jobs,
    (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id AND j.run_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) AS delayed_jobs,
    (SELECT COUNT(*) FROM {prefix}job_running AS j WHERE j.queue_id = q.queue_id) AS running_jobs,
    (SELECT COUNT(*) FROM {prefix}job_dead AS j WHERE j.queue_id = q.queue_id) AS dead_jobs,
    -- By each block and priority, where the first entry is the oldest. 0 stands for delayed jobs that are due.
    unixepoch('now', 'subsec') - 1577836800 - (
        SELECT MIN(CASE p.priority
            WHEN 0 THEN (SELECT CAST(ROUND((unixepoch(j.run_at, 'subsec') - 1577836800) * 1000) AS INTEGER) * 1000
                FROM {prefix}job_delayed AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.run_at <= strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY j.run_at, j.id LIMIT 1)
            ELSE (SELECT j.id >> 12 FROM {prefix}job AS j
                WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority ORDER BY j.id LIMIT 1) END)
        FROM {prefix}queue_block AS b CROSS JOIN (SELECT 0 AS priority UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
        WHERE b.queue_id = q.queue_id) / 1000000.0 AS oldest_ready_seconds,
    (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id
        AND b.generation = (SELECT MAX(n.generation) FROM {prefix}queue_block AS n WHERE n.queue_id = q.queue_id)) AS blocks,
    (SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) AS workers,
    (SELECT COUNT(*) FROM {prefix}job_done AS j WHERE j.queue_id = q.queue_id) AS done_jobs
FROM {prefix}queue AS q;

DROP VIEW IF EXISTS {prefix}v_schedule;
CREATE VIEW {prefix}v_schedule AS
SELECT s.name, s.state, s.reason, s.spec, s.time_zone, CASE WHEN s.state = 'active' THEN s.due_at END AS next_at,
    CASE WHEN s.state = 'active' THEN ROUND((julianday(s.due_at) - julianday(strftime('%Y-%m-%d %H:%M:%f', 'now'))) * 86400, 3) END AS next_in_seconds,
    s.kind, s.command, s.tag, s.source,
    CASE s.job_priority WHEN 1 THEN 'urgent' WHEN 2 THEN 'normal' WHEN 3 THEN 'low' WHEN 4 THEN 'idle' END AS job_priority,
    (SELECT COUNT(*) FROM {prefix}run AS o WHERE o.schedule = s.name AND o.next_exec IS NOT NULL AND o.state = 'running') AS running_runs,
    r.state AS last_state, r.due_at AS last_at, r.started_at AS last_started_at, r.finished_at AS last_finished_at, r.error AS last_error, s.failures
FROM {prefix}schedule AS s LEFT JOIN {prefix}run AS r ON r.id = (
    SELECT l.id FROM {prefix}run AS l WHERE l.schedule = s.name AND l.next_exec IS NULL ORDER BY l.due_at DESC, l.attempt DESC LIMIT 1);

DROP VIEW IF EXISTS {prefix}v_run;
CREATE VIEW {prefix}v_run AS
SELECT r.id, r.schedule, r.due_at, r.due_to, r.slots, r.attempt, r.state,
    CASE r.cause WHEN 'hand' THEN 'run by hand' ELSE r.cause END AS cause, r.exec_by AS daemon,
    r.started_at, r.finished_at, ROUND((julianday(r.started_at) - julianday(r.due_at)) * 86400, 3) AS late_seconds,
    CASE WHEN r.started_at IS NOT NULL THEN ROUND((julianday(COALESCE(r.finished_at, strftime('%Y-%m-%d %H:%M:%f', 'now'))) - julianday(r.started_at)) * 86400, 3) END AS took_seconds,
    r.exit_code, r.error, r.output, r.cancel, r.by_run
FROM {prefix}run AS r;

-- +goose Down
DROP TRIGGER IF EXISTS {name}schedule_words_new;
DROP TRIGGER IF EXISTS {name}schedule_words_set;
DROP TRIGGER IF EXISTS {name}queue_words_new;
DROP TRIGGER IF EXISTS {name}queue_words_set;
DROP TRIGGER IF EXISTS {name}schedule_durations_new;
DROP TRIGGER IF EXISTS {name}schedule_durations_set;
DROP TRIGGER IF EXISTS {name}queue_durations_new;
DROP TRIGGER IF EXISTS {name}queue_durations_set;
DROP TRIGGER IF EXISTS {name}queue_limit_durations_new;
DROP TRIGGER IF EXISTS {name}queue_limit_durations_set;
DROP TRIGGER IF EXISTS {name}endpoint_durations_new;
DROP TRIGGER IF EXISTS {name}endpoint_durations_set;
DROP VIEW IF EXISTS {prefix}v_run;
DROP VIEW IF EXISTS {prefix}v_schedule;
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
DROP VIEW IF EXISTS {prefix}v_next;
