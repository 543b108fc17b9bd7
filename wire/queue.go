package wire

// A Queue is the settings of a queue. Those without words here are in the table of package queue/admin.
type Queue struct {
	Name          string   `json:"name" doc:"The name of the queue."`
	State         string   `json:"state" enum:"active,paused,deleted" doc:"active: its jobs are done. paused: they wait. deleted: it takes no jobs, until it is set again."`
	Reason        string   `json:"reason,omitempty" doc:"Why the queue is paused, for people."`
	Blocks        int      `json:"blocks" doc:"The number of blocks of the queue, which is how many workers can share it."`
	MaxAttempts   int      `json:"max_attempts"`
	RetryDelay    Duration `json:"retry_delay"`
	RetryMaxDelay Duration `json:"retry_max_delay"`
	KeyRetry      string   `json:"key_retry"`
	FIFO          bool     `json:"fifo"`
	Fair          bool     `json:"fair"`
	Timeout       Duration `json:"timeout"`
	MaxTimeout    Duration `json:"max_timeout"`
	OriginShare   int      `json:"origin_share"`
	MaxCrashes    int      `json:"max_crashes"`
	KeepDead      Duration `json:"keep_dead"`
	KeepDeadMax   Count    `json:"keep_dead_max"`
	KeepDone      Duration `json:"keep_done"`
	MaxPayload    int      `json:"max_payload"`
	PollMin       Duration `json:"poll_min"`
	PollMax       Duration `json:"poll_max"`
	Notify        string   `json:"notify,omitempty"`
}

// A QueueChange is a change of a queue's settings. What is left out stays as it is.
type QueueChange struct {
	Blocks        int      `json:"blocks,omitempty" minimum:"1" maximum:"1000" doc:"The number of blocks of the queue, which is how many workers can share it. A new queue has 16."`
	MaxAttempts   int      `json:"max_attempts,omitempty" minimum:"1" maximum:"1000000"`
	RetryDelay    Duration `json:"retry_delay,omitempty" maxLength:"40" example:"10s"`
	RetryMaxDelay Duration `json:"retry_max_delay,omitempty" maxLength:"40" example:"1h"`
	KeyRetry      string   `json:"key_retry,omitempty"`
	FIFO          *bool    `json:"fifo,omitempty"`
	Fair          *bool    `json:"fair,omitempty"`
	Timeout       Duration `json:"timeout,omitempty" maxLength:"40" example:"30s"`
	MaxTimeout    Duration `json:"max_timeout,omitempty" maxLength:"40" example:"2h"`
	OriginShare   int      `json:"origin_share,omitempty" minimum:"1" maximum:"100"`
	MaxCrashes    int      `json:"max_crashes,omitempty" minimum:"1" maximum:"1000000"`
	KeepDead      Duration `json:"keep_dead,omitempty" maxLength:"40" example:"30d"`
	KeepDeadMax   Count    `json:"keep_dead_max,omitempty" maxLength:"40"`
	KeepDone      Duration `json:"keep_done,omitempty" maxLength:"40" example:"24h"`
	MaxPayload    int      `json:"max_payload,omitempty" minimum:"1" maximum:"1073741824"`
	PollMin       Duration `json:"poll_min,omitempty" maxLength:"40" example:"2ms"`
	PollMax       Duration `json:"poll_max,omitempty" maxLength:"40" example:"250ms"`
	Notify        *string  `json:"notify,omitempty" maxLength:"1000" example:"mailto:ops@example.org"`
}

// QueueCounts are the numbers of a queue's jobs by state.
type QueueCounts struct {
	Ready     int `json:"ready" doc:"The number of jobs that wait for a worker, or began less than a second ago."`
	Delayed   int `json:"delayed" doc:"The number of jobs that wait for their time or their next attempt."`
	Running   int `json:"running" doc:"The number of jobs that have been running for more than a second."`
	Dead      int `json:"dead" doc:"The number of jobs that failed too often."`
	Done      int `json:"done" doc:"The number of jobs that are done and kept."`
	CountedTo int `json:"counted_to" doc:"How far jobs of a state are counted. A number that is equal to it means that many, or more."`
}

// A QueueStatus is a queue, its jobs, and how fast they come and go.
type QueueStatus struct {
	Queue
	QueueCounts
	Oldest   *float64 `json:"oldest_ready_seconds,omitempty" doc:"How long the oldest ready job has waited, in seconds. It is left out if none is ready."`
	In       *float64 `json:"in_per_minute,omitempty" doc:"The number of jobs that came in per minute, an estimate over the last ten minutes. It is left out if there are too many to be counted."`
	Out      float64  `json:"out_per_minute" doc:"The number of jobs that ended per minute, over the last ten minutes."`
	Empty    *float64 `json:"empty_seconds,omitempty" doc:"The time until no job waits if it goes on like that, in seconds. It is left out if that is never, or unknown."`
	EmptyIn  string   `json:"empty_in,omitempty" doc:"The same for people: 5m, over 2h or never. It is left out if it is unknown, or if no job waits."`
	Held     *Held    `json:"held,omitempty" doc:"The jobs that no worker could begin, if jobs have waited for a minute."`
	Workers  int      `json:"workers" doc:"The number of processes that do the queue's jobs now."`
	Lost     *Lost    `json:"lost,omitempty" doc:"The worker that was lost last, if no worker serves the queue since."`
	Endpoint string   `json:"endpoint,omitempty" doc:"Where the queue's jobs are sent, without the URL's query."`
}

// Lost is a worker that did not shut down.
type Lost struct {
	Worker string  `json:"worker" doc:"The name of the worker."`
	Since  float64 `json:"lost_seconds" doc:"How long ago its lease ended, in seconds."`
	Text   string  `json:"text" doc:"The same for people: vm:24553 was lost 1m ago."`
}

// Held are ready jobs that no worker could begin: they wait for earlier jobs of their keys, or are at limits.
type Held struct {
	Jobs   int     `json:"jobs" doc:"How many they are, of those that are next."`
	More   bool    `json:"more" doc:"Whether there may be more, since not all jobs were looked at."`
	Oldest float64 `json:"oldest_seconds" doc:"How long the one has waited that has waited for longest, in seconds. The cause is its cause."`
	Cause
}

// A QueueDetail is everything about a queue.
type QueueDetail struct {
	QueueStatus
	BlockList []Block   `json:"block_list" nullable:"false" doc:"The blocks of the queue, and who has them."`
	Limits    []Limit   `json:"limits" nullable:"false" doc:"The limits of the queue: that of all its jobs first, then those of kinds."`
	Tenants   []Tenant  `json:"tenants" nullable:"false" doc:"The tenants with the most ready jobs, up to ten, if the queue is fair or a job that was looked at names one. Up to 20,000 jobs of each priority are looked at."`
	Refused   []Refusal `json:"refused" nullable:"false" doc:"The jobs of which the database refuses to store what became of them, up to 100."`
}

// A Move says which jobs are moved to another queue.
type Move struct {
	To     string   `json:"to" minLength:"1" maxLength:"200" doc:"The queue that they go to, which must be there."`
	Kinds  []string `json:"kinds,omitempty" maxItems:"100" doc:"The kinds of the jobs. Default: all."`
	DryRun bool     `json:"dry_run,omitempty" doc:"Whether to count the jobs only, and move none."`
	Cursor string   `json:"cursor,omitempty" maxLength:"200" doc:"The next_cursor of the answer before: both are one operation in the audit."`
}

// Moved is what became of jobs that were to be moved.
type Moved struct {
	From    string `json:"from" doc:"The queue that they were in."`
	To      string `json:"to" doc:"The queue that they went to."`
	DryRun  bool   `json:"dry_run" doc:"Whether they were counted only."`
	Jobs    int    `json:"jobs" doc:"The number of jobs that were moved, or would be."`
	Running int    `json:"running" doc:"The number of jobs that stay because they run."`
	Behind  int    `json:"behind" doc:"The number of jobs that stay because an earlier job of their key stays."`
	Taken   int    `json:"taken" doc:"The number of jobs that stay because another one has their unique key there."`
	All     bool   `json:"all" doc:"Whether these were all: if not, the same request does the rest."`

	NextCursor string `json:"next_cursor,omitempty" doc:"If these were not all: send it as cursor, so that the audit has one entry."`
}

// A Block is a part of a queue's jobs, which one worker at a time has.
type Block struct {
	Block      int     `json:"block" doc:"The number of the block."`
	Generation int     `json:"generation" doc:"How often the queue had been resized when the block was made."`
	State      string  `json:"state" enum:"free,held,lost" doc:"free: no worker has it. held: a worker has it. lost: its worker was not heard of in time, and any other worker of the queue may take it."`
	Worker     string  `json:"worker,omitempty" doc:"The worker that has the block, or had it last."`
	Since      Instant `json:"since,omitzero" doc:"When the worker got the block."`
	Fence      string  `json:"fence" doc:"A number that grows each time a worker gets the block."`
	Crashes    int     `json:"crashes" doc:"The number of workers in a row that died while they had the block."`
}

// JobCount is the number of jobs that have a queue, a state and a kind in common, or some of these.
type JobCount struct {
	Queue  string  `json:"queue,omitempty" doc:"The queue of the jobs."`
	State  string  `json:"state,omitempty" enum:"ready,delayed,running,dead,done" doc:"The state of the jobs."`
	Kind   string  `json:"kind,omitempty" doc:"The kind of the jobs."`
	Count  int     `json:"count" doc:"The number of the jobs, among those that were counted."`
	More   bool    `json:"more" doc:"Whether there may be more, and older ones."`
	Oldest Instant `json:"oldest" doc:"When the oldest of the jobs was enqueued."`
}

// QueueStats are the numbers of a queue's jobs by state, and by state and kind.
type QueueStats struct {
	QueueCounts
	Kinds []JobCount `json:"kinds" nullable:"false" doc:"The numbers of jobs by state and kind."`
}

// QueueFigures are the numbers of a queue's jobs, as they were a moment ago.
type QueueFigures struct {
	Queue string `json:"queue" doc:"The name of the queue."`
	State string `json:"state" enum:"active,paused,deleted" doc:"The state of the queue."`
	QueueCounts
	Oldest float64 `json:"oldest_ready_seconds" doc:"How long the oldest ready job has waited, in seconds."`
}

// A QueueEvent is a change of a queue.
type QueueEvent struct {
	QueueFigures
	Done float64 `json:"done_per_second" doc:"The number of jobs that workers have done per second, in the last five seconds or so."`
}

// Finished is what workers have done of a queue's jobs of one kind.
type Finished struct {
	Queue string  `json:"queue" doc:"The queue of the jobs."`
	Kind  string  `json:"kind" doc:"The kind of the jobs."`
	Done  int     `json:"done" doc:"The number of jobs that are done."`
	Tried int     `json:"failed" doc:"The number of failed attempts that are followed by another."`
	Dead  int     `json:"dead" doc:"The number of jobs that were given up."`
	Wait  float64 `json:"wait_seconds" doc:"How long a job that could begin waited, on average, in seconds."`
	Took  float64 `json:"took_seconds" doc:"How long an attempt took, on average, in seconds."`
}
