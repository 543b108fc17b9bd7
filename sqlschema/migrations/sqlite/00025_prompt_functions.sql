-- +goose Up
-- What is here holds no data and can be made anew at any time: dbcron migrate prompt.
-- There are no functions in SQLite. This view is for the statements of docs/queue-sql.md.
DROP VIEW IF EXISTS {prefix}v_next;
-- Of each block that no live worker holds the jobs that could begin now: one whose worker has
-- ended, the first that is ready, and the first that is due. Others of a key wait for the one that
-- runs or waits for its retry. Of a queue with keys the blocks of a new generation come when
-- those before are empty, and can get nothing any more.
CREATE VIEW {prefix}v_next AS
SELECT 'running' AS stands, q.name AS queue, j.queue_id, j.divided, j.id, j.priority, 0 AS place, j.attempt, j.crashes + (j.state <> 'handed') AS crashes, q.max_crashes,
    j.error, j.snapshot, j.percent, j.message, j.kind, j.job_key, j.payload, j.payload_bin, j.max_attempts, j.timeout, j.trace, j.unique_key, j.group_id, j.endpoint
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
SELECT 'ready', q.name, j.queue_id, j.divided, j.id, j.priority, j.id, 1, 0, q.max_crashes, '', NULL, NULL, NULL, j.kind, j.job_key, j.payload, j.payload_bin, j.max_attempts, j.timeout, j.trace, j.unique_key, j.group_id, j.endpoint
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
    j.attempt + 1, j.crashes, q.max_crashes, j.error, j.snapshot, j.percent, j.message, j.kind, j.job_key, j.payload, j.payload_bin, j.max_attempts, j.timeout, j.trace, j.unique_key, j.group_id, j.endpoint
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

-- +goose Down
DROP VIEW IF EXISTS {prefix}v_next;
