CREATE TABLE dbcron_lock (
  name varchar(200) NOT NULL COMMENT 'Compared by bytes',
  slot int NOT NULL DEFAULT 0 COMMENT '0: a lock, or the head of a pool; from 1 on: a slot of the pool',
  state varchar(8) NOT NULL DEFAULT 'FREE' COMMENT 'FREE, LOCK (taken), EXTEND (taken and renewed since), POOL (head of a pool), CLOSED (slot that the pool no longer has)',
  lock_by varchar(128) NOT NULL DEFAULT '' COMMENT 'Its holder, also the last one: host:pid:random',
  lock_at datetime(6) DEFAULT NULL COMMENT 'When it was last taken',
  expire_at datetime(6) DEFAULT NULL COMMENT 'When others may take it, in LOCK and EXTEND',
  released_at datetime(6) DEFAULT NULL COMMENT 'When its holder gave it up; NULL: not, so it is held or has expired',
  fence bigint NOT NULL DEFAULT 0 COMMENT 'Rises whenever it is taken, and never falls',
  extends bigint NOT NULL DEFAULT 0 COMMENT 'How often its holder has renewed it',
  takeovers bigint NOT NULL DEFAULT 0 COMMENT 'How often it was taken because a lease had run out',
  meta text NOT NULL DEFAULT '' COMMENT 'What its holder says about itself',
  session varchar(32) NOT NULL DEFAULT '' COMMENT 'Elections: the session lock that its holder has as well',
  forced_by varchar(128) NOT NULL DEFAULT '' COMMENT 'Who last released it by force',
  forced_fence bigint DEFAULT NULL COMMENT 'The fence of the lease that was ended so',
  forced_at datetime(6) DEFAULT NULL COMMENT 'When',
  forced_why text NOT NULL DEFAULT '' COMMENT 'Why, and whose it was',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (name,slot)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Who may work: a row for each lock and each slot of a pool. Rows are made on first use';

CREATE TABLE dbcron_lock_fence (
  name varchar(200) NOT NULL COMMENT 'Of the lock; the empty name stands for all locks whose rows were purged',
  slot int NOT NULL DEFAULT 0 COMMENT 'Of the lock',
  fence bigint NOT NULL DEFAULT 0 COMMENT 'The highest that has guarded a transaction, or, of the empty name, that was purged',
  guards bigint NOT NULL DEFAULT 0 COMMENT 'How often the row was used',
  PRIMARY KEY (name,slot)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What keeps late holders out of guarded transactions; apart from the locks, so that a long transaction does not keep its own lease from being renewed';

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
  KEY dbcron_run_claim (claim),
  CONSTRAINT dbcron_run_due_at CHECK (due_at between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_run_due_to CHECK (due_to between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_run_next_exec CHECK (next_exec between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_run_started_at CHECK (started_at between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_run_finished_at CHECK (finished_at between '1971-01-01' and '9999-12-30')
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
  KEY dbcron_schedule_next (state,next_exec),
  CONSTRAINT dbcron_schedule_due_at CHECK (due_at between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_schedule_next_exec CHECK (next_exec between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_schedule_order CHECK (due_at <= next_exec),
  CONSTRAINT dbcron_schedule_named CHECK (name <> '')
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What runs when. A row with next_exec NULL and state active is planned by the next daemon';
