-- +goose Up
-- IF NOT EXISTS: see 00001. No index on the ready jobs beside the key: see postgres.
-- No CHECK of JSON_VALID, which on MariaDB refuses what is nested more than 32 levels.
CREATE TABLE IF NOT EXISTS {prefix}queue (
    queue_id        INT NOT NULL AUTO_INCREMENT COMMENT 'Grows with each queue',
    name            VARCHAR(200) NOT NULL COMMENT 'Compared by bytes',
    state           VARCHAR(16) NOT NULL DEFAULT 'active' COMMENT 'active, paused (jobs are taken, and wait) or deleted',
    reason          TEXT NOT NULL DEFAULT ('') COMMENT 'Why it is paused, and by whom',
    ordered         VARCHAR(3) NOT NULL DEFAULT 'no' COMMENT 'Whether it has had jobs with keys: yes or no',
    key_retry       VARCHAR(16) NOT NULL DEFAULT 'hold' COMMENT 'When a job of a key waits for its retry, the next ones of the key hold or pass',
    max_attempts    INT NOT NULL DEFAULT 10 COMMENT 'After so many failed attempts a job is dead',
    max_crashes     INT NOT NULL DEFAULT 3 COMMENT 'After so many workers died with a job it is dead',
    retry_delay     VARCHAR(32) NOT NULL DEFAULT '10s' COMMENT 'Before the second attempt; doubles with each further one',
    retry_max_delay VARCHAR(32) NOT NULL DEFAULT '1h' COMMENT 'Between two attempts at the most',
    timeout         VARCHAR(32) NOT NULL DEFAULT '' COMMENT 'How long an attempt may take; empty: as long as it likes',
    max_payload     INT NOT NULL DEFAULT 1048576 COMMENT 'How many bytes a payload may have',
    keep_dead       VARCHAR(32) NOT NULL DEFAULT '90d' COMMENT 'How long dead jobs are kept; forever: always',
    keep_dead_max   INT NOT NULL DEFAULT 0 COMMENT 'How many dead jobs are kept, about; 0: all, for as long as keep_dead says',
    keep_done       VARCHAR(32) NOT NULL DEFAULT '' COMMENT 'How long jobs that are done are kept; empty: they are not',
    poll_min        VARCHAR(32) NOT NULL DEFAULT '2ms' COMMENT 'How soon it is looked again after there was something, where nobody is notified',
    poll_max        VARCHAR(32) NOT NULL DEFAULT '250ms' COMMENT 'How long it is waited between two looks at the most',
    insert_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row was made',
    update_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row last changed',
    PRIMARY KEY (queue_id),
    UNIQUE KEY {name}queue_name (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'The queues and what is set for each. Rows are made on first use and never removed';

CREATE TABLE IF NOT EXISTS {prefix}queue_block (
    queue_id        INT NOT NULL COMMENT 'The queue',
    divided         INT NOT NULL COMMENT 'The block',
    generation      INT NOT NULL DEFAULT 1 COMMENT 'Grows when the number of blocks is changed; new jobs go to the newest',
    state           VARCHAR(16) NOT NULL DEFAULT 'FREE' COMMENT 'FREE or LEASED',
    lock_by         VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'The worker that has it, or had it last: host:pid:random, see {prefix}node',
    lock_at         DATETIME(6) COMMENT 'When it was last taken',
    fence           BIGINT NOT NULL DEFAULT 0 COMMENT 'Rises whenever it is taken',
    batch           INT NOT NULL DEFAULT 100 COMMENT 'How many jobs its worker reads at a time: so many may have ended it',
    suspects        INT NOT NULL DEFAULT 0 COMMENT 'How often in a row its worker died with it',
    insert_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row was made',
    PRIMARY KEY (queue_id, divided)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Which worker has which block of a queue''s jobs. Their number is that of the newest generation''s rows';

CREATE TABLE IF NOT EXISTS {prefix}node (
    name            VARCHAR(128) NOT NULL COMMENT 'host:pid:random',
    state           VARCHAR(16) NOT NULL DEFAULT 'live' COMMENT 'live, lost (it was not heard of until expire_at) or gone (it has ended)',
    expire_at       DATETIME(6) COMMENT 'When others may take what it has, unless it is heard of before',
    heartbeats      BIGINT NOT NULL DEFAULT 0 COMMENT 'How often it was heard of',
    started_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When it started',
    bell_at         VARCHAR(100) NOT NULL DEFAULT '' COMMENT 'Where it hears of new jobs, an address and a port of UDP; empty: nowhere',
    bell_key        VARCHAR(100) NOT NULL DEFAULT '' COMMENT 'The key that signs what is sent there',
    PRIMARY KEY (name)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'The processes that take part. What a worker holds is its own for as long as its row says live';

CREATE TABLE IF NOT EXISTS {prefix}queue_worker (
    queue_id        INT NOT NULL COMMENT 'The queue',
    node            VARCHAR(128) NOT NULL COMMENT 'The process',
    busy            SMALLINT NOT NULL DEFAULT 0 COMMENT '1: all that it may do at a time are jobs that take long; it leaves blocks to others. 2: it moves jobs to another queue; others leave it all blocks',
    PRIMARY KEY (queue_id, node)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Which processes work on which queue, to share its blocks';

CREATE TABLE IF NOT EXISTS {prefix}job (
    queue_id        INT NOT NULL COMMENT 'The queue',
    divided         INT NOT NULL COMMENT 'The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls',
    priority        SMALLINT NOT NULL COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
    id              BIGINT NOT NULL COMMENT 'Grows with time: µs since 2020 times 4096, and 12 random bits',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the job is, which picks the handler',
    job_key         VARCHAR(200) COMMENT 'Jobs of one key are done one after the other, in order',
    payload         LONGTEXT COMMENT 'What the job is about, JSON as it was given',
    payload_bin     LONGBLOB COMMENT 'The same in another codec',
    max_attempts    INT COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
    timeout         BIGINT COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
    trace           VARCHAR(512) COMMENT 'The trace that the job belongs to, a W3C traceparent',
    unique_key      VARCHAR(200) COMMENT 'What no other job of the queue may have meanwhile: see {prefix}job_unique',
    group_id        BIGINT COMMENT 'The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is',
    PRIMARY KEY (queue_id, divided, priority, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Jobs that are ready. A row is inserted, and deleted when the job is done; never updated';

CREATE TABLE IF NOT EXISTS {prefix}job_delayed (
    queue_id        INT NOT NULL COMMENT 'The queue',
    divided         INT NOT NULL COMMENT 'The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls',
    id              BIGINT NOT NULL COMMENT 'As in {prefix}job',
    run_at          DATETIME(6) NOT NULL COMMENT 'When it is due',
    priority        SMALLINT NOT NULL DEFAULT 2 COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
    attempt         INT NOT NULL DEFAULT 0 COMMENT 'How many attempts there were',
    crashes         INT NOT NULL DEFAULT 0 COMMENT 'How many workers died with it',
    hold_key        VARCHAR(200) COMMENT 'The key whose other jobs wait for this one',
    error           TEXT NOT NULL DEFAULT ('') COMMENT 'Why it failed last',
    snapshot        LONGBLOB COMMENT 'What its handler has stored for the next attempt',
    percent         SMALLINT COMMENT 'How much of it is done, as its handler says: 1 to 100',
    message         TEXT COMMENT 'How far it is, in its handler''s words',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the job is, which picks the handler',
    job_key         VARCHAR(200) COMMENT 'Jobs of one key are done one after the other, in order',
    payload         LONGTEXT COMMENT 'What the job is about, JSON as it was given',
    payload_bin     LONGBLOB COMMENT 'The same in another codec',
    max_attempts    INT COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
    timeout         BIGINT COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
    trace           VARCHAR(512) COMMENT 'The trace that the job belongs to, a W3C traceparent',
    unique_key      VARCHAR(200) COMMENT 'What no other job of the queue may have meanwhile: see {prefix}job_unique',
    group_id        BIGINT COMMENT 'The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is',
    PRIMARY KEY (queue_id, divided, id),
    KEY {name}job_delayed_due (queue_id, divided, run_at, id),
    KEY {name}job_delayed_hold (queue_id, divided, hold_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Jobs whose time has yet to come, and failed ones that wait for their retry';

CREATE TABLE IF NOT EXISTS {prefix}job_running (
    queue_id        INT NOT NULL COMMENT 'The queue',
    divided         INT NOT NULL COMMENT 'The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls',
    id              BIGINT NOT NULL COMMENT 'As in {prefix}job',
    priority        SMALLINT NOT NULL DEFAULT 2 COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
    attempt         INT NOT NULL DEFAULT 0 COMMENT 'How many attempts there were',
    crashes         INT NOT NULL DEFAULT 0 COMMENT 'How many workers died with it',
    state           VARCHAR(16) NOT NULL DEFAULT 'running' COMMENT 'running, or handed (its worker has ended and left it to others)',
    lock_by         VARCHAR(128) NOT NULL COMMENT 'The worker that runs it',
    fence           BIGINT NOT NULL DEFAULT 0 COMMENT 'Of the block, when it was taken',
    started_at      DATETIME(6) COMMENT 'When the attempt began',
    expire_at       DATETIME(6) COMMENT 'When others may take it; NULL: when its worker is lost',
    error           TEXT NOT NULL DEFAULT ('') COMMENT 'Why it failed last',
    snapshot        LONGBLOB COMMENT 'What its handler has stored for the next attempt',
    percent         SMALLINT COMMENT 'How much of it is done, as its handler says: 1 to 100',
    message         TEXT COMMENT 'How far it is, in its handler''s words',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the job is, which picks the handler',
    job_key         VARCHAR(200) COMMENT 'Jobs of one key are done one after the other, in order',
    payload         LONGTEXT COMMENT 'What the job is about, JSON as it was given',
    payload_bin     LONGBLOB COMMENT 'The same in another codec',
    max_attempts    INT COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
    timeout         BIGINT COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
    trace           VARCHAR(512) COMMENT 'The trace that the job belongs to, a W3C traceparent',
    unique_key      VARCHAR(200) COMMENT 'What no other job of the queue may have meanwhile: see {prefix}job_unique',
    group_id        BIGINT COMMENT 'The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is',
    PRIMARY KEY (queue_id, divided, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Jobs that have been running for longer than a second, or that may have ended their worker';

CREATE TABLE IF NOT EXISTS {prefix}job_dead (
    queue_id        INT NOT NULL COMMENT 'The queue',
    id              BIGINT NOT NULL COMMENT 'As in {prefix}job',
    divided         INT NOT NULL COMMENT 'Its block',
    priority        SMALLINT NOT NULL DEFAULT 2 COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
    attempt         INT NOT NULL DEFAULT 0 COMMENT 'How many attempts there were',
    crashes         INT NOT NULL DEFAULT 0 COMMENT 'How many workers died with it',
    error           TEXT NOT NULL DEFAULT ('') COMMENT 'Why',
    detail          TEXT NOT NULL DEFAULT ('') COMMENT 'The stack of a panic, or what the worker said',
    snapshot        LONGBLOB COMMENT 'What its handler has stored for the next attempt',
    percent         SMALLINT COMMENT 'How much of it is done, as its handler says: 1 to 100',
    message         TEXT COMMENT 'How far it is, in its handler''s words',
    died_at         DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When it was given up',
    purge_at        DATETIME(6) COMMENT 'When it is removed; NULL: never',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the job is, which picks the handler',
    job_key         VARCHAR(200) COMMENT 'Jobs of one key are done one after the other, in order',
    payload         LONGTEXT COMMENT 'What the job is about, JSON as it was given',
    payload_bin     LONGBLOB COMMENT 'The same in another codec',
    max_attempts    INT COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
    timeout         BIGINT COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
    trace           VARCHAR(512) COMMENT 'The trace that the job belongs to, a W3C traceparent',
    unique_key      VARCHAR(200) COMMENT 'What no other job of the queue may have meanwhile: see {prefix}job_unique',
    group_id        BIGINT COMMENT 'The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is',
    PRIMARY KEY (queue_id, id),
    KEY {name}job_dead_purge (purge_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Jobs that were given up';

CREATE TABLE IF NOT EXISTS {prefix}job_done (
    queue_id        INT NOT NULL COMMENT 'The queue',
    id              BIGINT NOT NULL COMMENT 'As in {prefix}job',
    divided         INT NOT NULL COMMENT 'The block that it was in',
    priority        SMALLINT NOT NULL COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
    attempt         INT NOT NULL COMMENT 'How many attempts there were',
    crashes         INT NOT NULL COMMENT 'How many workers died with it',
    outcome         VARCHAR(16) NOT NULL COMMENT 'done, or discarded (its handler said that it need not be done)',
    error           TEXT NOT NULL COMMENT 'Why it was discarded',
    snapshot        LONGBLOB COMMENT 'What its handler has stored last',
    percent         SMALLINT COMMENT 'How much of it was done then, as its handler said: 1 to 100',
    message         TEXT COMMENT 'How far it was then, in its handler''s words',
    worker          VARCHAR(128) NOT NULL COMMENT 'The worker that has done it',
    started_at      DATETIME(6) NOT NULL COMMENT 'When the last attempt began',
    ended_at        DATETIME(6) NOT NULL COMMENT 'When its end was written',
    purge_at        DATETIME(6) NOT NULL COMMENT 'When it is removed',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the job is, which picks the handler',
    job_key         VARCHAR(200) COMMENT 'Jobs of one key are done one after the other, in order',
    payload         LONGTEXT COMMENT 'What the job is about, JSON as it was given',
    payload_bin     LONGBLOB COMMENT 'The same in another codec',
    max_attempts    INT COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
    timeout         BIGINT COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
    trace           VARCHAR(512) COMMENT 'The trace that the job belongs to, a W3C traceparent',
    unique_key      VARCHAR(200) COMMENT 'What no other job of the queue may have meanwhile: see {prefix}job_unique',
    group_id        BIGINT COMMENT 'The group that the job belongs to, see {prefix}job_group; negative: the group whose callback it is',
    PRIMARY KEY (queue_id, id),
    KEY {name}job_done_purge (purge_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Jobs that are done, of queues that keep them';

CREATE TABLE IF NOT EXISTS {prefix}job_unique (
    queue_id        INT NOT NULL COMMENT 'The queue',
    unique_key      VARCHAR(200) NOT NULL COMMENT 'Compared by bytes',
    job             BIGINT NOT NULL COMMENT 'The id of the job that has it',
    pending         VARCHAR(3) NOT NULL DEFAULT 'yes' COMMENT 'Whether that job has yet to end: yes or no',
    free_at         DATETIME(6) COMMENT 'Until when it is in use in any case; NULL: until the job has ended',
    PRIMARY KEY (queue_id, unique_key),
    KEY {name}job_unique_job (queue_id, job),
    KEY {name}job_unique_free (free_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Keys that are in use: a job is not enqueued whose key another one of its queue has';

-- +goose Down
DROP TABLE IF EXISTS {prefix}job_unique;
DROP TABLE IF EXISTS {prefix}job_done;
DROP TABLE IF EXISTS {prefix}job_dead;
DROP TABLE IF EXISTS {prefix}job_running;
DROP TABLE IF EXISTS {prefix}job_delayed;
DROP TABLE IF EXISTS {prefix}job;
DROP TABLE IF EXISTS {prefix}queue_worker;
DROP TABLE IF EXISTS {prefix}node;
DROP TABLE IF EXISTS {prefix}queue_block;
DROP TABLE IF EXISTS {prefix}queue;
