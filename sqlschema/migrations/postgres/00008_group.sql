-- +goose Up
CREATE TABLE {prefix}job_group (
    id              BIGINT NOT NULL,
    name            VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '',
    state           VARCHAR(16) NOT NULL DEFAULT 'open',
    callback        TEXT,
    keep            BIGINT NOT NULL DEFAULT 604800000000,
    error           TEXT NOT NULL DEFAULT '',
    created_at      TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    ended_at        TIMESTAMPTZ(6),
    purge_at        TIMESTAMPTZ(6),
    CONSTRAINT {name}job_group_key PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX {name}job_group_state ON {prefix}job_group (state, id);
CREATE INDEX {name}job_group_purge ON {prefix}job_group (purge_at) WHERE purge_at IS NOT NULL;

COMMENT ON TABLE {prefix}job_group IS 'Groups of jobs, and the callback of each';
COMMENT ON COLUMN {prefix}job_group.id IS 'As ids in {prefix}job';
COMMENT ON COLUMN {prefix}job_group.name IS 'For people';
COMMENT ON COLUMN {prefix}job_group.state IS 'open (it does not end), sealed (it ends as soon as none of its jobs is pending) or done';
COMMENT ON COLUMN {prefix}job_group.callback IS 'The job that is enqueued when it ends, as JSON; NULL: none';
COMMENT ON COLUMN {prefix}job_group.keep IS 'How long it is kept after its end, in µs; negative: always';
COMMENT ON COLUMN {prefix}job_group.error IS 'Why its callback could not be enqueued';
COMMENT ON COLUMN {prefix}job_group.created_at IS 'When it was made';
COMMENT ON COLUMN {prefix}job_group.ended_at IS 'When it ended';
COMMENT ON COLUMN {prefix}job_group.purge_at IS 'When it is removed; NULL: never, or it has not ended';

CREATE TABLE {prefix}job_member (
    group_id        BIGINT NOT NULL,
    job             BIGINT NOT NULL,
    queue_id        INT NOT NULL,
    kind            VARCHAR(200) COLLATE "C" NOT NULL,
    state           VARCHAR(16) NOT NULL DEFAULT 'pending',
    result          TEXT,
    error           TEXT NOT NULL DEFAULT '',
    CONSTRAINT {name}job_member_key PRIMARY KEY (group_id, job)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX {name}job_member_state ON {prefix}job_member (group_id, state);

COMMENT ON TABLE {prefix}job_member IS 'The jobs of groups, and what has become of each';
COMMENT ON COLUMN {prefix}job_member.group_id IS 'The group';
COMMENT ON COLUMN {prefix}job_member.job IS 'The job''s id';
COMMENT ON COLUMN {prefix}job_member.queue_id IS 'The queue that it was enqueued in';
COMMENT ON COLUMN {prefix}job_member.kind IS 'What the job is';
COMMENT ON COLUMN {prefix}job_member.state IS 'pending (it has yet to end), done, dead or cancelled';
COMMENT ON COLUMN {prefix}job_member.result IS 'What its handler has made of it, JSON';
COMMENT ON COLUMN {prefix}job_member.error IS 'Why it is dead';

-- +goose Down
DROP TABLE {prefix}job_member;
DROP TABLE {prefix}job_group;
