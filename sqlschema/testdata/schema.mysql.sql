CREATE TABLE dbcron_migration (
  id bigint unsigned NOT NULL AUTO_INCREMENT,
  version_id bigint NOT NULL,
  is_applied tinyint(1) NOT NULL,
  tstamp datetime DEFAULT current_timestamp(),
  PRIMARY KEY (id)
) ENGINE=InnoDB;

CREATE TABLE dbcron_run (
  id bigint NOT NULL AUTO_INCREMENT COMMENT 'Grows with each row',
  schedule varchar(200) NOT NULL COMMENT 'Name of the schedule; the row stays when the schedule goes',
  due_at datetime(6) NOT NULL COMMENT 'The slot',
  attempt int NOT NULL COMMENT '1, or more after a crash',
  state varchar(16) NOT NULL COMMENT 'running, retry, ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)' CHECK (state in ('running','retry','ok','failed','timeout','lost','cancelled','skipped','missed')),
  due_to datetime(6) DEFAULT NULL COMMENT 'skipped and missed: the last slot of the stretch that due_at begins',
  slots bigint NOT NULL DEFAULT 1 COMMENT 'skipped and missed: how many slots the stretch has; 10000 is that many or more',
  exec_by varchar(128) NOT NULL DEFAULT '' COMMENT 'The daemon: host:pid:random',
  claim varchar(32) DEFAULT NULL COMMENT 'Token of the transaction that claimed the run; NULL once it has ended',
  next_exec datetime(6) DEFAULT NULL COMMENT 'running: the end of its lease, when another daemon takes over; NULL once it has ended',
  renewals bigint NOT NULL DEFAULT 0 COMMENT 'How often the lease was renewed',
  started_at datetime(6) DEFAULT NULL COMMENT 'When the attempt began',
  finished_at datetime(6) DEFAULT NULL COMMENT 'When it ended, or was given up',
  exit_code int DEFAULT NULL COMMENT 'Of the command; 128 + signal if a signal ended it',
  error text NOT NULL DEFAULT '' COMMENT 'Why it did not end well',
  output mediumtext NOT NULL DEFAULT '' COMMENT 'Standard output and error, head and tail',
  PRIMARY KEY (id),
  UNIQUE KEY dbcron_run_slot (schedule,due_at,attempt),
  KEY dbcron_run_next (next_exec),
  KEY dbcron_run_claim (claim)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What became of each slot: one row for each attempt, or for a stretch of slots that did not run';

CREATE TABLE dbcron_schedule (
  id bigint NOT NULL AUTO_INCREMENT COMMENT 'Grows with each schedule that is made',
  name varchar(200) NOT NULL COMMENT 'Compared by bytes; in the history of runs too',
  source varchar(255) DEFAULT NULL COMMENT 'The file that the schedule comes from, which alone changes or removes it; NULL: made by hand',
  source_key varchar(255) DEFAULT NULL COMMENT 'What the schedule is recognized by in its source',
  spec varchar(256) NOT NULL COMMENT 'Five cron fields, or a macro such as @daily or @every 90s',
  time_zone varchar(64) NOT NULL DEFAULT 'UTC' COMMENT 'Zone of the tz database that the spec is read in',
  dst varchar(8) NOT NULL DEFAULT 'vixie' COMMENT 'When clocks change: vixie (fixed times run once) or wall (as the wall clock shows)',
  command mediumtext NOT NULL COMMENT 'What the shell runs, with the rights of the daemon',
  stdin mediumtext NOT NULL DEFAULT '' COMMENT 'Text for its standard input',
  env mediumtext NOT NULL DEFAULT '{}' COMMENT 'Its environment beside the defaults, a JSON object of strings; SHELL names the shell',
  state varchar(16) NOT NULL DEFAULT 'active' COMMENT 'active, paused, or failed (cannot be planned; see reason)' CHECK (state in ('active','paused','failed')),
  reason text NOT NULL DEFAULT '' COMMENT 'Why it is paused or failed',
  due_at datetime(6) DEFAULT NULL COMMENT 'The next slot',
  next_exec datetime(6) DEFAULT NULL COMMENT 'When a daemon may claim that slot',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the schedule was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (id),
  UNIQUE KEY dbcron_schedule_name (name),
  UNIQUE KEY dbcron_schedule_source (source,source_key),
  KEY dbcron_schedule_next (state,next_exec)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What runs when. A row with next_exec NULL and state active is planned by the next daemon';
