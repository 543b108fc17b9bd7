-- +goose Up
CREATE TABLE {prefix}schedule_boot (
    boot            VARCHAR(64) COLLATE "C" NOT NULL,
    schedule        VARCHAR(200) COLLATE "C" NOT NULL,
    lane            VARCHAR(300) COLLATE "C" NOT NULL,
    seen_at         TIMESTAMPTZ(6) NOT NULL,
    CONSTRAINT {name}schedule_boot_key PRIMARY KEY (boot, schedule)
);

COMMENT ON TABLE {prefix}schedule_boot IS 'Schedules with the spec @reboot that have run for a start of a host';
COMMENT ON COLUMN {prefix}schedule_boot.boot IS 'The start: its id from the kernel';
COMMENT ON COLUMN {prefix}schedule_boot.schedule IS 'The name of the schedule';
COMMENT ON COLUMN {prefix}schedule_boot.lane IS 'Lane of its runs, which only daemons of this host have, until its next start';
COMMENT ON COLUMN {prefix}schedule_boot.seen_at IS 'When a daemon of the host last renewed this row';

-- +goose Down
DROP TABLE {prefix}schedule_boot;
