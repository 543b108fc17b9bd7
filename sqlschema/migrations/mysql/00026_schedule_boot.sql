-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}schedule_boot (
    boot            VARCHAR(64) NOT NULL COMMENT 'The start: its id from the kernel',
    schedule        VARCHAR(200) NOT NULL COMMENT 'The name of the schedule',
    lane            VARCHAR(300) NOT NULL COMMENT 'Lane of its runs, which only daemons of this host have, until its next start',
    seen_at         DATETIME(6) NOT NULL COMMENT 'When a daemon of the host last renewed this row',
    PRIMARY KEY (boot, schedule)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Schedules with the spec @reboot that have run for a start of a host';

-- +goose Down
DROP TABLE IF EXISTS {prefix}schedule_boot;
