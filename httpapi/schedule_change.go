package httpapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// A scheduleChange is a change of a schedule. Absent fields stay. Fields have the names of the table's
// columns, which are also the keys in schedule files.
type scheduleChange struct {
	Spec    *string           `json:"spec,omitempty" maxLength:"1000" doc:"When it runs: five fields as in a crontab, @daily, @every 90s, or @manual" example:"30 2 * * *"`
	Zone    *string           `json:"zone,omitempty" maxLength:"100" doc:"Time zone of the spec; UTC in a new schedule" example:"Europe/Berlin"`
	DST     *string           `json:"dst,omitempty" enum:"vixie,wall" doc:"When clocks change: vixie runs fixed times once, wall as the clock shows"`
	Kind    *string           `json:"kind,omitempty" enum:"shell,argv,http,sql,func,job" doc:"What the command is; shell in a new schedule. All but job need dbcron serve --allow-commands"`
	Command *string           `json:"command,omitempty" maxLength:"1048576" doc:"A line for the shell, a JSON array of a program and its arguments, METHOD URL, a statement, a function's name, or the kind of the job"`
	Stdin   *string           `json:"stdin,omitempty" maxLength:"1048576" doc:"What the command reads, the body of the request, or the job's payload as text; not shown"`
	Payload jsonText          `json:"payload,omitempty" doc:"The job's payload, any JSON, instead of stdin; default: the schedule, the slot and the run's id"`
	Env     map[string]string `json:"env,omitempty" doc:"All variables that the command gets; not shown"`
	Headers map[string]string `json:"headers,omitempty" doc:"All headers of the request; not shown"`
	Dir     *string           `json:"dir,omitempty" maxLength:"4096" doc:"Where the command starts"`
	User    *string           `json:"user,omitempty" maxLength:"64" doc:"Whom the command runs as, if the daemon is root"`
	Tag     *string           `json:"tag,omitempty" maxLength:"64" doc:"Only daemons that have this tag run it"`

	JobQueue       *string `json:"job_queue,omitempty" maxLength:"200" doc:"The job's queue, which is made if there is none; empty: the route of its kind"`
	JobKey         *string `json:"job_key,omitempty" maxLength:"200" doc:"Jobs of one queue and key are done in order"`
	JobPriority    *string `json:"job_priority,omitempty" enum:"urgent,normal,low,idle"`
	JobMaxAttempts *int    `json:"job_max_attempts,omitempty" minimum:"0" maximum:"1000000" doc:"0: as the queue says"`
	JobTimeout     *string `json:"job_timeout,omitempty" maxLength:"40" doc:"Of an attempt; empty: as the queue says"`
	JobUnique      *string `json:"job_unique,omitempty" maxLength:"200" doc:"While a job of the queue has this key, slots enqueue none: they are skipped"`
	JobUniqueFor   *string `json:"job_unique_for,omitempty" maxLength:"40" doc:"How long a job keeps that key at least; empty: until it has ended"`

	Missed        *string `json:"missed,omitempty" enum:"skip,once,all" doc:"Slots that passed while no daemon ran: once runs the newest"`
	MissedWindow  *string `json:"missed_window,omitempty" maxLength:"40" doc:"How late a slot may still run; empty: any time, and 1m with skip"`
	Overlap       *string `json:"overlap,omitempty" enum:"forbid,allow,queue,replace" doc:"A slot that comes while the run before is under way: forbid skips it"`
	FirstRun      *string `json:"first_run,omitempty" enum:"next,now" doc:"When a new schedule runs first"`
	MaxAttempts   *int    `json:"max_attempts,omitempty" minimum:"1" maximum:"1000" doc:"How often a slot is tried whose work fails"`
	RetryDelay    *string `json:"retry_delay,omitempty" maxLength:"40" doc:"Before the second attempt; doubles with each further one; empty: 10s"`
	RetryMaxDelay *string `json:"retry_max_delay,omitempty" maxLength:"40" doc:"Between two attempts at the most; empty: 1h"`
	RetryPastNext *bool   `json:"retry_past_next,omitempty" doc:"Attempts go on although the next slot has come"`
	Repeatable    *bool   `json:"repeatable,omitempty" doc:"false: a run whose daemon dies or is stopped is lost, and not begun again"`
	Timeout       *string `json:"timeout,omitempty" maxLength:"40" doc:"After which a run is ended; 0s: none"`
	Stall         *string `json:"stall,omitempty" maxLength:"40" doc:"For how long a command may write nothing before it is ended; 0s: no limit"`
	KillGrace     *string `json:"kill_grace,omitempty" maxLength:"40" doc:"From SIGTERM to SIGKILL; empty: as the daemon says"`
	Jitter        *string `json:"jitter,omitempty" maxLength:"40" doc:"Slots run up to so much later, to spread them; 0s: none"`
	Starts        *string `json:"starts,omitempty" maxLength:"40" doc:"There are no slots before, in RFC 3339; empty: no limit" example:"2026-12-01T00:00:00Z"`
	Ends          *string `json:"ends,omitempty" maxLength:"40" doc:"There are no slots after, in RFC 3339; empty: no limit" example:"2026-12-31T18:00:00Z"`
	MaxFailures   *int    `json:"max_failures,omitempty" minimum:"0" maximum:"1000000" doc:"After so many failed slots in a row it is given up; 0: never"`
	KeepRuns      *int    `json:"keep_runs,omitempty" minimum:"-1" maximum:"1000000" doc:"How many runs the history keeps; -1: all; 0: 1000"`
	KeepFor       *string `json:"keep_for,omitempty" maxLength:"40" doc:"How long the history keeps runs, or forever; empty: 30d"`
	OnSuccess     *string `json:"on_success,omitempty" maxLength:"200" doc:"Schedule to start when a run has ended well"`
	OnFailure     *string `json:"on_failure,omitempty" maxLength:"200" doc:"Schedule to start when a slot has failed for good"`
	Notify        *string `json:"notify,omitempty" maxLength:"1000" doc:"Who is told when it fails and when it is well again: mail addresses and URLs with blanks between, or none; empty: as the daemons say" example:"mailto:ops@example.org"`
}

// apply makes the change, or returns an error about a field.
func (n *scheduleChange) apply(s *scheduler.Schedule) error {
	if n.Payload != nil && n.Stdin != nil {
		return invalid("payload", "there is stdin as well; send one of them")
	}
	ifGiven(&s.Spec, n.Spec)
	ifGiven(&s.Zone, n.Zone)
	ifGiven(&s.DST, n.DST)
	ifGiven(&s.Kind, n.Kind)
	ifGiven(&s.Command, n.Command)
	ifGiven(&s.Stdin, n.Stdin)
	ifGiven(&s.Dir, n.Dir)
	ifGiven(&s.User, n.User)
	ifGiven(&s.Tag, n.Tag)
	ifGiven(&s.Job.Queue, n.JobQueue)
	ifGiven(&s.Job.Key, n.JobKey)
	ifGiven(&s.Job.MaxAttempts, n.JobMaxAttempts)
	ifGiven(&s.Job.Unique, n.JobUnique)
	ifGiven(&s.Missed, n.Missed)
	ifGiven(&s.Overlap, n.Overlap)
	ifGiven(&s.FirstRun, n.FirstRun)
	ifGiven(&s.MaxAttempts, n.MaxAttempts)
	ifGiven(&s.RetryPastNext, n.RetryPastNext)
	if n.Repeatable != nil {
		s.Unrepeatable = !*n.Repeatable
	}
	ifGiven(&s.MaxFailures, n.MaxFailures)
	ifGiven(&s.KeepRuns, n.KeepRuns)
	ifGiven(&s.OnSuccess, n.OnSuccess)
	ifGiven(&s.OnFailure, n.OnFailure)
	ifGiven(&s.Notify, n.Notify)
	if n.Payload != nil {
		if s.Kind != "job" {
			return invalid("payload", "it is for jobs, not for the kind %s; stdin is the input of others", s.Kind)
		}
		s.Stdin = string(n.Payload)
	}
	if n.Env != nil {
		s.Env = n.Env
	}
	if n.Headers != nil {
		s.Headers = n.Headers
	}
	if n.JobPriority != nil {
		var err error
		if s.Job.Priority, err = jobfield.ParsePriority(*n.JobPriority); err != nil {
			return invalid("job_priority", "%v", err)
		}
	}
	if err := n.applyDurations(s); err != nil {
		return err
	}
	if err := givenTime("starts", &s.Starts, n.Starts); err != nil {
		return err
	}
	return givenTime("ends", &s.Ends, n.Ends)
}

func ifGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// applyDurations applies the durations. It refuses 0s where 0 would stand for a default other than none,
// since nobody who writes 0s expects that.
func (n *scheduleChange) applyDurations(s *scheduler.Schedule) error {
	for _, d := range []struct {
		field  string
		text   *string
		to     *time.Duration
		noneIs bool // 0s means none
	}{
		{"job_timeout", n.JobTimeout, &s.Job.Timeout, false},
		{"job_unique_for", n.JobUniqueFor, &s.Job.UniqueFor, false},
		{"missed_window", n.MissedWindow, &s.MissedWindow, false},
		{"retry_delay", n.RetryDelay, &s.RetryDelay, false},
		{"retry_max_delay", n.RetryMaxDelay, &s.RetryMaxDelay, false},
		{"timeout", n.Timeout, &s.Timeout, true},
		{"stall", n.Stall, &s.Stall, true},
		{"kill_grace", n.KillGrace, &s.KillGrace, false},
		{"jitter", n.Jitter, &s.Jitter, true},
		{"keep_for", n.KeepFor, &s.KeepFor, false},
	} {
		if d.text == nil {
			continue
		}
		if d.field == "keep_for" && *d.text == forever {
			*d.to = -1
			continue
		}
		span, err := readDuration(d.field, *d.text)
		if err == nil && span == 0 && *d.text != "" && !d.noneIs {
			err = invalid(d.field, "it is 0; write at least 1ms, or the empty text for what is usual")
		}
		if err != nil {
			return err
		}
		*d.to = span
	}
	return nil
}

func givenTime(field string, to *time.Time, text *string) (err error) {
	if text == nil {
		return nil
	}
	*to = time.Time{}
	if *text != "" {
		if *to, err = time.Parse(time.RFC3339, *text); err != nil {
			return invalid(field, "it is not a time such as 2026-12-31T18:00:00Z")
		}
		if to.Year() < 1971 || to.Year() > 9998 {
			return invalid(field, "it is not in the years 1971 to 9998")
		}
	}
	return nil
}

// scheduleProblems lists everything wrong with a schedule. It is an ErrInvalid.
type scheduleProblems []scheduler.Problem

// problemsOf returns everything wrong with a schedule, or nil.
func problemsOf(s *scheduler.Schedule) error {
	for field, name := range map[string]string{
		"job_queue": s.Job.Queue, "job_key": s.Job.Key, "job_unique": s.Job.Unique,
		"on_success": s.OnSuccess, "on_failure": s.OnFailure,
	} {
		if err := checkNames(field, name); err != nil {
			return err
		}
	}
	if s.Kind == "job" || s.Kind == "func" {
		if err := checkNames("command", s.Command); err != nil {
			return err
		}
	}
	all := s.Problems()
	for i := range all {
		if all[i].Field == "spec" {
			all[i].Field = timeField(s.Zone, s.DST)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return scheduleProblems(all)
}

// timeField returns which of the fields spec, zone and dst is invalid.
func timeField(zone, dst string) string {
	if _, err := cronspec.New("@daily", zone, ""); err != nil {
		return "zone"
	}
	if _, err := cronspec.New("@daily", "", dst); err != nil {
		return "dst"
	}
	return "spec"
}

// Error lists the problems.
func (all scheduleProblems) Error() string {
	texts := make([]string, len(all))
	for i, p := range all {
		texts[i] = p.Field + ": " + p.Text
	}
	return fmt.Sprintf("%v: %s", scheduler.ErrInvalid, strings.Join(texts, "; "))
}

// Is reports that they are an ErrInvalid.
func (scheduleProblems) Is(err error) bool { return err == scheduler.ErrInvalid }

// details converts the problems for sending.
func (all scheduleProblems) details() []*huma.ErrorDetail {
	out := make([]*huma.ErrorDetail, len(all))
	for i, p := range all {
		out[i] = &huma.ErrorDetail{Location: "body." + p.Field, Message: cut(p.Text)}
	}
	return out
}
