-- +goose Up
ALTER TABLE {prefix}queue ADD COLUMN notify TEXT NOT NULL DEFAULT ''; -- Who is notified when it has dead letters or is behind: addresses and URLs separated by blanks or commas, or none; empty: as the daemons say

-- +goose Down
ALTER TABLE {prefix}queue DROP COLUMN notify;
