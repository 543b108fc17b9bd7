-- +goose Up
-- Each step looks whether it was done: see 00003. Lanes: see postgres.
SET @dbcron_ddl = COALESCE((SELECT CONCAT('ALTER TABLE {prefix}schedule DROP CONSTRAINT ', t.constraint_name)
    FROM information_schema.table_constraints AS t
    JOIN information_schema.check_constraints AS c ON c.constraint_schema = t.constraint_schema AND c.constraint_name = t.constraint_name
    WHERE t.constraint_schema = DATABASE() AND t.table_name = '{name}schedule' AND t.constraint_name LIKE '%chk%' AND c.check_clause LIKE '%argv%'), 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) = 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'job_queue'),
    'ALTER TABLE {prefix}schedule
    DROP KEY {name}schedule_next,
    DROP COLUMN lane,
    MODIFY COLUMN kind VARCHAR(8) NOT NULL DEFAULT ''shell'' COMMENT ''What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function), job (the kind of a job that is enqueued)'' CHECK (kind IN (''shell'', ''argv'', ''http'', ''sql'', ''func'', ''job'')),
    MODIFY COLUMN stdin MEDIUMTEXT NOT NULL DEFAULT ('''') COMMENT ''Text for a command''''s standard input, the body of a request, the input of a function, or the payload of a job (JSON; empty: which slot it is)'',
    ADD COLUMN job_queue VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''Of a job: its queue, which is made if there is none; empty: as the route of its kind says'',
    ADD COLUMN job_key VARCHAR(200) NOT NULL DEFAULT '''' COMMENT ''Of a job: jobs of one key are done one after the other, in order; empty: it waits for nobody'',
    ADD COLUMN job_priority SMALLINT NOT NULL DEFAULT 2 COMMENT ''Of a job: 1 (urgent), 2 (normal), 3 (low) or 4 (idle)'',
    ADD COLUMN job_max_attempts INT NOT NULL DEFAULT 0 COMMENT ''Of a job: after so many failed attempts it is dead; 0: the queue says'',
    ADD COLUMN job_timeout VARCHAR(32) NOT NULL DEFAULT '''' COMMENT ''Of a job: how long an attempt may take; empty: the queue says'',
    ADD COLUMN lane VARCHAR(300) GENERATED ALWAYS AS (CASE WHEN kind = ''func'' THEN CONCAT(tag, '' func '', LEFT(command, 200)) WHEN kind = ''job'' THEN CONCAT(tag, '' job'') ELSE tag END) STORED COMMENT ''Which daemons may claim it: the tag and, for a function, its name, or that it is a job'',
    ADD KEY {name}schedule_next (state, lane, next_exec)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;

-- +goose Down
-- What the older program cannot run it must not take for something else: no program has such a function.
UPDATE {prefix}run SET state = 'cancelled', next_exec = NULL, error = 'waited when the tables were taken back' WHERE state = 'waiting' AND lane LIKE '% job' AND lane NOT LIKE '% % job';
UPDATE {prefix}schedule SET kind = 'func', state = 'failed', next_exec = NULL, reason = 'the tables were taken back to a version without this kind of schedule' WHERE kind = 'job';
SET @dbcron_ddl = COALESCE((SELECT CONCAT('ALTER TABLE {prefix}schedule DROP CONSTRAINT ', t.constraint_name)
    FROM information_schema.table_constraints AS t
    JOIN information_schema.check_constraints AS c ON c.constraint_schema = t.constraint_schema AND c.constraint_name = t.constraint_name
    WHERE t.constraint_schema = DATABASE() AND t.table_name = '{name}schedule' AND t.constraint_name LIKE '%chk%' AND c.check_clause LIKE '%argv%'), 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
SET @dbcron_ddl = IF((SELECT COUNT(*) > 0 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '{name}schedule' AND column_name = 'job_queue'),
    'ALTER TABLE {prefix}schedule
    DROP KEY {name}schedule_next,
    DROP COLUMN lane,
    DROP COLUMN job_queue,
    DROP COLUMN job_key,
    DROP COLUMN job_priority,
    DROP COLUMN job_max_attempts,
    DROP COLUMN job_timeout,
    MODIFY COLUMN kind VARCHAR(8) NOT NULL DEFAULT ''shell'' COMMENT ''What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function)'' CHECK (kind IN (''shell'', ''argv'', ''http'', ''sql'', ''func'')),
    MODIFY COLUMN stdin MEDIUMTEXT NOT NULL DEFAULT ('''') COMMENT ''Text for a command''''s standard input, the body of a request, or the input of a function'',
    ADD COLUMN lane VARCHAR(300) GENERATED ALWAYS AS (CASE WHEN kind = ''func'' THEN CONCAT(tag, '' func '', LEFT(command, 200)) ELSE tag END) STORED COMMENT ''Which daemons may claim it: the tag and, for a function, its name'',
    ADD KEY {name}schedule_next (state, lane, next_exec)', 'DO 0');
PREPARE dbcron_ddl FROM @dbcron_ddl;
EXECUTE dbcron_ddl;
DEALLOCATE PREPARE dbcron_ddl;
