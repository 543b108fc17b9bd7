-- +goose Up
-- Views and procedures for people and programs that use SQL: docs/queue-sql.md and docs/lock-sql.md. Nothing here holds
-- data, and no program needs it. Making it takes further rights; where these are missing it is left out, and dbcron
-- migrate prompt makes it, or makes it anew, at any time. So nothing here minds what is there already.
--
-- Procedures that take a lock or a job obey the rules of the programs: docs/architecture.md.
--
-- What people call empties the session's variable of the answer first, since a procedure that fails leaves its last argument as
-- it was; whoever passes that variable sees no answer of an earlier call. Then it does its work, which is in a procedure of its
-- own, without MariaDB's snapshot isolation. With it, a statement fails (1020) that meets a row which others have changed: at
-- REPEATABLE READ since the transaction began, at READ COMMITTED while it waited, and also if nobody has read the row, such as a count.

-- Procedures: a server with a binary log lets only administrators make functions.
DROP PROCEDURE IF EXISTS {prefix}sql_begin;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_begin(IN alone INT, OUT own INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Begins a transaction if the session is in none: then own is 1, and who called has to end it'
BEGIN
    -- This alone is refused in a transaction, by each server that there is.
    DECLARE CONTINUE HANDLER FOR 1568 SET own = 0;
    SET own = IF(alone = 1, 1, @@autocommit);
    IF own = 1 THEN
        SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    END IF;
    IF own = 1 THEN
        START TRANSACTION;
    ELSEIF alone = 1 THEN
        SIGNAL SQLSTATE '25001' SET MESSAGE_TEXT = '{name}take: it is a transaction of its own; call it outside of one';
    END IF;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_name;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_name(IN word TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT wrong VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Tells what is wrong with a name; NULL: nothing'
BEGIN
    DECLARE blanks TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT _utf8mb4 X'090A0B0C0D20C285C2A0E19A80E28080E28081E28082E28083E28084E28085E28086E28087E28088E28089E2808AE280A8E280A9E280AFE2819FE38080';
    SET wrong = CASE
        WHEN COALESCE(LENGTH(word), 0) = 0 THEN 'it is empty'
        WHEN CHAR_LENGTH(word) > 200 THEN 'it has more than 200 characters'
        WHEN LOCATE(LEFT(word, 1), blanks) > 0 OR LOCATE(RIGHT(word, 1), blanks) > 0 THEN 'it begins or ends with a blank'
        WHEN word REGEXP _utf8mb4 X'5B002D1F7F2DC29F5D' THEN 'it has control characters'
    END;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_divided;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_divided(IN word VARBINARY(1000), IN first INT, IN blocks INT, OUT block INT)
    NO SQL SQL SECURITY DEFINER
    COMMENT 'Tells the block of a key, or of an id: the FNV-1a hash, which is times 2^40 + 435, modulo 2^64'
BEGIN
    DECLARE v_i INT DEFAULT 1;
    DECLARE v_hi BIGINT UNSIGNED DEFAULT 3421674724; -- the hash, in halves: products must fit
    DECLARE v_lo BIGINT UNSIGNED DEFAULT 2216829733;
    WHILE v_i <= LENGTH(word) DO
        SET v_lo = v_lo ^ ASCII(SUBSTRING(word, v_i, 1)), v_hi = (v_hi * 435 + ((v_lo * 435) >> 32) + (v_lo << 8)) & 4294967295,
            v_lo = (v_lo * 435) & 4294967295, v_i = v_i + 1;
    END WHILE;
    SET block = first + ((v_hi % blocks) * (4294967296 % blocks) + v_lo % blocks) % blocks;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_acquire;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_acquire(IN p_name VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_owner VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_lease DECIMAL(20, 6), OUT p_fence BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}acquire does'
BEGIN
    DECLARE v_wrong VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_state VARCHAR(8) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_until DATETIME(6);
    DECLARE v_try INT DEFAULT 0;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SET p_fence = NULL;
    CALL {prefix}sql_name(p_name, v_wrong);
    IF v_wrong IS NOT NULL THEN
        SET v_wrong = LEFT(CONCAT('{name}acquire: name "', LEFT(COALESCE(p_name, ''), 40), '": ', v_wrong), 128);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_wrong;
    END IF;
    CALL {prefix}sql_name(p_owner, v_wrong);
    IF v_wrong IS NOT NULL OR CHAR_LENGTH(p_owner) > 128 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}acquire: owner: it has to be fresh for each taking, such as host:pid:random, with up to 128 characters';
    END IF;
    IF COALESCE(p_lease, 30) NOT BETWEEN 0.5 AND 31622400 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}acquire: lease: it is not 0.5 to 31622400 seconds';
    END IF;
    SET v_until = TIMESTAMPADD(MICROSECOND, COALESCE(p_lease, 30) * 1000000, UTC_TIMESTAMP(6));
    acquiring: LOOP
        SET v_try = v_try + 1, v_state = NULL;
        -- One UPDATE of one row: concurrent calls pass one after the other.
        UPDATE {prefix}lock SET
            takeovers = takeovers + CASE WHEN state <> 'FREE' AND released_at IS NULL THEN 1 ELSE 0 END,
            lock_by = p_owner, state = 'LOCK', lock_at = UTC_TIMESTAMP(6), released_at = NULL, extends = 0,
            meta = '', session = '', fence = LAST_INSERT_ID(fence + 1), update_time = UTC_TIMESTAMP(6), expire_at = v_until
        WHERE name = p_name AND slot = 0
            AND (state = 'FREE' OR state IN ('LOCK', 'EXTEND') AND expire_at <= UTC_TIMESTAMP(6));
        IF ROW_COUNT() = 1 THEN
            SET p_fence = LAST_INSERT_ID();
            LEAVE acquiring;
        END IF;
        SELECT state INTO v_state FROM {prefix}lock WHERE name = p_name AND slot = 0;
        IF v_state = 'POOL' THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}acquire: it is a pool';
        ELSEIF v_state IS NOT NULL OR v_try = 2 THEN
            LEAVE acquiring;
        END IF;
        -- The floor is the highest fence of the rows that were purged, which a purge does not raise meanwhile.
        INSERT IGNORE INTO {prefix}lock (name, fence) SELECT p_name, fence FROM {prefix}lock_fence WHERE name = '' AND slot = 0 LOCK IN SHARE MODE;
    END LOOP;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}acquire;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}acquire(IN p_name VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_owner VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_lease DECIMAL(20, 6), OUT p_fence BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Takes a lock for so many seconds and sets p_fence; NULL: somebody else has it'
BEGIN
    SET @{name}fence = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_acquire(p_name, p_owner, p_lease, p_fence);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_renew;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_renew(IN p_name VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_owner VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_fence BIGINT, IN p_lease DECIMAL(20, 6), OUT p_renewed INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}renew does'
BEGIN
    DECLARE v_until DATETIME(6);
    IF COALESCE(p_lease, 30) NOT BETWEEN 0.5 AND 31622400 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}renew: lease: it is not 0.5 to 31622400 seconds';
    END IF;
    SET v_until = TIMESTAMPADD(MICROSECOND, COALESCE(p_lease, 30) * 1000000, UTC_TIMESTAMP(6));
    UPDATE {prefix}lock SET state = 'EXTEND', extends = extends + 1, update_time = UTC_TIMESTAMP(6), expire_at = GREATEST(expire_at, v_until)
    WHERE name = p_name AND slot = 0 AND lock_by = p_owner AND fence = p_fence
        AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > UTC_TIMESTAMP(6);
    SET p_renewed = ROW_COUNT();
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}renew;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}renew(IN p_name VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_owner VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_fence BIGINT, IN p_lease DECIMAL(20, 6), OUT p_renewed INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Renews the lease of a lock for so many seconds; p_renewed 0: it has ended'
BEGIN
    SET @{name}renewed = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_renew(p_name, p_owner, p_fence, p_lease, p_renewed);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_release;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_release(IN p_name VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_owner VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_fence BIGINT, OUT p_released INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}release does'
BEGIN
    UPDATE {prefix}lock SET state = 'FREE', released_at = UTC_TIMESTAMP(6), update_time = UTC_TIMESTAMP(6)
    WHERE name = p_name AND slot = 0 AND lock_by = p_owner AND fence = p_fence
        AND state IN ('LOCK', 'EXTEND') AND released_at IS NULL AND expire_at > UTC_TIMESTAMP(6);
    SET p_released = ROW_COUNT();
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}release;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}release(IN p_name VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_owner VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_fence BIGINT, OUT p_released INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Gives a lock back; p_released 0: its lease had ended'
BEGIN
    SET @{name}released = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_release(p_name, p_owner, p_fence, p_released);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_us;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_us(IN setting VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT us BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Reads a duration among the settings of a queue; docs/queue.md says how they are written'
BEGIN
    DECLARE rest VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT setting;
    DECLARE part, unit VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE total DECIMAL(40, 9) DEFAULT 0;
    WHILE COALESCE(rest, '') <> '' DO
        SET part = REGEXP_SUBSTR(rest, '^([0-9]+[.]?[0-9]*|[.][0-9]+)(w|d|h|ms|us|µs|μs|ns|m|s)');
        IF COALESCE(part, '') = '' THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'a setting of the queue is not a duration; write for example 500ms, 90s, 1h30m or 30d';
        END IF;
        SET unit = REGEXP_SUBSTR(part, '[^0-9.]+$'), rest = SUBSTRING(rest, CHAR_LENGTH(part) + 1);
        SET total = total + CAST(LEFT(part, CHAR_LENGTH(part) - CHAR_LENGTH(unit)) AS DECIMAL(30, 9)) * CASE unit WHEN 'w' THEN 604800000000 WHEN 'd' THEN 86400000000
            WHEN 'h' THEN 3600000000 WHEN 'm' THEN 60000000 WHEN 's' THEN 1000000 WHEN 'ms' THEN 1000 WHEN 'ns' THEN 0.001 ELSE 1 END;
    END WHILE;
    SET us = IF(setting IS NULL, NULL, FLOOR(total));
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_end;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_end(IN v_queue INT, IN v_block INT, IN v_job BIGINT, IN p_state VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_why TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Ends a job whose row is locked: the row goes, and its unique key, and its group is told'
BEGIN
    DECLARE v_unique VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_group BIGINT;
    SELECT x.unique_key, x.group_id INTO v_unique, v_group FROM {prefix}job_running AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = v_job FOR UPDATE;
    DELETE FROM {prefix}job_running WHERE queue_id = v_queue AND divided = v_block AND id = v_job;
    IF v_unique IS NOT NULL THEN
        DELETE FROM {prefix}job_unique WHERE queue_id = v_queue AND unique_key = v_unique AND job = v_job AND (free_at IS NULL OR free_at <= UTC_TIMESTAMP(6));
        UPDATE {prefix}job_unique SET pending = 'no' WHERE queue_id = v_queue AND unique_key = v_unique AND job = v_job;
    END IF;
    IF v_group > 0 THEN
        UPDATE {prefix}job_member SET state = p_state, result = p_result, error = p_why WHERE group_id = v_group AND job = v_job;
    END IF;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_count;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_count(IN v_queue INT, IN v_block INT, IN v_job BIGINT, IN did INT, IN not_yet INT, IN never INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Counts the end of an attempt at a job whose row is locked'
BEGIN
    INSERT INTO {prefix}job_count (minute, queue_id, kind, done, failed, dead, wait_us, run_us)
    SELECT CAST(DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%d %H:%i:00') AS DATETIME(6)), x.queue_id, x.kind, did, not_yet, never,
        GREATEST(0, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'2020-01-01 00:00:00', x.started_at) - CAST(x.id >> 12 AS SIGNED)),
        GREATEST(0, TIMESTAMPDIFF(MICROSECOND, x.started_at, UTC_TIMESTAMP(6)))
    FROM {prefix}job_running AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = v_job
    ON DUPLICATE KEY UPDATE done = {prefix}job_count.done + did, failed = {prefix}job_count.failed + not_yet, dead = {prefix}job_count.dead + never,
        wait_us = {prefix}job_count.wait_us + GREATEST(0, TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'2020-01-01 00:00:00', x.started_at) - CAST(x.id >> 12 AS SIGNED)),
        run_us = {prefix}job_count.run_us + GREATEST(0, TIMESTAMPDIFF(MICROSECOND, x.started_at, UTC_TIMESTAMP(6)));
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_bury;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_bury(IN v_queue INT, IN v_block INT, IN v_job BIGINT, IN p_why TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Makes a dead letter of a job whose row is locked'
BEGIN
    DECLARE v_keep VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_us BIGINT;
    SELECT keep_dead INTO v_keep FROM {prefix}queue WHERE queue_id = v_queue;
    CALL {prefix}sql_us(NULLIF(v_keep, 'forever'), v_us);
    INSERT INTO {prefix}job_dead (queue_id, divided, id, priority, attempt, crashes, error, errors, detail, snapshot, percent, message, died_at, purge_at, kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
    SELECT x.queue_id, x.divided, x.id, x.priority, x.attempt, x.crashes, p_why,
        LEFT(CONCAT(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ' ', x.attempt, ' ', REPLACE(LEFT(p_why, 500), CHAR(10), CONCAT(CHAR(10), CHAR(9))), CHAR(10), COALESCE(x.errors, '')), 4000),
        '', x.snapshot, x.percent, x.message, UTC_TIMESTAMP(6),
        TIMESTAMPADD(MICROSECOND, v_us, UTC_TIMESTAMP(6)), x.kind, x.job_key, x.payload, x.payload_bin, x.max_attempts, x.timeout, x.trace, x.unique_key, x.unique_until, x.group_id, x.endpoint, x.tenant, x.cost
    FROM {prefix}job_running AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = v_job;
    CALL {prefix}sql_count(v_queue, v_block, v_job, 0, 0, 1);
    CALL {prefix}sql_end(v_queue, v_block, v_job, 'dead', NULL, p_why);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_mine;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_mine(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT v_queue INT, OUT v_block INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Locks the row of a job that was taken; then nobody takes it over before the transaction ends. v_queue NULL: it is not ours'
BEGIN
    DECLARE v_at VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_there INT;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;
    SET v_queue = NULL, v_block = NULL;
    IF p_token REGEXP '^sql:[0-9]{1,9}[.][0-9]{1,9}:[0-9a-f]+$' THEN
        SET v_at = SUBSTRING_INDEX(SUBSTRING_INDEX(p_token, ':', 2), ':', -1);
        SELECT x.queue_id, x.divided INTO v_queue, v_block FROM {prefix}job_running AS x
        WHERE x.queue_id = CAST(SUBSTRING_INDEX(v_at, '.', 1) AS UNSIGNED) AND x.divided = CAST(SUBSTRING_INDEX(v_at, '.', -1) AS UNSIGNED) AND x.id = p_job AND x.lock_by = p_token FOR UPDATE;
        IF v_queue IS NOT NULL THEN
            SELECT 1 INTO v_there FROM {prefix}node WHERE name = p_token AND state = 'live' AND expire_at > UTC_TIMESTAMP(6) FOR UPDATE;
            IF v_there IS NULL THEN
                SET v_queue = NULL;
            END IF;
        END IF;
    END IF;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_complete;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_complete(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT p_done INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}complete does'
BEGIN
    DECLARE v_own INT DEFAULT 0;
    DECLARE v_queue, v_block INT;
    DECLARE v_keep VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_us BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        IF v_own = 1 THEN
            ROLLBACK;
        END IF;
        RESIGNAL;
    END;
    SET p_done = 0;
    IF JSON_VALID(p_result) = 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}complete: result: it is not JSON';
    END IF;
    IF LENGTH(p_result) > 1048576 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}complete: result: it is longer than 1 MiB';
    END IF;
    CALL {prefix}sql_begin(0, v_own);
    CALL {prefix}sql_mine(p_job, p_token, v_queue, v_block);
    IF v_queue IS NOT NULL THEN
        SELECT keep_done INTO v_keep FROM {prefix}queue WHERE queue_id = v_queue;
        CALL {prefix}sql_us(v_keep, v_us);
        IF v_us > 0 THEN
            INSERT INTO {prefix}job_done (queue_id, divided, id, priority, attempt, crashes, outcome, error, errors, snapshot, percent, message, result, worker, started_at, ended_at, purge_at, kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
            SELECT x.queue_id, x.divided, x.id, x.priority, x.attempt, x.crashes, 'done', '', x.errors, x.snapshot, x.percent, x.message, p_result, p_token, x.started_at, UTC_TIMESTAMP(6),
                TIMESTAMPADD(MICROSECOND, v_us, UTC_TIMESTAMP(6)), x.kind, x.job_key, x.payload, x.payload_bin, x.max_attempts, x.timeout, x.trace, x.unique_key, x.unique_until, x.group_id, x.endpoint, x.tenant, x.cost
            FROM {prefix}job_running AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = p_job;
        END IF;
        CALL {prefix}sql_count(v_queue, v_block, p_job, 1, 0, 0);
        CALL {prefix}sql_end(v_queue, v_block, p_job, 'done', p_result, '');
        DELETE FROM {prefix}node WHERE name = p_token;
        SET p_done = 1;
    END IF;
    IF v_own = 1 THEN
        COMMIT;
    END IF;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}complete;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}complete(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_result LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT p_done INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Says that a job that was taken is done; p_done 0: it is not ours any more'
BEGIN
    SET @{name}done = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_complete(p_job, p_token, p_result, p_done);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_fail;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_fail(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_retry_in DECIMAL(20, 6), IN p_dead INT, OUT p_became VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}fail does'
BEGIN
    DECLARE v_own INT DEFAULT 0;
    DECLARE v_queue, v_block INT;
    DECLARE v_attempt, v_most INT;
    DECLARE v_retry, v_max, v_key_retry VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_delay, v_longest BIGINT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        IF v_own = 1 THEN
            ROLLBACK;
        END IF;
        RESIGNAL;
    END;
    SET p_became = NULL, p_error = LEFT(COALESCE(p_error, ''), 4000);
    IF p_retry_in NOT BETWEEN 0 AND 3153600000 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}fail: retry_in: it is not 0 to 3153600000 seconds';
    END IF;
    CALL {prefix}sql_begin(0, v_own);
    CALL {prefix}sql_mine(p_job, p_token, v_queue, v_block);
    IF v_queue IS NOT NULL THEN
        SELECT x.attempt, COALESCE(x.max_attempts, q.max_attempts), q.retry_delay, q.retry_max_delay, q.key_retry
        INTO v_attempt, v_most, v_retry, v_max, v_key_retry
        FROM {prefix}job_running AS x JOIN {prefix}queue AS q ON q.queue_id = x.queue_id
        WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = p_job FOR UPDATE;
        DELETE FROM {prefix}node WHERE name = p_token;
        IF COALESCE(p_dead, 0) <> 0 OR v_attempt >= v_most THEN
            CALL {prefix}sql_bury(v_queue, v_block, p_job, p_error);
            SET p_became = 'dead';
        ELSE
            -- The delay doubles with each attempt, and half of it is random.
            CALL {prefix}sql_us(v_retry, v_delay);
            CALL {prefix}sql_us(v_max, v_longest);
            IF v_attempt > 1 AND v_delay < v_longest THEN
                SET v_delay = LEAST(v_longest, v_delay * POW(2, LEAST(v_attempt - 1, 60)));
            END IF;
            SET v_delay = COALESCE(p_retry_in * 1000000, v_delay / 2 + RAND() * v_delay / 2);
            INSERT INTO {prefix}job_delayed (queue_id, divided, id, run_at, priority, attempt, crashes, hold_key, error, errors, snapshot, percent, message, kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
            SELECT x.queue_id, x.divided, x.id, TIMESTAMPADD(MICROSECOND, v_delay, UTC_TIMESTAMP(6)), x.priority, x.attempt, x.crashes,
                IF(v_key_retry = 'hold', COALESCE(x.job_key, (SELECT ' fifo' FROM {prefix}queue_block AS k WHERE k.queue_id = x.queue_id AND k.divided = x.divided AND k.fifo = 'yes')), NULL),
                p_error,
                LEFT(CONCAT(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ' ', x.attempt, ' ', REPLACE(LEFT(p_error, 500), CHAR(10), CONCAT(CHAR(10), CHAR(9))), CHAR(10), COALESCE(x.errors, '')), 4000),
                x.snapshot, x.percent, x.message, x.kind, x.job_key, x.payload, x.payload_bin, x.max_attempts, x.timeout, x.trace, x.unique_key, x.unique_until, x.group_id, x.endpoint, x.tenant, x.cost
            FROM {prefix}job_running AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = p_job;
            CALL {prefix}sql_count(v_queue, v_block, p_job, 0, 1, 0);
            DELETE FROM {prefix}job_running WHERE queue_id = v_queue AND divided = v_block AND id = p_job;
            SET p_became = 'delayed';
        END IF;
    END IF;
    IF v_own = 1 THEN
        COMMIT;
    END IF;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}fail;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}fail(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_error TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_retry_in DECIMAL(20, 6), IN p_dead INT, OUT p_became VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Says that a job that was taken has failed, and what becomes of it: delayed or dead; NULL: it is not ours any more'
BEGIN
    SET @{name}became = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_fail(p_job, p_token, p_error, p_retry_in, p_dead, p_became);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_give_back;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_give_back(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT p_given INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}give_back does'
BEGIN
    DECLARE v_own INT DEFAULT 0;
    DECLARE v_queue, v_block INT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        IF v_own = 1 THEN
            ROLLBACK;
        END IF;
        RESIGNAL;
    END;
    SET p_given = 0;
    CALL {prefix}sql_begin(0, v_own);
    CALL {prefix}sql_mine(p_job, p_token, v_queue, v_block);
    IF v_queue IS NOT NULL THEN
        UPDATE {prefix}job_running SET state = 'handed' WHERE queue_id = v_queue AND divided = v_block AND id = p_job;
        DELETE FROM {prefix}node WHERE name = p_token;
        SET p_given = 1;
    END IF;
    IF v_own = 1 THEN
        COMMIT;
    END IF;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}give_back;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}give_back(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, OUT p_given INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Leaves a job that was taken to others; p_given 0: it is not ours any more'
BEGIN
    SET @{name}given = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_give_back(p_job, p_token, p_given);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_extend;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_extend(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_lease DECIMAL(20, 6), OUT p_extended INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}extend does'
BEGIN
    DECLARE v_own INT DEFAULT 0;
    DECLARE v_queue, v_block INT;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        IF v_own = 1 THEN
            ROLLBACK;
        END IF;
        RESIGNAL;
    END;
    SET p_extended = 0;
    IF COALESCE(p_lease, 30) NOT BETWEEN 1 AND 43200 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}extend: lease: it is not 1 to 43200 seconds';
    END IF;
    CALL {prefix}sql_begin(0, v_own);
    CALL {prefix}sql_mine(p_job, p_token, v_queue, v_block);
    IF v_queue IS NOT NULL THEN
        UPDATE {prefix}node SET expire_at = GREATEST(expire_at, TIMESTAMPADD(MICROSECOND, COALESCE(p_lease, 30) * 1000000, UTC_TIMESTAMP(6))), heartbeats = heartbeats + 1 WHERE name = p_token;
        SET p_extended = 1;
    END IF;
    IF v_own = 1 THEN
        COMMIT;
    END IF;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}extend;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}extend(IN p_job BIGINT, IN p_token VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_lease DECIMAL(20, 6), OUT p_extended INT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Renews the lease of a job that was taken; p_extended 0: it is not ours any more'
BEGIN
    SET @{name}extended = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_extend(p_job, p_token, p_lease, p_extended);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_take;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_take(IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_lease DECIMAL(20, 6), IN p_kinds LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}take does'
take: BEGIN
    DECLARE v_own, v_end, v_crashes, v_max_crashes, v_n INT DEFAULT 0;
    DECLARE v_queue, v_block, v_priority, v_attempts INT;
    DECLARE v_job, v_fence BIGINT;
    DECLARE v_state, v_ordered, v_fifo, v_held, v_was VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_by VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_token VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_from VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_until DATETIME(6);
    -- Blocks that nobody holds who is live, that with the oldest job first. Of a queue with keys
    -- those of a new generation come when the ones before are empty, and can get nothing any more.
    DECLARE v_blocks CURSOR FOR
        SELECT c.divided FROM (
            SELECT k.divided, LEAST(
                COALESCE((SELECT CAST(x.priority AS DECIMAL(40, 0)) * 9223372036854775808 + x.id FROM {prefix}job AS x WHERE x.queue_id = k.queue_id AND x.divided = k.divided AND x.id > 0 ORDER BY x.priority, x.id LIMIT 1), 1e30),
                COALESCE((SELECT CAST(x.priority AS DECIMAL(40, 0)) * 9223372036854775808 + x.id FROM {prefix}job_delayed AS x WHERE x.queue_id = k.queue_id AND x.divided = k.divided AND x.run_at <= UTC_TIMESTAMP(6) ORDER BY x.run_at, x.id LIMIT 1), 1e30),
                COALESCE((SELECT CAST(x.priority AS DECIMAL(40, 0)) * 9223372036854775808 + x.id FROM {prefix}job_running AS x WHERE x.queue_id = k.queue_id AND x.divided = k.divided AND (x.state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = x.lock_by AND m.state = 'live' AND m.expire_at > UTC_TIMESTAMP(6))) LIMIT 1), 1e30)) AS head
            FROM {prefix}queue_block AS k WHERE k.queue_id = v_queue AND (k.state = 'FREE' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = k.lock_by AND m.state = 'live' AND m.expire_at > UTC_TIMESTAMP(6)))
                AND (v_ordered <> 'yes' AND NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS f WHERE f.queue_id = v_queue AND f.fifo = 'yes')
                    OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block AS o WHERE o.queue_id = v_queue AND o.generation < k.generation
                        AND (k.insert_time > UTC_TIMESTAMP(6) - INTERVAL 8 SECOND
                            OR EXISTS (SELECT 1 FROM {prefix}job AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided AND x.id > 0)
                            OR EXISTS (SELECT 1 FROM {prefix}job_delayed AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided AND x.id > 0)
                            OR EXISTS (SELECT 1 FROM {prefix}job_running AS x WHERE x.queue_id = o.queue_id AND x.divided = o.divided))))
        ) AS c WHERE c.head < 1e30 ORDER BY c.head;
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_end = 1;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        IF v_own = 1 THEN
            ROLLBACK;
        END IF;
        RESIGNAL;
    END;

    IF COALESCE(p_lease, 30) NOT BETWEEN 1 AND 43200 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}take: lease: it is not 1 to 43200 seconds';
    ELSEIF JSON_VALID(p_kinds) = 0 OR JSON_TYPE(p_kinds) <> 'ARRAY' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}take: kinds: they are not a JSON array of texts';
    END IF;
    CALL {prefix}sql_begin(1, v_own);
    SET v_until = TIMESTAMPADD(MICROSECOND, COALESCE(p_lease, 30) * 1000000, UTC_TIMESTAMP(6));
    SET p_queue = IF(COALESCE(LENGTH(p_queue), 0) = 0, 'default', p_queue);
    SELECT queue_id, state, ordered, max_crashes INTO v_queue, v_state, v_ordered, v_max_crashes FROM {prefix}queue WHERE name = p_queue;
    IF v_state = 'deleted' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}take: the queue was deleted';
    ELSEIF EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = v_queue AND l.kind = '' AND (l.max_running > 0 OR l.rate > 0)) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}take: the queue has a limit, which only workers obey: claim its jobs over HTTP';
    END IF;
    -- A worker that moves the jobs to another queue is to have all blocks.
    IF v_state = 'active' AND NOT EXISTS (SELECT 1 FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = v_queue AND w.busy = 2 AND n.state = 'live' AND n.expire_at > UTC_TIMESTAMP(6)) THEN
        OPEN v_blocks;
        taking: LOOP
            SET v_end = 0;
            FETCH v_blocks INTO v_block;
            IF v_end = 1 THEN
                LEAVE taking;
            END IF;
            -- With its row locked nobody else takes the block: whoever wants to waits for our end, and
            -- finds another fence than the one that it saw. The block stays what it was otherwise, so
            -- that whoever gets it after a worker that was lost knows of that.
            SELECT k.state, k.lock_by, k.fence, k.fifo INTO v_held, v_by, v_fence, v_fifo FROM {prefix}queue_block AS k
            WHERE k.queue_id = v_queue AND k.divided = v_block FOR UPDATE SKIP LOCKED;
            IF v_end = 1 THEN
                ITERATE taking;
            END IF;
            IF v_held <> 'FREE' THEN
                UPDATE {prefix}node SET state = 'lost' WHERE name = v_by AND state = 'live' AND expire_at <= UTC_TIMESTAMP(6);
                IF EXISTS (SELECT 1 FROM {prefix}node WHERE name = v_by AND state = 'live') THEN
                    ITERATE taking;
                END IF;
            END IF;
            SET v_token = CONCAT('sql:', v_queue, '.', v_block, ':', REPLACE(UUID(), '-', ''), LPAD(CONV(FLOOR(RAND() * 4294967296), 10, 16), 8, '0'));
            SET v_token = LOWER(v_token), v_job = NULL, v_n = 0;

            -- Jobs whose workers have ended come first. The others of a key wait for the first one of
            -- the key that runs, or waits for its retry.
            adopting: WHILE v_n < 20 DO
                SET v_n = v_n + 1, v_end = 0, v_job = NULL;
                SELECT x.id, x.lock_by, x.state, x.crashes INTO v_job, v_by, v_was, v_crashes FROM {prefix}job_running AS x
                WHERE x.queue_id = v_queue AND x.divided = v_block AND (x.state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = x.lock_by AND m.state = 'live' AND m.expire_at > UTC_TIMESTAMP(6)))
                    AND (p_kinds IS NULL OR JSON_CONTAINS(p_kinds, JSON_QUOTE(x.kind))) AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = v_queue AND l.kind = x.kind AND (l.max_running > 0 OR l.rate > 0))
                    AND (x.job_key IS NULL AND v_fifo <> 'yes'
                        OR NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.id < x.id AND (v_fifo = 'yes' OR o.job_key = x.job_key))
                        AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.id < x.id AND (v_fifo = 'yes' AND o.hold_key IS NOT NULL OR o.hold_key = x.job_key)))
                ORDER BY x.id LIMIT 1 FOR UPDATE SKIP LOCKED;
                IF v_job IS NULL THEN
                    LEAVE adopting;
                END IF;
                IF v_was <> 'handed' THEN
                    UPDATE {prefix}node SET state = 'lost' WHERE name = v_by AND state = 'live' AND expire_at <= UTC_TIMESTAMP(6);
                END IF;
                -- That it is what we saw says that nobody has ended or renewed it meanwhile.
                UPDATE {prefix}job_running SET crashes = crashes + IF(state = 'handed', 0, 1), state = 'alone', lock_by = v_token, fence = v_fence + 1, started_at = UTC_TIMESTAMP(6)
                WHERE queue_id = v_queue AND divided = v_block AND id = v_job AND lock_by = v_by AND state = v_was
                    AND (state = 'handed' OR NOT EXISTS (SELECT 1 FROM {prefix}node AS m WHERE m.name = v_by AND m.state = 'live'));
                IF ROW_COUNT() = 0 THEN
                    SET v_job = NULL;
                    LEAVE adopting;
                END IF;
                DELETE FROM {prefix}node WHERE name = v_by AND name LIKE 'sql:%';
                IF v_was = 'handed' OR v_crashes + 1 < v_max_crashes * IF(v_was = 'alone', 1, 4) THEN
                    LEAVE adopting;
                END IF;
                CALL {prefix}sql_bury(v_queue, v_block, v_job, CONCAT(v_crashes + 1, ' workers died with it'));
                SET v_job = NULL;
            END WHILE;

            IF v_job IS NULL THEN
                SELECT c.id, c.priority, c.stands INTO v_job, v_priority, v_from FROM (
                    SELECT * FROM (SELECT x.id, x.priority, CAST(x.id AS DECIMAL(30, 0)) AS place, 'ready' AS stands FROM {prefix}job AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id > 0
                        AND (p_kinds IS NULL OR JSON_CONTAINS(p_kinds, JSON_QUOTE(x.kind))) AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = v_queue AND l.kind = x.kind AND (l.max_running > 0 OR l.rate > 0))
                        AND (x.job_key IS NULL AND v_fifo <> 'yes' OR (
                            NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (v_fifo = 'yes' OR o.job_key = x.job_key))
                            AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (v_fifo = 'yes' AND o.hold_key IS NOT NULL OR o.hold_key = x.job_key))
                            AND NOT EXISTS (SELECT 1 FROM {prefix}job AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND o.priority = x.priority AND o.id < x.id AND o.id > 0 AND (v_fifo = 'yes' OR o.job_key = x.job_key))))
                    ORDER BY x.priority, x.id LIMIT 1) AS ready
                    UNION ALL
                    SELECT * FROM (SELECT x.id, x.priority, IF(x.hold_key IS NULL, CAST(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'2020-01-01 00:00:00', x.run_at) AS DECIMAL(30, 0)) * 4096, x.id) AS place, 'delayed' AS stands
                        FROM {prefix}job_delayed AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.run_at <= UTC_TIMESTAMP(6)
                        AND (p_kinds IS NULL OR JSON_CONTAINS(p_kinds, JSON_QUOTE(x.kind))) AND NOT EXISTS (SELECT 1 FROM {prefix}queue_limit AS l WHERE l.queue_id = v_queue AND l.kind = x.kind AND (l.max_running > 0 OR l.rate > 0))
                        AND (x.job_key IS NULL AND v_fifo <> 'yes' OR (
                            NOT EXISTS (SELECT 1 FROM {prefix}job_running AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (v_fifo = 'yes' OR o.job_key = x.job_key))
                            AND NOT EXISTS (SELECT 1 FROM {prefix}job_delayed AS o WHERE o.queue_id = x.queue_id AND o.divided = x.divided AND (x.hold_key IS NULL OR o.id < x.id) AND (v_fifo = 'yes' AND o.hold_key IS NOT NULL OR o.hold_key = x.job_key))))
                    ORDER BY x.run_at, x.id LIMIT 100) AS due
                ) AS c ORDER BY c.priority, c.place LIMIT 1;
                IF v_job IS NULL THEN
                    ITERATE taking;
                END IF;
                IF v_from = 'ready' THEN
                    INSERT INTO {prefix}job_running (queue_id, divided, id, priority, attempt, state, lock_by, fence, started_at, error, kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
                    SELECT x.queue_id, x.divided, x.id, x.priority, 1, 'alone', v_token, v_fence + 1, UTC_TIMESTAMP(6), '', x.kind, x.job_key, x.payload, x.payload_bin, x.max_attempts, x.timeout, x.trace, x.unique_key, x.unique_until, x.group_id, x.endpoint, x.tenant, x.cost
                    FROM {prefix}job AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.priority = v_priority AND x.id = v_job FOR UPDATE SKIP LOCKED;
                    SET v_n = ROW_COUNT();
                    DELETE FROM {prefix}job WHERE queue_id = v_queue AND divided = v_block AND priority = v_priority AND id = v_job AND v_n = 1;
                ELSE
                    INSERT INTO {prefix}job_running (queue_id, divided, id, priority, attempt, crashes, error, errors, snapshot, percent, message, state, lock_by, fence, started_at, kind, job_key, payload, payload_bin, max_attempts, timeout, trace, unique_key, unique_until, group_id, endpoint, tenant, cost)
                    SELECT x.queue_id, x.divided, x.id, x.priority, x.attempt + 1, x.crashes, x.error, x.errors, x.snapshot, x.percent, x.message, 'alone', v_token, v_fence + 1, UTC_TIMESTAMP(6), x.kind, x.job_key, x.payload, x.payload_bin, x.max_attempts, x.timeout, x.trace, x.unique_key, x.unique_until, x.group_id, x.endpoint, x.tenant, x.cost
                    FROM {prefix}job_delayed AS x WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = v_job FOR UPDATE SKIP LOCKED;
                    SET v_n = ROW_COUNT();
                    DELETE FROM {prefix}job_delayed WHERE queue_id = v_queue AND divided = v_block AND id = v_job AND v_n = 1;
                END IF;
                IF v_n <> 1 THEN -- somebody cancels it, or moves it
                    ITERATE taking;
                END IF;
                -- One that has its unique key until it begins loses it.
                DELETE u FROM {prefix}job_running AS x JOIN {prefix}job_unique AS u ON u.queue_id = x.queue_id AND u.unique_key = x.unique_key AND u.job = x.id
                WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = v_job AND x.unique_until = 'begin' AND (u.free_at IS NULL OR u.free_at <= UTC_TIMESTAMP(6));
                UPDATE {prefix}job_running AS x JOIN {prefix}job_unique AS u ON u.queue_id = x.queue_id AND u.unique_key = x.unique_key AND u.job = x.id SET u.pending = 'no'
                WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = v_job AND x.unique_until = 'begin';
            END IF;
            UPDATE {prefix}queue_block SET fence = fence + 1 WHERE queue_id = v_queue AND divided = v_block;
            -- A worker with one job: the holder of the block takes the job over when the worker's lease has ended.
            INSERT INTO {prefix}node (name, state, expire_at, version) VALUES (v_token, 'live', v_until, 'SQL prompt');
            CLOSE v_blocks;
            COMMIT;
            SET @{name}job = v_job, @{name}token = v_token; -- for the calls that follow
            SELECT x.id AS job, v_token AS token, x.kind, x.payload, x.payload_bin, x.job_key, x.attempt, COALESCE(x.max_attempts, q.max_attempts) AS max_attempts, v_until AS expire_at
            FROM {prefix}job_running AS x JOIN {prefix}queue AS q ON q.queue_id = x.queue_id WHERE x.queue_id = v_queue AND x.divided = v_block AND x.id = v_job AND x.lock_by = v_token;
            LEAVE take;
        END LOOP;
        CLOSE v_blocks;
    END IF;
    COMMIT; -- of what were workers that are lost by now
    SELECT NULL AS job, NULL AS token, NULL AS kind, NULL AS payload, NULL AS payload_bin, NULL AS job_key, NULL AS attempt, NULL AS max_attempts, NULL AS expire_at FROM (SELECT 1 AS one) AS none WHERE 1 = 0;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}take;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}take(IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_lease DECIMAL(20, 6), IN p_kinds LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Takes a job of a queue whose block no worker has for so many seconds, and returns it as a row'
BEGIN
    SET @{name}job = NULL, @{name}token = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_take(p_queue, p_lease, p_kinds);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_enqueue;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_enqueue(
    IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_kind VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_key VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_run_at DATETIME(6), OUT p_id BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}enqueue does'
BEGIN
    DECLARE v_word, v_wrong, v_blanks TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_i, v_try, v_taken, v_made INT DEFAULT 0;
    DECLARE v_queue, v_limit, v_first, v_blocks, v_block INT;
    DECLARE v_state, v_ordered VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_tick, v_passed BIGINT; -- µs since 2020, and since the statement began
    DECLARE v_at DATETIME(6);
    DECLARE CONTINUE HANDLER FOR 1062 SET v_taken = 1;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    SET p_id = NULL, p_key = IF(LENGTH(p_key) = 0, NULL, p_key);
    IF COALESCE(LENGTH(p_queue), 0) = 0 THEN
        SET p_queue = COALESCE((SELECT queue FROM {prefix}route WHERE kind = p_kind), (SELECT queue FROM {prefix}route WHERE kind = '*'), 'default');
    END IF;
    -- The same checks as in the programs.
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
        -- seconds before or earlier, or else the oldest.
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

        -- FLOOR of a DOUBLE is one, and has too few digits for an id.
        SET p_id = (v_tick << 12) + CAST(FLOOR(RAND() * 4096) AS UNSIGNED);

        CALL {prefix}sql_divided(COALESCE(p_key, p_id), v_first, v_blocks, v_block);
        -- A taken id is no error: another one is drawn.
        SET v_taken = 0;
        IF p_run_at > v_at THEN
            INSERT INTO {prefix}job_delayed (queue_id, divided, priority, id, kind, job_key, payload, error, run_at)
            VALUES (v_queue, v_block, 2, p_id, p_kind, p_key, p_payload, '', p_run_at);
        ELSE
            INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key, payload)
            VALUES (v_queue, v_block, 2, p_id, p_kind, p_key, p_payload);
        END IF;
        IF v_taken = 1 THEN
            SET p_id = NULL;
        END IF;
    END WHILE;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}enqueue;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}enqueue(
    IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_kind VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_key VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_run_at DATETIME(6), OUT p_id BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Enqueues a job and sets p_id to its id. It is there if and when the transaction commits'
BEGIN
    SET @{name}id = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_enqueue(p_queue, p_kind, p_payload, p_key, p_run_at, p_id);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}sql_enqueue_within;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}sql_enqueue_within(
    IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_kind VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_key VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_run_at DATETIME(6),
    IN p_unique VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_unique_for DECIMAL(20, 6),
    IN p_priority INT, IN p_attempts INT, IN p_timeout DECIMAL(20, 6),
    IN p_tenant VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_unique_until VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_debounce DECIMAL(20, 6), IN p_cost INT, OUT p_id BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'What {name}enqueue_within does'
enqueuing: BEGIN
    DECLARE v_word, v_wrong TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_i, v_try, v_taken, v_made INT DEFAULT 0;
    DECLARE v_queue, v_limit, v_first, v_blocks, v_block INT;
    DECLARE v_state, v_ordered VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE v_usual, v_most VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin; -- timeouts
    DECLARE v_usual_us, v_most_us BIGINT;
    DECLARE v_tick, v_passed BIGINT; -- µs since 2020, and since the statement began
    DECLARE v_had, v_job BIGINT; -- under which id this has taken the unique key, and who has it
    DECLARE v_over, v_again INT DEFAULT 0;
    DECLARE v_at, v_free, v_wait, v_until DATETIME(6); -- up to when another may replace this one, and the one that it replaces
    DECLARE v_fifo VARCHAR(3) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
    DECLARE CONTINUE HANDLER FOR 1062 SET v_taken = 1;
    DECLARE CONTINUE HANDLER FOR NOT FOUND BEGIN END;

    SET p_id = NULL, p_key = IF(LENGTH(p_key) = 0, NULL, p_key), p_unique = IF(LENGTH(p_unique) = 0, NULL, p_unique), p_tenant = IF(LENGTH(p_tenant) = 0, NULL, p_tenant),
        p_unique_until = IF(LENGTH(p_unique_until) = 0 OR p_unique_until = 'end', NULL, p_unique_until);
    IF COALESCE(LENGTH(p_queue), 0) = 0 THEN
        SET p_queue = COALESCE((SELECT queue FROM {prefix}route WHERE kind = p_kind), (SELECT queue FROM {prefix}route WHERE kind = '*'), 'default');
    END IF;
    -- The same checks as in the programs.
    WHILE v_i < 5 DO
        SET v_i = v_i + 1, v_word = COALESCE(ELT(v_i, p_queue, p_kind, p_key, p_unique, p_tenant), ''), v_wrong = NULL;
        IF v_i < 3 OR LENGTH(v_word) > 0 THEN
            CALL {prefix}sql_name(v_word, v_wrong);
        END IF;
        IF v_wrong IS NOT NULL THEN
            SET v_wrong = LEFT(CONCAT('{name}enqueue_with: ', ELT(v_i, 'queue', 'kind', 'key', 'unique', 'tenant'), ': name "', LEFT(v_word, 40), '": ', v_wrong), 128);
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_wrong;
        END IF;
    END WHILE;
    IF p_priority NOT BETWEEN 1 AND 4 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: priority: it is not 1 (urgent) to 4 (idle)';
    ELSEIF p_attempts NOT BETWEEN 0 AND 1000000 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: attempts: it is not 0 to 1000000';
    ELSEIF p_cost NOT BETWEEN 0 AND 1000 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: cost: it is not 1 to 1000';
    ELSEIF p_timeout NOT BETWEEN 0 AND 3153600000 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: timeout: it is not 0 to 3153600000 seconds';
    ELSEIF p_unique_for NOT BETWEEN 0 AND 31622400 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: unique_for: it is not 0 to 31622400 seconds';
    ELSEIF p_unique_for > 0 AND p_unique IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: unique_for: there is no unique key that it is about';
    ELSEIF p_unique_until <> 'begin' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: unique_until: it is none of end, begin';
    ELSEIF p_unique_until IS NOT NULL AND p_unique IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: unique_until: there is no unique key that it is about';
    ELSEIF p_debounce NOT BETWEEN 0 AND 31622400 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: debounce: it is not 0 to 31622400 seconds';
    ELSEIF p_debounce > 0 AND p_unique IS NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: debounce: there is no unique key that says which job it replaces';
    ELSEIF p_debounce > 0 AND (p_run_at IS NULL OR p_run_at > TIMESTAMPADD(MICROSECOND, p_debounce * 1000000, UTC_TIMESTAMP(6))) THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: debounce: it is the longest wait; run_at has to say when the job starts if nothing changes';
    ELSEIF p_debounce > 0 AND p_unique_for > 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: debounce: the job has its key until it begins; leave unique_for out';
    END IF;
    SET p_unique_until = IF(p_debounce > 0, 'begin', p_unique_until);
    IF JSON_VALID(p_payload) = 0 THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: payload: it is not JSON, or nested too deep for this server';
    ELSEIF p_run_at > TIMESTAMP'9999-01-01 00:00:00' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: run_at: it is after the year 9998';
    END IF;

    SELECT queue_id, state, ordered, max_payload, max_timeout, timeout INTO v_queue, v_state, v_ordered, v_limit, v_most, v_usual FROM {prefix}queue WHERE name = p_queue;
    IF LENGTH(p_payload) > COALESCE(v_limit, 1048576) THEN
        SET v_wrong = CONCAT('{name}enqueue_with: payload: it has ', LENGTH(p_payload), ' bytes, and the queue takes ', COALESCE(v_limit, 1048576), '; see max_payload');
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = v_wrong;
    ELSEIF v_state = 'deleted' THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: the queue was deleted';
    ELSEIF p_timeout > 0 AND COALESCE(v_most, '1h') <> '' THEN
        CALL {prefix}sql_us(COALESCE(v_most, '1h'), v_most_us);
        CALL {prefix}sql_us(COALESCE(v_usual, ''), v_usual_us);
        IF p_timeout * 1000000 > GREATEST(v_most_us, v_usual_us) THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: timeout: it is longer than the queue takes; leave it out, or raise max_timeout';
        END IF;
    END IF;

    WHILE p_id IS NULL DO
        SET v_try = v_try + 1, v_taken = 0, v_blocks = NULL;
        IF v_try > 4 THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: no id is free';
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
        -- seconds before or earlier, or else the oldest.
        SELECT MIN(divided), COUNT(*), MAX(fifo) INTO v_first, v_blocks, v_fifo FROM {prefix}queue_block WHERE queue_id = v_queue GROUP BY generation
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
                SELECT MIN(divided), COUNT(*), MAX(fifo) INTO v_first, v_blocks, v_fifo FROM {prefix}queue_block WHERE queue_id = v_queue GROUP BY generation
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
        IF v_fifo = 'yes' AND p_priority <> 2 THEN
            SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: priority: the queue is FIFO: its jobs have no priority';
        END IF;
        IF p_key IS NOT NULL AND v_ordered <> 'yes' THEN
            -- Before the first job with a key, or at the same moment. Others that do so wait.
            UPDATE {prefix}queue SET ordered = 'yes', update_time = UTC_TIMESTAMP(6) WHERE queue_id = v_queue AND ordered <> 'yes';
            SET v_ordered = 'yes';
        END IF;

        -- FLOOR of a DOUBLE is one, and has too few digits for an id.
        SET p_id = (v_tick << 12) + CAST(FLOOR(RAND() * 4096) AS UNSIGNED);

        -- A unique key belongs to this job, or to another that has not ended; concurrent callers wait for us.
        IF p_unique IS NOT NULL AND v_had IS NOT NULL THEN
            UPDATE {prefix}job_unique SET job = p_id WHERE queue_id = v_queue AND unique_key = p_unique AND job = v_had;
        ELSEIF p_unique IS NOT NULL THEN
            SET v_free = IF(p_unique_for > 0, TIMESTAMPADD(MICROSECOND, p_unique_for * 1000000, v_at), NULL),
                v_wait = IF(p_debounce > 0, TIMESTAMPADD(MICROSECOND, p_debounce * 1000000, v_at), NULL), v_again = 0;
            WHILE v_had IS NULL DO
                SET v_taken = 0, v_job = NULL, v_until = NULL, v_over = 0, v_again = v_again + 1;
                IF v_wait IS NULL THEN
                    INSERT INTO {prefix}job_unique (queue_id, unique_key, job, free_at) VALUES (v_queue, p_unique, p_id, v_free);
                ELSE -- those who shared the lock on the one that is there would wait for each other
                    INSERT INTO {prefix}job_unique (queue_id, unique_key, job, wait_until) VALUES (v_queue, p_unique, p_id, v_wait) ON DUPLICATE KEY UPDATE job = job;
                    SELECT job, wait_until INTO v_job, v_until FROM {prefix}job_unique WHERE queue_id = v_queue AND unique_key = p_unique FOR UPDATE;
                    SET v_taken = v_job <> p_id, v_job = NULL;
                END IF;
                IF v_taken = 0 THEN
                    SET v_had = p_id;
                ELSE
                    SELECT job, pending = 'no' AND COALESCE(free_at <= UTC_TIMESTAMP(6), 0) INTO v_job, v_over FROM {prefix}job_unique
                    WHERE queue_id = v_queue AND unique_key = p_unique LOCK IN SHARE MODE;
                    IF v_job IS NOT NULL AND v_over = 0 AND v_until IS NOT NULL THEN
                        -- It replaces a job that waits. One whose turn has come stays, and has its key no more, unless no job of the queue begins. It is
                        -- where the hash says, as a rule; elsewhere a DELETE would lock the gap in which it is not.
                        IF v_until > v_at OR v_state = 'paused' OR NOT EXISTS (SELECT 1 FROM {prefix}queue_block WHERE queue_id = v_queue AND state = 'LEASED') THEN
                            CALL {prefix}sql_divided(COALESCE(p_key, v_job), v_first, v_blocks, v_block);
                            DELETE FROM {prefix}job_delayed WHERE queue_id = v_queue AND divided = v_block AND id = v_job AND unique_key = p_unique;
                            SET v_made = ROW_COUNT(), v_block = NULL;
                            IF v_made = 0 THEN
                                SELECT j.divided INTO v_block FROM {prefix}queue_block AS b JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided
                                WHERE b.queue_id = v_queue AND j.id = v_job AND j.unique_key = p_unique;
                                IF v_block IS NOT NULL THEN
                                    DELETE FROM {prefix}job_delayed WHERE queue_id = v_queue AND divided = v_block AND id = v_job AND unique_key = p_unique;
                                    SET v_made = ROW_COUNT();
                                END IF;
                            END IF;
                            IF v_made = 1 THEN
                                SET v_wait = v_until, p_run_at = LEAST(p_run_at, v_until);
                            END IF;
                        END IF;
                        UPDATE {prefix}job_unique SET job = p_id, wait_until = v_wait WHERE queue_id = v_queue AND unique_key = p_unique AND job = v_job;
                        SET v_had = p_id;
                    ELSEIF v_job IS NOT NULL AND v_over = 1 THEN
                        UPDATE {prefix}job_unique SET job = p_id, pending = 'yes', free_at = v_free, wait_until = v_wait
                        WHERE queue_id = v_queue AND unique_key = p_unique AND job = v_job AND pending = 'no' AND free_at <= UTC_TIMESTAMP(6);
                        IF ROW_COUNT() = 1 THEN
                            SET v_had = p_id;
                        END IF;
                    ELSEIF v_job IS NOT NULL THEN
                        SET p_id = v_job;
                        LEAVE enqueuing;
                    END IF;
                    IF v_again = 100 THEN
                        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{name}enqueue_with: unique: it changes hands all the time; try again';
                    END IF;
                END IF;
            END WHILE;
        END IF;

        CALL {prefix}sql_divided(COALESCE(p_key, p_id), v_first, v_blocks, v_block);
        -- A taken id is no error: another one is drawn.
        SET v_taken = 0;
        IF p_run_at > v_at OR v_wait IS NOT NULL THEN
            INSERT INTO {prefix}job_delayed (queue_id, divided, priority, id, kind, job_key, payload, error, run_at, unique_key, unique_until, max_attempts, timeout, tenant, cost)
            VALUES (v_queue, v_block, COALESCE(p_priority, 2), p_id, p_kind, p_key, p_payload, '', p_run_at, p_unique, p_unique_until, NULLIF(p_attempts, 0), NULLIF(FLOOR(p_timeout * 1000000), 0), p_tenant, NULLIF(NULLIF(p_cost, 0), 1));
        ELSE
            INSERT INTO {prefix}job (queue_id, divided, priority, id, kind, job_key, payload, unique_key, unique_until, max_attempts, timeout, tenant, cost)
            VALUES (v_queue, v_block, COALESCE(p_priority, 2), p_id, p_kind, p_key, p_payload, p_unique, p_unique_until, NULLIF(p_attempts, 0), NULLIF(FLOOR(p_timeout * 1000000), 0), p_tenant, NULLIF(NULLIF(p_cost, 0), 1));
        END IF;
        IF v_taken = 1 THEN
            SET v_had = IF(v_had IS NULL, NULL, p_id), p_id = NULL;
        END IF;
    END WHILE;
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}enqueue_within;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}enqueue_within(
    IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_kind VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_key VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_run_at DATETIME(6),
    IN p_unique VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_unique_for DECIMAL(20, 6),
    IN p_priority INT, IN p_attempts INT, IN p_timeout DECIMAL(20, 6),
    IN p_tenant VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_unique_until VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_debounce DECIMAL(20, 6), IN p_cost INT, OUT p_id BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Enqueues a job within a transaction or trigger, and sets p_id to its id, or the id of the one that has its unique key'
BEGIN
    SET @{name}id = NULL;
    /*M!110402 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ CALL {prefix}sql_enqueue_within(p_queue, p_kind, p_payload, p_key, p_run_at, p_unique, p_unique_for, p_priority, p_attempts, p_timeout, p_tenant, p_unique_until, p_debounce, p_cost, p_id);
END
-- +goose StatementEnd

DROP PROCEDURE IF EXISTS {prefix}enqueue_with;
-- +goose StatementBegin
CREATE PROCEDURE {prefix}enqueue_with(
    IN p_queue VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_kind VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_key VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_run_at DATETIME(6),
    IN p_unique VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_unique_for DECIMAL(20, 6),
    IN p_priority INT, IN p_attempts INT, IN p_timeout DECIMAL(20, 6),
    IN p_tenant VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, IN p_unique_until VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN p_debounce DECIMAL(20, 6), IN p_cost INT, OUT p_id BIGINT)
    MODIFIES SQL DATA SQL SECURITY DEFINER
    COMMENT 'Enqueues a job and sets p_id to its id, or the id of the one that has its unique key. Not for triggers: see enqueue_within'
BEGIN
    DECLARE v_own INT DEFAULT 0;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION
    BEGIN
        IF v_own = 1 THEN
            ROLLBACK;
        END IF;
        RESIGNAL;
    END;
    CALL {prefix}sql_begin(0, v_own);
    CALL {prefix}enqueue_within(p_queue, p_kind, p_payload, p_key, p_run_at, p_unique, p_unique_for, p_priority, p_attempts, p_timeout, p_tenant, p_unique_until, p_debounce, p_cost, p_id);
    IF v_own = 1 THEN
        COMMIT;
    END IF;
END
-- +goose StatementEnd

-- What people look at.
CREATE OR REPLACE VIEW {prefix}v_schedule AS
SELECT s.name, s.state, s.reason, s.spec, s.time_zone, CASE WHEN s.state = 'active' THEN s.due_at END AS next_at,
    CASE WHEN s.state = 'active' THEN TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), s.due_at) / 1e6 END AS next_in_seconds,
    s.kind, s.command, s.tag, s.source,
    CASE s.job_priority WHEN 1 THEN 'urgent' WHEN 2 THEN 'normal' WHEN 3 THEN 'low' WHEN 4 THEN 'idle' END AS job_priority,
    (SELECT COUNT(*) FROM {prefix}run AS o WHERE o.schedule = s.name AND o.next_exec IS NOT NULL AND o.state = 'running') AS running_runs,
    r.state AS last_state, r.due_at AS last_at, r.started_at AS last_started_at, r.finished_at AS last_finished_at, r.error AS last_error, s.failures
FROM {prefix}schedule AS s LEFT JOIN {prefix}run AS r ON r.id = (
    SELECT l.id FROM {prefix}run AS l WHERE l.schedule = s.name AND l.next_exec IS NULL ORDER BY l.due_at DESC, l.attempt DESC LIMIT 1);

CREATE OR REPLACE VIEW {prefix}v_run AS
SELECT r.id, r.schedule, r.due_at, r.due_to, r.slots, r.attempt, r.state,
    CASE r.cause WHEN 'hand' THEN 'run by hand' ELSE r.cause END AS cause, r.exec_by AS daemon,
    r.started_at, r.finished_at, TIMESTAMPDIFF(MICROSECOND, r.due_at, r.started_at) / 1e6 AS late_seconds,
    CASE WHEN r.started_at IS NOT NULL THEN TIMESTAMPDIFF(MICROSECOND, r.started_at, COALESCE(r.finished_at, UTC_TIMESTAMP(6))) / 1e6 END AS took_seconds,
    r.exit_code, r.error, r.output, r.cancel, r.by_run
FROM {prefix}run AS r;

-- Without the rows that are no jobs: they have the id 0, and end the walks of readers over what is deleted and not purged.
-- By each block and priority, so that a job is found by the key in each if its id is given.
CREATE OR REPLACE VIEW {prefix}v_job AS
SELECT 'ready' AS state, q.name AS queue, j.id, j.kind, j.job_key, j.priority,
    TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00') AS enqueued_at,
    0 AS attempt, CAST(NULL AS DATETIME(6)) AS run_at, CAST(NULL AS DATETIME(6)) AS since, CAST(NULL AS CHAR) AS worker, '' AS error, j.divided AS block,
    CAST(NULL AS SIGNED) AS percent, CAST(NULL AS CHAR) AS message, CAST(NULL AS DATETIME(6)) AS started_at, CAST(NULL AS CHAR) AS result, CAST(NULL AS CHAR) AS outcome
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    CROSS JOIN (SELECT 1 AS priority UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
    JOIN {prefix}job AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority AND j.id > 0
UNION ALL
SELECT 'delayed', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, j.run_at, NULL, NULL, j.error, j.divided, j.percent, j.message, NULL, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}queue_block AS b ON b.queue_id = q.queue_id
    JOIN {prefix}job_delayed AS j ON j.queue_id = b.queue_id AND j.divided = b.divided AND j.id > 0
UNION ALL
SELECT 'running', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, NULL, j.started_at, j.lock_by, j.error, j.divided, j.percent, j.message, j.started_at, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}job_running AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'dead', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, NULL, j.died_at, NULL, j.error, j.divided, j.percent, j.message, NULL, NULL, NULL
FROM {prefix}queue AS q JOIN {prefix}job_dead AS j ON j.queue_id = q.queue_id
UNION ALL
SELECT 'done', q.name, j.id, j.kind, j.job_key, j.priority, TIMESTAMPADD(MICROSECOND, j.id >> 12, TIMESTAMP'2020-01-01 00:00:00'),
    j.attempt, NULL, j.ended_at, j.worker, j.error, j.divided, j.percent, j.message, j.started_at, j.result, j.outcome
FROM {prefix}queue AS q JOIN {prefix}job_done AS j ON j.queue_id = q.queue_id;

CREATE OR REPLACE VIEW {prefix}v_queue AS
SELECT q.name, q.state,
    -- As in all lists of queues, delayed jobs that are due count as ready.
    (SELECT COUNT(*) FROM {prefix}job AS j WHERE j.queue_id = q.queue_id AND j.id > 0)
        + (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id AND j.id > 0 AND j.run_at <= UTC_TIMESTAMP(6)) AS ready_jobs,
    (SELECT COUNT(*) FROM {prefix}job_delayed AS j WHERE j.queue_id = q.queue_id AND j.id > 0 AND j.run_at > UTC_TIMESTAMP(6)) AS delayed_jobs,
    (SELECT COUNT(*) FROM {prefix}job_running AS j WHERE j.queue_id = q.queue_id) AS running_jobs,
    (SELECT COUNT(*) FROM {prefix}job_dead AS j WHERE j.queue_id = q.queue_id) AS dead_jobs,
    -- By each block and priority, where the first entry is the oldest. 0 stands for delayed jobs that are due.
    TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'2020-01-01 00:00:00', UTC_TIMESTAMP(6)) / 1e6 - (
        SELECT MIN(CASE p.priority
            WHEN 0 THEN (SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'2020-01-01 00:00:00', j.run_at)
                FROM {prefix}job_delayed AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.run_at <= UTC_TIMESTAMP(6) AND j.id > 0 ORDER BY j.run_at, j.id LIMIT 1)
            ELSE (SELECT j.id >> 12 FROM {prefix}job AS j
                WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.priority = p.priority AND j.id > 0 ORDER BY j.id LIMIT 1) END)
        FROM {prefix}queue_block AS b CROSS JOIN (SELECT 0 AS priority UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4) AS p
        WHERE b.queue_id = q.queue_id) / 1e6 AS oldest_ready_seconds,
    (SELECT COUNT(*) FROM {prefix}queue_block AS b WHERE b.queue_id = q.queue_id
        AND b.generation = (SELECT MAX(n.generation) FROM {prefix}queue_block AS n WHERE n.queue_id = q.queue_id)) AS blocks,
    (SELECT COUNT(*) FROM {prefix}queue_worker AS w JOIN {prefix}node AS n ON n.name = w.node
        WHERE w.queue_id = q.queue_id AND n.state = 'live' AND n.expire_at > UTC_TIMESTAMP(6)) AS workers,
    (SELECT COUNT(*) FROM {prefix}job_done AS j WHERE j.queue_id = q.queue_id) AS done_jobs
FROM {prefix}queue AS q;

-- +goose Down
DROP VIEW IF EXISTS {prefix}v_run;
DROP VIEW IF EXISTS {prefix}v_schedule;
DROP VIEW IF EXISTS {prefix}v_queue;
DROP VIEW IF EXISTS {prefix}v_job;
DROP PROCEDURE IF EXISTS {prefix}enqueue;
DROP PROCEDURE IF EXISTS {prefix}sql_enqueue;
DROP PROCEDURE IF EXISTS {prefix}enqueue_with;
DROP PROCEDURE IF EXISTS {prefix}enqueue_within;
DROP PROCEDURE IF EXISTS {prefix}sql_enqueue_within;
DROP PROCEDURE IF EXISTS {prefix}sql_begin;
DROP PROCEDURE IF EXISTS {prefix}sql_name;
DROP PROCEDURE IF EXISTS {prefix}sql_divided;
DROP PROCEDURE IF EXISTS {prefix}acquire;
DROP PROCEDURE IF EXISTS {prefix}sql_acquire;
DROP PROCEDURE IF EXISTS {prefix}renew;
DROP PROCEDURE IF EXISTS {prefix}sql_renew;
DROP PROCEDURE IF EXISTS {prefix}release;
DROP PROCEDURE IF EXISTS {prefix}sql_release;
DROP PROCEDURE IF EXISTS {prefix}sql_us;
DROP PROCEDURE IF EXISTS {prefix}sql_end;
DROP PROCEDURE IF EXISTS {prefix}sql_count;
DROP PROCEDURE IF EXISTS {prefix}sql_bury;
DROP PROCEDURE IF EXISTS {prefix}sql_mine;
DROP PROCEDURE IF EXISTS {prefix}complete;
DROP PROCEDURE IF EXISTS {prefix}sql_complete;
DROP PROCEDURE IF EXISTS {prefix}fail;
DROP PROCEDURE IF EXISTS {prefix}sql_fail;
DROP PROCEDURE IF EXISTS {prefix}give_back;
DROP PROCEDURE IF EXISTS {prefix}sql_give_back;
DROP PROCEDURE IF EXISTS {prefix}extend;
DROP PROCEDURE IF EXISTS {prefix}sql_extend;
DROP PROCEDURE IF EXISTS {prefix}take;
DROP PROCEDURE IF EXISTS {prefix}sql_take;
