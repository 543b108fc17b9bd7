package wire

import "encoding/json"

// A Schedule is a schedule: what runs, when, and how its runs are treated. Package scheduler's table of settings says what
// those of them mean that have no words here.
type Schedule struct {
	Name     string  `json:"name" doc:"The name of the schedule."`
	Source   string  `json:"source,omitempty" doc:"The file that the schedule comes from."`
	Spec     string  `json:"spec" doc:"When the schedule runs: five fields as in a crontab, @daily, @every 90s, or @manual."`
	TimeZone string  `json:"time_zone"`
	DST      string  `json:"dst"`
	State    string  `json:"state" enum:"active,paused,ended,failed" doc:"active: it runs. paused: somebody has paused it. ended: its end has passed. failed: it was given up, or cannot run."`
	Reason   string  `json:"reason,omitempty" doc:"Why the schedule is not active."`
	Next     Instant `json:"next,omitzero" doc:"The next slot, of a schedule that is active."`
	Failures int     `json:"failures" doc:"The number of slots in a row that failed."`
	Tag      string  `json:"tag"`

	Description string `json:"description,omitempty"`

	Kind    string            `json:"kind" enum:"shell,argv,http,sql,func,job" doc:"What the command is."`
	Command string            `json:"command" doc:"A line for the shell, a JSON array of a program and its arguments, a method and a URL, a statement, a function's name, or the kind of a job. The API shows a URL without its query."`
	Stdin   string            `json:"stdin,omitempty" doc:"What the command reads, the body of the request, or the payload of the job. The API does not show it."`
	Env     map[string]string `json:"env,omitempty" doc:"The variables that the command gets. The API does not show them."`
	Headers map[string]string `json:"headers,omitempty" doc:"The headers of the request. The API does not show them."`
	Dir     string            `json:"dir,omitempty"`
	User    string            `json:"user,omitempty"`

	JobQueue       string   `json:"job_queue,omitempty"`
	JobKey         string   `json:"job_key,omitempty"`
	JobPriority    string   `json:"job_priority,omitempty"`
	JobMaxAttempts int      `json:"job_max_attempts,omitempty"`
	JobTimeout     Duration `json:"job_timeout,omitempty"`
	JobUnique      string   `json:"job_unique,omitempty"`
	JobUniqueFor   Duration `json:"job_unique_for,omitempty"`
	JobUniqueUntil string   `json:"job_unique_until,omitempty"`
	JobTenant      string   `json:"job_tenant,omitempty"`
	JobCost        int      `json:"job_cost,omitempty"`

	Missed        string   `json:"missed"`
	MissedWindow  Duration `json:"missed_window,omitempty"`
	Overlap       string   `json:"overlap"`
	FirstRun      string   `json:"first_run"`
	MaxAttempts   int      `json:"max_attempts"`
	RetryDelay    Duration `json:"retry_delay"`
	RetryMaxDelay Duration `json:"retry_max_delay"`
	RetryPastNext bool     `json:"retry_past_next"`
	Repeatable    bool     `json:"repeatable"`
	Timeout       Duration `json:"timeout"`
	Stall         Duration `json:"stall"`
	KillGrace     Duration `json:"kill_grace,omitempty"`
	Linger        Duration `json:"linger,omitempty"`
	Jitter        Duration `json:"jitter"`
	Starts        Instant  `json:"starts,omitzero"`
	Ends          Instant  `json:"ends,omitzero"`
	MaxFailures   Count    `json:"max_failures"`
	KeepRuns      Count    `json:"keep_runs"`
	KeepFor       Duration `json:"keep_for"`
	OnSuccess     string   `json:"on_success,omitempty"`
	OnFailure     string   `json:"on_failure,omitempty"`
	Notify        string   `json:"notify,omitempty"`
}

// A ScheduleDetail is everything about a schedule.
type ScheduleDetail struct {
	Schedule
	NextSlots []Instant `json:"next_slots" nullable:"false" doc:"The next three slots."`
	UnderWay  []Run     `json:"under_way" nullable:"false" doc:"The runs that have not ended, up to 20."`
	Last      *Run      `json:"last,omitempty" doc:"The last run that has ended."`
}

// Slots are slots of a schedule.
type Slots struct {
	Slots []Instant `json:"slots" nullable:"false" doc:"The slots, the first one first."`
}

// Backfilled is what became of past slots that were to be run.
type Backfilled struct {
	Slots  int     `json:"slots" doc:"The number of slots that will be run, or would be."`
	First  Instant `json:"first,omitzero" doc:"The first of them."`
	Last   Instant `json:"last,omitzero" doc:"The last of them."`
	Left   int     `json:"left" doc:"The number of slots that are left alone, since their run is ok or has not ended."`
	DryRun bool    `json:"dry_run" doc:"Whether nothing was changed."`
}

// A Run is an attempt at a slot of a schedule, or a stretch of slots that did not run.
type Run struct {
	ID       string   `json:"id" doc:"The id of the run."`
	Schedule string   `json:"schedule" doc:"The name of the schedule."`
	Due      Instant  `json:"due" doc:"The slot."`
	To       Instant  `json:"to,omitzero" doc:"The last slot of a stretch of slots that were skipped or missed. Due is the first one."`
	Slots    int64    `json:"slots,omitempty" doc:"The number of slots in that stretch."`
	Attempt  int      `json:"attempt" doc:"The number of the attempt, from 1."`
	Cause    string   `json:"cause" enum:"slot,hand,backfill,chain,boot" doc:"Why it runs: its slot came, somebody started it, somebody made up for slots, another schedule started it, or a daemon began."`
	State    string   `json:"state" enum:"waiting,running,ok,failed,timeout,lost,retry,cancelled,skipped,missed" doc:"What has become of the run."`
	By       string   `json:"by,omitempty" doc:"The daemon that executes the run."`
	Fence    string   `json:"fence" doc:"A number that is greater than that of every earlier attempt of the schedule."`
	Next     Instant  `json:"next,omitzero" doc:"When a waiting run is due, or until when a running one has a lease."`
	Started  Instant  `json:"started,omitzero" doc:"When the run began."`
	Finished Instant  `json:"finished,omitzero" doc:"When the run ended."`
	Took     *float64 `json:"took_seconds,omitempty" doc:"How long the run took, in seconds."`
	ExitCode *int     `json:"exit_code,omitempty" doc:"The exit code of a command, or the status of a request."`
	Error    string   `json:"error,omitempty" doc:"Why the run failed, or did not run."`
	Cancel   string   `json:"cancel,omitempty" doc:"Why somebody wants the run to end."`
	Output   string   `json:"output,omitempty" doc:"The standard output and error, or the answer: the first and the last 32 KiB. While it runs, it is a few seconds behind. Lists of the API leave it out."`
}

// An Explanation says why a schedule runs or does not, and what to do.
type Explanation struct {
	Name     string      `json:"name" doc:"The name of the schedule."`
	State    string      `json:"state" enum:"active,paused,ended,failed" doc:"The state of the schedule."`
	Reason   string      `json:"reason,omitempty" doc:"Why the schedule is not active, or cannot be claimed."`
	Now      Instant     `json:"now" doc:"The database's clock."`
	Next     Instant     `json:"next,omitzero" doc:"The next slot."`
	Overdue  Instant     `json:"overdue_since,omitzero" doc:"Since when something waits for a daemon, and for too long."`
	Causes   []Cause     `json:"causes" nullable:"false" doc:"Why the schedule does not run, or what it waits for. The one to begin with comes first."`
	UnderWay []OpenRun   `json:"under_way" nullable:"false" doc:"The runs that have not ended, and what they wait for, up to 20."`
	Slots    []SlotStory `json:"slots" nullable:"false" doc:"The last slots, the newest first, each with the attempts at it."`
}

// An OpenRun is a run that has not ended, and what it waits for.
type OpenRun struct {
	ID    string `json:"id" doc:"The id of the run."`
	State string `json:"state" enum:"waiting,running" doc:"The state of the run."`
	Text  string `json:"text" doc:"What the run waits for, or who executes it."`
}

// A SlotStory is a slot or a stretch of slots, and what happened to it.
type SlotStory struct {
	Due   Instant `json:"due,omitzero" doc:"The slot."`
	To    Instant `json:"to,omitzero" doc:"The last slot of a stretch. Due is the first one."`
	State string  `json:"state" doc:"What has become of the slot: the state of its last run."`
	Why   string  `json:"why" doc:"The attempts at the slot, or why there were none."`
}

// A ScheduleChange is a change of a schedule. What is left out stays as it is. An empty text takes a
// setting back. Fields without words here are settings, as in [Schedule].
type ScheduleChange struct {
	Spec     *string            `json:"spec,omitempty" maxLength:"1000" doc:"When the schedule runs: five fields as in a crontab, @daily, @every 90s, or @manual." example:"30 2 * * *"`
	TimeZone *string            `json:"time_zone,omitempty" maxLength:"100" example:"Europe/Berlin"`
	DST      *string            `json:"dst,omitempty"`
	Kind     *string            `json:"kind,omitempty" enum:"shell,argv,http,sql,func,job" doc:"What the command is. A new schedule has shell. All but job need dbcron serve --allow-commands."`
	Command  *string            `json:"command,omitempty" maxLength:"1048576" doc:"A line for the shell, a JSON array of a program and its arguments, a method and a URL, a statement, a function's name, or the kind of a job."`
	Stdin    *string            `json:"stdin,omitempty" maxLength:"1048576" doc:"What the command reads, the body of the request, or the payload of the job as text. It is not shown."`
	Payload  json.RawMessage    `json:"payload,omitempty" doc:"The payload of the job, any JSON, instead of stdin. Default: the schedule, the slot and the id of the run."`
	Env      map[string]*string `json:"env,omitempty" doc:"Variables that the command gets, besides those that it has; null takes one away, and {} all. They are not shown." example:"{\"PGHOST\":\"db2\",\"OLD\":null}"`
	Headers  map[string]*string `json:"headers,omitempty" doc:"Headers of the request, besides those that it has; null takes one away, and {} all. They are not shown."`
	Dir      *string            `json:"dir,omitempty" maxLength:"4096"`
	User     *string            `json:"user,omitempty" maxLength:"64"`
	Tag      *string            `json:"tag,omitempty" maxLength:"64"`

	Description *string `json:"description,omitempty" maxLength:"1000"`

	JobQueue       *string   `json:"job_queue,omitempty" maxLength:"200"`
	JobKey         *string   `json:"job_key,omitempty" maxLength:"200"`
	JobPriority    *string   `json:"job_priority,omitempty"`
	JobMaxAttempts *int      `json:"job_max_attempts,omitempty" minimum:"0" maximum:"1000000"`
	JobTimeout     *Duration `json:"job_timeout,omitempty" maxLength:"40"`
	JobUnique      *string   `json:"job_unique,omitempty" maxLength:"200"`
	JobUniqueFor   *Duration `json:"job_unique_for,omitempty" maxLength:"40"`
	JobUniqueUntil *string   `json:"job_unique_until,omitempty"`
	JobTenant      *string   `json:"job_tenant,omitempty" maxLength:"200"`
	JobCost        *int      `json:"job_cost,omitempty" minimum:"0" maximum:"1000"`

	Missed        *string   `json:"missed,omitempty"`
	MissedWindow  *Duration `json:"missed_window,omitempty" maxLength:"40"`
	Overlap       *string   `json:"overlap,omitempty"`
	FirstRun      *string   `json:"first_run,omitempty"`
	MaxAttempts   *int      `json:"max_attempts,omitempty" minimum:"1" maximum:"1000"`
	RetryDelay    *Duration `json:"retry_delay,omitempty" maxLength:"40"`
	RetryMaxDelay *Duration `json:"retry_max_delay,omitempty" maxLength:"40"`
	RetryPastNext *bool     `json:"retry_past_next,omitempty"`
	Repeatable    *bool     `json:"repeatable,omitempty"`
	Timeout       *Duration `json:"timeout,omitempty" maxLength:"40"`
	Stall         *Duration `json:"stall,omitempty" maxLength:"40"`
	KillGrace     *Duration `json:"kill_grace,omitempty" maxLength:"40"`
	Linger        *Duration `json:"linger,omitempty" maxLength:"40"`
	Jitter        *Duration `json:"jitter,omitempty" maxLength:"40"`
	Starts        *string   `json:"starts,omitempty" maxLength:"40" example:"2026-12-01T00:00:00Z"`
	Ends          *string   `json:"ends,omitempty" maxLength:"40" example:"2026-12-31T18:00:00Z"`
	MaxFailures   *Count    `json:"max_failures,omitempty" maxLength:"40"`
	KeepRuns      *Count    `json:"keep_runs,omitempty" maxLength:"40"`
	KeepFor       *Duration `json:"keep_for,omitempty" maxLength:"40"`
	OnSuccess     *string   `json:"on_success,omitempty" maxLength:"200"`
	OnFailure     *string   `json:"on_failure,omitempty" maxLength:"200"`
	Notify        *string   `json:"notify,omitempty" maxLength:"1000" example:"mailto:ops@example.org"`
}
