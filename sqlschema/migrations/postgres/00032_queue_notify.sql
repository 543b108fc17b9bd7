-- +goose Up
ALTER TABLE {prefix}queue ADD COLUMN notify TEXT COLLATE "C" NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}queue.notify IS 'Who is notified when it has dead letters or is behind: addresses and URLs separated by blanks or commas, or none; empty: as the daemons say';

-- +goose Down
ALTER TABLE {prefix}queue DROP COLUMN notify;
