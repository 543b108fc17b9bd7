-- +goose Up
-- IF NOT EXISTS, and a row that may be there: see 00001. No CHECKs: see postgres.
CREATE TABLE IF NOT EXISTS {prefix}lock (
    name          VARCHAR(200) NOT NULL COMMENT 'Compared by bytes',
    slot          INT NOT NULL DEFAULT 0 COMMENT '0: a lock, or the head of a pool; from 1 on: a slot of the pool',
    state         VARCHAR(8) NOT NULL DEFAULT 'FREE' COMMENT 'FREE, LOCK (taken), EXTEND (taken and renewed since), POOL (head of a pool), CLOSED (slot that the pool no longer has)',
    lock_by       VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'Its holder, also the last one: host:pid:random',
    lock_at       DATETIME(6) COMMENT 'When it was last taken',
    expire_at     DATETIME(6) COMMENT 'When others may take it, in LOCK and EXTEND',
    released_at   DATETIME(6) COMMENT 'When its holder gave it up; NULL: not, so it is held or has expired',
    fence         BIGINT NOT NULL DEFAULT 0 COMMENT 'Rises whenever it is taken, and never falls',
    extends       BIGINT NOT NULL DEFAULT 0 COMMENT 'How often its holder has renewed it',
    takeovers     BIGINT NOT NULL DEFAULT 0 COMMENT 'How often it was taken because a lease had run out',
    meta          TEXT NOT NULL DEFAULT ('') COMMENT 'What its holder says about itself',
    session       VARCHAR(32) NOT NULL DEFAULT '' COMMENT 'Elections: the session lock that its holder has as well',
    forced_by     VARCHAR(128) NOT NULL DEFAULT '' COMMENT 'Who last released it by force',
    forced_fence  BIGINT COMMENT 'The fence of the lease that was ended so',
    forced_at     DATETIME(6) COMMENT 'When',
    forced_why    TEXT NOT NULL DEFAULT ('') COMMENT 'Why, and whose it was',
    insert_time   DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row was made',
    update_time   DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row last changed',
    PRIMARY KEY (name, slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Who may work: a row for each lock and each slot of a pool. Rows are made on first use';

CREATE TABLE IF NOT EXISTS {prefix}lock_fence (
    name          VARCHAR(200) NOT NULL COMMENT 'Of the lock; the empty name stands for all locks whose rows were purged',
    slot          INT NOT NULL DEFAULT 0 COMMENT 'Of the lock',
    fence         BIGINT NOT NULL DEFAULT 0 COMMENT 'The highest that has guarded a transaction, or, of the empty name, that was purged',
    guards        BIGINT NOT NULL DEFAULT 0 COMMENT 'How often the row was used',
    PRIMARY KEY (name, slot)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'What keeps late holders out of guarded transactions; apart from the locks, so that a long transaction does not keep its own lease from being renewed';

INSERT INTO {prefix}lock_fence (name, slot) VALUES ('', 0) ON DUPLICATE KEY UPDATE guards = guards;

-- +goose Down
DROP TABLE IF EXISTS {prefix}lock_fence;
DROP TABLE IF EXISTS {prefix}lock;
