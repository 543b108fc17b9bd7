CREATE TABLE dbcron_audit (
  id bigint NOT NULL AUTO_INCREMENT COMMENT 'Grows with each row',
  done_at datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When it was done',
  actor varchar(200) NOT NULL COMMENT 'Who did it: a token''s name, user@host, or this host',
  login varchar(20) NOT NULL COMMENT 'How the actor is known: token, proxy, os (claimed by the user), or none (this host, as long as there is no token)',
  source varchar(20) NOT NULL COMMENT 'cli, api or dashboard',
  action varchar(100) NOT NULL COMMENT 'What was done, such as queue.pause',
  object varchar(500) NOT NULL COMMENT 'The object, such as the name of a queue',
  affected bigint NOT NULL COMMENT 'Number of objects',
  detail varchar(500) NOT NULL COMMENT 'Details: a reason or a filter',
  PRIMARY KEY (id),
  KEY dbcron_audit_time (done_at,id),
  KEY dbcron_audit_actor (actor,id),
  KEY dbcron_audit_action (action,id),
  KEY dbcron_audit_object (object,id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What operators did, from the command line, the HTTP API and the dashboard';

CREATE TABLE dbcron_endpoint (
  queue_id int NOT NULL COMMENT 'The queue',
  url varchar(1000) NOT NULL DEFAULT '' COMMENT 'Where its jobs are sent that do not say; empty: all say',
  format varchar(16) NOT NULL DEFAULT 'plain' COMMENT 'plain, or cloudevents (headers of its binary mode, too)',
  concurrency int NOT NULL DEFAULT 16 COMMENT 'How many are sent at a time by each dispatcher',
  batch int NOT NULL DEFAULT 1 COMMENT 'Maximum number of jobs in a request, as a JSON array; 1: each request is a job',
  timeout varchar(32) NOT NULL DEFAULT '30s' COMMENT 'Of a request, if neither job nor queue say less',
  secret varchar(200) NOT NULL DEFAULT '' COMMENT 'The key that signs requests, as in Standard Webhooks: whsec_ and base64',
  old_secret varchar(200) NOT NULL DEFAULT '' COMMENT 'The key before, which signs them as well; empty: none',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (queue_id),
  CONSTRAINT dbcron_endpoint_timeout_duration CHECK (timeout regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$')
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Where the jobs of a queue are sent by HTTP. The jobs of a queue that has no row here are done by workers';

CREATE TABLE dbcron_endpoint_answers (
  queue_id int NOT NULL COMMENT 'The queue',
  answers mediumtext NOT NULL COMMENT 'Some of the newest answers, the newest first, as JSON',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (queue_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='The recent answers of the endpoint of a queue; dispatchers write the row every few seconds while they send';

CREATE TABLE dbcron_job (
  queue_id int NOT NULL COMMENT 'The queue',
  divided int NOT NULL COMMENT 'Number of the job''s block, the part of a queue that is leased as a whole (dbcron_queue_block): where the hash of job_key, or of id, falls',
  priority smallint(6) NOT NULL COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
  id bigint NOT NULL COMMENT 'Grows with time: µs since 2020 times 4096, and 12 random bits',
  kind varchar(200) NOT NULL COMMENT 'What the job is, which picks the handler',
  job_key varchar(200) DEFAULT NULL COMMENT 'Jobs of one key are done one after the other, in order',
  payload longtext DEFAULT NULL COMMENT 'What the job is about, JSON as it was given',
  payload_bin longblob DEFAULT NULL COMMENT 'The same in another codec',
  max_attempts int DEFAULT NULL COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
  timeout bigint DEFAULT NULL COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
  trace varchar(512) DEFAULT NULL COMMENT 'The trace that the job belongs to, a W3C traceparent',
  unique_key varchar(200) DEFAULT NULL COMMENT 'What no other job of the queue may have meanwhile: see dbcron_job_unique',
  unique_until varchar(8) DEFAULT NULL COMMENT 'Until when: begin (of its first attempt); NULL: until it has ended',
  group_id bigint DEFAULT NULL COMMENT 'The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is',
  endpoint varchar(1000) DEFAULT NULL COMMENT 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint',
  tenant varchar(200) DEFAULT NULL COMMENT 'Whose job it is, where a queue is shared fairly: see dbcron_queue.fair',
  cost smallint(6) DEFAULT NULL COMMENT 'For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one',
  PRIMARY KEY (queue_id,divided,priority,id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Jobs that are ready. A row is inserted, and deleted when the job is done; never updated';

CREATE TABLE dbcron_job_count (
  minute datetime(6) NOT NULL COMMENT 'When it ended, the beginning of the minute',
  queue_id int NOT NULL COMMENT 'The queue',
  kind varchar(200) NOT NULL COMMENT 'What the jobs are',
  done bigint NOT NULL DEFAULT 0 COMMENT 'Jobs that were done, or discarded',
  failed bigint NOT NULL DEFAULT 0 COMMENT 'Attempts that failed, and were followed by another',
  dead bigint NOT NULL DEFAULT 0 COMMENT 'Jobs that were given up',
  late bigint NOT NULL DEFAULT 0 COMMENT 'Jobs that were committed long after they were enqueued, and found late',
  wait_us bigint NOT NULL DEFAULT 0 COMMENT 'For how long they had waited, in µs, all together',
  run_us bigint NOT NULL DEFAULT 0 COMMENT 'How long they took, in µs, all together',
  PRIMARY KEY (minute,queue_id,kind)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What workers have done, by minute, queue and kind';

CREATE TABLE dbcron_job_dead (
  queue_id int NOT NULL COMMENT 'The queue',
  id bigint NOT NULL COMMENT 'As in dbcron_job',
  divided int NOT NULL COMMENT 'The block that it was in',
  priority smallint(6) NOT NULL DEFAULT 2 COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
  attempt int NOT NULL DEFAULT 0 COMMENT 'How many attempts there were',
  crashes int NOT NULL DEFAULT 0 COMMENT 'How many workers died with it',
  error text NOT NULL DEFAULT '' COMMENT 'Why',
  errors text DEFAULT NULL COMMENT 'Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error',
  detail text NOT NULL DEFAULT '' COMMENT 'The stack of a panic, or what the worker said',
  snapshot longblob DEFAULT NULL COMMENT 'What its handler has stored for the next attempt',
  percent smallint(6) DEFAULT NULL COMMENT 'How much of it is done, as its handler says: 1 to 100',
  message text DEFAULT NULL COMMENT 'How far it is, in its handler''s words',
  died_at datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When it was given up',
  purge_at datetime(6) DEFAULT NULL COMMENT 'When it is removed; NULL: never',
  kind varchar(200) NOT NULL COMMENT 'What the job is, which picks the handler',
  job_key varchar(200) DEFAULT NULL COMMENT 'Jobs of one key are done one after the other, in order',
  payload longtext DEFAULT NULL COMMENT 'What the job is about, JSON as it was given',
  payload_bin longblob DEFAULT NULL COMMENT 'The same in another codec',
  max_attempts int DEFAULT NULL COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
  timeout bigint DEFAULT NULL COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
  trace varchar(512) DEFAULT NULL COMMENT 'The trace that the job belongs to, a W3C traceparent',
  unique_key varchar(200) DEFAULT NULL COMMENT 'What no other job of the queue may have meanwhile: see dbcron_job_unique',
  unique_until varchar(8) DEFAULT NULL COMMENT 'Until when: begin (of its first attempt); NULL: until it has ended',
  group_id bigint DEFAULT NULL COMMENT 'The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is',
  endpoint varchar(1000) DEFAULT NULL COMMENT 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint',
  tenant varchar(200) DEFAULT NULL COMMENT 'Whose job it is, where a queue is shared fairly: see dbcron_queue.fair',
  cost smallint(6) DEFAULT NULL COMMENT 'For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one',
  PRIMARY KEY (queue_id,id,divided),
  KEY dbcron_job_dead_purge (purge_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Jobs that were given up';

CREATE TABLE dbcron_job_delayed (
  queue_id int NOT NULL COMMENT 'The queue',
  divided int NOT NULL COMMENT 'The block: as in dbcron_job',
  id bigint NOT NULL COMMENT 'As in dbcron_job',
  run_at datetime(6) NOT NULL COMMENT 'When it is due',
  priority smallint(6) NOT NULL DEFAULT 2 COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
  attempt int NOT NULL DEFAULT 0 COMMENT 'How many attempts there were',
  crashes int NOT NULL DEFAULT 0 COMMENT 'How many workers died with it',
  stops int NOT NULL DEFAULT 0 COMMENT 'How many workers in a row were stopped within a minute after they had begun it',
  stopped_at datetime(6) DEFAULT NULL COMMENT 'When the last of them handed it back; NULL: none did',
  hold_key varchar(200) DEFAULT NULL COMMENT 'The key whose other jobs wait for this one',
  error text NOT NULL DEFAULT '' COMMENT 'Why it failed last',
  errors text DEFAULT NULL COMMENT 'Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error',
  snapshot longblob DEFAULT NULL COMMENT 'What its handler has stored for the next attempt',
  percent smallint(6) DEFAULT NULL COMMENT 'How much of it is done, as its handler says: 1 to 100',
  message text DEFAULT NULL COMMENT 'How far it is, in its handler''s words',
  kind varchar(200) NOT NULL COMMENT 'What the job is, which picks the handler',
  job_key varchar(200) DEFAULT NULL COMMENT 'Jobs of one key are done one after the other, in order',
  payload longtext DEFAULT NULL COMMENT 'What the job is about, JSON as it was given',
  payload_bin longblob DEFAULT NULL COMMENT 'The same in another codec',
  max_attempts int DEFAULT NULL COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
  timeout bigint DEFAULT NULL COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
  trace varchar(512) DEFAULT NULL COMMENT 'The trace that the job belongs to, a W3C traceparent',
  unique_key varchar(200) DEFAULT NULL COMMENT 'What no other job of the queue may have meanwhile: see dbcron_job_unique',
  unique_until varchar(8) DEFAULT NULL COMMENT 'Until when: begin (of its first attempt); NULL: until it has ended',
  group_id bigint DEFAULT NULL COMMENT 'The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is',
  endpoint varchar(1000) DEFAULT NULL COMMENT 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint',
  tenant varchar(200) DEFAULT NULL COMMENT 'Whose job it is, where a queue is shared fairly: see dbcron_queue.fair',
  cost smallint(6) DEFAULT NULL COMMENT 'For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one',
  PRIMARY KEY (queue_id,divided,id),
  KEY dbcron_job_delayed_due (queue_id,divided,run_at,id),
  KEY dbcron_job_delayed_hold (queue_id,divided,hold_key),
  KEY dbcron_job_delayed_stopped (stopped_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Jobs whose time has yet to come, and failed ones that wait for their retry';

CREATE TABLE dbcron_job_done (
  queue_id int NOT NULL COMMENT 'The queue',
  id bigint NOT NULL COMMENT 'As in dbcron_job',
  divided int NOT NULL COMMENT 'The block that it was in',
  priority smallint(6) NOT NULL COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
  attempt int NOT NULL COMMENT 'How many attempts there were',
  crashes int NOT NULL COMMENT 'How many workers died with it',
  outcome varchar(16) NOT NULL COMMENT 'done, discarded (its handler said that it need not be done) or cancelled',
  error text NOT NULL COMMENT 'Why it was discarded',
  errors text DEFAULT NULL COMMENT 'Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error',
  snapshot longblob DEFAULT NULL COMMENT 'What its handler has stored last',
  percent smallint(6) DEFAULT NULL COMMENT 'How much of it was done then, as its handler said: 1 to 100',
  message text DEFAULT NULL COMMENT 'How far it was then, in its handler''s words',
  result longtext DEFAULT NULL COMMENT 'What its handler has made of it, JSON',
  worker varchar(128) NOT NULL COMMENT 'The worker that has done it; empty: it was cancelled',
  started_at datetime(6) NOT NULL COMMENT 'When the last attempt began; of a cancelled one, when that was',
  ended_at datetime(6) NOT NULL COMMENT 'When its end was written',
  purge_at datetime(6) NOT NULL COMMENT 'When it is removed',
  kind varchar(200) NOT NULL COMMENT 'What the job is, which picks the handler',
  job_key varchar(200) DEFAULT NULL COMMENT 'Jobs of one key are done one after the other, in order',
  payload longtext DEFAULT NULL COMMENT 'What the job is about, JSON as it was given',
  payload_bin longblob DEFAULT NULL COMMENT 'The same in another codec',
  max_attempts int DEFAULT NULL COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
  timeout bigint DEFAULT NULL COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
  trace varchar(512) DEFAULT NULL COMMENT 'The trace that the job belongs to, a W3C traceparent',
  unique_key varchar(200) DEFAULT NULL COMMENT 'What no other job of the queue may have meanwhile: see dbcron_job_unique',
  unique_until varchar(8) DEFAULT NULL COMMENT 'Until when: begin (of its first attempt); NULL: until it has ended',
  group_id bigint DEFAULT NULL COMMENT 'The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is',
  endpoint varchar(1000) DEFAULT NULL COMMENT 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint',
  tenant varchar(200) DEFAULT NULL COMMENT 'Whose job it is, where a queue is shared fairly: see dbcron_queue.fair',
  cost smallint(6) DEFAULT NULL COMMENT 'For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one',
  PRIMARY KEY (queue_id,id,divided),
  KEY dbcron_job_done_purge (purge_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Jobs that are done, of queues that keep them';

CREATE TABLE dbcron_job_group (
  id bigint NOT NULL COMMENT 'As ids in dbcron_job',
  name varchar(200) NOT NULL DEFAULT '' COMMENT 'For people',
  state varchar(16) NOT NULL DEFAULT 'open' COMMENT 'open (it does not end), sealed (it ends as soon as none of its jobs is pending) or done',
  callback longtext DEFAULT NULL COMMENT 'The job that is enqueued when it ends, as JSON; NULL: none',
  keep bigint NOT NULL DEFAULT 604800000000 COMMENT 'How long it is kept after its end, in µs; negative: always',
  error text NOT NULL DEFAULT '' COMMENT 'Why its callback could not be enqueued',
  created_at datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When it was made',
  ended_at datetime(6) DEFAULT NULL COMMENT 'When it ended',
  purge_at datetime(6) DEFAULT NULL COMMENT 'When it is removed; NULL: never, or it has not ended',
  PRIMARY KEY (id),
  KEY dbcron_job_group_state (state,id),
  KEY dbcron_job_group_purge (purge_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Groups of jobs, and the callback of each';

CREATE TABLE dbcron_job_member (
  group_id bigint NOT NULL COMMENT 'The group',
  job bigint NOT NULL COMMENT 'The job''s id',
  queue_id int NOT NULL COMMENT 'The queue that it was enqueued in',
  kind varchar(200) NOT NULL COMMENT 'What the job is',
  state varchar(16) NOT NULL DEFAULT 'pending' COMMENT 'pending (it has yet to end), done, dead or cancelled',
  result longtext DEFAULT NULL COMMENT 'What its handler has made of it, JSON',
  error text NOT NULL DEFAULT '' COMMENT 'Why it is dead',
  PRIMARY KEY (group_id,job),
  KEY dbcron_job_member_state (group_id,state)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='The jobs of groups, and what has become of each';

CREATE TABLE dbcron_job_refused (
  queue_id int NOT NULL COMMENT 'The queue',
  divided int NOT NULL COMMENT 'The block of the job',
  id bigint NOT NULL COMMENT 'The job',
  kind varchar(200) NOT NULL COMMENT 'What the job is',
  what varchar(20) NOT NULL COMMENT 'What is refused: done, discarded, retry, dead, check-out (a row in dbcron_job_running), claim (of a worker that does jobs at most once) or forward (to a new block)',
  error text NOT NULL COMMENT 'Why, in the words of the database',
  worker varchar(128) NOT NULL COMMENT 'The worker that has the job, and goes on trying',
  tries bigint NOT NULL COMMENT 'How often it was refused',
  first_at datetime(6) NOT NULL COMMENT 'When it was refused first',
  last_at datetime(6) NOT NULL COMMENT 'When its worker wrote this last, once a minute',
  PRIMARY KEY (queue_id,divided,id),
  KEY dbcron_job_refused_last (last_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Jobs of which the database refuses to write what has become of them, as their workers say';

CREATE TABLE dbcron_job_running (
  queue_id int NOT NULL COMMENT 'The queue',
  divided int NOT NULL COMMENT 'The block: as in dbcron_job',
  id bigint NOT NULL COMMENT 'As in dbcron_job',
  priority smallint(6) NOT NULL DEFAULT 2 COMMENT '1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
  attempt int NOT NULL DEFAULT 0 COMMENT 'How many attempts there were',
  crashes int NOT NULL DEFAULT 0 COMMENT 'How many workers died with it',
  losses int NOT NULL DEFAULT 0 COMMENT 'How many workers lost their leases while it was running, and live',
  charged varchar(400) NOT NULL DEFAULT '' COMMENT 'The workers whose loss counts in crashes, by the ends of their names: one that lives takes its own back',
  state varchar(16) NOT NULL DEFAULT 'running' COMMENT 'running, suspect (a worker died while it ran, so it waits to run alone), alone (its worker runs nothing beside it), or handed (its worker has ended and left it to others)',
  lock_by varchar(128) NOT NULL COMMENT 'The worker that runs it',
  fence bigint NOT NULL DEFAULT 0 COMMENT 'Of the block, when it was taken',
  started_at datetime(6) DEFAULT NULL COMMENT 'When the attempt began',
  expire_at datetime(6) DEFAULT NULL COMMENT 'When others may take it; NULL: when its worker is lost',
  error text NOT NULL DEFAULT '' COMMENT 'Why it failed last',
  errors text DEFAULT NULL COMMENT 'Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error',
  snapshot longblob DEFAULT NULL COMMENT 'What its handler has stored for the next attempt',
  percent smallint(6) DEFAULT NULL COMMENT 'How much of it is done, as its handler says: 1 to 100',
  message text DEFAULT NULL COMMENT 'How far it is, in its handler''s words',
  kind varchar(200) NOT NULL COMMENT 'What the job is, which picks the handler',
  job_key varchar(200) DEFAULT NULL COMMENT 'Jobs of one key are done one after the other, in order',
  payload longtext DEFAULT NULL COMMENT 'What the job is about, JSON as it was given',
  payload_bin longblob DEFAULT NULL COMMENT 'The same in another codec',
  max_attempts int DEFAULT NULL COMMENT 'After so many failed attempts the job is dead; NULL: the queue says',
  timeout bigint DEFAULT NULL COMMENT 'How long an attempt may take, in µs; NULL: the queue says',
  trace varchar(512) DEFAULT NULL COMMENT 'The trace that the job belongs to, a W3C traceparent',
  unique_key varchar(200) DEFAULT NULL COMMENT 'What no other job of the queue may have meanwhile: see dbcron_job_unique',
  unique_until varchar(8) DEFAULT NULL COMMENT 'Until when: begin (of its first attempt); NULL: until it has ended',
  group_id bigint DEFAULT NULL COMMENT 'The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is',
  endpoint varchar(1000) DEFAULT NULL COMMENT 'Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint',
  tenant varchar(200) DEFAULT NULL COMMENT 'Whose job it is, where a queue is shared fairly: see dbcron_queue.fair',
  cost smallint(6) DEFAULT NULL COMMENT 'For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one',
  PRIMARY KEY (queue_id,divided,id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Jobs that have been running for longer than a second, or that may have ended their worker';

CREATE TABLE dbcron_job_unique (
  queue_id int NOT NULL COMMENT 'The queue',
  unique_key varchar(200) NOT NULL COMMENT 'Compared by bytes',
  job bigint NOT NULL COMMENT 'The id of the job that has it',
  pending varchar(3) NOT NULL DEFAULT 'yes' COMMENT 'Whether that job has yet to end: yes or no',
  free_at datetime(6) DEFAULT NULL COMMENT 'Until when it is in use in any case; NULL: until the job has ended',
  wait_until datetime(6) DEFAULT NULL COMMENT 'Up to when a later job may replace that job, which begins then; NULL: none may',
  PRIMARY KEY (unique_key,queue_id),
  KEY dbcron_job_unique_free (free_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Keys that are in use: a job is not enqueued whose key another one of its queue has';

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

CREATE TABLE dbcron_migration_checksum (
  version bigint NOT NULL COMMENT 'Number of a migration',
  checksum varchar(64) NOT NULL COMMENT 'SHA-256 of the statements that it ran, so that no program takes the tables of another build for its own',
  PRIMARY KEY (version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What each migration that has run consisted of';

CREATE TABLE dbcron_node (
  name varchar(128) NOT NULL COMMENT 'host:pid:random',
  version varchar(64) NOT NULL DEFAULT '' COMMENT 'Version of the program, as it reports it; empty: not reported',
  tags varchar(1000) NOT NULL DEFAULT '' COMMENT 'Of a daemon that runs schedules: their tags, separated by commas',
  state varchar(16) NOT NULL DEFAULT 'live' COMMENT 'live, lost (it was not heard of until expire_at) or gone (it has ended)',
  expire_at datetime(6) DEFAULT NULL COMMENT 'When others may take what it has, unless it is heard of before',
  heartbeats bigint NOT NULL DEFAULT 0 COMMENT 'How often it was heard of',
  started_at datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When it started',
  drained_at datetime(6) DEFAULT NULL COMMENT 'Since when it takes no new work, and finishes what it has; NULL: it takes work',
  drained_by varchar(200) NOT NULL DEFAULT '' COMMENT 'Who drained it',
  problem varchar(1000) NOT NULL DEFAULT '' COMMENT 'What fails in the process now, in its own words; empty: nothing that it knows of',
  under varchar(200) NOT NULL DEFAULT '' COMMENT 'The lock under which it works: whoever gets that after it takes over what it has; empty: none',
  bell_at varchar(100) NOT NULL DEFAULT '' COMMENT 'Where it hears of new jobs, an address and a port of UDP; empty: nowhere',
  bell_key varchar(100) NOT NULL DEFAULT '' COMMENT 'The key that signs what is sent there',
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='The processes that take part. What a worker holds is its own for as long as its row says live';

CREATE TABLE dbcron_notice (
  subject varchar(8) NOT NULL COMMENT 'schedule; dead (letters of a queue); behind (a queue whose oldest job waits too long)',
  name varchar(200) NOT NULL COMMENT 'Name of the schedule or the queue',
  problem varchar(16) NOT NULL COMMENT 'failed, timeout, lost, missed, late, slow or given-up; dead or behind',
  detail text NOT NULL COMMENT 'The reason in words',
  target text NOT NULL COMMENT 'Who is notified, separated by blanks; empty: as the daemons say',
  run_id bigint NOT NULL COMMENT 'The newest run that failed; 0: none',
  due_at datetime(6) DEFAULT NULL COMMENT 'The slot of that run: a later one that ends well is the recovery',
  times bigint NOT NULL COMMENT 'Number of failures since the last success; of dead letters: their number',
  begun_at datetime(6) NOT NULL COMMENT 'The first failure',
  last_at datetime(6) NOT NULL COMMENT 'The newest failure',
  tell_at datetime(6) DEFAULT NULL COMMENT 'Since when there is something to send; NULL: nothing new',
  told_at datetime(6) DEFAULT NULL COMMENT 'When it was sent; NULL: not yet',
  well_at datetime(6) DEFAULT NULL COMMENT 'When the recovery was seen; NULL: not recovered',
  told_to text NOT NULL DEFAULT '' COMMENT 'Who was notified, and will be notified of the recovery',
  PRIMARY KEY (subject,name),
  KEY dbcron_notice_tell (tell_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Current problems and who was notified: a row from the first failure until the recovery was sent';

CREATE TABLE dbcron_notice_target (
  target varchar(700) NOT NULL COMMENT 'An address or a URL; empty: the row that a daemon locks while it gathers notifications',
  sent_at datetime(6) NOT NULL COMMENT 'When the last message was made; of the empty target: when schedules and queues were last checked',
  hour_at datetime(6) NOT NULL COMMENT 'Start of the hour in which messages are counted',
  sent int NOT NULL COMMENT 'Number of messages in this hour',
  PRIMARY KEY (target)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='How many notifications each target was recently sent';

CREATE TABLE dbcron_queue (
  queue_id int NOT NULL AUTO_INCREMENT COMMENT 'Grows with each queue',
  name varchar(200) NOT NULL COMMENT 'Compared by bytes',
  state varchar(16) NOT NULL DEFAULT 'active' COMMENT 'active, paused (jobs are taken, and wait) or deleted',
  reason text NOT NULL DEFAULT '' COMMENT 'Why it is paused, and by whom',
  ordered varchar(3) NOT NULL DEFAULT 'no' COMMENT 'Whether it has had jobs with keys: yes or no',
  key_retry varchar(16) NOT NULL DEFAULT 'hold' COMMENT 'When a job of a key waits for its retry, the next ones of the key hold or pass',
  fair varchar(3) NOT NULL DEFAULT 'no' COMMENT 'Whether the tenants of its jobs have equal turns, or those of dbcron_queue_share: yes or no',
  max_attempts int NOT NULL DEFAULT 10 COMMENT 'After so many failed attempts a job is dead',
  max_crashes int NOT NULL DEFAULT 3 COMMENT 'After so many workers died with a job it is dead',
  retry_delay varchar(32) NOT NULL DEFAULT '10s' COMMENT 'Before the second attempt; doubles with each further one',
  retry_max_delay varchar(32) NOT NULL DEFAULT '1h' COMMENT 'Between two attempts at the most',
  timeout varchar(32) NOT NULL DEFAULT '' COMMENT 'How long an attempt may take; empty: as long as it likes',
  max_timeout varchar(32) NOT NULL DEFAULT '1h' COMMENT 'The longest timeout that a job may bring, unless that of the queue is longer; empty: any',
  origin_share int NOT NULL DEFAULT 50 COMMENT 'Of a queue that is pushed: the percentage of its slots that jobs with their own endpoints may have for one origin, while there are jobs for others',
  max_payload int NOT NULL DEFAULT 1048576 COMMENT 'How many bytes a payload may have',
  keep_dead varchar(32) NOT NULL DEFAULT '90d' COMMENT 'How long dead jobs are kept; forever: always',
  keep_dead_max int NOT NULL DEFAULT 0 COMMENT 'How many dead jobs are kept, about; 0: all, for as long as keep_dead says',
  keep_done varchar(32) NOT NULL DEFAULT '' COMMENT 'How long jobs that are done are kept; empty: they are not',
  poll_min varchar(32) NOT NULL DEFAULT '2ms' COMMENT 'How soon it is looked again after there was something, where nobody is notified',
  poll_max varchar(32) NOT NULL DEFAULT '250ms' COMMENT 'How long it is waited between two looks at the most',
  notify text NOT NULL DEFAULT '' COMMENT 'Who is notified when it has dead letters or is behind: addresses and URLs separated by blanks or commas, or none; empty: as the daemons say',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (queue_id),
  UNIQUE KEY dbcron_queue_name (name),
  CONSTRAINT dbcron_queue_state CHECK (state in ('active','paused','deleted')),
  CONSTRAINT dbcron_queue_ordered CHECK (ordered in ('no','yes')),
  CONSTRAINT dbcron_queue_key_retry CHECK (key_retry in ('hold','pass')),
  CONSTRAINT dbcron_queue_fair CHECK (fair in ('no','yes')),
  CONSTRAINT dbcron_queue_retry_delay_duration CHECK (retry_delay regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_queue_retry_max_delay_duration CHECK (retry_max_delay regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_queue_timeout_duration CHECK (timeout regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_queue_max_timeout_duration CHECK (max_timeout regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_queue_keep_dead_duration CHECK (keep_dead regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_queue_keep_done_duration CHECK (keep_done regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_queue_poll_min_duration CHECK (poll_min regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_queue_poll_max_duration CHECK (poll_max regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$')
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='The queues and what is set for each. Rows are made on first use and never removed';

CREATE TABLE dbcron_queue_block (
  queue_id int NOT NULL COMMENT 'The queue',
  divided int NOT NULL COMMENT 'The block: dbcron_job.divided',
  generation int NOT NULL DEFAULT 1 COMMENT 'Grows when the number of blocks is changed; new jobs go to the newest',
  fifo varchar(3) NOT NULL DEFAULT 'no' COMMENT 'Whether its jobs run one after the other, as if they had one key: yes or no',
  state varchar(16) NOT NULL DEFAULT 'FREE' COMMENT 'FREE or LEASED',
  lock_by varchar(128) NOT NULL DEFAULT '' COMMENT 'The worker that has it, or had it last: host:pid:random, see dbcron_node',
  lock_at datetime(6) DEFAULT NULL COMMENT 'When it was last taken',
  fence bigint NOT NULL DEFAULT 0 COMMENT 'Rises whenever it is taken',
  batch int NOT NULL DEFAULT 100 COMMENT 'How many jobs its worker reads at a time: so many may have ended it',
  suspects int NOT NULL DEFAULT 0 COMMENT 'How often in a row its worker died with it',
  for_kind varchar(200) NOT NULL DEFAULT '' COMMENT 'The kind of job for which its last holder handed it to workers of that kind; empty: any worker',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  PRIMARY KEY (queue_id,divided)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Which worker has which block of a queue''s jobs. Their number is that of the newest generation''s rows';

CREATE TABLE dbcron_queue_limit (
  queue_id int NOT NULL COMMENT 'The queue',
  kind varchar(200) NOT NULL DEFAULT '' COMMENT 'Of the jobs, compared by bytes; empty: all of the queue together',
  tenant varchar(200) NOT NULL DEFAULT '' COMMENT 'Of which tenant''s jobs, compared by bytes: *: of each tenant without a row of its own; kind is empty then. Empty: of all, together',
  max_running int DEFAULT NULL COMMENT 'How many may run at a time; NULL: any number',
  rate int DEFAULT NULL COMMENT 'How many may begin in rate_per; NULL: any number',
  rate_per varchar(40) NOT NULL DEFAULT '1s' COMMENT 'A duration, such as 1s or 1m',
  burst int NOT NULL DEFAULT 1 COMMENT 'How many may begin at once after a pause',
  drawn_at datetime(6) DEFAULT NULL COMMENT 'Until when the rate has been used up; what is in the past may be used',
  drawn_ahead int NOT NULL DEFAULT 0 COMMENT 'For how many jobs drawn_at was in the future when it was written: nobody waits longer than for these at the present rate',
  waiting_by varchar(128) NOT NULL DEFAULT '' COMMENT 'A worker that waits for a permit',
  waiting_until datetime(6) DEFAULT NULL COMMENT 'Until when it is taken to wait',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (queue_id,kind,tenant),
  CONSTRAINT dbcron_queue_limit_rate_per_duration CHECK (rate_per regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$')
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='How many jobs may run at a time, and begin in a time, over all workers';

CREATE TABLE dbcron_queue_permit (
  queue_id int NOT NULL COMMENT 'The queue',
  kind varchar(200) NOT NULL DEFAULT '' COMMENT 'As in dbcron_queue_limit',
  tenant varchar(200) NOT NULL DEFAULT '' COMMENT 'As in dbcron_queue_limit, but never *. Rows of a tenant exist while a worker has them',
  slot int NOT NULL COMMENT 'From 0',
  state varchar(16) NOT NULL DEFAULT 'FREE' COMMENT 'FREE or LEASED',
  lock_by varchar(128) NOT NULL DEFAULT '' COMMENT 'The worker that has it, or had it last: see dbcron_node',
  lock_at datetime(6) DEFAULT NULL COMMENT 'When it was last taken',
  fence bigint NOT NULL DEFAULT 0 COMMENT 'Rises whenever it is taken',
  PRIMARY KEY (queue_id,kind,tenant,slot)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Permits to run a job that is limited: as many as the limit''s max_running, made when they are first needed';

CREATE TABLE dbcron_queue_share (
  queue_id int NOT NULL COMMENT 'The queue',
  tenant varchar(200) NOT NULL COMMENT 'Of the jobs, compared by bytes',
  weight int NOT NULL COMMENT 'How many turns it has while one without a row here has one',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (queue_id,tenant)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Tenants of fair queues that have more than one turn';

CREATE TABLE dbcron_queue_tenant (
  queue_id int NOT NULL COMMENT 'The queue',
  tenant varchar(200) NOT NULL COMMENT 'Of the jobs, compared by bytes',
  drawn_at datetime(6) DEFAULT NULL COMMENT 'As in dbcron_queue_limit',
  drawn_ahead int NOT NULL DEFAULT 0 COMMENT 'As in dbcron_queue_limit',
  full_at datetime(6) DEFAULT NULL COMMENT 'When there is a full burst again, so that drawn_at says nothing any more',
  waiting_by varchar(128) NOT NULL DEFAULT '' COMMENT 'A worker that waits for a permit',
  waiting_until datetime(6) DEFAULT NULL COMMENT 'Until when it is taken to wait',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  PRIMARY KEY (queue_id,tenant)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What workers have to know of the jobs of a tenant that is limited: made when it is first needed, and removed when it says nothing any more';

CREATE TABLE dbcron_queue_worker (
  queue_id int NOT NULL COMMENT 'The queue',
  node varchar(128) NOT NULL COMMENT 'The process',
  kinds mediumtext DEFAULT NULL COMMENT 'The kinds of jobs that it handles, as a JSON array; NULL: all',
  busy smallint(6) NOT NULL DEFAULT 0 COMMENT '0: it takes blocks. 1: all that it may do at a time are jobs that take long; it leaves blocks to others. 2: it moves jobs to another queue; others leave it all blocks. 3: its handlers wait for connections of their pool; it leaves blocks to others, as with 1',
  PRIMARY KEY (queue_id,node)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Which processes work on which queue, to share its blocks';

CREATE TABLE dbcron_route (
  kind varchar(200) NOT NULL COMMENT 'Of the jobs, compared by bytes; *: all kinds without a row of their own',
  queue varchar(200) NOT NULL COMMENT 'The queue''s name',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (kind)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Where jobs go that name no queue. Those of a kind without a row: to that of *, or else to the queue default';

CREATE TABLE dbcron_run (
  id bigint NOT NULL AUTO_INCREMENT COMMENT 'Grows with each row',
  schedule varchar(200) NOT NULL COMMENT 'Name of the schedule; the row stays when the schedule goes',
  due_at datetime(6) NOT NULL COMMENT 'The slot',
  attempt int NOT NULL COMMENT '1, or more after a crash or a failure',
  due_to datetime(6) DEFAULT NULL COMMENT 'skipped and missed: the last slot of the stretch that due_at begins',
  slots bigint NOT NULL DEFAULT 1 COMMENT 'skipped and missed: how many slots the stretch has; of those found at once, 10000 at the most are counted',
  cause varchar(8) NOT NULL DEFAULT 'slot' COMMENT 'Why it is run: slot, hand (run now), backfill or chain',
  by_run bigint DEFAULT NULL COMMENT 'Of the first attempt of a chain: the run that started it; NULL: none',
  lane varchar(300) NOT NULL DEFAULT 'default' COMMENT 'Of the schedule, when the run was made',
  state varchar(16) NOT NULL COMMENT 'waiting (for its time, or for the run before), running, retry (handed back), ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)' CHECK (state in ('waiting','running','retry','ok','failed','timeout','lost','cancelled','skipped','missed')),
  exec_by varchar(128) NOT NULL DEFAULT '' COMMENT 'The daemon: host:pid:random',
  claim varchar(32) DEFAULT NULL COMMENT 'Token of the transaction that claimed the run; NULL once it has ended',
  fence bigint NOT NULL DEFAULT 0 COMMENT 'Larger than that of every attempt of the schedule that began before',
  next_exec datetime(6) DEFAULT NULL COMMENT 'When a daemon may take it: waiting: its time; running: the end of its lease; NULL once it has ended',
  renewals bigint NOT NULL DEFAULT 0 COMMENT 'How often the lease was renewed',
  failures int NOT NULL DEFAULT 0 COMMENT 'Attempts at the slot that have failed before this one',
  crashes int NOT NULL DEFAULT 0 COMMENT 'Attempts at the slot that were lost before this one',
  stops int NOT NULL DEFAULT 0 COMMENT 'How many daemons in a row were stopped within a minute after they had begun this slot',
  cancel varchar(255) DEFAULT NULL COMMENT 'Somebody wants the run to end, and why; NULL: nobody does',
  started_at datetime(6) DEFAULT NULL COMMENT 'When the attempt began',
  finished_at datetime(6) DEFAULT NULL COMMENT 'When it ended, or was given up',
  exit_code int DEFAULT NULL COMMENT 'Of a command, 128 + signal if a signal ended it; of a request, its status',
  error text NOT NULL DEFAULT '' COMMENT 'Why it did not end well',
  output mediumtext NOT NULL DEFAULT '' COMMENT 'Standard output and error, head and tail',
  purge_at datetime(6) DEFAULT NULL COMMENT 'When the row is removed from the history; NULL: never, or it has not ended',
  PRIMARY KEY (id),
  UNIQUE KEY dbcron_run_slot (schedule,due_at,attempt),
  KEY dbcron_run_next (lane,next_exec),
  KEY dbcron_run_open (schedule,next_exec),
  KEY dbcron_run_purge (purge_at),
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
  kind varchar(8) NOT NULL DEFAULT 'shell' COMMENT 'What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function), job (the kind of a job that is enqueued)' CHECK (kind in ('shell','argv','http','sql','func','job')),
  command mediumtext NOT NULL COMMENT 'What is run, with the rights of the daemon; kind says how it is read',
  stdin mediumtext NOT NULL DEFAULT '' COMMENT 'Text for a command''s standard input, the body of a request, the input of a function, or the payload of a job (JSON; empty: which slot it is)',
  headers text NOT NULL DEFAULT '{}' COMMENT 'Of a request, a JSON object of strings',
  env mediumtext NOT NULL DEFAULT '{}' COMMENT 'Its environment beside the defaults, a JSON object of strings; SHELL names the shell',
  dir text NOT NULL DEFAULT '' COMMENT 'Where a command starts; empty: the daemon says',
  run_as varchar(64) NOT NULL DEFAULT '' COMMENT 'The user a command runs as, if the daemon is root; empty: the daemon''s',
  description text NOT NULL DEFAULT '' COMMENT 'What it is for, in words, which changes nothing; of a crontab, the comment above its line',
  tag varchar(64) NOT NULL DEFAULT 'default' COMMENT 'Daemons that are given this tag run it',
  missed varchar(8) NOT NULL DEFAULT 'once' COMMENT 'Slots that passed while no daemon could run them: skip, once (the newest runs) or all',
  missed_window varchar(32) NOT NULL DEFAULT '' COMMENT 'How late a slot may still run, such as 90s or 2h; empty: 1m with skip, else any time',
  overlap varchar(8) NOT NULL DEFAULT 'forbid' COMMENT 'A slot that comes while the run before is under way: forbid (skipped), allow, queue or replace',
  first_run varchar(8) NOT NULL DEFAULT 'next' COMMENT 'When a new schedule runs first: next (slot) or now',
  repeatable varchar(3) NOT NULL DEFAULT 'yes' COMMENT 'no: a run whose daemon died or was stopped is lost, and not run again; else yes',
  max_attempts int NOT NULL DEFAULT 1 COMMENT 'How often a slot is tried whose work fails',
  retry_delay varchar(32) NOT NULL DEFAULT '10s' COMMENT 'Before the second attempt; doubles with each further one',
  retry_max_delay varchar(32) NOT NULL DEFAULT '1h' COMMENT 'Between two attempts at the most',
  retry_past_next varchar(3) NOT NULL DEFAULT 'no' COMMENT 'Whether attempts go on when the next slot has come: yes or no',
  timeout varchar(32) NOT NULL DEFAULT '' COMMENT 'When a run is ended, such as 15m; empty: never',
  stall varchar(32) NOT NULL DEFAULT '' COMMENT 'How long a command may write nothing before it is stopped, such as 5m; empty: no limit',
  kill_grace varchar(32) NOT NULL DEFAULT '' COMMENT 'From SIGTERM to SIGKILL; empty: the daemon says',
  linger varchar(32) NOT NULL DEFAULT '1s' COMMENT 'How long what a command leaves in the background may run on, and with it the run; forever: as long as it likes',
  jitter varchar(32) NOT NULL DEFAULT '' COMMENT 'Slots run up to so much later, to spread them; empty: not at all',
  starts_at datetime(6) DEFAULT NULL COMMENT 'There are no slots before',
  ends_at datetime(6) DEFAULT NULL COMMENT 'There are no slots after',
  max_failures int NOT NULL DEFAULT 0 COMMENT 'After so many failed slots in a row the schedule fails; 0: never',
  keep_runs int NOT NULL DEFAULT 1000 COMMENT 'How many runs the history keeps, about; -1: all',
  keep_for varchar(32) NOT NULL DEFAULT '30d' COMMENT 'How long the history keeps runs; forever: always',
  notify text NOT NULL DEFAULT '' COMMENT 'Who is notified when it fails: addresses and URLs separated by blanks, or none; empty: as the daemons say',
  on_success varchar(200) NOT NULL DEFAULT '' COMMENT 'The schedule that starts when a run of this one has ended well',
  on_failure varchar(200) NOT NULL DEFAULT '' COMMENT 'The schedule that starts when a slot of this one has failed for good',
  job_queue varchar(200) NOT NULL DEFAULT '' COMMENT 'Of a job: its queue, which is made if there is none; empty: as the route of its kind says',
  job_key varchar(200) NOT NULL DEFAULT '' COMMENT 'Of a job: jobs of one key are done one after the other, in order; empty: it waits for nobody',
  job_priority smallint(6) NOT NULL DEFAULT 2 COMMENT 'Of a job: 1 (urgent), 2 (normal), 3 (low) or 4 (idle)',
  job_max_attempts int NOT NULL DEFAULT 0 COMMENT 'Of a job: after so many failed attempts it is dead; 0: the queue says',
  job_timeout varchar(32) NOT NULL DEFAULT '' COMMENT 'Of a job: how long an attempt may take; empty: the queue says',
  job_unique varchar(200) NOT NULL DEFAULT '' COMMENT 'Unique key of the job; while a job of the queue has it, slots are skipped; empty: none',
  job_unique_for varchar(32) NOT NULL DEFAULT '' COMMENT 'How long the job keeps its unique key at least, such as 24h; empty: until it has ended',
  job_unique_until varchar(8) NOT NULL DEFAULT 'end' COMMENT 'Until when the job has its unique key: begin (of its first attempt) or end (until it has ended)',
  job_tenant varchar(200) NOT NULL DEFAULT '' COMMENT 'Of a job: whose it is, where its queue is shared fairly; empty: nobody''s',
  job_cost int NOT NULL DEFAULT 0 COMMENT 'Of a job: for how many jobs it counts at rates of limits and in the turns of tenants; 0: for one',
  state varchar(16) NOT NULL DEFAULT 'active' COMMENT 'active, paused, ended (its end is past), or failed (see reason)' CHECK (state in ('active','paused','ended','failed')),
  reason text NOT NULL DEFAULT '' COMMENT 'Why it is paused or failed',
  due_at datetime(6) DEFAULT NULL COMMENT 'The next slot',
  next_exec datetime(6) DEFAULT NULL COMMENT 'When a daemon may claim that slot',
  planned varchar(400) DEFAULT NULL COMMENT 'From what the slot was planned: spec, time_zone and dst, separated by blanks; NULL: not planned yet',
  stale tinyint(4) GENERATED ALWAYS AS (case when planned <> concat(spec,' ',time_zone,' ',dst) then 1 end) STORED COMMENT '1: these have changed since, by hand, so a daemon plans it anew; else NULL',
  lane varchar(300) GENERATED ALWAYS AS (case when kind = 'func' then concat(tag,' func ',left(command,200)) when kind = 'job' then concat(tag,' job') else tag end) STORED COMMENT 'Which daemons may claim it: the tag and, for a function, its name, or that it is a job',
  failures int NOT NULL DEFAULT 0 COMMENT 'Slots that failed in a row',
  fence bigint NOT NULL DEFAULT 0 COMMENT 'Grows with each attempt that begins',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the schedule was made',
  update_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row last changed',
  PRIMARY KEY (id),
  UNIQUE KEY dbcron_schedule_name (name),
  UNIQUE KEY dbcron_schedule_source (source,source_key),
  KEY dbcron_schedule_next (state,lane,next_exec),
  KEY dbcron_schedule_stale (stale),
  CONSTRAINT dbcron_schedule_due_at CHECK (due_at between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_schedule_next_exec CHECK (next_exec between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_schedule_order CHECK (due_at <= next_exec),
  CONSTRAINT dbcron_schedule_named CHECK (name <> ''),
  CONSTRAINT dbcron_schedule_range CHECK (starts_at between '1971-01-01' and '9999-12-30' and ends_at between '1971-01-01' and '9999-12-30'),
  CONSTRAINT dbcron_schedule_dst CHECK (dst in ('','vixie','wall')),
  CONSTRAINT dbcron_schedule_missed CHECK (missed in ('','skip','once','all')),
  CONSTRAINT dbcron_schedule_overlap CHECK (overlap in ('','forbid','allow','queue','replace')),
  CONSTRAINT dbcron_schedule_first_run CHECK (first_run in ('','next','now')),
  CONSTRAINT dbcron_schedule_retry_past_next CHECK (retry_past_next in ('','no','yes')),
  CONSTRAINT dbcron_schedule_repeatable CHECK (repeatable in ('','no','yes')),
  CONSTRAINT dbcron_schedule_job_unique_until CHECK (job_unique_until in ('','end','begin')),
  CONSTRAINT dbcron_schedule_job_priority CHECK (job_priority in (1,2,3,4)),
  CONSTRAINT dbcron_schedule_missed_window_duration CHECK (missed_window regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_retry_delay_duration CHECK (retry_delay regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_retry_max_delay_duration CHECK (retry_max_delay regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_timeout_duration CHECK (timeout regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_stall_duration CHECK (stall regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_kill_grace_duration CHECK (kill_grace regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_linger_duration CHECK (linger regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_jitter_duration CHECK (jitter regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_keep_for_duration CHECK (keep_for regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_job_timeout_duration CHECK (job_timeout regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$'),
  CONSTRAINT dbcron_schedule_job_unique_for_duration CHECK (job_unique_for regexp '^(none|forever|([0-9]+w)?([0-9]+d)?(([0-9]+[.]?[0-9]*|[.][0-9]+)(h|ms|us|µs|μs|ns|m|s))*)$')
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='What runs when. A row with next_exec NULL and state active is planned by the next daemon';

CREATE TABLE dbcron_schedule_boot (
  boot varchar(64) NOT NULL COMMENT 'The start: its id from the kernel',
  schedule varchar(200) NOT NULL COMMENT 'The name of the schedule',
  lane varchar(300) NOT NULL COMMENT 'Lane of its runs, which only daemons of this host have, until its next start',
  seen_at datetime(6) NOT NULL COMMENT 'When a daemon of the host last renewed this row',
  PRIMARY KEY (boot,schedule)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Schedules with the spec @reboot that have run for a start of a host';

CREATE TABLE dbcron_schedule_file (
  source varchar(255) NOT NULL COMMENT 'The source of the schedules: dbcron_schedule.source',
  node varchar(128) NOT NULL COMMENT 'The daemon',
  digest varchar(64) NOT NULL COMMENT 'SHA-256 of the file, in hexadecimal digits',
  problem text NOT NULL COMMENT 'Why it could not be imported; empty: it was imported',
  read_at datetime(6) NOT NULL COMMENT 'When it was read',
  PRIMARY KEY (source,node)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Files from which daemons import schedules, as each last read them';

CREATE TABLE dbcron_secret (
  name varchar(200) NOT NULL COMMENT 'What it is for: claims signs the tokens of claimed jobs',
  secret varchar(200) NOT NULL COMMENT 'The key, in base64',
  created_at datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When a daemon made it, the first that needed it',
  PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Keys that only daemons know, and all of them share';

CREATE TABLE dbcron_token (
  name varchar(200) NOT NULL COMMENT 'For people; compared by bytes',
  hash varchar(64) NOT NULL COMMENT 'SHA-256 of the secret, in hexadecimal digits',
  old_hash varchar(64) DEFAULT NULL COMMENT 'Hash of the previous secret; NULL: there was none, or it ended at once',
  old_until datetime(6) DEFAULT NULL COMMENT 'When the previous secret expires',
  scopes varchar(200) NOT NULL COMMENT 'What it is good for: read, enqueue, work, admin, with commas between',
  created_at datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When it was made',
  expires_at datetime(6) DEFAULT NULL COMMENT 'From when on it is not good any more; NULL: never',
  revoked_at datetime(6) DEFAULT NULL COMMENT 'When it was revoked; NULL: it was not',
  last_used_at datetime(6) DEFAULT NULL COMMENT 'When it was used, to a minute; NULL: never',
  PRIMARY KEY (name),
  UNIQUE KEY dbcron_token_hash (hash),
  UNIQUE KEY dbcron_token_old_hash (old_hash)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Who may use the HTTP API: from the first row on nobody may without a token';

CREATE TABLE dbcron_topic_queue (
  topic varchar(200) NOT NULL COMMENT 'Compared by bytes',
  queue varchar(200) NOT NULL COMMENT 'The name of the queue',
  insert_time datetime(6) NOT NULL DEFAULT utc_timestamp(6) COMMENT 'When the row was made',
  PRIMARY KEY (topic,queue)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC COMMENT='Which queues get a copy of what is published to a topic';
