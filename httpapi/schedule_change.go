package httpapi

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/setting"
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
	ifGiven(&s.Kind, n.Kind)
	ifGiven(&s.Command, n.Command)
	ifGiven(&s.Stdin, n.Stdin)
	if n.Payload != nil {
		if s.Kind != "job" {
			return invalid("payload", "it is for jobs, not for the kind %s; stdin is the input of others", s.Kind)
		}
		s.Stdin = string(n.Payload)
	}
	s.Env, s.Headers = merged(s.Env, n.Env), merged(s.Headers, n.Headers)
	if field, err := setting.Apply(scheduler.Settings(), s, n); err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}

// merged returns pairs with changes: nil takes one away, and an empty map all of them.
func merged(old map[string]string, changes map[string]*string) map[string]string {
	switch {
	case changes == nil:
		return old
	case len(changes) == 0:
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, old)
	for name, text := range changes {
		if text == nil {
			delete(all, name)
		} else {
			all[name] = *text
		}
	}
	return all
}

func ifGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
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
