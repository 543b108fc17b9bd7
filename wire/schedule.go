package wire

import "encoding/json"

// A Schedule is a schedule: what runs, when, and how its runs are treated.
type Schedule struct {
	Name     string            `json:"name" doc:"The name of the schedule."`
	Source   string            `json:"source,omitempty" doc:"The file that the schedule comes from."`
	Spec     string            `json:"spec" doc:"When the schedule runs: five fields as in a crontab, @daily, @every 90s, or @manual."`
	TimeZone string            `json:"time_zone" doc:"The time zone of the spec, such as Europe/Berlin."`
	DST      string            `json:"dst" enum:"vixie,wall" doc:"What happens when clocks change: vixie runs fixed times once, wall as the clock shows."`
	State    string            `json:"state" enum:"active,paused,ended,failed" doc:"active: it runs. paused: somebody has paused it. ended: its end has passed. failed: it was given up, or cannot run."`
	Reason   string            `json:"reason,omitempty" doc:"Why the schedule is not active."`
	Next     Instant           `json:"next,omitzero" doc:"The next slot, of a schedule that is active."`
	Failures int               `json:"failures" doc:"The number of slots in a row that failed."`
	Tag      string            `json:"tag" doc:"Only daemons that have this tag run the schedule."`
	Kind     string            `json:"kind" enum:"shell,argv,http,sql,func,job" doc:"What the command is."`
	Command  string            `json:"command" doc:"A line for the shell, a JSON array of a program and its arguments, a method and a URL, a statement, a function's name, or the kind of a job. The API shows a URL without its query."`
	Stdin    string            `json:"stdin,omitempty" doc:"What the command reads, the body of the request, or the payload of the job. The API does not show it."`
	Env      map[string]string `json:"env,omitempty" doc:"The variables that the command gets. The API does not show them."`
	Headers  map[string]string `json:"headers,omitempty" doc:"The headers of the request. The API does not show them."`
	Dir      string            `json:"dir,omitempty" doc:"The folder in which the command starts."`
	User     string            `json:"user,omitempty" doc:"The user that the command runs as, if the daemon is root."`

	JobQueue       string   `json:"job_queue,omitempty" doc:"The queue of the job. It is left out if the route of its kind decides."`
	JobKey         string   `json:"job_key,omitempty" doc:"The ordering key of the job."`
	JobPriority    string   `json:"job_priority,omitempty" enum:"urgent,normal,low,idle" doc:"The priority of the job in its queue."`
	JobMaxAttempts int      `json:"job_max_attempts,omitempty" doc:"The job is dead after this many failed attempts. It is left out if the queue decides."`
	JobTimeout     Duration `json:"job_timeout,omitempty" doc:"An attempt at the job fails after this long. It is left out if the queue decides."`
	JobUnique      string   `json:"job_unique,omitempty" doc:"The unique key of the job. While a job of the queue has it, slots are skipped."`
	JobUniqueFor   Duration `json:"job_unique_for,omitempty" doc:"The job keeps its unique key at least this long."`

	Missed        string   `json:"missed" enum:"skip,once,all" doc:"Which slots run that passed while no daemon ran: none, the newest, or all."`
	MissedWindow  Duration `json:"missed_window,omitempty" doc:"How late a slot may still run. It is left out for any time, and for 1m if missed is skip."`
	Overlap       string   `json:"overlap" enum:"forbid,allow,queue,replace" doc:"What happens to a slot that comes while the run before is under way: it is skipped, runs beside it, waits for its end, or replaces it."`
	FirstRun      string   `json:"first_run" enum:"next,now" doc:"When a new schedule runs first: at its next slot, or at once."`
	MaxAttempts   int      `json:"max_attempts" doc:"The number of attempts at a slot whose work fails."`
	RetryDelay    Duration `json:"retry_delay" doc:"The time before the second attempt. It doubles with each further one."`
	RetryMaxDelay Duration `json:"retry_max_delay" doc:"The longest time between two attempts."`
	RetryPastNext bool     `json:"retry_past_next" doc:"Whether attempts go on although the next slot has come."`
	Repeatable    bool     `json:"repeatable" doc:"Whether a run begins again whose daemon died or was stopped. If not, it is lost."`
	Timeout       Duration `json:"timeout" doc:"A run is ended after this long, or never for none."`
	Stall         Duration `json:"stall" doc:"A command is ended that has written nothing for this long. For none it is not."`
	KillGrace     Duration `json:"kill_grace,omitempty" doc:"The time from SIGTERM to SIGKILL. It is left out if the daemon decides."`
	Jitter        Duration `json:"jitter" doc:"Slots run up to this much later, to spread them."`
	Starts        Instant  `json:"starts,omitzero" doc:"There are no slots before this time."`
	Ends          Instant  `json:"ends,omitzero" doc:"There are no slots after this time."`
	MaxFailures   Count    `json:"max_failures" doc:"The schedule is given up after this many failed slots in a row, or never for none."`
	KeepRuns      Count    `json:"keep_runs" doc:"The number of runs that the history keeps, or all."`
	KeepFor       Duration `json:"keep_for" doc:"The history keeps runs this long, or forever."`
	OnSuccess     string   `json:"on_success,omitempty" doc:"The schedule to start when a run has ended well."`
	OnFailure     string   `json:"on_failure,omitempty" doc:"The schedule to start when a slot has failed for good."`
	Notify        string   `json:"notify,omitempty" doc:"Who is told when the schedule fails and when it recovers: mail addresses and URLs with blanks between, or none. It is left out if the daemons decide."`
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
	Next     Instant     `json:"next,omitzero" doc:"The next slot."`
	Overdue  Instant     `json:"overdue_since,omitzero" doc:"Since when something waits for a daemon, and for too long."`
	Advice   []string    `json:"what_to_do" nullable:"false" doc:"What to do, in words and commands of dbcron."`
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
// setting back.
type ScheduleChange struct {
	Spec     *string           `json:"spec,omitempty" maxLength:"1000" doc:"When the schedule runs: five fields as in a crontab, @daily, @every 90s, or @manual." example:"30 2 * * *"`
	TimeZone *string           `json:"time_zone,omitempty" maxLength:"100" doc:"The time zone of the spec. A new schedule has UTC." example:"Europe/Berlin"`
	DST      *string           `json:"dst,omitempty" enum:"vixie,wall" doc:"What happens when clocks change: vixie runs fixed times once, wall as the clock shows."`
	Kind     *string           `json:"kind,omitempty" enum:"shell,argv,http,sql,func,job" doc:"What the command is. A new schedule has shell. All but job need dbcron serve --allow-commands."`
	Command  *string           `json:"command,omitempty" maxLength:"1048576" doc:"A line for the shell, a JSON array of a program and its arguments, a method and a URL, a statement, a function's name, or the kind of a job."`
	Stdin    *string           `json:"stdin,omitempty" maxLength:"1048576" doc:"What the command reads, the body of the request, or the payload of the job as text. It is not shown."`
	Payload  json.RawMessage   `json:"payload,omitempty" doc:"The payload of the job, any JSON, instead of stdin. Default: the schedule, the slot and the id of the run."`
	Env      map[string]string `json:"env,omitempty" doc:"All variables that the command gets. They are not shown."`
	Headers  map[string]string `json:"headers,omitempty" doc:"All headers of the request. They are not shown."`
	Dir      *string           `json:"dir,omitempty" maxLength:"4096" doc:"The folder in which the command starts."`
	User     *string           `json:"user,omitempty" maxLength:"64" doc:"The user that the command runs as, if the daemon is root."`
	Tag      *string           `json:"tag,omitempty" maxLength:"64" doc:"Only daemons that have this tag run the schedule."`

	JobQueue       *string   `json:"job_queue,omitempty" maxLength:"200" doc:"The queue of the job, which is created if there is none. If it is empty, the route of its kind decides."`
	JobKey         *string   `json:"job_key,omitempty" maxLength:"200" doc:"The ordering key of the job."`
	JobPriority    *string   `json:"job_priority,omitempty" enum:"urgent,normal,low,idle" doc:"The priority of the job in its queue."`
	JobMaxAttempts *int      `json:"job_max_attempts,omitempty" minimum:"0" maximum:"1000000" doc:"The job is dead after this many failed attempts. For 0, the queue decides."`
	JobTimeout     *Duration `json:"job_timeout,omitempty" maxLength:"40" doc:"An attempt at the job fails after this long. If it is empty, the queue decides."`
	JobUnique      *string   `json:"job_unique,omitempty" maxLength:"200" doc:"The unique key of the job. While a job of the queue has it, slots are skipped."`
	JobUniqueFor   *Duration `json:"job_unique_for,omitempty" maxLength:"40" doc:"The job keeps its unique key at least this long. If it is empty, it does until it has ended."`

	Missed        *string   `json:"missed,omitempty" enum:"skip,once,all" doc:"Which slots run that passed while no daemon ran: none, the newest, or all."`
	MissedWindow  *Duration `json:"missed_window,omitempty" maxLength:"40" doc:"How late a slot may still run. If it is empty, at any time, and 1m if missed is skip."`
	Overlap       *string   `json:"overlap,omitempty" enum:"forbid,allow,queue,replace" doc:"What happens to a slot that comes while the run before is under way: it is skipped, runs beside it, waits for its end, or replaces it."`
	FirstRun      *string   `json:"first_run,omitempty" enum:"next,now" doc:"When a new schedule runs first: at its next slot, or at once."`
	MaxAttempts   *int      `json:"max_attempts,omitempty" minimum:"1" maximum:"1000" doc:"The number of attempts at a slot whose work fails."`
	RetryDelay    *Duration `json:"retry_delay,omitempty" maxLength:"40" doc:"The time before the second attempt. It doubles with each further one. If it is empty, it is 10s."`
	RetryMaxDelay *Duration `json:"retry_max_delay,omitempty" maxLength:"40" doc:"The longest time between two attempts. If it is empty, it is 1h."`
	RetryPastNext *bool     `json:"retry_past_next,omitempty" doc:"Whether attempts go on although the next slot has come."`
	Repeatable    *bool     `json:"repeatable,omitempty" doc:"Whether a run begins again whose daemon died or was stopped. If not, it is lost."`
	Timeout       *Duration `json:"timeout,omitempty" maxLength:"40" doc:"A run is ended after this long, or never for none."`
	Stall         *Duration `json:"stall,omitempty" maxLength:"40" doc:"A command is ended that has written nothing for this long. For none it is not."`
	KillGrace     *Duration `json:"kill_grace,omitempty" maxLength:"40" doc:"The time from SIGTERM to SIGKILL. If it is empty, the daemon decides."`
	Jitter        *Duration `json:"jitter,omitempty" maxLength:"40" doc:"Slots run up to this much later, to spread them, or at once for none."`
	Starts        *string   `json:"starts,omitempty" maxLength:"40" doc:"There are no slots before this time, in RFC 3339. If it is empty, there is no limit." example:"2026-12-01T00:00:00Z"`
	Ends          *string   `json:"ends,omitempty" maxLength:"40" doc:"There are no slots after this time, in RFC 3339. If it is empty, there is no limit." example:"2026-12-31T18:00:00Z"`
	MaxFailures   *Count    `json:"max_failures,omitempty" maxLength:"40" doc:"The schedule is given up after this many failed slots in a row, up to 1000000, or never for none. If it is empty, it is none."`
	KeepRuns      *Count    `json:"keep_runs,omitempty" maxLength:"40" doc:"The number of runs that the history keeps, up to 1000000, or all. If it is empty, it is 1000."`
	KeepFor       *Duration `json:"keep_for,omitempty" maxLength:"40" doc:"The history keeps runs this long, or forever. If it is empty, it is 30d."`
	OnSuccess     *string   `json:"on_success,omitempty" maxLength:"200" doc:"The schedule to start when a run has ended well."`
	OnFailure     *string   `json:"on_failure,omitempty" maxLength:"200" doc:"The schedule to start when a slot has failed for good."`
	Notify        *string   `json:"notify,omitempty" maxLength:"1000" doc:"Who is told when the schedule fails and when it recovers: mail addresses and URLs with blanks between, or none. If it is empty, the daemons decide." example:"mailto:ops@example.org"`
}
