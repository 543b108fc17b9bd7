package scheduler

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A Cause is the run that started another one through OnSuccess or OnFailure.
type Cause struct {
	Schedule string `json:"schedule"`
	RunID    int64  `json:"run_id,string"`
	State    string `json:"state"`
	ExitCode int    `json:"exit_code"` // of a command, or the status of a request; -1: none
	Error    string `json:"error,omitempty"`
	Output   string `json:"output,omitempty"` // the last part that the history kept
}

// causedBy finds the run that started another one. Every attempt at a slot has the cause of the
// first attempt. The causing run may have left the history already.
var causedBy = sqlrun.SQL("scheduler.caused-by", `
		SELECT `+runColumns+` FROM {prefix}run
		WHERE id = (SELECT c.by_run FROM {prefix}run AS c WHERE c.schedule = :schedule AND c.due_at = {time :due} AND c.attempt = 1)`)

// causeOf returns the run that started r, or nil if there is none or it has left the history.
func causeOf(ctx context.Context, tx *sqlrun.Session, r *run) (*Cause, error) {
	if r.cause != "chain" {
		return nil, nil //nolint:nilnil // none, which is no error
	}
	found, err := sqlrun.Select(ctx, tx, causedBy, sqlrun.Args{"schedule": r.schedule, "due": r.due.UnixMicro()}, scanRun)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	c := &found[0]
	return &Cause{Schedule: c.Schedule, RunID: c.ID, State: c.State, ExitCode: c.ExitCode, Error: c.Error, Output: c.Output}, nil
}

// causeWithin bounds the query for a run's cause.
const causeWithin = 10 * time.Second

// findCause sets the cause of an execution. If the query fails, the run starts without it: an
// alarm that does not name its cause is better than no alarm.
func (s *Scheduler) findCause(e *execution) {
	if e.cause != "chain" {
		return // without the context that a query needs
	}
	ctx, cancel := context.WithTimeout(context.Background(), causeWithin)
	defer cancel()
	by, err := causeOf(ctx, &s.db.Session, &e.run)
	if err != nil {
		s.opt.Logger.Warn("a run begins without its cause, which could not be read", "schedule", e.schedule, "id", e.id, "err", err)
	}
	e.by = by
}

// variables returns the environment variables that describe the cause to a command.
func (c *Cause) variables() map[string]string {
	code := ""
	if c.ExitCode >= 0 {
		code = strconv.Itoa(c.ExitCode)
	}
	return map[string]string{
		"DBCRON_CAUSE_SCHEDULE":  c.Schedule,
		"DBCRON_CAUSE_RUN_ID":    strconv.FormatInt(c.RunID, 10),
		"DBCRON_CAUSE_STATE":     c.State,
		"DBCRON_CAUSE_EXIT_CODE": code,
		"DBCRON_CAUSE_ERROR":     reason(c.Error),
	}
}

// setHeaders describes the cause in the headers of a request.
func (c *Cause) setHeaders(h http.Header) {
	h.Set("Dbcron-Cause-Schedule", strconv.QuoteToASCII(c.Schedule))
	h.Set("Dbcron-Cause-Run-Id", strconv.FormatInt(c.RunID, 10))
	h.Set("Dbcron-Cause-State", c.State)
	if c.ExitCode >= 0 {
		h.Set("Dbcron-Cause-Exit-Code", strconv.Itoa(c.ExitCode))
	}
	h.Set("Dbcron-Cause-Error", strconv.QuoteToASCII(reason(c.Error)))
}

// input returns what a command or function reads: the schedule's own input, or else the output
// of the run that started it.
func (e *execution) input() string {
	if e.what.Stdin == "" && e.by != nil {
		return e.by.Output
	}
	return e.what.Stdin
}
