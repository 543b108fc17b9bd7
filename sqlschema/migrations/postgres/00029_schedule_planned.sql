-- +goose Up
-- A schedule whose spec, zone or rule for clock changes is changed by hand is planned anew. The index
-- has entries of those alone, so that claims write none.
ALTER TABLE {prefix}schedule ADD COLUMN planned VARCHAR(400);
UPDATE {prefix}schedule SET planned = spec || ' ' || time_zone || ' ' || dst WHERE next_exec IS NOT NULL;
ALTER TABLE {prefix}schedule
    ADD COLUMN stale SMALLINT GENERATED ALWAYS AS (CASE WHEN planned <> spec || ' ' || time_zone || ' ' || dst THEN 1 END) STORED;
CREATE INDEX {name}schedule_stale ON {prefix}schedule (stale) WHERE stale = 1;

COMMENT ON COLUMN {prefix}schedule.planned IS 'From what the slot was planned: spec, time_zone and dst, separated by blanks; NULL: not planned yet, or by an older program';
COMMENT ON COLUMN {prefix}schedule.stale IS '1: these have changed since, by hand, so a daemon plans it anew; else NULL';

-- +goose Down
ALTER TABLE {prefix}schedule DROP COLUMN stale;
ALTER TABLE {prefix}schedule DROP COLUMN planned;
