-- +goose Up
ALTER TABLE {prefix}queue ADD COLUMN notify TEXT NOT NULL DEFAULT ''; -- Who is told when it has dead letters or is behind: addresses and URLs with blanks or commas between, or none; empty: as the daemons say

-- +goose Down
ALTER TABLE {prefix}queue DROP COLUMN notify;
