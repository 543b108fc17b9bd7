-- +goose Up
ALTER TABLE {prefix}queue_worker ADD COLUMN kinds TEXT; -- The kinds of jobs that it handles, as a JSON array; NULL: all
ALTER TABLE {prefix}queue_block ADD COLUMN for_kind TEXT NOT NULL DEFAULT ''; -- The kind of job for which its last holder handed it to workers of that kind; empty: any worker

-- +goose Down
ALTER TABLE {prefix}queue_block DROP COLUMN for_kind;
ALTER TABLE {prefix}queue_worker DROP COLUMN kinds;
