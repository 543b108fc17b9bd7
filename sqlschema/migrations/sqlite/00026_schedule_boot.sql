-- +goose Up
CREATE TABLE {prefix}schedule_boot ( -- Schedules with the spec @reboot that have run for a start of a host
    boot            TEXT NOT NULL, -- The start: its id from the kernel
    schedule        TEXT NOT NULL, -- The name of the schedule
    lane            TEXT NOT NULL, -- Lane of its runs, which only daemons of this host have, until its next start
    seen_at         TEXT NOT NULL, -- When a daemon of the host last renewed this row
    CONSTRAINT {name}schedule_boot_key PRIMARY KEY (boot, schedule)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}schedule_boot;
