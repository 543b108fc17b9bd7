CREATE TABLE dbcron_audit ( -- What operators did, from the command line, the HTTP API and the dashboard
    id       INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each row
    done_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was done
    actor    TEXT NOT NULL, -- Who did it: a token's name, user@host, or this host
    login    TEXT NOT NULL, -- How the actor is known: token, proxy, os (claimed by the user), or none (this host, as long as there is no token)
    source   TEXT NOT NULL, -- cli, api or dashboard
    action   TEXT NOT NULL, -- What was done, such as queue.pause
    object   TEXT NOT NULL, -- The object, such as the name of a queue
    affected INTEGER NOT NULL, -- Number of objects
    detail   TEXT NOT NULL -- Details: a reason or a filter
) STRICT;

CREATE INDEX dbcron_audit_action ON dbcron_audit (action, id);

CREATE INDEX dbcron_audit_actor ON dbcron_audit (actor, id);

CREATE INDEX dbcron_audit_object ON dbcron_audit (object, id);

CREATE INDEX dbcron_audit_time ON dbcron_audit (done_at, id);

CREATE TRIGGER dbcron_endpoint_durations_new BEFORE INSERT ON dbcron_endpoint BEGIN
    SELECT RAISE(ABORT, 'dbcron_endpoint: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TRIGGER dbcron_endpoint_durations_set BEFORE UPDATE OF timeout ON dbcron_endpoint BEGIN
    SELECT RAISE(ABORT, 'dbcron_endpoint: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TABLE dbcron_endpoint ( -- Where the jobs of a queue are sent by HTTP. The jobs of a queue that has no row here are done by workers
    queue_id    INTEGER NOT NULL, -- The queue
    url         TEXT NOT NULL DEFAULT '', -- Where its jobs are sent that do not say; empty: all say
    format      TEXT NOT NULL DEFAULT 'plain', -- plain, or cloudevents (headers of its binary mode, too)
    concurrency INTEGER NOT NULL DEFAULT 16, -- How many are sent at a time by each dispatcher
    batch       INTEGER NOT NULL DEFAULT 1, -- Maximum number of jobs in a request, as a JSON array; 1: each request is a job
    timeout     TEXT NOT NULL DEFAULT '30s', -- Of a request, if neither job nor queue say less
    secret      TEXT NOT NULL DEFAULT '', -- The key that signs requests, as in Standard Webhooks: whsec_ and base64
    old_secret  TEXT NOT NULL DEFAULT '', -- The key before, which signs them as well; empty: none
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_endpoint_key PRIMARY KEY (queue_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_endpoint_answers ( -- The recent answers of the endpoint of a queue; dispatchers write the row every few seconds while they send
    queue_id    INTEGER NOT NULL, -- The queue
    answers     TEXT NOT NULL, -- Some of the newest answers, the newest first, as JSON
    update_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_endpoint_answers_key PRIMARY KEY (queue_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_job ( -- Jobs that are ready. A row is inserted, and deleted when the job is done; never updated
    queue_id     INTEGER NOT NULL, -- The queue
    divided      INTEGER NOT NULL, -- Number of the job's block, the part of a queue that is leased as a whole (dbcron_queue_block): where the hash of job_key, or of id, falls
    priority     INTEGER NOT NULL, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    id           INTEGER NOT NULL, -- Grows with time: µs since 2020 times 4096, and 12 random bits
    kind         TEXT NOT NULL, -- What the job is, which picks the handler
    job_key      TEXT, -- Jobs of one key are done one after the other, in order
    payload      TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin  ANY, -- The same in another codec
    max_attempts INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout      INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace        TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key   TEXT, -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    unique_until TEXT, -- Until when: begin (of its first attempt); NULL: until it has ended
    group_id     INTEGER, -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint     TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    tenant       TEXT, -- Whose job it is, where a queue is shared fairly: see dbcron_queue.fair
    cost         INTEGER, -- For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one
    CONSTRAINT dbcron_job_key PRIMARY KEY (queue_id, divided, priority, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_job_count ( -- What workers have done, by minute, queue and kind
    minute   TEXT NOT NULL, -- When it ended, the beginning of the minute
    queue_id INTEGER NOT NULL, -- The queue
    kind     TEXT NOT NULL, -- What the jobs are
    done     INTEGER NOT NULL DEFAULT 0, -- Jobs that were done, or discarded
    failed   INTEGER NOT NULL DEFAULT 0, -- Attempts that failed, and were followed by another
    dead     INTEGER NOT NULL DEFAULT 0, -- Jobs that were given up
    late     INTEGER NOT NULL DEFAULT 0, -- Jobs that were committed long after they were enqueued, and found late
    wait_us  INTEGER NOT NULL DEFAULT 0, -- For how long they had waited, in µs, all together
    run_us   INTEGER NOT NULL DEFAULT 0, -- How long they took, in µs, all together
    CONSTRAINT dbcron_job_count_key PRIMARY KEY (minute, queue_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_job_dead ( -- Jobs that were given up
    queue_id     INTEGER NOT NULL, -- The queue
    id           INTEGER NOT NULL, -- As in dbcron_job
    divided      INTEGER NOT NULL, -- The block that it was in
    priority     INTEGER NOT NULL DEFAULT 2, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt      INTEGER NOT NULL DEFAULT 0, -- How many attempts there were
    crashes      INTEGER NOT NULL DEFAULT 0, -- How many workers died with it
    error        TEXT NOT NULL DEFAULT '', -- Why
    errors       TEXT, -- Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error
    detail       TEXT NOT NULL DEFAULT '', -- The stack of a panic, or what the worker said
    snapshot     ANY, -- What its handler has stored for the next attempt
    percent      INTEGER, -- How much of it is done, as its handler says: 1 to 100
    message      TEXT, -- How far it is, in its handler's words
    died_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was given up
    purge_at     TEXT, -- When it is removed; NULL: never
    kind         TEXT NOT NULL, -- What the job is, which picks the handler
    job_key      TEXT, -- Jobs of one key are done one after the other, in order
    payload      TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin  ANY, -- The same in another codec
    max_attempts INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout      INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace        TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key   TEXT, -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    unique_until TEXT, -- Until when: begin (of its first attempt); NULL: until it has ended
    group_id     INTEGER, -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint     TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    tenant       TEXT, -- Whose job it is, where a queue is shared fairly: see dbcron_queue.fair
    cost         INTEGER, -- For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one
    CONSTRAINT dbcron_job_dead_key PRIMARY KEY (queue_id, id, divided)
) STRICT, WITHOUT ROWID;

CREATE INDEX dbcron_job_dead_purge ON dbcron_job_dead (purge_at);

CREATE TABLE dbcron_job_delayed ( -- Jobs whose time has yet to come, and failed ones that wait for their retry
    queue_id     INTEGER NOT NULL, -- The queue
    divided      INTEGER NOT NULL, -- The block: as in dbcron_job
    id           INTEGER NOT NULL, -- As in dbcron_job
    run_at       TEXT NOT NULL, -- When it is due
    priority     INTEGER NOT NULL DEFAULT 2, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt      INTEGER NOT NULL DEFAULT 0, -- How many attempts there were
    crashes      INTEGER NOT NULL DEFAULT 0, -- How many workers died with it
    stops        INTEGER NOT NULL DEFAULT 0, -- How many workers in a row were stopped within a minute after they had begun it
    stopped_at   TEXT, -- When the last of them handed it back; NULL: none did
    hold_key     TEXT, -- The key whose other jobs wait for this one
    error        TEXT NOT NULL DEFAULT '', -- Why it failed last
    errors       TEXT, -- Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error
    snapshot     ANY, -- What its handler has stored for the next attempt
    percent      INTEGER, -- How much of it is done, as its handler says: 1 to 100
    message      TEXT, -- How far it is, in its handler's words
    kind         TEXT NOT NULL, -- What the job is, which picks the handler
    job_key      TEXT, -- Jobs of one key are done one after the other, in order
    payload      TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin  ANY, -- The same in another codec
    max_attempts INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout      INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace        TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key   TEXT, -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    unique_until TEXT, -- Until when: begin (of its first attempt); NULL: until it has ended
    group_id     INTEGER, -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint     TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    tenant       TEXT, -- Whose job it is, where a queue is shared fairly: see dbcron_queue.fair
    cost         INTEGER, -- For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one
    CONSTRAINT dbcron_job_delayed_key PRIMARY KEY (queue_id, divided, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dbcron_job_delayed_due ON dbcron_job_delayed (queue_id, divided, run_at, id);

CREATE INDEX dbcron_job_delayed_hold ON dbcron_job_delayed (queue_id, divided, hold_key) WHERE hold_key IS NOT NULL;

CREATE INDEX dbcron_job_delayed_stopped ON dbcron_job_delayed (stopped_at) WHERE stopped_at IS NOT NULL;

CREATE TABLE dbcron_job_done ( -- Jobs that are done, of queues that keep them
    queue_id     INTEGER NOT NULL, -- The queue
    id           INTEGER NOT NULL, -- As in dbcron_job
    divided      INTEGER NOT NULL, -- The block that it was in
    priority     INTEGER NOT NULL, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt      INTEGER NOT NULL, -- How many attempts there were
    crashes      INTEGER NOT NULL, -- How many workers died with it
    outcome      TEXT NOT NULL, -- done, discarded (its handler said that it need not be done) or cancelled
    error        TEXT NOT NULL, -- Why it was discarded
    errors       TEXT, -- Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error
    snapshot     ANY, -- What its handler has stored last
    percent      INTEGER, -- How much of it was done then, as its handler said: 1 to 100
    message      TEXT, -- How far it was then, in its handler's words
    result       TEXT, -- What its handler has made of it, JSON
    worker       TEXT NOT NULL, -- The worker that has done it; empty: it was cancelled
    started_at   TEXT NOT NULL, -- When the last attempt began; of a cancelled one, when that was
    ended_at     TEXT NOT NULL, -- When its end was written
    purge_at     TEXT NOT NULL, -- When it is removed
    kind         TEXT NOT NULL, -- What the job is, which picks the handler
    job_key      TEXT, -- Jobs of one key are done one after the other, in order
    payload      TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin  ANY, -- The same in another codec
    max_attempts INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout      INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace        TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key   TEXT, -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    unique_until TEXT, -- Until when: begin (of its first attempt); NULL: until it has ended
    group_id     INTEGER, -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint     TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    tenant       TEXT, -- Whose job it is, where a queue is shared fairly: see dbcron_queue.fair
    cost         INTEGER, -- For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one
    CONSTRAINT dbcron_job_done_key PRIMARY KEY (queue_id, id, divided)
) STRICT, WITHOUT ROWID;

CREATE INDEX dbcron_job_done_purge ON dbcron_job_done (purge_at);

CREATE TABLE dbcron_job_group ( -- Groups of jobs, and the callback of each
    id         INTEGER NOT NULL, -- As ids in dbcron_job
    name       TEXT NOT NULL DEFAULT '', -- For people
    state      TEXT NOT NULL DEFAULT 'open', -- open (it does not end), sealed (it ends as soon as none of its jobs is pending) or done
    callback   TEXT, -- The job that is enqueued when it ends, as JSON; NULL: none
    keep       INTEGER NOT NULL DEFAULT 604800000000, -- How long it is kept after its end, in µs; negative: always
    error      TEXT NOT NULL DEFAULT '', -- Why its callback could not be enqueued
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was made
    ended_at   TEXT, -- When it ended
    purge_at   TEXT, -- When it is removed; NULL: never, or it has not ended
    CONSTRAINT dbcron_job_group_key PRIMARY KEY (id)
) STRICT;

CREATE INDEX dbcron_job_group_purge ON dbcron_job_group (purge_at) WHERE purge_at IS NOT NULL;

CREATE INDEX dbcron_job_group_state ON dbcron_job_group (state, id);

CREATE TABLE dbcron_job_member ( -- The jobs of groups, and what has become of each
    group_id INTEGER NOT NULL, -- The group
    job      INTEGER NOT NULL, -- The job's id
    queue_id INTEGER NOT NULL, -- The queue that it was enqueued in
    kind     TEXT NOT NULL, -- What the job is
    state    TEXT NOT NULL DEFAULT 'pending', -- pending (it has yet to end), done, dead or cancelled
    result   TEXT, -- What its handler has made of it, JSON
    error    TEXT NOT NULL DEFAULT '', -- Why it is dead
    CONSTRAINT dbcron_job_member_key PRIMARY KEY (group_id, job)
) STRICT, WITHOUT ROWID;

CREATE INDEX dbcron_job_member_state ON dbcron_job_member (group_id, state);

CREATE TABLE dbcron_job_refused ( -- Jobs of which the database refuses to write what has become of them, as their workers say
    queue_id INTEGER NOT NULL, -- The queue
    divided  INTEGER NOT NULL, -- The block of the job
    id       INTEGER NOT NULL, -- The job
    kind     TEXT NOT NULL, -- What the job is
    what     TEXT NOT NULL, -- What is refused: done, discarded, retry, dead, check-out (a row in dbcron_job_running), claim (of a worker that does jobs at most once) or forward (to a new block)
    error    TEXT NOT NULL, -- Why, in the words of the database
    worker   TEXT NOT NULL, -- The worker that has the job, and goes on trying
    tries    INTEGER NOT NULL, -- How often it was refused
    first_at TEXT NOT NULL, -- When it was refused first
    last_at  TEXT NOT NULL, -- When its worker wrote this last, once a minute
    CONSTRAINT dbcron_job_refused_key PRIMARY KEY (queue_id, divided, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dbcron_job_refused_last ON dbcron_job_refused (last_at);

CREATE TABLE dbcron_job_running ( -- Jobs that have been running for longer than a second, or that may have ended their worker
    queue_id     INTEGER NOT NULL, -- The queue
    divided      INTEGER NOT NULL, -- The block: as in dbcron_job
    id           INTEGER NOT NULL, -- As in dbcron_job
    priority     INTEGER NOT NULL DEFAULT 2, -- 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    attempt      INTEGER NOT NULL DEFAULT 0, -- How many attempts there were
    crashes      INTEGER NOT NULL DEFAULT 0, -- How many workers died with it
    losses       INTEGER NOT NULL DEFAULT 0, -- How many workers lost their leases while it was running, and live
    charged      TEXT NOT NULL DEFAULT '', -- The workers whose loss counts in crashes, by the ends of their names: one that lives takes its own back
    state        TEXT NOT NULL DEFAULT 'running', -- running, suspect (a worker died while it ran, so it waits to run alone), alone (its worker runs nothing beside it), or handed (its worker has ended and left it to others)
    lock_by      TEXT NOT NULL, -- The worker that runs it
    fence        INTEGER NOT NULL DEFAULT 0, -- Of the block, when it was taken
    started_at   TEXT, -- When the attempt began
    expire_at    TEXT, -- When others may take it; NULL: when its worker is lost
    error        TEXT NOT NULL DEFAULT '', -- Why it failed last
    errors       TEXT, -- Why attempts failed, the newest first: µs since 1970, the number of the attempt, its error
    snapshot     ANY, -- What its handler has stored for the next attempt
    percent      INTEGER, -- How much of it is done, as its handler says: 1 to 100
    message      TEXT, -- How far it is, in its handler's words
    kind         TEXT NOT NULL, -- What the job is, which picks the handler
    job_key      TEXT, -- Jobs of one key are done one after the other, in order
    payload      TEXT CHECK (json_valid(payload)), -- What the job is about, JSON as it was given
    payload_bin  ANY, -- The same in another codec
    max_attempts INTEGER, -- After so many failed attempts the job is dead; NULL: the queue says
    timeout      INTEGER, -- How long an attempt may take, in µs; NULL: the queue says
    trace        TEXT, -- The trace that the job belongs to, a W3C traceparent
    unique_key   TEXT, -- What no other job of the queue may have meanwhile: see dbcron_job_unique
    unique_until TEXT, -- Until when: begin (of its first attempt); NULL: until it has ended
    group_id     INTEGER, -- The group that the job belongs to, see dbcron_job_group; negative: the group whose callback it is
    endpoint     TEXT, -- Where a dispatcher sends the job, a URL; NULL: where the queue says, see dbcron_endpoint
    tenant       TEXT, -- Whose job it is, where a queue is shared fairly: see dbcron_queue.fair
    cost         INTEGER, -- For how many jobs it counts at rates of limits and in the turns of tenants; NULL: for one
    CONSTRAINT dbcron_job_running_key PRIMARY KEY (queue_id, divided, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_job_unique ( -- Keys that are in use: a job is not enqueued whose key another one of its queue has
    queue_id   INTEGER NOT NULL, -- The queue
    unique_key TEXT NOT NULL, -- Compared by bytes
    job        INTEGER NOT NULL, -- The id of the job that has it
    pending    TEXT NOT NULL DEFAULT 'yes', -- Whether that job has yet to end: yes or no
    free_at    TEXT, -- Until when it is in use in any case; NULL: until the job has ended
    wait_until TEXT, -- Up to when a later job may replace that job, which begins then; NULL: none may
    CONSTRAINT dbcron_job_unique_key PRIMARY KEY (unique_key, queue_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX dbcron_job_unique_free ON dbcron_job_unique (free_at) WHERE free_at IS NOT NULL;

CREATE TABLE dbcron_lock ( -- Who may work: a row for each lock and each slot of a pool. Rows are made on first use
    name         TEXT NOT NULL, -- Compared by bytes
    slot         INTEGER NOT NULL DEFAULT 0, -- 0: a lock, or the head of a pool; from 1 on: a slot of the pool
    state        TEXT NOT NULL DEFAULT 'FREE', -- FREE, LOCK (taken), EXTEND (taken and renewed since), POOL (head of a pool), CLOSED (slot that the pool no longer has)
    lock_by      TEXT NOT NULL DEFAULT '', -- Its holder, also the last one: host:pid:random
    lock_at      TEXT, -- When it was last taken
    expire_at    TEXT, -- When others may take it, in LOCK and EXTEND
    released_at  TEXT, -- When its holder gave it up; NULL: not, so it is held or has expired
    fence        INTEGER NOT NULL DEFAULT 0, -- Rises whenever it is taken, and never falls
    extends      INTEGER NOT NULL DEFAULT 0, -- How often its holder has renewed it
    takeovers    INTEGER NOT NULL DEFAULT 0, -- How often it was taken because a lease had run out
    meta         TEXT NOT NULL DEFAULT '', -- What its holder says about itself
    session      TEXT NOT NULL DEFAULT '', -- Elections: the session lock that its holder has as well
    forced_by    TEXT NOT NULL DEFAULT '', -- Who last released it by force
    forced_fence INTEGER, -- The fence of the lease that was ended so
    forced_at    TEXT, -- When
    forced_why   TEXT NOT NULL DEFAULT '', -- Why, and whose it was
    insert_time  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_lock_key PRIMARY KEY (name, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_lock_fence ( -- What keeps late holders out of guarded transactions; apart from the locks, so that a long transaction does not keep its own lease from being renewed
    name   TEXT NOT NULL, -- Of the lock; the empty name stands for all locks whose rows were purged
    slot   INTEGER NOT NULL DEFAULT 0, -- Of the lock
    fence  INTEGER NOT NULL DEFAULT 0, -- The highest that has guarded a transaction, or, of the empty name, that was purged
    guards INTEGER NOT NULL DEFAULT 0, -- How often the row was used
    CONSTRAINT dbcron_lock_fence_key PRIMARY KEY (name, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_migration (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    version_id INTEGER NOT NULL,
    is_applied INTEGER NOT NULL,
    tstamp TIMESTAMP DEFAULT (datetime('now'))
);

CREATE TABLE dbcron_migration_checksum ( -- What each migration that has run consisted of
    version  INTEGER PRIMARY KEY, -- Number of a migration
    checksum TEXT NOT NULL -- SHA-256 of the statements that it ran, so that no program takes the tables of another build for its own
) STRICT;

CREATE TABLE dbcron_node ( -- The processes that take part. What a worker holds is its own for as long as its row says live
    name       TEXT NOT NULL, -- host:pid:random
    version    TEXT NOT NULL DEFAULT '', -- Version of the program, as it reports it; empty: not reported
    tags       TEXT NOT NULL DEFAULT '', -- Of a daemon that runs schedules: their tags, separated by commas
    state      TEXT NOT NULL DEFAULT 'live', -- live, lost (it was not heard of until expire_at) or gone (it has ended)
    expire_at  TEXT, -- When others may take what it has, unless it is heard of before
    heartbeats INTEGER NOT NULL DEFAULT 0, -- How often it was heard of
    started_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it started
    drained_at TEXT, -- Since when it takes no new work, and finishes what it has; NULL: it takes work
    drained_by TEXT NOT NULL DEFAULT '', -- Who drained it
    problem    TEXT NOT NULL DEFAULT '', -- What fails in the process now, in its own words; empty: nothing that it knows of
    under      TEXT NOT NULL DEFAULT '', -- The lock under which it works: whoever gets that after it takes over what it has; empty: none
    bell_at    TEXT NOT NULL DEFAULT '', -- Where it hears of new jobs, an address and a port of UDP; empty: nowhere
    bell_key   TEXT NOT NULL DEFAULT '', -- The key that signs what is sent there
    CONSTRAINT dbcron_node_key PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_notice ( -- Current problems and who was notified: a row from the first failure until the recovery was sent
    subject  TEXT NOT NULL, -- schedule; dead (letters of a queue); behind (a queue whose oldest job waits too long)
    name     TEXT NOT NULL, -- Name of the schedule or the queue
    problem  TEXT NOT NULL, -- failed, timeout, lost, missed, late, slow or given-up; dead or behind
    detail   TEXT NOT NULL, -- The reason in words
    target   TEXT NOT NULL, -- Who is notified, separated by blanks; empty: as the daemons say
    run_id   INTEGER NOT NULL, -- The newest run that failed; 0: none
    due_at   TEXT, -- The slot of that run: a later one that ends well is the recovery
    times    INTEGER NOT NULL, -- Number of failures since the last success; of dead letters: their number
    begun_at TEXT NOT NULL, -- The first failure
    last_at  TEXT NOT NULL, -- The newest failure
    tell_at  TEXT, -- Since when there is something to send; NULL: nothing new
    told_at  TEXT, -- When it was sent; NULL: not yet
    well_at  TEXT, -- When the recovery was seen; NULL: not recovered
    told_to  TEXT NOT NULL DEFAULT '', -- Who was notified, and will be notified of the recovery
    CONSTRAINT dbcron_notice_key PRIMARY KEY (subject, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX dbcron_notice_tell ON dbcron_notice (tell_at);

CREATE TABLE dbcron_notice_target ( -- How many notifications each target was recently sent
    target  TEXT NOT NULL, -- An address or a URL; empty: the row that a daemon locks while it gathers notifications
    sent_at TEXT NOT NULL, -- When the last message was made; of the empty target: when schedules and queues were last checked
    hour_at TEXT NOT NULL, -- Start of the hour in which messages are counted
    sent    INTEGER NOT NULL, -- Number of messages in this hour
    CONSTRAINT dbcron_notice_target_key PRIMARY KEY (target)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER dbcron_queue_durations_new BEFORE INSERT ON dbcron_queue BEGIN
    SELECT RAISE(ABORT, 'dbcron_queue: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: max_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.max_timeout NOT IN ('', 'none', 'forever') AND (NEW.max_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.max_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: keep_dead is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_dead NOT IN ('', 'none', 'forever') AND (NEW.keep_dead GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_dead NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: keep_done is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_done NOT IN ('', 'none', 'forever') AND (NEW.keep_done GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_done NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: poll_min is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_min NOT IN ('', 'none', 'forever') AND (NEW.poll_min GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_min NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: poll_max is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_max NOT IN ('', 'none', 'forever') AND (NEW.poll_max GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_max NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TRIGGER dbcron_queue_durations_set BEFORE UPDATE OF retry_delay, retry_max_delay, timeout, max_timeout, keep_dead, keep_done, poll_min, poll_max ON dbcron_queue BEGIN
    SELECT RAISE(ABORT, 'dbcron_queue: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: max_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.max_timeout NOT IN ('', 'none', 'forever') AND (NEW.max_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.max_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: keep_dead is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_dead NOT IN ('', 'none', 'forever') AND (NEW.keep_dead GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_dead NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: keep_done is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_done NOT IN ('', 'none', 'forever') AND (NEW.keep_done GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_done NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: poll_min is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_min NOT IN ('', 'none', 'forever') AND (NEW.poll_min GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_min NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_queue: poll_max is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.poll_max NOT IN ('', 'none', 'forever') AND (NEW.poll_max GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.poll_max NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TRIGGER dbcron_queue_words_new BEFORE INSERT ON dbcron_queue BEGIN
    SELECT RAISE(ABORT, 'dbcron_queue: state is none of active, paused, deleted') WHERE NEW.state NOT IN ('active', 'paused', 'deleted');
    SELECT RAISE(ABORT, 'dbcron_queue: ordered is none of no, yes') WHERE NEW.ordered NOT IN ('no', 'yes');
    SELECT RAISE(ABORT, 'dbcron_queue: key_retry is none of hold, pass') WHERE NEW.key_retry NOT IN ('hold', 'pass');
    SELECT RAISE(ABORT, 'dbcron_queue: fair is none of no, yes') WHERE NEW.fair NOT IN ('no', 'yes');
END;

CREATE TRIGGER dbcron_queue_words_set BEFORE UPDATE OF state, ordered, key_retry, fair ON dbcron_queue BEGIN
    SELECT RAISE(ABORT, 'dbcron_queue: state is none of active, paused, deleted') WHERE NEW.state NOT IN ('active', 'paused', 'deleted');
    SELECT RAISE(ABORT, 'dbcron_queue: ordered is none of no, yes') WHERE NEW.ordered NOT IN ('no', 'yes');
    SELECT RAISE(ABORT, 'dbcron_queue: key_retry is none of hold, pass') WHERE NEW.key_retry NOT IN ('hold', 'pass');
    SELECT RAISE(ABORT, 'dbcron_queue: fair is none of no, yes') WHERE NEW.fair NOT IN ('no', 'yes');
END;

CREATE TABLE dbcron_queue ( -- The queues and what is set for each. Rows are made on first use and never removed
    queue_id        INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each queue
    name            TEXT NOT NULL, -- Compared by bytes
    state           TEXT NOT NULL DEFAULT 'active', -- active, paused (jobs are taken, and wait) or deleted
    reason          TEXT NOT NULL DEFAULT '', -- Why it is paused, and by whom
    ordered         TEXT NOT NULL DEFAULT 'no', -- Whether it has had jobs with keys: yes or no
    key_retry       TEXT NOT NULL DEFAULT 'hold', -- When a job of a key waits for its retry, the next ones of the key hold or pass
    fair            TEXT NOT NULL DEFAULT 'no', -- Whether the tenants of its jobs have equal turns, or those of dbcron_queue_share: yes or no
    max_attempts    INTEGER NOT NULL DEFAULT 10, -- After so many failed attempts a job is dead
    max_crashes     INTEGER NOT NULL DEFAULT 3, -- After so many workers died with a job it is dead
    retry_delay     TEXT NOT NULL DEFAULT '10s', -- Before the second attempt; doubles with each further one
    retry_max_delay TEXT NOT NULL DEFAULT '1h', -- Between two attempts at the most
    timeout         TEXT NOT NULL DEFAULT '', -- How long an attempt may take; empty: as long as it likes
    max_timeout     TEXT NOT NULL DEFAULT '1h', -- The longest timeout that a job may bring, unless that of the queue is longer; empty: any
    origin_share    INTEGER NOT NULL DEFAULT 50, -- Of a queue that is pushed: the percentage of its slots that jobs with their own endpoints may have for one origin, while there are jobs for others
    max_payload     INTEGER NOT NULL DEFAULT 1048576, -- How many bytes a payload may have
    keep_dead       TEXT NOT NULL DEFAULT '90d', -- How long dead jobs are kept; forever: always
    keep_dead_max   INTEGER NOT NULL DEFAULT 0, -- How many dead jobs are kept, about; 0: all, for as long as keep_dead says
    keep_done       TEXT NOT NULL DEFAULT '', -- How long jobs that are done are kept; empty: they are not
    poll_min        TEXT NOT NULL DEFAULT '2ms', -- How soon it is looked again after there was something, where nobody is notified
    poll_max        TEXT NOT NULL DEFAULT '250ms', -- How long it is waited between two looks at the most
    notify          TEXT NOT NULL DEFAULT '', -- Who is notified when it has dead letters or is behind: addresses and URLs separated by blanks or commas, or none; empty: as the daemons say
    insert_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_queue_name UNIQUE (name),
    -- As on the other engines, where the type says so. Rows of other tables, and programs, have 32 bits for it.
    CONSTRAINT dbcron_queue_number CHECK (queue_id BETWEEN 1 AND 2147483647)
) STRICT;

CREATE TABLE dbcron_queue_block ( -- Which worker has which block of a queue's jobs. Their number is that of the newest generation's rows
    queue_id    INTEGER NOT NULL, -- The queue
    divided     INTEGER NOT NULL, -- The block: dbcron_job.divided
    generation  INTEGER NOT NULL DEFAULT 1, -- Grows when the number of blocks is changed; new jobs go to the newest
    fifo        TEXT NOT NULL DEFAULT 'no', -- Whether its jobs run one after the other, as if they had one key: yes or no
    state       TEXT NOT NULL DEFAULT 'FREE', -- FREE or LEASED
    lock_by     TEXT NOT NULL DEFAULT '', -- The worker that has it, or had it last: host:pid:random, see dbcron_node
    lock_at     TEXT, -- When it was last taken
    fence       INTEGER NOT NULL DEFAULT 0, -- Rises whenever it is taken
    batch       INTEGER NOT NULL DEFAULT 100, -- How many jobs its worker reads at a time: so many may have ended it
    suspects    INTEGER NOT NULL DEFAULT 0, -- How often in a row its worker died with it
    for_kind    TEXT NOT NULL DEFAULT '', -- The kind of job for which its last holder handed it to workers of that kind; empty: any worker
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    CONSTRAINT dbcron_queue_block_key PRIMARY KEY (queue_id, divided)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER dbcron_queue_limit_durations_new BEFORE INSERT ON dbcron_queue_limit BEGIN
    SELECT RAISE(ABORT, 'dbcron_queue_limit: rate_per is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.rate_per NOT IN ('', 'none', 'forever') AND (NEW.rate_per GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.rate_per NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TRIGGER dbcron_queue_limit_durations_set BEFORE UPDATE OF rate_per ON dbcron_queue_limit BEGIN
    SELECT RAISE(ABORT, 'dbcron_queue_limit: rate_per is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.rate_per NOT IN ('', 'none', 'forever') AND (NEW.rate_per GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.rate_per NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TABLE dbcron_queue_limit ( -- How many jobs may run at a time, and begin in a time, over all workers
    queue_id      INTEGER NOT NULL, -- The queue
    kind          TEXT NOT NULL DEFAULT '', -- Of the jobs, compared by bytes; empty: all of the queue together
    tenant        TEXT NOT NULL DEFAULT '', -- Of which tenant's jobs, compared by bytes: *: of each tenant without a row of its own; kind is empty then. Empty: of all, together
    max_running   INTEGER, -- How many may run at a time; NULL: any number
    rate          INTEGER, -- How many may begin in rate_per; NULL: any number
    rate_per      TEXT NOT NULL DEFAULT '1s', -- A duration, such as 1s or 1m
    burst         INTEGER NOT NULL DEFAULT 1, -- How many may begin at once after a pause
    drawn_at      TEXT, -- Until when the rate has been used up; what is in the past may be used
    drawn_ahead   INTEGER NOT NULL DEFAULT 0, -- For how many jobs drawn_at was in the future when it was written: nobody waits longer than for these at the present rate
    waiting_by    TEXT NOT NULL DEFAULT '', -- A worker that waits for a permit
    waiting_until TEXT, -- Until when it is taken to wait
    insert_time   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_queue_limit_key PRIMARY KEY (queue_id, kind, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_queue_permit ( -- Permits to run a job that is limited: as many as the limit's max_running, made when they are first needed
    queue_id INTEGER NOT NULL, -- The queue
    kind     TEXT NOT NULL DEFAULT '', -- As in dbcron_queue_limit
    tenant   TEXT NOT NULL DEFAULT '', -- As in dbcron_queue_limit, but never *. Rows of a tenant exist while a worker has them
    slot     INTEGER NOT NULL, -- From 0
    state    TEXT NOT NULL DEFAULT 'FREE', -- FREE or LEASED
    lock_by  TEXT NOT NULL DEFAULT '', -- The worker that has it, or had it last: see dbcron_node
    lock_at  TEXT, -- When it was last taken
    fence    INTEGER NOT NULL DEFAULT 0, -- Rises whenever it is taken
    CONSTRAINT dbcron_queue_permit_key PRIMARY KEY (queue_id, kind, tenant, slot)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_queue_share ( -- Tenants of fair queues that have more than one turn
    queue_id    INTEGER NOT NULL, -- The queue
    tenant      TEXT NOT NULL, -- Of the jobs, compared by bytes
    weight      INTEGER NOT NULL, -- How many turns it has while one without a row here has one
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_queue_share_key PRIMARY KEY (queue_id, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_queue_tenant ( -- What workers have to know of the jobs of a tenant that is limited: made when it is first needed, and removed when it says nothing any more
    queue_id      INTEGER NOT NULL, -- The queue
    tenant        TEXT NOT NULL, -- Of the jobs, compared by bytes
    drawn_at      TEXT, -- As in dbcron_queue_limit
    drawn_ahead   INTEGER NOT NULL DEFAULT 0, -- As in dbcron_queue_limit
    full_at       TEXT, -- When there is a full burst again, so that drawn_at says nothing any more
    waiting_by    TEXT NOT NULL DEFAULT '', -- A worker that waits for a permit
    waiting_until TEXT, -- Until when it is taken to wait
    insert_time   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    CONSTRAINT dbcron_queue_tenant_key PRIMARY KEY (queue_id, tenant)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_queue_worker ( -- Which processes work on which queue, to share its blocks
    queue_id INTEGER NOT NULL, -- The queue
    node     TEXT NOT NULL, -- The process
    kinds    TEXT, -- The kinds of jobs that it handles, as a JSON array; NULL: all
    busy     INTEGER NOT NULL DEFAULT 0, -- 0: it takes blocks. 1: all that it may do at a time are jobs that take long; it leaves blocks to others. 2: it moves jobs to another queue; others leave it all blocks. 3: its handlers wait for connections of their pool; it leaves blocks to others, as with 1
    CONSTRAINT dbcron_queue_worker_key PRIMARY KEY (queue_id, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_route ( -- Where jobs go that name no queue. Those of a kind without a row: to that of *, or else to the queue default
    kind        TEXT NOT NULL, -- Of the jobs, compared by bytes; *: all kinds without a row of their own
    queue       TEXT NOT NULL, -- The queue's name
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    update_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_route_key PRIMARY KEY (kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_run ( -- What became of each slot: one row for each attempt, or for a stretch of slots that did not run
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each row
    schedule    TEXT NOT NULL, -- Name of the schedule; the row stays when the schedule goes
    due_at      TEXT NOT NULL, -- The slot
    attempt     INTEGER NOT NULL, -- 1, or more after a crash or a failure
    due_to      TEXT, -- skipped and missed: the last slot of the stretch that due_at begins
    slots       INTEGER NOT NULL DEFAULT 1, -- skipped and missed: how many slots the stretch has; of those found at once, 10000 at the most are counted
    cause       TEXT NOT NULL DEFAULT 'slot', -- Why it is run: slot, hand (run now), backfill or chain
    by_run      INTEGER, -- Of the first attempt of a chain: the run that started it; NULL: none
    lane        TEXT NOT NULL DEFAULT 'default', -- Of the schedule, when the run was made
    state       TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'retry', 'ok', 'failed', 'timeout', 'lost', 'cancelled', 'skipped', 'missed')), -- waiting (for its time, or for the run before), running, retry (handed back), ok, failed, timeout, lost (its daemon died), cancelled, skipped (by policy), missed (no daemon ran)
    exec_by     TEXT NOT NULL DEFAULT '', -- The daemon: host:pid:random
    claim       TEXT, -- Token of the transaction that claimed the run; NULL once it has ended
    fence       INTEGER NOT NULL DEFAULT 0, -- Larger than that of every attempt of the schedule that began before
    next_exec   TEXT, -- When a daemon may take it: waiting: its time; running: the end of its lease; NULL once it has ended
    renewals    INTEGER NOT NULL DEFAULT 0, -- How often the lease was renewed
    failures    INTEGER NOT NULL DEFAULT 0, -- Attempts at the slot that have failed before this one
    crashes     INTEGER NOT NULL DEFAULT 0, -- Attempts at the slot that were lost before this one
    stops       INTEGER NOT NULL DEFAULT 0, -- How many daemons in a row were stopped within a minute after they had begun this slot
    cancel      TEXT, -- Somebody wants the run to end, and why; NULL: nobody does
    started_at  TEXT, -- When the attempt began
    finished_at TEXT, -- When it ended, or was given up
    exit_code   INTEGER, -- Of a command, 128 + signal if a signal ended it; of a request, its status
    error       TEXT NOT NULL DEFAULT '', -- Why it did not end well
    output      TEXT NOT NULL DEFAULT '', -- Standard output and error, head and tail
    purge_at    TEXT, -- When the row is removed from the history; NULL: never, or it has not ended
    CONSTRAINT dbcron_run_slot UNIQUE (schedule, due_at, attempt),
    CONSTRAINT dbcron_run_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT dbcron_run_due_to CHECK (due_to BETWEEN '1971-01-01' AND '9999-12-30' AND due_to IS strftime('%Y-%m-%d %H:%M:%f', due_to)),
    CONSTRAINT dbcron_run_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT dbcron_run_started_at CHECK (started_at BETWEEN '1971-01-01' AND '9999-12-30' AND started_at IS strftime('%Y-%m-%d %H:%M:%f', started_at)),
    CONSTRAINT dbcron_run_finished_at CHECK (finished_at BETWEEN '1971-01-01' AND '9999-12-30' AND finished_at IS strftime('%Y-%m-%d %H:%M:%f', finished_at))
) STRICT;

CREATE INDEX dbcron_run_next ON dbcron_run (lane, next_exec) WHERE next_exec IS NOT NULL;

CREATE INDEX dbcron_run_open ON dbcron_run (schedule) WHERE next_exec IS NOT NULL;

CREATE INDEX dbcron_run_purge ON dbcron_run (purge_at) WHERE purge_at IS NOT NULL;

CREATE TRIGGER dbcron_schedule_durations_new BEFORE INSERT ON dbcron_schedule BEGIN
    SELECT RAISE(ABORT, 'dbcron_schedule: missed_window is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.missed_window NOT IN ('', 'none', 'forever') AND (NEW.missed_window GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.missed_window NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: stall is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.stall NOT IN ('', 'none', 'forever') AND (NEW.stall GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.stall NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: kill_grace is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.kill_grace NOT IN ('', 'none', 'forever') AND (NEW.kill_grace GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.kill_grace NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: linger is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.linger NOT IN ('', 'none', 'forever') AND (NEW.linger GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.linger NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: jitter is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.jitter NOT IN ('', 'none', 'forever') AND (NEW.jitter GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.jitter NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: keep_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_for NOT IN ('', 'none', 'forever') AND (NEW.keep_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_for NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: job_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_timeout NOT IN ('', 'none', 'forever') AND (NEW.job_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: job_unique_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_unique_for NOT IN ('', 'none', 'forever') AND (NEW.job_unique_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_unique_for NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TRIGGER dbcron_schedule_durations_set BEFORE UPDATE OF missed_window, retry_delay, retry_max_delay, timeout, stall, kill_grace, linger, jitter, keep_for, job_timeout, job_unique_for ON dbcron_schedule BEGIN
    SELECT RAISE(ABORT, 'dbcron_schedule: missed_window is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.missed_window NOT IN ('', 'none', 'forever') AND (NEW.missed_window GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.missed_window NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: retry_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: retry_max_delay is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.retry_max_delay NOT IN ('', 'none', 'forever') AND (NEW.retry_max_delay GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.retry_max_delay NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.timeout NOT IN ('', 'none', 'forever') AND (NEW.timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: stall is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.stall NOT IN ('', 'none', 'forever') AND (NEW.stall GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.stall NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: kill_grace is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.kill_grace NOT IN ('', 'none', 'forever') AND (NEW.kill_grace GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.kill_grace NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: linger is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.linger NOT IN ('', 'none', 'forever') AND (NEW.linger GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.linger NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: jitter is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.jitter NOT IN ('', 'none', 'forever') AND (NEW.jitter GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.jitter NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: keep_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.keep_for NOT IN ('', 'none', 'forever') AND (NEW.keep_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.keep_for NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: job_timeout is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_timeout NOT IN ('', 'none', 'forever') AND (NEW.job_timeout GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_timeout NOT GLOB '[0-9.]*[wdhms]');
    SELECT RAISE(ABORT, 'dbcron_schedule: job_unique_for is not a duration; write for example 500ms, 90s, 1h30m or 30d')
        WHERE NEW.job_unique_for NOT IN ('', 'none', 'forever') AND (NEW.job_unique_for GLOB '*[^0-9.wdhmunsµμ]*' OR NEW.job_unique_for NOT GLOB '[0-9.]*[wdhms]');
END;

CREATE TRIGGER dbcron_schedule_words_new BEFORE INSERT ON dbcron_schedule BEGIN
    SELECT RAISE(ABORT, 'dbcron_schedule: dst is none of vixie, wall') WHERE NEW.dst NOT IN ('', 'vixie', 'wall');
    SELECT RAISE(ABORT, 'dbcron_schedule: missed is none of skip, once, all') WHERE NEW.missed NOT IN ('', 'skip', 'once', 'all');
    SELECT RAISE(ABORT, 'dbcron_schedule: overlap is none of forbid, allow, queue, replace') WHERE NEW.overlap NOT IN ('', 'forbid', 'allow', 'queue', 'replace');
    SELECT RAISE(ABORT, 'dbcron_schedule: first_run is none of next, now') WHERE NEW.first_run NOT IN ('', 'next', 'now');
    SELECT RAISE(ABORT, 'dbcron_schedule: retry_past_next is none of no, yes') WHERE NEW.retry_past_next NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, 'dbcron_schedule: repeatable is none of no, yes') WHERE NEW.repeatable NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, 'dbcron_schedule: job_priority is none of 1, 2, 3, 4') WHERE NEW.job_priority NOT IN (1, 2, 3, 4);
    SELECT RAISE(ABORT, 'dbcron_schedule: job_unique_until is none of end, begin') WHERE NEW.job_unique_until NOT IN ('', 'end', 'begin');
END;

CREATE TRIGGER dbcron_schedule_words_set BEFORE UPDATE OF dst, missed, overlap, first_run, retry_past_next, repeatable, job_priority, job_unique_until ON dbcron_schedule BEGIN
    SELECT RAISE(ABORT, 'dbcron_schedule: dst is none of vixie, wall') WHERE NEW.dst NOT IN ('', 'vixie', 'wall');
    SELECT RAISE(ABORT, 'dbcron_schedule: missed is none of skip, once, all') WHERE NEW.missed NOT IN ('', 'skip', 'once', 'all');
    SELECT RAISE(ABORT, 'dbcron_schedule: overlap is none of forbid, allow, queue, replace') WHERE NEW.overlap NOT IN ('', 'forbid', 'allow', 'queue', 'replace');
    SELECT RAISE(ABORT, 'dbcron_schedule: first_run is none of next, now') WHERE NEW.first_run NOT IN ('', 'next', 'now');
    SELECT RAISE(ABORT, 'dbcron_schedule: retry_past_next is none of no, yes') WHERE NEW.retry_past_next NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, 'dbcron_schedule: repeatable is none of no, yes') WHERE NEW.repeatable NOT IN ('', 'no', 'yes');
    SELECT RAISE(ABORT, 'dbcron_schedule: job_priority is none of 1, 2, 3, 4') WHERE NEW.job_priority NOT IN (1, 2, 3, 4);
    SELECT RAISE(ABORT, 'dbcron_schedule: job_unique_until is none of end, begin') WHERE NEW.job_unique_until NOT IN ('', 'end', 'begin');
END;

CREATE TABLE dbcron_schedule ( -- What runs when. A row with next_exec NULL and state active is planned by the next daemon
    id               INTEGER PRIMARY KEY AUTOINCREMENT, -- Grows with each schedule that is made
    name             TEXT NOT NULL, -- Compared by bytes; in the history of runs too
    source           TEXT, -- The file that the schedule comes from, which alone changes or removes it; NULL: made by hand
    source_key       TEXT, -- What the schedule is recognized by in its source
    spec             TEXT NOT NULL, -- Five cron fields, or a macro such as @daily or @every 90s
    time_zone        TEXT NOT NULL DEFAULT 'UTC', -- Zone of the tz database that the spec is read in
    dst              TEXT NOT NULL DEFAULT 'vixie', -- When clocks change: vixie (fixed times run once) or wall (as the wall clock shows)
    kind             TEXT NOT NULL DEFAULT 'shell' CHECK (kind IN ('shell', 'argv', 'http', 'sql', 'func', 'job')), -- What command is: shell (a line), argv (a JSON array of words), http (METHOD URL), sql (a statement), func (the name of a Go function), job (the kind of a job that is enqueued)
    command          TEXT NOT NULL, -- What is run, with the rights of the daemon; kind says how it is read
    stdin            TEXT NOT NULL DEFAULT '', -- Text for a command's standard input, the body of a request, the input of a function, or the payload of a job (JSON; empty: which slot it is)
    headers          TEXT NOT NULL DEFAULT '{}', -- Of a request, a JSON object of strings
    env              TEXT NOT NULL DEFAULT '{}', -- Its environment beside the defaults, a JSON object of strings; SHELL names the shell
    dir              TEXT NOT NULL DEFAULT '', -- Where a command starts; empty: the daemon says
    run_as           TEXT NOT NULL DEFAULT '', -- The user a command runs as, if the daemon is root; empty: the daemon's
    description      TEXT NOT NULL DEFAULT '', -- What it is for, in words, which changes nothing; of a crontab, the comment above its line
    tag              TEXT NOT NULL DEFAULT 'default', -- Daemons that are given this tag run it
    missed           TEXT NOT NULL DEFAULT 'once', -- Slots that passed while no daemon could run them: skip, once (the newest runs) or all
    missed_window    TEXT NOT NULL DEFAULT '', -- How late a slot may still run, such as 90s or 2h; empty: 1m with skip, else any time
    overlap          TEXT NOT NULL DEFAULT 'forbid', -- A slot that comes while the run before is under way: forbid (skipped), allow, queue or replace
    first_run        TEXT NOT NULL DEFAULT 'next', -- When a new schedule runs first: next (slot) or now
    repeatable       TEXT NOT NULL DEFAULT 'yes', -- no: a run whose daemon died or was stopped is lost, and not run again; else yes
    max_attempts     INTEGER NOT NULL DEFAULT 1, -- How often a slot is tried whose work fails
    retry_delay      TEXT NOT NULL DEFAULT '10s', -- Before the second attempt; doubles with each further one
    retry_max_delay  TEXT NOT NULL DEFAULT '1h', -- Between two attempts at the most
    retry_past_next  TEXT NOT NULL DEFAULT 'no', -- Whether attempts go on when the next slot has come: yes or no
    timeout          TEXT NOT NULL DEFAULT '', -- When a run is ended, such as 15m; empty: never
    stall            TEXT NOT NULL DEFAULT '', -- How long a command may write nothing before it is stopped, such as 5m; empty: no limit
    kill_grace       TEXT NOT NULL DEFAULT '', -- From SIGTERM to SIGKILL; empty: the daemon says
    linger           TEXT NOT NULL DEFAULT '1s', -- How long what a command leaves in the background may run on, and with it the run; forever: as long as it likes
    jitter           TEXT NOT NULL DEFAULT '', -- Slots run up to so much later, to spread them; empty: not at all
    starts_at        TEXT, -- There are no slots before
    ends_at          TEXT, -- There are no slots after
    max_failures     INTEGER NOT NULL DEFAULT 0, -- After so many failed slots in a row the schedule fails; 0: never
    keep_runs        INTEGER NOT NULL DEFAULT 1000, -- How many runs the history keeps, about; -1: all
    keep_for         TEXT NOT NULL DEFAULT '30d', -- How long the history keeps runs; forever: always
    notify           TEXT NOT NULL DEFAULT '', -- Who is notified when it fails: addresses and URLs separated by blanks, or none; empty: as the daemons say
    on_success       TEXT NOT NULL DEFAULT '', -- The schedule that starts when a run of this one has ended well
    on_failure       TEXT NOT NULL DEFAULT '', -- The schedule that starts when a slot of this one has failed for good
    job_queue        TEXT NOT NULL DEFAULT '', -- Of a job: its queue, which is made if there is none; empty: as the route of its kind says
    job_key          TEXT NOT NULL DEFAULT '', -- Of a job: jobs of one key are done one after the other, in order; empty: it waits for nobody
    job_priority     INTEGER NOT NULL DEFAULT 2, -- Of a job: 1 (urgent), 2 (normal), 3 (low) or 4 (idle)
    job_max_attempts INTEGER NOT NULL DEFAULT 0, -- Of a job: after so many failed attempts it is dead; 0: the queue says
    job_timeout      TEXT NOT NULL DEFAULT '', -- Of a job: how long an attempt may take; empty: the queue says
    job_unique       TEXT NOT NULL DEFAULT '', -- Unique key of the job; while a job of the queue has it, slots are skipped; empty: none
    job_unique_for   TEXT NOT NULL DEFAULT '', -- How long the job keeps its unique key at least, such as 24h; empty: until it has ended
    job_unique_until TEXT NOT NULL DEFAULT 'end', -- Until when the job has its unique key: begin (of its first attempt) or end (until it has ended)
    job_tenant       TEXT NOT NULL DEFAULT '', -- Of a job: whose it is, where its queue is shared fairly; empty: nobody's
    job_cost         INTEGER NOT NULL DEFAULT 0, -- Of a job: for how many jobs it counts at rates of limits and in the turns of tenants; 0: for one
    state            TEXT NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'paused', 'ended', 'failed')), -- active, paused, ended (its end is past), or failed (see reason)
    reason           TEXT NOT NULL DEFAULT '', -- Why it is paused or failed
    due_at           TEXT, -- The next slot
    next_exec        TEXT, -- When a daemon may claim that slot
    planned          TEXT, -- From what the slot was planned: spec, time_zone and dst, separated by blanks; NULL: not planned yet
    stale            INTEGER GENERATED ALWAYS AS (CASE WHEN planned <> spec || ' ' || time_zone || ' ' || dst THEN 1 END) VIRTUAL, -- 1: these have changed since, by hand, so a daemon plans it anew; else NULL
    -- Functions and jobs have lanes of their own: only daemons that have the function, or enqueue jobs, look there.
    lane             TEXT GENERATED ALWAYS AS (CASE WHEN kind = 'func' THEN tag || ' func ' || substr(command, 1, 200) WHEN kind = 'job' THEN tag || ' job' ELSE tag END) STORED, -- Which daemons may claim it: the tag and, for a function, its name, or that it is a job
    failures         INTEGER NOT NULL DEFAULT 0, -- Slots that failed in a row
    fence            INTEGER NOT NULL DEFAULT 0, -- Grows with each attempt that begins
    insert_time      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the schedule was made
    update_time      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row last changed
    CONSTRAINT dbcron_schedule_name UNIQUE (name),
    CONSTRAINT dbcron_schedule_source UNIQUE (source, source_key),
    CONSTRAINT dbcron_schedule_due_at CHECK (due_at BETWEEN '1971-01-01' AND '9999-12-30' AND due_at IS strftime('%Y-%m-%d %H:%M:%f', due_at)),
    CONSTRAINT dbcron_schedule_next_exec CHECK (next_exec BETWEEN '1971-01-01' AND '9999-12-30' AND next_exec IS strftime('%Y-%m-%d %H:%M:%f', next_exec)),
    CONSTRAINT dbcron_schedule_starts_at CHECK (starts_at BETWEEN '1971-01-01' AND '9999-12-30' AND starts_at IS strftime('%Y-%m-%d %H:%M:%f', starts_at)),
    CONSTRAINT dbcron_schedule_ends_at CHECK (ends_at BETWEEN '1971-01-01' AND '9999-12-30' AND ends_at IS strftime('%Y-%m-%d %H:%M:%f', ends_at)),
    CONSTRAINT dbcron_schedule_order CHECK (due_at <= next_exec),
    CONSTRAINT dbcron_schedule_named CHECK (name <> '')
) STRICT;

CREATE INDEX dbcron_schedule_next ON dbcron_schedule (state, lane, next_exec);

CREATE INDEX dbcron_schedule_stale ON dbcron_schedule (stale) WHERE stale = 1;

CREATE TABLE dbcron_schedule_boot ( -- Schedules with the spec @reboot that have run for a start of a host
    boot     TEXT NOT NULL, -- The start: its id from the kernel
    schedule TEXT NOT NULL, -- The name of the schedule
    lane     TEXT NOT NULL, -- Lane of its runs, which only daemons of this host have, until its next start
    seen_at  TEXT NOT NULL, -- When a daemon of the host last renewed this row
    CONSTRAINT dbcron_schedule_boot_key PRIMARY KEY (boot, schedule)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_schedule_file ( -- Files from which daemons import schedules, as each last read them
    source  TEXT NOT NULL, -- The source of the schedules: dbcron_schedule.source
    node    TEXT NOT NULL, -- The daemon
    digest  TEXT NOT NULL, -- SHA-256 of the file, in hexadecimal digits
    problem TEXT NOT NULL, -- Why it could not be imported; empty: it was imported
    read_at TEXT NOT NULL, -- When it was read
    CONSTRAINT dbcron_schedule_file_key PRIMARY KEY (source, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_secret ( -- Keys that only daemons know, and all of them share
    name       TEXT NOT NULL, -- What it is for: claims signs the tokens of claimed jobs
    secret     TEXT NOT NULL, -- The key, in base64
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When a daemon made it, the first that needed it
    CONSTRAINT dbcron_secret_key PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;

CREATE TABLE dbcron_token ( -- Who may use the HTTP API: from the first row on nobody may without a token
    name         TEXT NOT NULL, -- For people; compared by bytes
    hash         TEXT NOT NULL, -- SHA-256 of the secret, in hexadecimal digits
    old_hash     TEXT, -- Hash of the previous secret; NULL: there was none, or it ended at once
    old_until    TEXT, -- When the previous secret expires
    scopes       TEXT NOT NULL, -- What it is good for: read, enqueue, work, admin, with commas between
    created_at   TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When it was made
    expires_at   TEXT, -- From when on it is not good any more; NULL: never
    revoked_at   TEXT, -- When it was revoked; NULL: it was not
    last_used_at TEXT, -- When it was used, to a minute; NULL: never
    CONSTRAINT dbcron_token_key PRIMARY KEY (name),
    CONSTRAINT dbcron_token_hash UNIQUE (hash)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX dbcron_token_old_hash ON dbcron_token (old_hash);

CREATE TABLE dbcron_topic_queue ( -- Which queues get a copy of what is published to a topic
    topic       TEXT NOT NULL, -- Compared by bytes
    queue       TEXT NOT NULL, -- The name of the queue
    insert_time TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')), -- When the row was made
    CONSTRAINT dbcron_topic_queue_key PRIMARY KEY (topic, queue)
) STRICT, WITHOUT ROWID;
