package httpapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
	"github.com/dbcron/dbcron/wire"
)

// applyChange makes a change, or returns an error about a field.
func applyChange(n *wire.ScheduleChange, s *scheduler.Schedule) error {
	if n.Payload != nil && n.Stdin != nil {
		return invalid("payload", "there is stdin as well; send one of them")
	}
	ifGiven(&s.Spec, n.Spec)
	ifGiven(&s.Zone, n.TimeZone)
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
	for _, c := range []struct {
		field string
		text  *wire.Count
		word  wire.Count
		means int
		to    *int
	}{{"max_failures", n.MaxFailures, wire.Unlimited, 0, &s.MaxFailures}, {"keep_runs", n.KeepRuns, wire.All, -1, &s.KeepRuns}} {
		if c.text == nil {
			continue
		}
		if *c.to = 0; *c.text == "" {
			continue
		}
		var err error
		if *c.to, err = c.text.Number(c.word, c.means, mostCount); err != nil {
			return invalid(c.field, "%v", err)
		}
	}
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
		if s.Job.Priority, err = wire.ParsePriority(*n.JobPriority); err != nil {
			return invalid("job_priority", "%v", err)
		}
	}
	if err := applyDurations(n, s); err != nil {
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

// applyDurations applies the durations. It refuses none where 0 would stand for a default other than none,
// since nobody who writes none expects that.
func applyDurations(n *wire.ScheduleChange, s *scheduler.Schedule) error {
	for _, d := range []struct {
		field  string
		text   *wire.Duration
		to     *time.Duration
		noneIs bool // 0 means none
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
		if d.field == "keep_for" && *d.text == wire.Forever {
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

// timeField returns which of the fields spec, time_zone and dst is invalid.
func timeField(zone, dst string) string {
	if _, err := cronspec.New("@daily", zone, ""); err != nil {
		return "time_zone"
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
