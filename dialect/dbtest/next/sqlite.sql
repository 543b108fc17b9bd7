-- +goose Up
-- A migration as the next version may have one, for tests of upgrades: see postgres.sql.
CREATE TABLE {prefix}made_up ( -- Nothing
    name TEXT NOT NULL, -- Of nothing
    note TEXT NOT NULL DEFAULT '', -- About nothing
    CONSTRAINT {name}made_up_key PRIMARY KEY (name)
) WITHOUT ROWID;
ALTER TABLE {prefix}queue ADD COLUMN made_up TEXT NOT NULL DEFAULT ''; -- Of a queue, nothing
ALTER TABLE {prefix}schedule ADD COLUMN made_up TEXT; -- Of a schedule, its name when the column was made
UPDATE {prefix}schedule SET made_up = name;
CREATE INDEX {name}schedule_made_up ON {prefix}schedule (made_up);

-- +goose Down
DROP INDEX {prefix}schedule_made_up;
ALTER TABLE {prefix}schedule DROP COLUMN made_up;
ALTER TABLE {prefix}queue DROP COLUMN made_up;
DROP TABLE {prefix}made_up;
