CREATE TABLE dbcron_endpoint (
    queue_id integer NOT NULL -- The queue
    url character varying(1000) NOT NULL DEFAULT ''::character varying -- Where its jobs are sent that do not say; empty: all say
    format character varying(16) NOT NULL DEFAULT 'plain'::character varying -- plain, or cloudevents (headers of its binary mode, too)
    concurrency integer NOT NULL DEFAULT 16 -- How many are sent at a time by each dispatcher
    timeout character varying(32) NOT NULL DEFAULT '30s'::character varying -- Of a request, if neither job nor queue say less
    secret character varying(200) NOT NULL DEFAULT ''::character varying -- The key that signs requests, as in Standard Webhooks: whsec_ and base64
    old_secret character varying(200) NOT NULL DEFAULT ''::character varying -- The key before, which signs them as well; empty: none
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row was made
    update_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row last changed
    CONSTRAINT dbcron_endpoint_key PRIMARY KEY (queue_id)
); -- Where the jobs of a queue are sent by HTTP. The jobs of a queue that has no row here are done by workers

CREATE TABLE dbcron_job (
    queue_id integer NOT NULL -- The queue
    divided integer NOT NULL -- The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls
    priority smallint NOT NULL -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    id bigint NOT NULL -- Grows with time: µs since 2020 times 4096, and 12 random bits
    kind character varying(200) COLLATE "C" NOT NULL -- What the job is, which picks the handler
    job_key character varying(200) COLLATE "C" -- Jobs of one key are done one after the other, in order
    payload json -- What the job is about, JSON as it was given
    payload_bin bytea -- The same in another codec
    max_attempts integer -- After so many failed attempts the job is dead; NULL: the queue says
    timeout bigint -- How long an attempt may take, in µs; NULL: the queue says
    trace character varying(512) -- The trace that the job belongs to, a W3C traceparent
    unique_key character varying(200) COLLATE "C" -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    group_id bigint -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint character varying(1000) -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    CONSTRAINT dbcron_job_key PRIMARY KEY (queue_id, divided, priority, id)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- Jobs that are ready. A row is inserted, and deleted when the job is done; never updated

CREATE TABLE dbcron_job_count (
    minute timestamp(6) with time zone NOT NULL -- When it ended, the beginning of the minute
    queue_id integer NOT NULL -- The queue
    kind character varying(200) COLLATE "C" NOT NULL -- What the jobs are
    done bigint NOT NULL DEFAULT 0 -- Jobs that were done, or discarded
    failed bigint NOT NULL DEFAULT 0 -- Attempts that failed, and were followed by another
    dead bigint NOT NULL DEFAULT 0 -- Jobs that were given up
    wait_us bigint NOT NULL DEFAULT 0 -- For how long they had waited, in µs, all together
    run_us bigint NOT NULL DEFAULT 0 -- How long they took, in µs, all together
    CONSTRAINT dbcron_job_count_key PRIMARY KEY (minute, queue_id, kind)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- What workers have done, by minute, queue and kind

CREATE TABLE dbcron_job_dead (
    queue_id integer NOT NULL -- The queue
    id bigint NOT NULL -- As in dbcron_job
    divided integer NOT NULL -- Its block
    priority smallint NOT NULL DEFAULT 2 -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt integer NOT NULL DEFAULT 0 -- How many attempts there were
    crashes integer NOT NULL DEFAULT 0 -- How many workers died with it
    error text NOT NULL DEFAULT ''::text -- Why
    detail text NOT NULL DEFAULT ''::text -- The stack of a panic, or what the worker said
    snapshot bytea -- What its handler has stored for the next attempt
    percent smallint -- How much of it is done, as its handler says: 1 to 100
    message text -- How far it is, in its handler's words
    died_at timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When it was given up
    purge_at timestamp(6) with time zone -- When it is removed; NULL: never
    kind character varying(200) COLLATE "C" NOT NULL -- What the job is, which picks the handler
    job_key character varying(200) COLLATE "C" -- Jobs of one key are done one after the other, in order
    payload json -- What the job is about, JSON as it was given
    payload_bin bytea -- The same in another codec
    max_attempts integer -- After so many failed attempts the job is dead; NULL: the queue says
    timeout bigint -- How long an attempt may take, in µs; NULL: the queue says
    trace character varying(512) -- The trace that the job belongs to, a W3C traceparent
    unique_key character varying(200) COLLATE "C" -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    group_id bigint -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint character varying(1000) -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    CONSTRAINT dbcron_job_dead_key PRIMARY KEY (queue_id, id)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- Jobs that were given up
CREATE INDEX dbcron_job_dead_purge ON public.dbcron_job_dead USING btree (purge_at);

CREATE TABLE dbcron_job_delayed (
    queue_id integer NOT NULL -- The queue
    divided integer NOT NULL -- The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls
    id bigint NOT NULL -- As in dbcron_job
    run_at timestamp(6) with time zone NOT NULL -- When it is due
    priority smallint NOT NULL DEFAULT 2 -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt integer NOT NULL DEFAULT 0 -- How many attempts there were
    crashes integer NOT NULL DEFAULT 0 -- How many workers died with it
    hold_key character varying(200) COLLATE "C" -- The key whose other jobs wait for this one
    error text NOT NULL DEFAULT ''::text -- Why it failed last
    snapshot bytea -- What its handler has stored for the next attempt
    percent smallint -- How much of it is done, as its handler says: 1 to 100
    message text -- How far it is, in its handler's words
    kind character varying(200) COLLATE "C" NOT NULL -- What the job is, which picks the handler
    job_key character varying(200) COLLATE "C" -- Jobs of one key are done one after the other, in order
    payload json -- What the job is about, JSON as it was given
    payload_bin bytea -- The same in another codec
    max_attempts integer -- After so many failed attempts the job is dead; NULL: the queue says
    timeout bigint -- How long an attempt may take, in µs; NULL: the queue says
    trace character varying(512) -- The trace that the job belongs to, a W3C traceparent
    unique_key character varying(200) COLLATE "C" -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    group_id bigint -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint character varying(1000) -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    CONSTRAINT dbcron_job_delayed_key PRIMARY KEY (queue_id, divided, id)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- Jobs whose time has yet to come, and failed ones that wait for their retry
CREATE INDEX dbcron_job_delayed_due ON public.dbcron_job_delayed USING btree (queue_id, divided, run_at, id);
CREATE INDEX dbcron_job_delayed_hold ON public.dbcron_job_delayed USING btree (queue_id, divided, hold_key) WHERE (hold_key IS NOT NULL);

CREATE TABLE dbcron_job_done (
    queue_id integer NOT NULL -- The queue
    id bigint NOT NULL -- As in dbcron_job
    divided integer NOT NULL -- The block that it was in
    priority smallint NOT NULL -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt integer NOT NULL -- How many attempts there were
    crashes integer NOT NULL -- How many workers died with it
    outcome character varying(16) NOT NULL -- done, or discarded (its handler said that it need not be done)
    error text NOT NULL -- Why it was discarded
    snapshot bytea -- What its handler has stored last
    percent smallint -- How much of it was done then, as its handler said: 1 to 100
    message text -- How far it was then, in its handler's words
    worker character varying(128) COLLATE "C" NOT NULL -- The worker that has done it
    started_at timestamp(6) with time zone NOT NULL -- When the last attempt began
    ended_at timestamp(6) with time zone NOT NULL -- When its end was written
    purge_at timestamp(6) with time zone NOT NULL -- When it is removed
    kind character varying(200) COLLATE "C" NOT NULL -- What the job is, which picks the handler
    job_key character varying(200) COLLATE "C" -- Jobs of one key are done one after the other, in order
    payload json -- What the job is about, JSON as it was given
    payload_bin bytea -- The same in another codec
    max_attempts integer -- After so many failed attempts the job is dead; NULL: the queue says
    timeout bigint -- How long an attempt may take, in µs; NULL: the queue says
    trace character varying(512) -- The trace that the job belongs to, a W3C traceparent
    unique_key character varying(200) COLLATE "C" -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    group_id bigint -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint character varying(1000) -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    CONSTRAINT dbcron_job_done_key PRIMARY KEY (queue_id, id)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- Jobs that are done, of queues that keep them
CREATE INDEX dbcron_job_done_purge ON public.dbcron_job_done USING btree (purge_at);

CREATE TABLE dbcron_job_group (
    id bigint NOT NULL -- As ids in dbcron_job
    name character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- For people
    state character varying(16) NOT NULL DEFAULT 'open'::character varying -- open (it does not end), sealed (it ends as soon as none of its jobs is pending) or done
    callback text -- The job that is enqueued when it ends, as JSON; NULL: none
    keep bigint NOT NULL DEFAULT '604800000000'::bigint -- How long it is kept after its end, in µs; negative: always
    error text NOT NULL DEFAULT ''::text -- Why its callback could not be enqueued
    created_at timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When it was made
    ended_at timestamp(6) with time zone -- When it ended
    purge_at timestamp(6) with time zone -- When it is removed; NULL: never, or it has not ended
    CONSTRAINT dbcron_job_group_key PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- Groups of jobs, and the callback of each
CREATE INDEX dbcron_job_group_purge ON public.dbcron_job_group USING btree (purge_at) WHERE (purge_at IS NOT NULL);
CREATE INDEX dbcron_job_group_state ON public.dbcron_job_group USING btree (state, id);

CREATE TABLE dbcron_job_member (
    group_id bigint NOT NULL -- The group
    job bigint NOT NULL -- The job's id
    queue_id integer NOT NULL -- The queue that it was enqueued in
    kind character varying(200) COLLATE "C" NOT NULL -- What the job is
    state character varying(16) NOT NULL DEFAULT 'pending'::character varying -- pending (it has yet to end), done, dead or cancelled
    result text -- What its handler has made of it, JSON
    error text NOT NULL DEFAULT ''::text -- Why it is dead
    CONSTRAINT dbcron_job_member_key PRIMARY KEY (group_id, job)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- The jobs of groups, and what has become of each
CREATE INDEX dbcron_job_member_state ON public.dbcron_job_member USING btree (group_id, state);

CREATE TABLE dbcron_job_running (
    queue_id integer NOT NULL -- The queue
    divided integer NOT NULL -- The block of jobs that is leased as a whole: where the hash of job_key, or of id, falls
    id bigint NOT NULL -- As in dbcron_job
    priority smallint NOT NULL DEFAULT 2 -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt integer NOT NULL DEFAULT 0 -- How many attempts there were
    crashes integer NOT NULL DEFAULT 0 -- How many workers died with it
    state character varying(16) NOT NULL DEFAULT 'running'::character varying -- running, or handed (its worker has ended and left it to others)
    lock_by character varying(128) COLLATE "C" NOT NULL -- The worker that runs it
    fence bigint NOT NULL DEFAULT 0 -- Of the block, when it was taken
    started_at timestamp(6) with time zone -- When the attempt began
    expire_at timestamp(6) with time zone -- When others may take it; NULL: when its worker is lost
    error text NOT NULL DEFAULT ''::text -- Why it failed last
    snapshot bytea -- What its handler has stored for the next attempt
    percent smallint -- How much of it is done, as its handler says: 1 to 100
    message text -- How far it is, in its handler's words
    kind character varying(200) COLLATE "C" NOT NULL -- What the job is, which picks the handler
    job_key character varying(200) COLLATE "C" -- Jobs of one key are done one after the other, in order
    payload json -- What the job is about, JSON as it was given
    payload_bin bytea -- The same in another codec
    max_attempts integer -- After so many failed attempts the job is dead; NULL: the queue says
    timeout bigint -- How long an attempt may take, in µs; NULL: the queue says
    trace character varying(512) -- The trace that the job belongs to, a W3C traceparent
    unique_key character varying(200) COLLATE "C" -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    group_id bigint -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint character varying(1000) -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    CONSTRAINT dbcron_job_running_key PRIMARY KEY (queue_id, divided, id)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- Jobs that have been running for longer than a second, or that may have ended their worker

CREATE TABLE dbcron_job_unique (
    queue_id integer NOT NULL -- The queue
    unique_key character varying(200) COLLATE "C" NOT NULL -- Compared by bytes
    job bigint NOT NULL -- The id of the job that has it
    pending character varying(3) NOT NULL DEFAULT 'yes'::character varying -- Whether that job has yet to end: yes or no
    free_at timestamp(6) with time zone -- Until when it is in use in any case; NULL: until the job has ended
    CONSTRAINT dbcron_job_unique_key PRIMARY KEY (queue_id, unique_key)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0); -- Keys that are in use: a job is not enqueued whose key another one of its queue has
CREATE INDEX dbcron_job_unique_free ON public.dbcron_job_unique USING btree (free_at) WHERE (free_at IS NOT NULL);
CREATE INDEX dbcron_job_unique_job ON public.dbcron_job_unique USING btree (queue_id, job);

CREATE TABLE dbcron_lock (
    name character varying(200) COLLATE "C" NOT NULL -- Compared by bytes
    slot integer NOT NULL DEFAULT 0 -- 0: a lock, or the head of a pool; from 1 on: a slot of the pool
    state character varying(8) NOT NULL DEFAULT 'FREE'::character varying -- FREE, LOCK (taken), EXTEND (taken and renewed since), POOL (head of a pool), CLOSED (slot that the pool no longer has)
    lock_by character varying(128) COLLATE "C" NOT NULL DEFAULT ''::character varying -- Its holder, also the last one: host:pid:random
    lock_at timestamp(6) with time zone -- When it was last taken
    expire_at timestamp(6) with time zone -- When others may take it, in LOCK and EXTEND
    released_at timestamp(6) with time zone -- When its holder gave it up; NULL: not, so it is held or has expired
    fence bigint NOT NULL DEFAULT 0 -- Rises whenever it is taken, and never falls
    extends bigint NOT NULL DEFAULT 0 -- How often its holder has renewed it
    takeovers bigint NOT NULL DEFAULT 0 -- How often it was taken because a lease had run out
    meta text NOT NULL DEFAULT ''::text -- What its holder says about itself
    session character varying(32) COLLATE "C" NOT NULL DEFAULT ''::character varying -- Elections: the session lock that its holder has as well
    waiters character varying(16)[] COLLATE "C" NOT NULL DEFAULT '{}'::character varying[] -- Whom to notify, one after the other, when it is released
    waiting_until timestamp(6) with time zone -- Until when the waiters have said that they wait
    forced_by character varying(128) COLLATE "C" NOT NULL DEFAULT ''::character varying -- Who last released it by force
    forced_fence bigint -- The fence of the lease that was ended so
    forced_at timestamp(6) with time zone -- When
    forced_why text NOT NULL DEFAULT ''::text -- Why, and whose it was
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row was made
    update_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row last changed
    CONSTRAINT dbcron_lock_key PRIMARY KEY (name, slot)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- Who may work: a row for each lock and each slot of a pool. Rows are made on first use

CREATE TABLE dbcron_lock_fence (
    name character varying(200) COLLATE "C" NOT NULL -- Of the lock; the empty name stands for all locks whose rows were purged
    slot integer NOT NULL DEFAULT 0 -- Of the lock
    fence bigint NOT NULL DEFAULT 0 -- The highest that has guarded a transaction, or, of the empty name, that was purged
    guards bigint NOT NULL DEFAULT 0 -- How often the row was used
    CONSTRAINT dbcron_lock_fence_key PRIMARY KEY (name, slot)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- What keeps late holders out of guarded transactions; apart from the locks, so that a long transaction does not keep its own lease from being renewed

CREATE TABLE dbcron_migration (
    id integer NOT NULL GENERATED BY DEFAULT AS IDENTITY
    version_id bigint NOT NULL
    is_applied boolean NOT NULL
    tstamp timestamp without time zone NOT NULL DEFAULT now()
    CONSTRAINT dbcron_migration_pkey PRIMARY KEY (id)
);

CREATE TABLE dbcron_node (
    name character varying(128) COLLATE "C" NOT NULL -- host:pid:random
    state character varying(16) NOT NULL DEFAULT 'live'::character varying -- live, lost (it was not heard of until expire_at) or gone (it has ended)
    expire_at timestamp(6) with time zone -- When others may take what it has, unless it is heard of before
    heartbeats bigint NOT NULL DEFAULT 0 -- How often it was heard of
    started_at timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When it started
    bell_at character varying(100) NOT NULL DEFAULT ''::character varying -- Where it hears of new jobs, an address and a port of UDP; empty: nowhere
    bell_key character varying(100) NOT NULL DEFAULT ''::character varying -- The key that signs what is sent there
    under character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- The lock under which it works: whoever gets that after it takes over what it has; empty: none
    CONSTRAINT dbcron_node_key PRIMARY KEY (name)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- The processes that take part. What a worker holds is its own for as long as its row says live

CREATE TABLE dbcron_queue (
    queue_id integer NOT NULL GENERATED BY DEFAULT AS IDENTITY -- Grows with each queue
    name character varying(200) COLLATE "C" NOT NULL -- Compared by bytes
    state character varying(16) NOT NULL DEFAULT 'active'::character varying -- active, paused (jobs are taken, and wait) or deleted
    reason text NOT NULL DEFAULT ''::text -- Why it is paused, and by whom
    ordered character varying(3) NOT NULL DEFAULT 'no'::character varying -- Whether it has had jobs with keys: yes or no
    key_retry character varying(16) NOT NULL DEFAULT 'hold'::character varying -- When a job of a key waits for its retry, the next ones of the key hold or pass
    max_attempts integer NOT NULL DEFAULT 10 -- After so many failed attempts a job is dead
    max_crashes integer NOT NULL DEFAULT 3 -- After so many workers died with a job it is dead
    retry_delay character varying(32) NOT NULL DEFAULT '10s'::character varying -- Before the second attempt; doubles with each further one
    retry_max_delay character varying(32) NOT NULL DEFAULT '1h'::character varying -- Between two attempts at the most
    timeout character varying(32) NOT NULL DEFAULT ''::character varying -- How long an attempt may take; empty: as long as it likes
    max_payload integer NOT NULL DEFAULT 1048576 -- How many bytes a payload may have
    keep_dead character varying(32) NOT NULL DEFAULT '90d'::character varying -- How long dead jobs are kept; forever: always
    keep_dead_max integer NOT NULL DEFAULT 0 -- How many dead jobs are kept, about; 0: all, for as long as keep_dead says
    keep_done character varying(32) NOT NULL DEFAULT ''::character varying -- How long jobs that are done are kept; empty: they are not
    poll_min character varying(32) NOT NULL DEFAULT '2ms'::character varying -- How soon it is looked again after there was something, where nobody is notified
    poll_max character varying(32) NOT NULL DEFAULT '250ms'::character varying -- How long it is waited between two looks at the most
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row was made
    update_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row last changed
    CONSTRAINT dbcron_queue_key PRIMARY KEY (queue_id)
    CONSTRAINT dbcron_queue_name UNIQUE (name)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- The queues and what is set for each. Rows are made on first use and never removed

CREATE TABLE dbcron_queue_block (
    queue_id integer NOT NULL -- The queue
    divided integer NOT NULL -- The block
    generation integer NOT NULL DEFAULT 1 -- Grows when the number of blocks is changed; new jobs go to the newest
    state character varying(16) NOT NULL DEFAULT 'FREE'::character varying -- FREE or LEASED
    lock_by character varying(128) COLLATE "C" NOT NULL DEFAULT ''::character varying -- The worker that has it, or had it last: host:pid:random, see dbcron_node
    lock_at timestamp(6) with time zone -- When it was last taken
    fence bigint NOT NULL DEFAULT 0 -- Rises whenever it is taken
    batch integer NOT NULL DEFAULT 100 -- How many jobs its worker reads at a time: so many may have ended it
    suspects integer NOT NULL DEFAULT 0 -- How often in a row its worker died with it
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row was made
    CONSTRAINT dbcron_queue_block_key PRIMARY KEY (queue_id, divided)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- Which worker has which block of a queue's jobs. Their number is that of the newest generation's rows

CREATE TABLE dbcron_queue_limit (
    queue_id integer NOT NULL -- The queue
    kind character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- Of the jobs, compared by bytes; empty: all of the queue together
    max_running integer -- How many may run at a time; NULL: any number
    rate integer -- How many may begin in rate_per; NULL: any number
    rate_per character varying(40) NOT NULL DEFAULT '1s'::character varying -- A duration, such as 1s or 1m
    burst integer NOT NULL DEFAULT 1 -- How many may begin at once after a pause
    drawn_at timestamp(6) with time zone -- Until when the rate has been used up; what is in the past may be used
    waiting_by character varying(128) COLLATE "C" NOT NULL DEFAULT ''::character varying -- A worker that waits for a permit
    waiting_until timestamp(6) with time zone -- Until when it is taken to wait
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row was made
    update_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row last changed
    CONSTRAINT dbcron_queue_limit_key PRIMARY KEY (queue_id, kind)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- How many jobs may run at a time, and begin in a time, over all workers

CREATE TABLE dbcron_queue_permit (
    queue_id integer NOT NULL -- The queue
    kind character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- As in dbcron_queue_limit
    slot integer NOT NULL -- From 0
    state character varying(16) NOT NULL DEFAULT 'FREE'::character varying -- FREE or LEASED
    lock_by character varying(128) COLLATE "C" NOT NULL DEFAULT ''::character varying -- The worker that has it, or had it last: see dbcron_node
    lock_at timestamp(6) with time zone -- When it was last taken
    fence bigint NOT NULL DEFAULT 0 -- Rises whenever it is taken
    CONSTRAINT dbcron_queue_permit_key PRIMARY KEY (queue_id, kind, slot)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- Permits to run a job that is limited: as many as the limit's max_running, made when they are first needed

CREATE TABLE dbcron_queue_worker (
    queue_id integer NOT NULL -- The queue
    node character varying(128) COLLATE "C" NOT NULL -- The process
    busy smallint NOT NULL DEFAULT 0 -- 1: all that it may do at a time are jobs that take long; it leaves blocks to others. 2: it moves jobs to another queue; others leave it all blocks
    CONSTRAINT dbcron_queue_worker_key PRIMARY KEY (queue_id, node)
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=50); -- Which processes work on which queue, to share its blocks

CREATE TABLE dbcron_route (
    kind character varying(200) COLLATE "C" NOT NULL -- Of the jobs, compared by bytes; *: all kinds without a row of their own
    queue character varying(200) COLLATE "C" NOT NULL -- The queue's name
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row was made
    update_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row last changed
    CONSTRAINT dbcron_route_key PRIMARY KEY (kind)
); -- Where jobs go that name no queue. Those of a kind without a row: to that of *, or else to the queue default

CREATE TABLE dbcron_run (
    id bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY -- Grows with each row
    schedule character varying(200) COLLATE "C" NOT NULL -- Name of the schedule; the row stays when the schedule goes
    due_at timestamp(6) with time zone NOT NULL -- The slot
    attempt integer NOT NULL -- 1, or more after a crash or a failure
    state character varying(16) NOT NULL -- waiting (for its time, or for the run before), running, retry (handed back), ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)
    due_to timestamp(6) with time zone -- skipped and missed: the last slot of the stretch that due_at begins
    slots bigint NOT NULL DEFAULT 1 -- skipped and missed: how many slots the stretch has; 10000 is that many or more
    exec_by character varying(128) COLLATE "C" NOT NULL DEFAULT ''::character varying -- The daemon: host:pid:random
    claim character varying(32) COLLATE "C" -- Token of the transaction that claimed the run; NULL once it has ended
    next_exec timestamp(6) with time zone -- When a daemon may take it: waiting: its time; running: the end of its lease; NULL once it has ended
    renewals bigint NOT NULL DEFAULT 0 -- How often the lease was renewed
    started_at timestamp(6) with time zone -- When the attempt began
    finished_at timestamp(6) with time zone -- When it ended, or was given up
    exit_code integer -- Of a command, 128 + signal if a signal ended it; of a request, its status
    error text NOT NULL DEFAULT ''::text -- Why it did not end well
    output text NOT NULL DEFAULT ''::text -- Standard output and error, head and tail
    lane character varying(300) COLLATE "C" NOT NULL DEFAULT 'default'::character varying -- Of the schedule, when the run was made
    cause character varying(8) NOT NULL DEFAULT 'slot'::character varying -- Why it is run: slot, hand (run now), backfill or chain
    fence bigint NOT NULL DEFAULT 0 -- Larger than that of every attempt of the schedule that began before
    failures integer NOT NULL DEFAULT 0 -- Attempts at the slot that have failed before this one
    crashes integer NOT NULL DEFAULT 0 -- Attempts at the slot that were lost before this one
    cancel character varying(255) -- Somebody wants the run to end, and why; NULL: nobody does
    purge_at timestamp(6) with time zone -- When the row is removed from the history; NULL: never, or it has not ended
    CONSTRAINT dbcron_run_due_at CHECK (((due_at >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (due_at <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)))
    CONSTRAINT dbcron_run_due_to CHECK (((due_to >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (due_to <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)))
    CONSTRAINT dbcron_run_finished_at CHECK (((finished_at >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (finished_at <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)))
    CONSTRAINT dbcron_run_next_exec CHECK (((next_exec >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (next_exec <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)))
    CONSTRAINT dbcron_run_pkey PRIMARY KEY (id)
    CONSTRAINT dbcron_run_slot UNIQUE (schedule, due_at, attempt)
    CONSTRAINT dbcron_run_started_at CHECK (((started_at >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (started_at <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)))
    CONSTRAINT dbcron_run_state_check CHECK (((state)::text = ANY ((ARRAY['waiting'::character varying, 'running'::character varying, 'retry'::character varying, 'ok'::character varying, 'failed'::character varying, 'timeout'::character varying, 'lost'::character varying, 'cancelled'::character varying, 'skipped'::character varying, 'missed'::character varying])::text[])))
) WITH (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0); -- What became of each slot: one row for each attempt, or for a stretch of slots that did not run
CREATE INDEX dbcron_run_next ON public.dbcron_run USING btree (lane, next_exec) WHERE (next_exec IS NOT NULL);
CREATE INDEX dbcron_run_open ON public.dbcron_run USING btree (schedule) WHERE (next_exec IS NOT NULL);
CREATE INDEX dbcron_run_purge ON public.dbcron_run USING btree (purge_at) WHERE (purge_at IS NOT NULL);

CREATE TABLE dbcron_schedule (
    id bigint NOT NULL GENERATED BY DEFAULT AS IDENTITY -- Grows with each schedule that is made
    name character varying(200) COLLATE "C" NOT NULL -- Compared by bytes; in the history of runs too
    source character varying(255) COLLATE "C" -- The file that the schedule comes from, which alone changes or removes it; NULL: made by hand
    source_key character varying(255) COLLATE "C" -- What the schedule is recognized by in its source
    spec character varying(256) NOT NULL -- Five cron fields, or a macro such as @daily or @every 90s
    time_zone character varying(64) NOT NULL DEFAULT 'UTC'::character varying -- Zone of the tz database that the spec is read in
    dst character varying(8) NOT NULL DEFAULT 'vixie'::character varying -- When clocks change: vixie (fixed times run once) or wall (as the wall clock shows)
    command text NOT NULL -- What is run, with the rights of the daemon; kind says how it is read
    stdin text NOT NULL DEFAULT ''::text -- Text for a command's standard input, the body of a request, the input of a function, or the payload of a job (JSON; empty: which slot it is)
    env text NOT NULL DEFAULT '{}'::text -- Its environment beside the defaults, a JSON object of strings; SHELL names the shell
    state character varying(16) NOT NULL DEFAULT 'active'::character varying -- active, paused, ended (its end is past), or failed (see reason)
    reason text NOT NULL DEFAULT ''::text -- Why it is paused or failed
    due_at timestamp(6) with time zone -- The next slot
    next_exec timestamp(6) with time zone -- When a daemon may claim that slot
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the schedule was made
    update_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row last changed
    kind character varying(8) NOT NULL DEFAULT 'shell'::character varying -- What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function), job (the kind of a job that is enqueued)
    headers text NOT NULL DEFAULT '{}'::text -- Of a request, a JSON object of strings
    dir text NOT NULL DEFAULT ''::text -- Where a command starts; empty: the daemon says
    run_as character varying(64) NOT NULL DEFAULT ''::character varying -- The user a command runs as, if the daemon is root; empty: the daemon's
    tag character varying(64) COLLATE "C" NOT NULL DEFAULT 'default'::character varying -- Daemons that are given this tag run it
    missed character varying(8) NOT NULL DEFAULT 'once'::character varying -- Slots that passed while no daemon could run them: skip, once (the newest runs) or all
    missed_window character varying(32) NOT NULL DEFAULT ''::character varying -- How late a slot may still run, such as 90s or 2h; empty: 1m with skip, else any time
    overlap character varying(8) NOT NULL DEFAULT 'forbid'::character varying -- A slot that comes while the run before is under way: forbid (skipped), allow, queue or replace
    first_run character varying(8) NOT NULL DEFAULT 'next'::character varying -- When a new schedule runs first: next (slot) or now
    max_attempts integer NOT NULL DEFAULT 1 -- How often a slot is tried whose work fails
    retry_delay character varying(32) NOT NULL DEFAULT '10s'::character varying -- Before the second attempt; doubles with each further one
    retry_max_delay character varying(32) NOT NULL DEFAULT '1h'::character varying -- Between two attempts at the most
    retry_past_next character varying(3) NOT NULL DEFAULT 'no'::character varying -- Whether attempts go on when the next slot has come: yes or no
    timeout character varying(32) NOT NULL DEFAULT ''::character varying -- When a run is ended, such as 15m; empty: never
    kill_grace character varying(32) NOT NULL DEFAULT ''::character varying -- From SIGTERM to SIGKILL; empty: the daemon says
    jitter character varying(32) NOT NULL DEFAULT ''::character varying -- Slots run up to so much later, to spread them; empty: not at all
    starts_at timestamp(6) with time zone -- There are no slots before
    ends_at timestamp(6) with time zone -- There are no slots after
    max_failures integer NOT NULL DEFAULT 0 -- After so many failed slots in a row the schedule fails; 0: never
    keep_runs integer NOT NULL DEFAULT 1000 -- How many runs the history keeps, about; -1: all
    keep_for character varying(32) NOT NULL DEFAULT '30d'::character varying -- How long the history keeps runs; forever: always
    on_success character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- The schedule that starts when a run of this one has ended well
    on_failure character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- The schedule that starts when a slot of this one has failed for good
    failures integer NOT NULL DEFAULT 0 -- Slots that failed in a row
    fence bigint NOT NULL DEFAULT 0 -- Grows with each attempt that begins
    job_queue character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- Of a job: its queue, which is made if there is none; empty: as the route of its kind says
    job_key character varying(200) COLLATE "C" NOT NULL DEFAULT ''::character varying -- Of a job: jobs of one key are done one after the other, in order; empty: it waits for nobody
    job_priority smallint NOT NULL DEFAULT 2 -- Of a job: 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    job_max_attempts integer NOT NULL DEFAULT 0 -- Of a job: after so many failed attempts it is dead; 0: the queue says
    job_timeout character varying(32) NOT NULL DEFAULT ''::character varying -- Of a job: how long an attempt may take; empty: the queue says
    lane character varying(300) COLLATE "C" DEFAULT 
CASE
    WHEN ((kind)::text = 'func'::text) THEN ((((tag)::text || ' func '::text) || "left"(command, 200)))::character varying
    WHEN ((kind)::text = 'job'::text) THEN (((tag)::text || ' job'::text))::character varying
    ELSE tag
END -- Which daemons may claim it: the tag and, for a function, its name, or that it is a job
    CONSTRAINT dbcron_schedule_due_at CHECK (((due_at >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (due_at <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)))
    CONSTRAINT dbcron_schedule_kind_check CHECK (((kind)::text = ANY ((ARRAY['shell'::character varying, 'argv'::character varying, 'http'::character varying, 'sql'::character varying, 'func'::character varying, 'job'::character varying])::text[])))
    CONSTRAINT dbcron_schedule_name UNIQUE (name)
    CONSTRAINT dbcron_schedule_named CHECK (((name)::text <> ''::text))
    CONSTRAINT dbcron_schedule_next_exec CHECK (((next_exec >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (next_exec <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)))
    CONSTRAINT dbcron_schedule_order CHECK ((due_at <= next_exec))
    CONSTRAINT dbcron_schedule_pkey PRIMARY KEY (id)
    CONSTRAINT dbcron_schedule_range CHECK ((((starts_at >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (starts_at <= '9999-12-30 00:00:00-03:30'::timestamp with time zone)) AND ((ends_at >= '1971-01-01 00:00:00-03:30'::timestamp with time zone) AND (ends_at <= '9999-12-30 00:00:00-03:30'::timestamp with time zone))))
    CONSTRAINT dbcron_schedule_source UNIQUE (source, source_key)
    CONSTRAINT dbcron_schedule_state_check CHECK (((state)::text = ANY ((ARRAY['active'::character varying, 'paused'::character varying, 'ended'::character varying, 'failed'::character varying])::text[])))
) WITH (autovacuum_vacuum_scale_factor=0.01, autovacuum_vacuum_cost_delay=0, fillfactor=90); -- What runs when. A row with next_exec NULL and state active is planned by the next daemon
CREATE INDEX dbcron_schedule_next ON public.dbcron_schedule USING btree (state, lane, next_exec);

CREATE TABLE dbcron_token (
    name character varying(200) COLLATE "C" NOT NULL -- For people; compared by bytes
    hash character varying(64) COLLATE "C" NOT NULL -- SHA-256 of the secret, in hexadecimal digits
    scopes character varying(200) NOT NULL -- What it is good for: read, enqueue, work, admin, with commas between
    created_at timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When it was made
    expires_at timestamp(6) with time zone -- From when on it is not good any more; NULL: never
    revoked_at timestamp(6) with time zone -- When it was revoked; NULL: it was not
    last_used_at timestamp(6) with time zone -- When it was used, to a minute; NULL: never
    CONSTRAINT dbcron_token_hash UNIQUE (hash)
    CONSTRAINT dbcron_token_key PRIMARY KEY (name)
); -- Who may use the HTTP API: from the first row on nobody may without a token

CREATE TABLE dbcron_topic_queue (
    topic character varying(200) COLLATE "C" NOT NULL -- Compared by bytes
    queue character varying(200) COLLATE "C" NOT NULL -- The name of the queue
    insert_time timestamp(6) with time zone NOT NULL DEFAULT statement_timestamp() -- When the row was made
    CONSTRAINT dbcron_topic_queue_key PRIMARY KEY (topic, queue)
); -- Which queues get a copy of what is published to a topic
