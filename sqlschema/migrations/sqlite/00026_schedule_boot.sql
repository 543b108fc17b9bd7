-- +goose Up
CREATE TABLE {prefix}schedule_boot ( -- Which start of a host has had which schedule with the spec @reboot
    boot            TEXT NOT NULL, -- The start: the id that the kernel gave it
    schedule        TEXT NOT NULL, -- The name of the schedule
    lane            TEXT NOT NULL, -- That of its runs, which only daemons of the host have, in this start
    seen_at         TEXT NOT NULL, -- When a daemon of the host last said that it is there
    CONSTRAINT {name}schedule_boot_key PRIMARY KEY (boot, schedule)
) WITHOUT ROWID;

-- +goose Down
DROP TABLE {prefix}schedule_boot;
