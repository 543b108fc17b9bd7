-- +goose Up
CREATE TABLE {prefix}schedule_file (
    source          VARCHAR(255) COLLATE "C" NOT NULL,
    node            VARCHAR(128) COLLATE "C" NOT NULL,
    digest          VARCHAR(64) COLLATE "C" NOT NULL,
    problem         TEXT COLLATE "C" NOT NULL,
    read_at         TIMESTAMPTZ(6) NOT NULL,
    CONSTRAINT {name}schedule_file_key PRIMARY KEY (source, node)
);

COMMENT ON TABLE {prefix}schedule_file IS 'Files from which daemons import schedules, as each last read them';
COMMENT ON COLUMN {prefix}schedule_file.source IS 'The source of the schedules: {name}schedule.source';
COMMENT ON COLUMN {prefix}schedule_file.node IS 'The daemon';
COMMENT ON COLUMN {prefix}schedule_file.digest IS 'SHA-256 of the file, in hexadecimal digits';
COMMENT ON COLUMN {prefix}schedule_file.problem IS 'Why it could not be imported; empty: it was imported';
COMMENT ON COLUMN {prefix}schedule_file.read_at IS 'When it was read';

-- +goose Down
DROP TABLE {prefix}schedule_file;
