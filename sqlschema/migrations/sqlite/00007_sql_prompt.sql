-- +goose Up
-- What is here holds no data and can be made anew at any time: dbcron migrate prompt.
-- There are no functions in SQLite.
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
-- By each block and priority, so that a job is found by the key in each if its id is given.
CREATE VIEW {prefix}v_job AS
SELECT 'ready' AS state, q.name AS queue, j.id, j.kind, j.job_key, j.priority,
    strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch') AS enqueued_at,
    0 AS attempt, NULL AS run_at, NULL AS since, NULL AS worker, '' AS error, j.divided AS block,
    NULL AS percent, NULL AS message, NULL AS started_at
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    CROSS JOIN (SELECT 1 AS priority UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
    JOIN {prefix}job AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority
UNION ALL
SELECT 'delayed', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, j.run_at, NULL, NULL, j.error, j.divided, j.percent, j.message, NULL
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided
UNION ALL
SELECT 'running', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, NULL, j.started_at, j.lock_by, j.error, j.divided, j.percent, j.message, j.started_at
FROM {prefix}queue AS q JOIN {prefix}job_running AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'dead', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, NULL, j.died_at, NULL, j.error, j.divided, j.percent, j.message, NULL
FROM {prefix}queue AS q JOIN {prefix}job_dead AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'done', q.name, j.id, j.kind, j.job_key, j.priority, strftime('%Y-%m-%d %H:%M:%f', 1577836800 + (j.id >> 12) / 1000000.0, 'unixepoch'),
    j.attempt, NULL, j.ended_at, j.worker, j.error, j.divided, j.percent, j.message, j.started_at
FROM {prefix}queue AS q JOIN {prefix}job_done AS j ON j.queue_id = q.queue_id;

CREATE VIEW {prefix}v_queue AS
SELECT q.name, q.state,
    (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = q.queue_id) AS ready_jobs,
    (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id) AS delayed_jobs,
    (SELECT COUNT(*) FROM {prefix}job_running AS j WHERE j.queue_id = q.queue_id) AS running_jobs,
    (SELECT COUNT(*) FROM {prefix}job_dead AS j WHERE j.queue_id = q.queue_id) AS dead_jobs,
    -- By each block and priority, where the first entry is the oldest.
    unixepoch('now', 'subsec') - 1577836800 - ((
        SELECT MIN((SELECT j.id FROM {prefix}job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority ORDER BY j.id LIMIT 1))
        FROM {prefix}queue_block AS b CROSS JOIN (SELECT 1 AS priority UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
        WHERE b.queue_id = q.queue_id) >> 12) / 1000000.0 AS oldest_ready_seconds,
    (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id
        AND b.generation = (SELECT MAX(n.generation) FROM {prefix}queue_block AS n WHERE n.queue_id = q.queue_id)) AS blocks,
    (SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) AS workers,
    (SELECT COUNT(*) FROM {prefix}job_done AS j WHERE j.queue_id = q.queue_id) AS done_jobs
FROM {prefix}queue AS q;

-- +goose Down
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
