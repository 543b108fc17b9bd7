-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}job_group (
    id              BIGINT NOT NULL COMMENT 'As ids in {prefix}job',
    name            VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'For people',
    state           VARCHAR(16) NOT NULL DEFAULT 'open' COMMENT 'open (it does not end), sealed (it ends as soon as none of its jobs is pending) or done',
    callback        LONGTEXT COMMENT 'The job that is enqueued when it ends, as JSON; NULL: none',
    keep            BIGINT NOT NULL DEFAULT 604800000000 COMMENT 'How long it is kept after its end, in µs; negative: always',
    error           TEXT NOT NULL DEFAULT ('') COMMENT 'Why its callback could not be enqueued',
    created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When it was made',
    ended_at        DATETIME(6) COMMENT 'When it ended',
    purge_at        DATETIME(6) COMMENT 'When it is removed; NULL: never, or it has not ended',
    PRIMARY KEY (id),
    KEY {name}job_group_state (state, id),
    KEY {name}job_group_purge (purge_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Groups of jobs, and the callback of each';

CREATE TABLE IF NOT EXISTS {prefix}job_member (
    group_id        BIGINT NOT NULL COMMENT 'The group',
    job             BIGINT NOT NULL COMMENT 'The job''s id',
    queue_id        INT NOT NULL COMMENT 'The queue that it was enqueued in',
    kind            VARCHAR(200) NOT NULL COMMENT 'What the job is',
    state           VARCHAR(16) NOT NULL DEFAULT 'pending' COMMENT 'pending (it has yet to end), done, dead or cancelled',
    result          LONGTEXT COMMENT 'What its handler has made of it, JSON',
    error           TEXT NOT NULL DEFAULT ('') COMMENT 'Why it is dead',
    PRIMARY KEY (group_id, job),
    KEY {name}job_member_state (group_id, state)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'The jobs of groups, and what has become of each';

-- +goose Down
DROP TABLE IF EXISTS {prefix}job_member;
DROP TABLE IF EXISTS {prefix}job_group;
