-- +goose Up
ALTER TABLE {prefix}queue_worker ADD COLUMN kinds TEXT;
COMMENT ON COLUMN {prefix}queue_worker.kinds IS 'The kinds of jobs that it handles, as a JSON array; NULL: all';
ALTER TABLE {prefix}queue_block ADD COLUMN for_kind VARCHAR(200) COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}queue_block.for_kind IS 'The kind of job for which its last holder handed it to workers of that kind; empty: any worker';

-- +goose Down
ALTER TABLE {prefix}queue_block DROP COLUMN for_kind;
ALTER TABLE {prefix}queue_worker DROP COLUMN kinds;
