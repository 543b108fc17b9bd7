-- +goose Up
ALTER TABLE {prefix}run ADD COLUMN stops INTEGER NOT NULL DEFAULT 0; -- How many daemons in a row were stopped within a minute after they had begun this slot

-- +goose Down
ALTER TABLE {prefix}run DROP COLUMN stops;
