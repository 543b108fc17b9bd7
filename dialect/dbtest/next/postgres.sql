-- +goose Up
-- A migration as the next version may have one, for tests of upgrades: a table, columns of tables that are in use,
-- one with a value for old rows, and an index.
CREATE TABLE {prefix}made_up (
    name VARCHAR(200) COLLATE "C" NOT NULL,
    note TEXT NOT NULL DEFAULT '',
    CONSTRAINT {name}made_up_key PRIMARY KEY (name)
);
COMMENT ON TABLE {prefix}made_up IS 'Nothing';
COMMENT ON COLUMN {prefix}made_up.name IS 'Of nothing';
COMMENT ON COLUMN {prefix}made_up.note IS 'About nothing';
ALTER TABLE {prefix}queue ADD COLUMN made_up VARCHAR(32) NOT NULL DEFAULT '';
COMMENT ON COLUMN {prefix}queue.made_up IS 'Of a queue, nothing';
ALTER TABLE {prefix}schedule ADD COLUMN made_up VARCHAR(200);
UPDATE {prefix}schedule SET made_up = name;
COMMENT ON COLUMN {prefix}schedule.made_up IS 'Of a schedule, its name when the column was made';
CREATE INDEX {name}schedule_made_up ON {prefix}schedule (made_up);

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN made_up;
ALTER TABLE {prefix}queue DROP COLUMN made_up;
DROP TABLE {prefix}made_up;
