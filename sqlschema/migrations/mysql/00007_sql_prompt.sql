-- +goose Up
-- What is here holds no data and can be made anew at any time: dbcron migrate prompt.

-- By each block and priority, so that a job is found by the key in each if its id is given.
CREATE OR REPLACE VIEW {prefix}v_job AS
SELECT 'ready' AS state, q.name AS queue, j.id, j.kind, j.job_key, j.priority,
    TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00') AS enqueued_at,
    0 AS attempt, CAST(NULL AS DATETIME(6)) AS run_at, CAST(NULL AS DATETIME(6)) AS since, CAST(NULL AS CHAR) AS worker, '' AS error, j.divided AS block,
    CAST(NULL AS SIGNED) AS percent, CAST(NULL AS CHAR) AS message, CAST(NULL AS DATETIME(6)) AS started_at
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    CROSS JOIN (SELECT 1 AS priority UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
    JOIN {prefix}job AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority
UNION ALL
SELECT 'delayed', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, j.run_at, NULL, NULL, j.error, j.divided, j.percent, j.message, NULL
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided
UNION ALL
SELECT 'running', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, NULL, j.started_at, j.lock_by, j.error, j.divided, j.percent, j.message, j.started_at
FROM {prefix}queue AS q JOIN {prefix}job_running AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'dead', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, NULL, j.died_at, NULL, j.error, j.divided, j.percent, j.message, NULL
FROM {prefix}queue AS q JOIN {prefix}job_dead AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'done', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, NULL, j.ended_at, j.worker, j.error, j.divided, j.percent, j.message, j.started_at
FROM {prefix}queue AS q JOIN {prefix}job_done AS j ON j.queue_id = q.queue_id;

CREATE OR REPLACE VIEW {prefix}v_queue AS
SELECT q.name, q.state,
    (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = q.queue_id) AS ready_jobs,
    (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id) AS delayed_jobs,
    (SELECT COUNT(*) FROM {prefix}job_running AS j WHERE j.queue_id = q.queue_id) AS running_jobs,
    (SELECT COUNT(*) FROM {prefix}job_dead AS j WHERE j.queue_id = q.queue_id) AS dead_jobs,
    -- By each block and priority, where the first entry is the oldest.
    TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'2020-01-01 00:00:00', UTC_TIMESTAMP(6)) / 1e6 - ((
        SELECT MIN((SELECT j.id FROM {prefix}job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority ORDER BY j.id LIMIT 1))
        FROM {prefix}queue_block AS b CROSS JOIN (SELECT 1 AS priority UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
        WHERE b.queue_id = q.queue_id) >> 12) / 1e6 AS oldest_ready_seconds,
    (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id
        AND b.generation = (SELECT MAX(n.generation) FROM {prefix}queue_block AS n WHERE n.queue_id = q.queue_id)) AS blocks,
    (SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > UTC_TIMESTAMP(6)) AS workers,
    (SELECT COUNT(*) FROM {prefix}job_done AS j WHERE j.queue_id = q.queue_id) AS done_jobs
FROM {prefix}queue AS q;

-- A procedure: a server with a binary log lets only administrators make functions.
DROP PROCEDURE IF EXISTS {prefix}enqueue;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}enqueue(
    IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_kind VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_key VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_run_at DATETIME(6), OUT p_id BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Enqueues a job and sets p_id to its id. It is there if and when the transaction commits'
BEGIN
    DECLARE v_word, v_wrong, v_blanks TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_i, v_try, v_taken, v_made INT DEFAULT 0;
    DECLARE v_queue, v_limit, v_first, v_blocks INT;
    DECLARE v_state, v_ordered VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_tick, v_passed BIGINT; -- µs since 2020, and since the statement began
    DECLARE v_at DATETIME(6);
    DECLARE v_bytes VARBINARY(1000);
    DECLARE v_hi, v_lo BIGINT UNSIGNED; -- the hash, in halves: products must fit
    DECLARE CONTINUE HANDLER FOR 1062 SET v_taken = 1;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    SET p_id = NULL, p_key = IF(LENGTH(p_key) = 0, NULL, p_key);
    IF COALESCE(LENGTH(p_queue), 0) = 0 THEN
        SET p_queue = COALESCE((SELECT queue FROM {prefix}route WHERE kind = p_kind), (SELECT queue FROM {prefix}route WHERE kind = '*'), 'default');
    END IF;
    -- The same checks as of queue.Job, in Go.
    SET v_blanks = _utf8mb4 X'090A0B0C0D20C285C2A0E19A80E28080E28081E28082E28083E28084E28085E28086E28087E28088E28089E2808AE280A8E280A9E280AFE2819FE38080';
    WHILE v_i < 3 DO
        SET v_i = v_i + 1, v_word = COALESCE(ELT(v_i, p_queue, p_kind, p_key), '');
        SET v_wrong = CASE
            WHEN v_i = 3 AND p_key IS NULL THEN NULL
            WHEN LENGTH(v_word) = 0 THEN 'it is empty'
            WHEN CHAR_LENGTH(v_word) > 200 THEN 'it has more than 200 characters'
            WHEN LOCATE(LEFT(v_word, 1), v_blanks) > 0 OR LOCATE(RIGHT(v_word, 1), v_blanks) > 0 THEN 'it begins or ends with a blank'
            WHEN v_word REGEXP _utf8mb4 X'5B002D1F7F2DC29F5D' THEN 'it has control characters'
        END;
        IF v_wrong IS NOT NULL THEN
            SET v_wrong = LEFT(CONCAT('{name}enqueue: ', ELT(v_i, 'queue', 'kind', 'key'), ': name "', LEFT(v_word, 40), '": ', v_wrong), 128);
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_wrong;
        END IF;
    END WHILE;
    IF JSON_VALID(p_payload) = 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue: payload: it is not JSON, or nested too deep for this server';
    ELSEIF p_run_at > TIMESTAMP'9999-01-01 00:00:00' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue: run_at: it is after the year 9998';
    END IF;

    SELECT queue_id, state, ordered, max_payload INTO v_queue, v_state, v_ordered, v_limit FROM {prefix}queue WHERE name = p_queue;
    IF LENGTH(p_payload) > COALESCE(v_limit, 1048576) THEN
        SET v_wrong = CONCAT('{name}enqueue: payload: it has ', LENGTH(p_payload), ' bytes, and the queue takes ', COALESCE(v_limit, 1048576), '; see max_payload');
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_wrong;
    ELSEIF v_state = 'deleted' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue: the queue was deleted';
    END IF;

    WHILE p_id IS NULL DO
        SET v_try = v_try + 1, v_taken = 0, v_blocks = NULL;
        IF v_try > 4 THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue: no id is free';
        END IF;
        -- The clock as it is now, and not when the statement began: that may have waited
        -- for a row that another transaction had locked, which enqueued before us. SYSDATE
        -- goes by the session's time zone, as NOW does: if that jumps meanwhile, or one of
        -- them was set, the statement's beginning is what there is.
        SET v_passed = TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6));
        SET v_tick = TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'2020-01-01 00:00:00', UTC_TIMESTAMP(6)) + IF(v_passed BETWEEN 0 AND 900000000, v_passed, 0);
        IF @{name}tick BETWEEN v_tick AND v_tick + 60000000 THEN
            SET v_tick = @{name}tick + 1; -- the ids of a session rise, also when the clock is set back a little
        END IF;
        SET @{name}tick = v_tick, v_at = TIMESTAMPADD(MICROSECOND, v_tick, TIMESTAMP'2020-01-01 00:00:00');

        -- The generation that the id's time belongs to: the newest that was made four
        -- seconds before or earlier, or else the oldest. See queue/generation.go.
        SELECT MIN(divided), COUNT(*) INTO v_first, v_blocks FROM {prefix}queue_block WHERE queue_id = v_queue GROUP BY generation
        ORDER BY CASE WHEN MIN(insert_time) <= TIMESTAMPADD(SECOND, -4, v_at) THEN generation ELSE -generation END DESC LIMIT 1;
        IF v_blocks IS NULL THEN
            -- Whoever writes its name makes the queue and its blocks; others wait for that.
            -- They look past the snapshot that their transaction may have: makers do not,
            -- since that would lock what is not there. Blocks are missing as well of a queue
            -- that was written by hand; of several who make them one finds no duplicates.
            -- A duplicate is changed, so that it counts as two rows, and is locked at once by
            -- one: those who shared it would then wait for each other.
            INSERT INTO {prefix}queue (name) VALUES (p_queue) ON DUPLICATE KEY UPDATE update_time = TIMESTAMPADD(MICROSECOND, 1, update_time);
            SET v_made = ROW_COUNT();
            SELECT queue_id, state, ordered INTO v_queue, v_state, v_ordered FROM {prefix}queue WHERE name = p_queue;
            IF v_made <> 1 THEN
                SELECT MIN(divided), COUNT(*) INTO v_first, v_blocks FROM {prefix}queue_block WHERE queue_id = v_queue GROUP BY generation
                ORDER BY CASE WHEN MIN(insert_time) <= TIMESTAMPADD(SECOND, -4, v_at) THEN generation ELSE -generation END DESC LIMIT 1
                LOCK IN SHARE MODE;
            END IF;
            IF v_blocks IS NULL THEN
                INSERT INTO {prefix}queue_block (queue_id, divided, generation)
                SELECT v_queue, n, 1 FROM (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
                    UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9 UNION ALL SELECT 10 UNION ALL SELECT 11
                    UNION ALL SELECT 12 UNION ALL SELECT 13 UNION ALL SELECT 14 UNION ALL SELECT 15) AS numbers;
                SET v_first = 0, v_blocks = 16;
            END IF;
        END IF;
        IF p_key IS NOT NULL AND v_ordered <> 'yes' THEN
            -- Before the first job with a key, or at the same moment. Others that do so wait.
            UPDATE {prefix}queue SET ordered = 'yes', update_time = UTC_TIMESTAMP(6) WHERE queue_id = v_queue AND ordered <> 'yes';
            SET v_ordered = 'yes';
        END IF;

        -- FLOOR of a DOUBLE is one, and has too few digits for an id. The hash is FNV-1a:
        -- times 2^40 + 435, modulo 2^64.
        SET p_id = (v_tick << 12) + CAST(FLOOR(RAND() * 4096) AS UNSIGNED), v_bytes = COALESCE(p_key, p_id), v_i = 1, v_hi = 3421674724, v_lo = 2216829733;
        WHILE v_i <= LENGTH(v_bytes) DO
            SET v_lo = v_lo ^ ASCII(SUBSTRING(v_bytes, v_i, 1)), v_hi = (v_hi * 435 + ((v_lo * 435) >> 32) + (v_lo << 8)) & 4294967295,
                v_lo = (v_lo * 435) & 4294967295, v_i = v_i + 1;
        END WHILE;
        SET v_first = v_first + ((v_hi % v_blocks) * (4294967296 % v_blocks) + v_lo % v_blocks) % v_blocks;

        -- A taken id is no error: another one is drawn.
        SET v_taken = 0;
        IF p_run_at > v_at THEN
            INSERT INTO {prefix}job_delayed (queue_id, divided, priority, id, kind, job_key, payload, error, run_at)
            VALUES (v_queue, v_first, 2, p_id, p_kind, p_key, p_payload, '', p_run_at);
        ELSE
            INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key, payload)
            VALUES (v_queue, v_first, 2, p_id, p_kind, p_key, p_payload);
        END IF;
        IF v_taken = 1 THEN
            SET p_id = NULL;
        END IF;
    END WHILE;
END
-- +goose StatementEnd

-- +goose Down
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
DROP PROCEDURE IF EXISTS {prefix}enqueue;
