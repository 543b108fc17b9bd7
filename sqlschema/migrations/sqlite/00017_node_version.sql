-- +goose Up
ALTER TABLE {prefix}node ADD COLUMN version TEXT NOT NULL DEFAULT ''; -- Of the program, as it says itself; empty: it does not say

-- +goose Down
ALTER TABLE {prefix}node DROP COLUMN version;
