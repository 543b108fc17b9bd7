-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}route (
    kind            VARCHAR(200) NOT NULL COMMENT 'Of the jobs, compared by bytes; *: all kinds without a row of their own',
    queue           VARCHAR(200) NOT NULL COMMENT 'The queue''s name',
    insert_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row was made',
    update_time     DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)) COMMENT 'When the row last changed',
    PRIMARY KEY (kind)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Where jobs go that name no queue. Those of a kind without a row: to that of *, or else to the queue default';

-- +goose Down
DROP TABLE IF EXISTS {prefix}route;
