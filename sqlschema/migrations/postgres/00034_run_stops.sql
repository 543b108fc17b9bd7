-- +goose Up
ALTER TABLE {prefix}run ADD COLUMN stops INT NOT NULL DEFAULT 0;

COMMENT ON COLUMN {prefix}run.stops IS 'How many daemons in a row were stopped within a minute after they had begun this slot';

-- +goose Down
ALTER TABLE {prefix}run DROP COLUMN stops;
