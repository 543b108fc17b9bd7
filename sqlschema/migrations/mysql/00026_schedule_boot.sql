-- +goose Up
-- IF NOT EXISTS: see 00001.
CREATE TABLE IF NOT EXISTS {prefix}schedule_boot (
    boot            VARCHAR(64) NOT NULL COMMENT 'The start: the id that the kernel gave it',
    schedule        VARCHAR(200) NOT NULL COMMENT 'The name of the schedule',
    lane            VARCHAR(300) NOT NULL COMMENT 'That of its runs, which only daemons of the host have, in this start',
    seen_at         DATETIME(6) NOT NULL COMMENT 'When a daemon of the host last said that it is there',
    PRIMARY KEY (boot, schedule)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC
  COMMENT 'Which start of a host has had which schedule with the spec @reboot';

-- +goose Down
DROP TABLE IF EXISTS {prefix}schedule_boot;
