-- +goose Up
CREATE TABLE {prefix}schedule_boot (
    boot            VARCHAR(64) COLLATE "C" NOT NULL,
    schedule        VARCHAR(200) COLLATE "C" NOT NULL,
    lane            VARCHAR(300) COLLATE "C" NOT NULL,
    seen_at         TIMESTAMPTZ(6) NOT NULL,
    CONSTRAINT {name}schedule_boot_key PRIMARY KEY (boot, schedule)
);

COMMENT ON TABLE {prefix}schedule_boot IS 'Which start of a host has had which schedule with the spec @reboot';
COMMENT ON COLUMN {prefix}schedule_boot.boot IS 'The start: the id that the kernel gave it';
COMMENT ON COLUMN {prefix}schedule_boot.schedule IS 'The name of the schedule';
COMMENT ON COLUMN {prefix}schedule_boot.lane IS 'That of its runs, which only daemons of the host have, in this start';
COMMENT ON COLUMN {prefix}schedule_boot.seen_at IS 'When a daemon of the host last said that it is there';

-- +goose Down
DROP TABLE {prefix}schedule_boot;
