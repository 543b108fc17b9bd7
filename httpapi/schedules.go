package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/scheduler"
)

type schedulePath struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
}

// A scheduleJSON is a schedule without parts that may be secret: environment, headers, input, and the
// query of a URL.
type scheduleJSON struct {
	Name     string `json:"name"`
	Source   string `json:"source,omitempty" doc:"The file that it comes from"`
	Spec     string `json:"spec"`
	Zone     string `json:"zone"`
	DST      string `json:"dst" doc:"vixie or wall"`
	Kind     string `json:"kind" doc:"shell, argv, http, sql, func or job"`
	Command  string `json:"command"`
	Tag      string `json:"tag"`
	State    string `json:"state" doc:"active, paused, ended or failed"`
	Reason   string `json:"reason,omitempty" doc:"Why it is not active"`
	Due      *stamp `json:"due,omitempty" doc:"The next slot"`
	Failures int    `json:"failures" doc:"Slots that failed in a row"`

	Dir  string `json:"dir,omitempty"`
	User string `json:"user,omitempty"`

	JobQueue       string `json:"job_queue,omitempty"`
	JobKey         string `json:"job_key,omitempty"`
	JobPriority    string `json:"job_priority,omitempty"`
	JobMaxAttempts int    `json:"job_max_attempts,omitempty"`
	JobTimeout     string `json:"job_timeout,omitempty"`
	JobUnique      string `json:"job_unique,omitempty"`
	JobUniqueFor   string `json:"job_unique_for,omitempty"`

	Missed        string `json:"missed,omitempty"`
	MissedWindow  string `json:"missed_window,omitempty"`
	Overlap       string `json:"overlap,omitempty"`
	FirstRun      string `json:"first_run,omitempty"`
	Attempts      int    `json:"max_attempts,omitempty"`
	RetryDelay    string `json:"retry_delay,omitempty"`
	RetryMaxDelay string `json:"retry_max_delay,omitempty"`
	RetryPastNext bool   `json:"retry_past_next"`
	Repeatable    bool   `json:"repeatable" doc:"false: a run whose daemon dies or is stopped is lost, and not begun again"`
	Timeout       string `json:"timeout" doc:"0s: none"`
	Stall         string `json:"stall,omitempty" doc:"For how long a command may write nothing; missing: no limit"`
	KillGrace     string `json:"kill_grace,omitempty"`
	Jitter        string `json:"jitter,omitempty"`
	Starts        *stamp `json:"starts,omitempty"`
	Ends          *stamp `json:"ends,omitempty"`
	MaxFailures   int    `json:"max_failures" doc:"0: it is not given up"`
	KeepRuns      int    `json:"keep_runs" doc:"-1: all"`
	KeepFor       string `json:"keep_for" doc:"Or forever"`
	OnSuccess     string `json:"on_success,omitempty"`
	OnFailure     string `json:"on_failure,omitempty"`
	Notify        string `json:"notify,omitempty"`
}

func newScheduleJSON(s *scheduler.Schedule) scheduleJSON {
	j := scheduleJSON{
		Name: s.Name, Source: s.Source, Spec: s.Spec, Zone: s.Zone, DST: s.DST, Kind: s.Kind, Command: ShownCommand(s), Tag: s.Tag,
		State: s.State, Reason: strings.ToValidUTF8(s.Reason, "�"), Due: optional(s.Due), Failures: s.Failures, Dir: s.Dir, User: s.User,
		Missed: s.Missed, MissedWindow: optionalDuration(s.MissedWindow), Overlap: s.Overlap, FirstRun: s.FirstRun,
		Attempts: s.MaxAttempts, RetryDelay: optionalDuration(s.RetryDelay), RetryMaxDelay: optionalDuration(s.RetryMaxDelay),
		RetryPastNext: s.RetryPastNext, Repeatable: !s.Unrepeatable,
		Timeout: durationText(s.Timeout), Stall: optionalDuration(s.Stall), KillGrace: optionalDuration(s.KillGrace), Jitter: optionalDuration(s.Jitter),
		Starts: optional(s.Starts), Ends: optional(s.Ends), MaxFailures: s.MaxFailures, KeepRuns: s.KeepRuns, KeepFor: durationText(s.KeepFor),
		OnSuccess: s.OnSuccess, OnFailure: s.OnFailure, Notify: s.Notify,
	}
	if s.KeepFor < 0 {
		j.KeepFor = forever
	}
	if s.Kind == "job" {
		j.JobQueue, j.JobKey, j.JobPriority = s.Job.Queue, s.Job.Key, jobfield.PriorityName(s.Job.Priority)
		j.JobMaxAttempts, j.JobTimeout = s.Job.MaxAttempts, optionalDuration(s.Job.Timeout)
		j.JobUnique, j.JobUniqueFor = s.Job.Unique, optionalDuration(s.Job.UniqueFor)
	}
	return j
}

// optionalDuration formats a duration, or returns "" for 0.
func optionalDuration(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return durationText(d)
}

// ShownCommand returns a schedule's command or, for a request, its method and URL without password and
// query, which may be secret.
func ShownCommand(s *scheduler.Schedule) string {
	if s.Kind != "http" {
		return s.Command
	}
	method, address, found := strings.Cut(s.Command, " ")
	u, err := url.Parse(strings.TrimSpace(address))
	if !found || err != nil {
		return method
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	u.User, u.Fragment = nil, ""
	text := u.String()
	return method + " " + strings.ReplaceAll(text, "%E2%80%A6", "…")
}

type schedulesOutput struct {
	Body struct {
		Schedules  []scheduleJSON `json:"schedules" nullable:"false"`
		NextCursor string         `json:"next_cursor,omitempty"`
	} `nameHint:"Schedules"`
}

type scheduleOutput struct{ Body scheduleJSON }

type pauseScheduleInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Body     *pauseJSON
}

type runJSON struct {
	ID       string `json:"id"`
	Schedule string `json:"schedule"`
	Due      stamp  `json:"due" doc:"The slot"`
	To       *stamp `json:"to,omitempty" doc:"Of slots that were skipped or missed: the last one of the stretch that due begins"`
	Slots    int64  `json:"slots,omitempty" doc:"How many slots that stretch has"`
	Attempt  int    `json:"attempt"`
	Cause    string `json:"cause" doc:"slot, hand, backfill, chain or boot"`
	State    string `json:"state" doc:"waiting, running, ok, failed, timeout, lost, retry, cancelled, skipped or missed"`
	By       string `json:"by,omitempty" doc:"The daemon"`
	Started  *stamp `json:"started,omitempty"`
	Finished *stamp `json:"finished,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Error    string `json:"error,omitempty"`

	Cancel string  `json:"cancel,omitempty" doc:"Why somebody wants it to end. Only of a run that is asked for by its id"`
	Output *string `json:"output,omitempty" doc:"Only of a run that is asked for by its id: standard output and error, or the answer, the first and the last 32 KiB. While it runs, as far as its daemon has written it, which it does every few seconds"`
}

func newRunJSON(r *scheduler.Run) runJSON {
	j := runJSON{
		ID: idText(r.ID), Schedule: r.Schedule, Due: stamp{r.Due}, To: optional(r.To), Slots: r.Slots, Attempt: r.Attempt, Cause: r.Cause,
		State: r.State, By: r.By, Started: optional(r.Started), Finished: optional(r.Finished), Error: strings.ToValidUTF8(r.Error, "�"),
	}
	if r.ExitCode >= 0 && !r.Finished.IsZero() {
		j.ExitCode = &r.ExitCode
	}
	return j
}

type runOutput struct{ Body runJSON }

type historyInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type historyOutput struct {
	Body struct {
		Runs []runJSON `json:"runs" nullable:"false"`
	} `nameHint:"History"`
}

type nextInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Count    int    `query:"count" minimum:"1" maximum:"100" default:"5"`
}

type nextOutput struct {
	Body struct {
		Slots []stamp `json:"slots" nullable:"false"`
	} `nameHint:"Slots"`
}

// schedules registers the operations that show schedules and act on them.
func (a *API) schedules() {
	register(a, operation{
		id: "list-schedules", method: http.MethodGet, path: "/schedules", tag: "schedules", scope: ScopeRead, answer: answerList,
		summary: "List the schedules by name",
		more:    "When their commands, inputs and environments have more than 1 MiB together there are fewer than the limit, and a next_cursor.",
	}, func(ctx context.Context, in *page) (*schedulesOutput, error) {
		var after string
		if err := readCursor(in.Cursor, &after); err != nil {
			return nil, err
		}
		found, more, err := scheduler.ListSome(ctx, a.db, after, in.Limit, mostListed)
		if err != nil {
			return nil, err
		}
		out := &schedulesOutput{}
		out.Body.Schedules = make([]scheduleJSON, len(found))
		for i := range found {
			out.Body.Schedules[i] = newScheduleJSON(&found[i])
		}
		if more {
			out.Body.NextCursor = cursorOf(found[len(found)-1].Name)
		}
		return out, nil
	})
	register(a, operation{
		id: "get-schedule", method: http.MethodGet, path: "/schedules/{schedule}", tag: "schedules", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "Show a schedule",
	}, func(ctx context.Context, in *schedulePath) (*scheduleOutput, error) {
		s, err := a.schedule(ctx, in)
		if err != nil {
			return nil, err
		}
		return &scheduleOutput{newScheduleJSON(&s)}, nil
	})
	register(a, operation{
		id: "schedule-history", method: http.MethodGet, path: "/schedules/{schedule}/runs", tag: "schedules", scope: ScopeRead,
		answer:  answerList,
		summary: "List the newest runs of a schedule, also of one that was removed",
	}, func(ctx context.Context, in *historyInput) (*historyOutput, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		found, err := scheduler.History(ctx, a.db, in.Schedule, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &historyOutput{}
		out.Body.Runs = make([]runJSON, len(found))
		for i := range found {
			out.Body.Runs[i] = newRunJSON(&found[i])
		}
		return out, nil
	})
	register(a, operation{
		id: "schedule-next", method: http.MethodGet, path: "/schedules/{schedule}/next", tag: "schedules", scope: ScopeRead,
		errors:  []int{http.StatusNotFound},
		summary: "Tell the next slots of a schedule; one that is not active has none",
	}, a.next)
	a.explaining()
	a.scheduleActions()
	a.scheduleSettings()
	a.runs()
}

func (a *API) scheduleActions() {
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "run-schedule", method: http.MethodPost, path: "/schedules/{schedule}/run", tag: "schedules", scope: ScopeOperate,
		status: http.StatusCreated, errors: []int{http.StatusNotFound, http.StatusConflict},
		summary: "Ask the daemons to run a schedule now, also one that is paused",
	}, func(ctx context.Context, in *schedulePath) (*runOutput, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		r, err := scheduler.Start(ctx, a.db, in.Schedule)
		if err != nil {
			return nil, err
		}
		return &runOutput{newRunJSON(&r)}, nil
	})
	register(a, operation{
		id: "pause-schedule", method: http.MethodPost, path: "/schedules/{schedule}/pause", tag: "schedules", scope: ScopeOperate,
		errors:  notFound,
		summary: "Pause a schedule; runs under way go on",
	}, func(ctx context.Context, in *pauseScheduleInput) (*struct{}, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		deedOf(ctx).detail = in.Body.why()
		return nil, scheduler.Pause(ctx, a.db, in.Schedule, in.Body.why())
	})
	register(a, operation{
		id: "resume-schedule", method: http.MethodPost, path: "/schedules/{schedule}/resume", tag: "schedules", scope: ScopeOperate,
		errors:  notFound,
		summary: "Let a schedule run again from the next slot on",
	}, func(ctx context.Context, in *schedulePath) (*struct{}, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		return nil, scheduler.Resume(ctx, a.db, in.Schedule)
	})
}

func (a *API) schedule(ctx context.Context, in *schedulePath) (scheduler.Schedule, error) {
	if err := checkNames("schedule", in.Schedule); err != nil {
		return scheduler.Schedule{}, err
	}
	return scheduler.Get(ctx, a.db, in.Schedule)
}

func (a *API) next(ctx context.Context, in *nextInput) (*nextOutput, error) {
	s, err := a.schedule(ctx, &schedulePath{in.Schedule})
	if err != nil {
		return nil, err
	}
	now, err := scheduler.Clock(ctx, a.db)
	if err != nil {
		return nil, err
	}
	out := &nextOutput{}
	out.Body.Slots = stamps(s.SlotsAfter(now, in.Count))
	return out, nil
}

func stamps(times []time.Time) []stamp {
	all := make([]stamp, len(times))
	for i, t := range times {
		all[i] = stamp{t}
	}
	return all
}
