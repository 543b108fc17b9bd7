-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}schedule_file (
    source          VARCHAR(255) NOT NULL COMMENT 'The source of the schedules: {prefix}schedule.source',
    node            VARCHAR(128) NOT NULL COMMENT 'The daemon',
    digest          VARCHAR(64) NOT NULL COMMENT 'SHA-256 of the file, in hexadecimal digits',
    problem         TEXT NOT NULL COMMENT 'Why it could not be imported; empty: it was imported',
    read_at         DATETIME(6) NOT NULL COMMENT 'When it was read',
    PRIMARY KEY (source, node)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Files from which daemons import schedules, as each last read them';

-- +goose Down
DROP TABLE IF EXISTS {prefix}schedule_file;
