-- +goose Up
CREATE TABLE {prefix}schedule_file ( -- Files from which daemons import schedules, as each last read them
    source          TEXT NOT NULL, -- The source of the schedules: {prefix}schedule.source
    node            TEXT NOT NULL, -- The daemon
    digest          TEXT NOT NULL, -- SHA-256 of the file, in hexadecimal digits
    problem         TEXT NOT NULL, -- Why it could not be imported; empty: it was imported
    read_at         TEXT NOT NULL, -- When it was read
    CONSTRAINT {name}schedule_file_key PRIMARY KEY (source, node)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}schedule_file;
