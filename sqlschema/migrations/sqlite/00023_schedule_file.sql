-- +goose Up
CREATE TABLE {prefix}schedule_file ( -- Files that daemons import schedules from, as each has read them last
    source          TEXT NOT NULL, -- What the schedules are known by: {prefix}schedule.source
    node            TEXT NOT NULL, -- The daemon
    digest          TEXT NOT NULL, -- SHA-256 of the file, in hexadecimal digits
    problem         TEXT NOT NULL, -- Why it could not be imported; empty: it was
    read_at         TEXT NOT NULL, -- When it was read
    CONSTRAINT {name}schedule_file_key PRIMARY KEY (source, node)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}schedule_file;
