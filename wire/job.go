package wire

import "encoding/json"

// A NewJob is a job to enqueue. Only Kind is required.
type NewJob struct {
	Kind        string          `json:"kind" minLength:"1" maxLength:"200" doc:"The kind of the job, which selects its handler."`
	Queue       string          `json:"queue,omitempty" maxLength:"200" doc:"The queue of the job, which is created if there is none. Default: the route of the kind, or else default."`
	Payload     json.RawMessage `json:"payload,omitempty" doc:"The input of the job: any JSON, which is kept byte for byte."`
	Binary      []byte          `json:"payload_base64,omitempty" doc:"The input of the job if it is not JSON, in base64."`
	Key         string          `json:"key,omitempty" maxLength:"200" doc:"The ordering key. Jobs of one queue and key run in order, one after the other."`
	Unique      string          `json:"unique,omitempty" maxLength:"200" doc:"The unique key. As long as a job of the queue has it, no other job with it is enqueued."`
	UniqueFor   Duration        `json:"unique_for,omitempty" maxLength:"40" doc:"The unique key lasts at least this long, even if the job is done before." example:"24h"`
	UniqueUntil string          `json:"unique_until,omitempty" enum:"end,begin" doc:"Until when the job has its unique key. end: until it has ended. begin: until its first attempt begins, so that one more can be enqueued while it runs. Default: end."`
	Debounce    Duration        `json:"debounce,omitempty" maxLength:"40" doc:"The job replaces the one that waits with its unique key: of several changes the newest is done, when there was none for the delay, or at the latest this long after the first one. It needs unique and delay." example:"1m"`
	Tenant      string          `json:"tenant,omitempty" maxLength:"200" doc:"Whose job it is, such as a customer. In a queue that is fair, the tenants that have jobs have equal turns."`
	Cost        int             `json:"cost,omitempty" minimum:"1" maximum:"1000" doc:"For how many jobs the job counts at the rates of limits, and in the turns of tenants. Default: 1."`
	Group       string          `json:"group,omitempty" pattern:"^[1-9][0-9]*$" maxLength:"19" doc:"The id of a group that waits for the job."`
	Priority    string          `json:"priority,omitempty" enum:"urgent,normal,low,idle" doc:"The priority of the job in its queue. Default: normal."`
	Delay       Duration        `json:"delay,omitempty" maxLength:"40" doc:"The job is due this long from now, such as 90s, 1h30m or 30d. Default: at once." example:"90s"`
	RunAt       Instant         `json:"run_at,omitzero" doc:"The job is due at this time, instead of after a delay."`
	MaxAttempts int             `json:"max_attempts,omitempty" minimum:"1" maximum:"1000000" doc:"The job is dead after this many failed attempts. Default: as its queue says."`
	Timeout     Duration        `json:"timeout,omitempty" maxLength:"40" doc:"An attempt fails after this long. Default: as the queue says." example:"30s"`
	Trace       string          `json:"trace,omitempty" maxLength:"512" doc:"A W3C traceparent, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01. Whoever does the job gets it."`
	Endpoint    string          `json:"endpoint,omitempty" maxLength:"1000" doc:"The URL to which the job is sent, if its queue has an endpoint. Default: the queue's URL."`
}

// Enqueued is the result of enqueueing a job.
type Enqueued struct {
	ID      string `json:"id" doc:"The id of the job, or of the job that has its unique key."`
	Queue   string `json:"queue" doc:"The queue of the job."`
	Existed bool   `json:"existed" doc:"Whether another job has, or had, the unique key. Then the id is that job's, and nothing was enqueued."`
}

// A Job is a stored job.
type Job struct {
	ID           string          `json:"id" doc:"The id of the job. Ids grow with the time at which jobs were enqueued."`
	Queue        string          `json:"queue" doc:"The queue of the job."`
	State        string          `json:"state" enum:"ready,delayed,running,dead,done" doc:"ready: it waits for a worker, or began less than a second ago. delayed: it waits for its time or its next attempt. running: a worker does it. dead: it failed too often. done: it ended, and its queue keeps such jobs."`
	Kind         string          `json:"kind" doc:"The kind of the job, which selects its handler."`
	Key          string          `json:"key,omitempty" doc:"The ordering key. Jobs of one queue and key run in order."`
	Priority     string          `json:"priority" enum:"urgent,normal,low,idle" doc:"The priority of the job in its queue."`
	Enqueued     Instant         `json:"enqueued" doc:"When the job was enqueued."`
	At           Instant         `json:"at,omitzero" doc:"When a delayed job is due, since when a running job runs, when a dead job died, or when a done job ended. A ready job has none."`
	Started      Instant         `json:"started,omitzero" doc:"When the last attempt began, of a job that is done."`
	Discarded    bool            `json:"discarded,omitempty" doc:"Whether a job that is done was discarded. Then error says why."`
	Cancelled    bool            `json:"cancelled,omitempty" doc:"Whether a job that is done was cancelled, and so not done."`
	Attempts     int             `json:"attempts" doc:"The number of attempts so far, including the current one of a running job."`
	Crashes      int             `json:"crashes" doc:"The number of workers that died while they did the job."`
	MaxAttempts  int             `json:"max_attempts,omitempty" doc:"The job is dead after this many failed attempts. It is left out if the queue decides."`
	Timeout      Duration        `json:"timeout,omitempty" doc:"An attempt fails after this long. It is left out if the queue decides."`
	Unique       string          `json:"unique,omitempty" doc:"The unique key. No other job of the queue can have it at the same time."`
	UniqueUntil  string          `json:"unique_until,omitempty" enum:"end,begin" doc:"begin: the job has its unique key until its first attempt begins. It is left out if the job has the key until it has ended."`
	Tenant       string          `json:"tenant,omitempty" doc:"Whose job it is, such as a customer."`
	Cost         int             `json:"cost,omitempty" doc:"For how many jobs the job counts at the rates of limits, and in the turns of tenants. It is left out if it is 1."`
	Group        string          `json:"group,omitempty" doc:"The id of the group that waits for the job."`
	CallbackOf   string          `json:"callback_of,omitempty" doc:"The id of the group whose callback the job is."`
	Trace        string          `json:"trace,omitempty" doc:"The W3C traceparent of the job."`
	Endpoint     string          `json:"endpoint,omitempty" doc:"The URL to which the job is sent, if it has one of its own. Only the scope admin sees its query."`
	Progress     *Progress       `json:"progress,omitempty" doc:"The progress that the job's handler has stored."`
	Worker       string          `json:"worker,omitempty" doc:"The worker that does the job, or did it."`
	Block        int             `json:"block" doc:"The block of the queue that the job is in. One worker at a time has a block."`
	Error        string          `json:"error,omitempty" doc:"Why the last attempt failed."`
	Errors       []AttemptError  `json:"errors,omitempty" doc:"The errors of the newest failed attempts, the newest first: the beginnings of those that have room in 4000 characters. Lists leave them out."`
	Detail       string          `json:"detail,omitempty" doc:"The stack of the panic by which a dead job failed."`
	Result       json.RawMessage `json:"result,omitempty" doc:"The result of a job that is done: what its handler has made of it. Lists leave it out."`
	Refused      *Refusal        `json:"refused,omitempty" doc:"The database refuses to store what became of the job, and its worker keeps trying. Lists leave it out."`
	Unreadable   string          `json:"unreadable,omitempty" doc:"Why no worker can ever read the job: somebody has written its row by hand, and a column is wrong."`
	PayloadBytes int             `json:"payload_bytes" doc:"The length of the payload, in bytes."`
	Payload      json.RawMessage `json:"payload,omitempty" doc:"The input of the job, without blanks between its parts. Lists of the API leave it out if it has more than 64 KiB."`
	Binary       []byte          `json:"payload_base64,omitempty" doc:"The input of the job if it is not JSON, in base64."`
}

// An AttemptError is the error of an attempt at a job.
type AttemptError struct {
	Attempt int     `json:"attempt" doc:"The number of the attempt."`
	At      Instant `json:"at" doc:"When its failure was recorded."`
	Error   string  `json:"error" doc:"The error, up to 500 characters."`
}

// A Progress is how far a job's handler has come.
type Progress struct {
	Percent int             `json:"percent,omitempty" doc:"How much is done, from 1 to 100."`
	Message string          `json:"message,omitempty" doc:"A message for people."`
	State   json.RawMessage `json:"state,omitempty" doc:"What the next attempt needs to go on from here. Lists leave it out."`
	Binary  []byte          `json:"state_base64,omitempty" doc:"The same if it is not JSON, in base64."`
}

// A BulkResult says what was done with many jobs of a queue.
type BulkResult struct {
	Action string `json:"action" enum:"retry,cancel,delete" doc:"What was done with the jobs."`
	Queue  string `json:"queue" doc:"The queue of the jobs."`
	State  string `json:"state,omitempty" enum:"ready,delayed,running,dead,done" doc:"The state of the jobs, if it was asked for."`
	DryRun bool   `json:"dry_run" doc:"Whether the jobs were only counted."`
	Done   int    `json:"done" doc:"The number of jobs with which it was done, or would be in a dry run."`
	Gone   int    `json:"gone" doc:"The number of jobs that others ended or moved on meanwhile."`
	InUse  int    `json:"in_use" doc:"The number of dead jobs that stay dead, since another job has their unique key."`
	All    bool   `json:"all" doc:"Whether these were all. If not, there may be more: send it again with the cursor."`

	NextCursor string `json:"next_cursor,omitempty" doc:"If these were not all: send it as cursor, for those of the jobs that are left that were there at the beginning."`
}

// A PurgeResult says how many jobs of a queue were removed.
type PurgeResult struct {
	Removed int            `json:"removed" doc:"The number of jobs that were removed, or would be in a dry run."`
	ByState map[string]int `json:"by_state" doc:"The same number for each state that was looked at."`
	All     bool           `json:"all" doc:"Whether these were all. If not, there may be more: send it again with the cursor."`

	NextCursor string `json:"next_cursor,omitempty" doc:"If these were not all: send it as cursor, for those of the jobs that are left that were there at the beginning."`
}

// A Refusal says that the database refuses to store what became of a job. The job's worker keeps
// trying.
type Refusal struct {
	Job    string  `json:"job,omitempty" doc:"The id of the job, in lists of refusals."`
	Kind   string  `json:"kind,omitempty" doc:"The kind of the job, in lists of refusals."`
	Block  int     `json:"block" doc:"The block of the queue that the job is in."`
	What   string  `json:"what" doc:"The step that is refused: done, discarded, retry, dead, check-out, claim or forward."`
	Error  string  `json:"error" doc:"The error of the database."`
	Since  Instant `json:"since" doc:"When the database refused it first."`
	Tries  int     `json:"tries" doc:"How often it was tried, up to a minute ago."`
	Worker string  `json:"worker" doc:"The worker that has the job."`
}

// A Delivery is a job as whoever does it gets it: by a claim, from an endpoint or as a line of
// dbcron worker exec --batch.
type Delivery struct {
	ID          string          `json:"id" doc:"The id of the job."`
	Queue       string          `json:"queue" doc:"The queue of the job."`
	Kind        string          `json:"kind" doc:"The kind of the job."`
	Key         string          `json:"key,omitempty" doc:"The ordering key of the job."`
	Tenant      string          `json:"tenant,omitempty" doc:"Whose job it is, such as a customer."`
	Priority    string          `json:"priority" enum:"urgent,normal,low,idle" doc:"The priority of the job in its queue."`
	Payload     json.RawMessage `json:"payload,omitempty" doc:"The input of the job, without blanks between its parts."`
	Binary      []byte          `json:"payload_base64,omitempty" doc:"The input of the job if it is not JSON, in base64."`
	Attempt     int             `json:"attempt" doc:"The number of this attempt, from 1."`
	MaxAttempts int             `json:"max_attempts" doc:"The job is dead after this many failed attempts."`
	Crashes     int             `json:"crashes" doc:"The number of workers that died while they did the job."`
	Enqueued    Instant         `json:"enqueued" doc:"When the job was enqueued."`
	Group       string          `json:"group,omitempty" doc:"The id of the group that waits for the job."`
	CallbackOf  string          `json:"callback_of,omitempty" doc:"The id of the group whose callback the job is."`
	Trace       string          `json:"trace,omitempty" doc:"The W3C traceparent of the job."`
}

// Decode reads the payload, which must be JSON, into v.
func (d *Delivery) Decode(v any) error { return json.Unmarshal(d.Payload, v) }

// An Answer is the outcome of one of several jobs, as a command of dbcron worker exec --batch or an endpoint reports it. One
// that has only the job's id means done.
type Answer struct {
	ID         string          `json:"id"`
	Error      *string         `json:"error"`
	RetryAfter string          `json:"retry_after"`
	Dead       bool            `json:"dead"`
	Discard    bool            `json:"discard"`
	Result     json.RawMessage `json:"result"`
}

// A ClaimRequest asks for jobs to do.
type ClaimRequest struct {
	Max   int      `json:"max,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"The greatest number of jobs."`
	Lease Duration `json:"lease,omitempty" maxLength:"40" doc:"The claims last this long without a heartbeat, from 1s to 12h. Default: 30s." example:"30s"`
	Wait  Duration `json:"wait,omitempty" maxLength:"40" doc:"The request waits this long for the first job, up to 30s. Default: none." example:"20s"`
	Kinds []string `json:"kinds,omitempty" minItems:"1" maxItems:"100" nullable:"false" doc:"The kinds of jobs to claim. Others stay for other workers. Default: all kinds." example:"[\"welcome\"]"`
}

// Claimed is the answer to a ClaimRequest.
type Claimed struct {
	Node string  `json:"node" doc:"The daemon that has given the jobs out. Heartbeats and releases go to it."`
	Jobs []Claim `json:"jobs" nullable:"false" doc:"The claimed jobs."`
}

// A Claim is a job that somebody has claimed and does before its lease ends.
type Claim struct {
	Token string `json:"token" doc:"The token of this attempt, by which it is completed, failed, extended and released."`
	Delivery
}

// A CompletedClaim is a claim whose job is done.
type CompletedClaim struct {
	Token  string          `json:"token" minLength:"1" maxLength:"2500" doc:"The token of the claim."`
	Result json.RawMessage `json:"result,omitempty" doc:"The result of the job: any JSON, up to 1 MiB. It is kept with the job, if its queue keeps done jobs, and in its group."`
}

// A FailedClaim is a claim whose job has failed.
type FailedClaim struct {
	Token      string   `json:"token" minLength:"1" maxLength:"2500" doc:"The token of the claim."`
	Error      string   `json:"error,omitempty" maxLength:"100000" doc:"Why the job failed, for people."`
	RetryAfter Duration `json:"retry_after,omitempty" maxLength:"40" doc:"The next attempt begins this long from now, at the earliest. Default: as the queue says." example:"10s"`
	Dead       bool     `json:"dead,omitempty" doc:"Whether the job is dead at once, without another attempt."`
	Discard    bool     `json:"discard,omitempty" doc:"Whether the job is deleted, without another attempt."`
}

// A ClaimToken names a claim.
type ClaimToken struct {
	Token string `json:"token" minLength:"1" maxLength:"2500" doc:"The token of the claim."`
}

// SettledClaims says what happened to claims.
type SettledClaims struct {
	Done int      `json:"done" doc:"The number of claims for which it was done."`
	Lost []string `json:"lost" nullable:"false" doc:"The tokens of claims that do not count any more: their leases have ended, or somebody else has ended them."`
}

// A JobExplanation says why a job waits, or what has become of it, and what to do.
type JobExplanation struct {
	ID     string  `json:"id" doc:"The id of the job."`
	Queue  string  `json:"queue" doc:"The queue of the job."`
	State  string  `json:"state" enum:"ready,delayed,running,dead,done" doc:"The state of the job."`
	Now    Instant `json:"now" doc:"The database's clock."`
	Causes []Cause `json:"causes" nullable:"false" doc:"Why the job does not run, or what has become of it. The one to begin with comes first."`
}

// A Cause is one reason why a job or a schedule does not run.
type Cause struct {
	Why   string  `json:"why" doc:"The cause, in words."`
	Do    string  `json:"what_to_do,omitempty" doc:"What to do about it, in words and commands of dbcron. It is left out if there is nothing to do."`
	Until Instant `json:"until,omitzero" doc:"When the cause ends by itself, if that is known."`
	Job   string  `json:"behind,omitempty" doc:"The id of the job that has to end first, or, of a schedule, of the one that has not been done."`
}
