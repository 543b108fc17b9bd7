-- +goose Up
ALTER TABLE {prefix}queue ADD COLUMN notify TEXT COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}queue.notify IS 'Who is told when it has dead letters or is behind: addresses and URLs with blanks or commas between, or none; empty: as the daemons say';

-- +goose Down
ALTER TABLE {prefix}queue DROP COLUMN notify;
