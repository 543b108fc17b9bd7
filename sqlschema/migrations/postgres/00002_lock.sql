-- +goose Up
-- No CHECKs, unlike the tables of schedules: PostgreSQL reads each one anew for
-- every statement, and seven of them halved the number of locks that can be taken
-- in a second.
CREATE TABLE {prefix}lock (
    name          VARCHAR(200) COLLATE "C" NOT NULL,
    slot          INT NOT NULL DEFAULT 0,
    state         VARCHAR(8) NOT NULL DEFAULT 'FREE',
    lock_by       VARCHAR(128) COLLATE "C" NOT NULL DEFAULT '',
    lock_at       TIMESTAMPTZ(6),
    expire_at     TIMESTAMPTZ(6),
    released_at   TIMESTAMPTZ(6),
    fence         BIGINT NOT NULL DEFAULT 0,
    extends       BIGINT NOT NULL DEFAULT 0,
    takeovers     BIGINT NOT NULL DEFAULT 0,
    meta          TEXT NOT NULL DEFAULT '',
    session       VARCHAR(32) COLLATE "C" NOT NULL DEFAULT '',
    waiters       VARCHAR(16)[] COLLATE "C" NOT NULL DEFAULT '{}',
    waiting_until TIMESTAMPTZ(6),
    forced_by     VARCHAR(128) COLLATE "C" NOT NULL DEFAULT '',
    forced_fence  BIGINT,
    forced_at     TIMESTAMPTZ(6),
    forced_why    TEXT NOT NULL DEFAULT '',
    insert_time   TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    update_time   TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name}lock_key PRIMARY KEY (name, slot)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);

COMMENT ON TABLE {prefix}lock IS 'Who may work: a row for each lock and each slot of a pool. Rows are made on first use';
COMMENT ON COLUMN {prefix}lock.name IS 'Compared by bytes';
COMMENT ON COLUMN {prefix}lock.slot IS '0: a lock, or the head of a pool; from 1 on: a slot of the pool';
COMMENT ON COLUMN {prefix}lock.state IS 'FREE, LOCK (taken), EXTEND (taken and renewed since), POOL (head of a pool), CLOSED (slot that the pool no longer has)';
COMMENT ON COLUMN {prefix}lock.lock_by IS 'Its holder, also the last one: host:pid:random';
COMMENT ON COLUMN {prefix}lock.lock_at IS 'When it was last taken';
COMMENT ON COLUMN {prefix}lock.expire_at IS 'When others may take it, in LOCK and EXTEND';
COMMENT ON COLUMN {prefix}lock.released_at IS 'When its holder gave it up; NULL: not, so it is held or has expired';
COMMENT ON COLUMN {prefix}lock.fence IS 'Rises whenever it is taken, and never falls';
COMMENT ON COLUMN {prefix}lock.extends IS 'How often its holder has renewed it';
COMMENT ON COLUMN {prefix}lock.takeovers IS 'How often it was taken because a lease had run out';
COMMENT ON COLUMN {prefix}lock.meta IS 'What its holder says about itself';
COMMENT ON COLUMN {prefix}lock.session IS 'Elections: the session lock that its holder has as well';
COMMENT ON COLUMN {prefix}lock.waiters IS 'Whom to notify, one after the other, when it is released';
COMMENT ON COLUMN {prefix}lock.waiting_until IS 'Until when the waiters have said that they wait';
COMMENT ON COLUMN {prefix}lock.forced_by IS 'Who last released it by force';
COMMENT ON COLUMN {prefix}lock.forced_fence IS 'The fence of the lease that was ended so';
COMMENT ON COLUMN {prefix}lock.forced_at IS 'When';
COMMENT ON COLUMN {prefix}lock.forced_why IS 'Why, and whose it was';
COMMENT ON COLUMN {prefix}lock.insert_time IS 'When the row was made';
COMMENT ON COLUMN {prefix}lock.update_time IS 'When the row last changed';

CREATE TABLE {prefix}lock_fence (
    name          VARCHAR(200) COLLATE "C" NOT NULL,
    slot          INT NOT NULL DEFAULT 0,
    fence         BIGINT NOT NULL DEFAULT 0,
    guards        BIGINT NOT NULL DEFAULT 0,
    CONSTRAINT {name}lock_fence_key PRIMARY KEY (name, slot)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, fillfactor = 50);

COMMENT ON TABLE {prefix}lock_fence IS 'What keeps late holders out of guarded transactions; apart from the locks, so that a long transaction does not keep its own lease from being renewed';
COMMENT ON COLUMN {prefix}lock_fence.name IS 'Of the lock; the empty name stands for all locks whose rows were purged';
COMMENT ON COLUMN {prefix}lock_fence.slot IS 'Of the lock';
COMMENT ON COLUMN {prefix}lock_fence.fence IS 'The highest that has guarded a transaction, or, of the empty name, that was purged';
COMMENT ON COLUMN {prefix}lock_fence.guards IS 'How often the row was used';

INSERT INTO {prefix}lock_fence (name, slot) VALUES ('', 0);

-- +goose Down
DROP TABLE {prefix}lock_fence;
DROP TABLE {prefix}lock;
