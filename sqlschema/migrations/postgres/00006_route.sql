-- +goose Up
CREATE TABLE {prefix}route (
    kind            VARCHAR(200) COLLATE "C" NOT NULL,
    queue           VARCHAR(200) COLLATE "C" NOT NULL,
    insert_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    update_time     TIMESTAMPTZ(6) NOT NULL DEFAULT statement_timestamp(),
    CONSTRAINT {name}route_key PRIMARY KEY (kind)
);

COMMENT ON TABLE {prefix}route IS 'Where jobs go that name no queue. Those of a kind without a row: to that of *, or else to the queue default';
COMMENT ON COLUMN {prefix}route.kind IS 'Of the jobs, compared by bytes; *: all kinds without a row of their own';
COMMENT ON COLUMN {prefix}route.queue IS 'The queue''s name';
COMMENT ON COLUMN {prefix}route.insert_time IS 'When the row was made';
COMMENT ON COLUMN {prefix}route.update_time IS 'When the row last changed';

-- +goose Down
DROP TABLE {prefix}route;
