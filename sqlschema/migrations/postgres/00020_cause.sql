-- +goose Up
ALTER TABLE {prefix}run ADD COLUMN by_run BIGINT;
COMMENT ON COLUMN {prefix}run.by_run IS 'Of the first attempt of a chain: the run that started it; NULL: none';

-- +goose Down
ALTER TABLE {prefix}run DROP COLUMN by_run;
