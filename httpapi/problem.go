package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// presentable gives huma's errors about parameters the form of all others: without the value, which may
// be secret or long, and with the first error as the problem's text.
func presentable(_ huma.Context, _ string, v any) (any, error) {
	p, ok := v.(*huma.ErrorModel)
	if !ok || len(p.Errors) == 0 {
		return v, nil
	}
	for _, e := range p.Errors {
		e.Value = nil
	}
	if p.Detail == "validation failed" { // huma's text; its order is random
		slices.SortStableFunc(p.Errors, func(a, b *huma.ErrorDetail) int { return strings.Compare(a.Location, b.Location) })
		return refusal(p.Status, p.Errors), nil
	}
	return problem(p.Status, p.Detail, p.Errors...), nil
}

// cut limits a text to a readable length.
func cut(text string) string {
	n, last := 0, 0
	for at := range text {
		if n == 999 {
			last = at
		}
		if n++; n > 1000 {
			return text[:last] + "…"
		}
	}
	return text
}

// problem returns a problem detail, with the fields it is about.
func problem(status int, detail string, at ...*huma.ErrorDetail) *huma.ErrorModel {
	at = at[:min(len(at), maxErrors)]
	for _, e := range at {
		e.Location, e.Message = cut(e.Location), cut(e.Message)
	}
	return &huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: cut(detail), Errors: at}
}

// invalid returns a queue.ErrInvalid about a field.
func invalid(field, format string, args ...any) error {
	return &queue.InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// write sends a problem.
func write(w http.ResponseWriter, p *huma.ErrorModel) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = jsonFormat.Marshal(w, p) // strings and numbers always encode
}

// kinds maps errors to statuses. The first match counts.
var kinds = []struct {
	status int
	errs   []error
}{
	{http.StatusForbidden, []error{errNoCommands, errNoDelete, errReserved}},
	{http.StatusRequestEntityTooLarge, []error{queue.ErrTooLarge}},
	{http.StatusUnprocessableEntity, []error{queue.ErrInvalid, scheduler.ErrInvalid, lock.ErrInvalid}},
	{http.StatusNotFound, []error{queue.ErrNotFound, scheduler.ErrNotFound, scheduler.ErrNoRun, scheduler.ErrNoNode, lock.ErrNotFound, ErrNoFinding}},
	{http.StatusConflict, []error{
		queue.ErrDeleted, queue.ErrState, queue.ErrNotKept, admin.ErrInUse, admin.ErrAmbiguous,
		scheduler.ErrBusy, scheduler.ErrManaged, scheduler.ErrExists, scheduler.ErrNotRunning,
	}},
	{http.StatusServiceUnavailable, []error{errStopping, errFollowers, errAwaits}},
	{http.StatusTooManyRequests, []error{errOwnFollowers}},
	{http.StatusConflict, []error{lock.ErrHeld, lock.ErrLost, lock.ErrPool, lock.ErrInUse}},
}

// problemOf turns a handler's error into a problem. What the database says is logged and not sent.
func (a *API) problemOf(ctx context.Context, o *operation, err error) *huma.ErrorModel {
	var told *huma.ErrorModel
	if errors.As(err, &told) {
		return told
	}
	for _, kind := range kinds {
		for _, is := range kind.errs {
			if !errors.Is(err, is) {
				continue
			}
			var all scheduleProblems
			if errors.As(err, &all) {
				return problem(kind.status, err.Error(), all.details()...)
			}
			if field, text := o.field(err); field != "" {
				return problem(kind.status, err.Error(), &huma.ErrorDetail{Location: field, Message: text})
			}
			return problem(kind.status, err.Error())
		}
	}
	level := slog.LevelError
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		level = slog.LevelInfo // the client is gone, and nobody reads the answer
	}
	a.log.Log(ctx, level, "http: request failed", "operation", o.id, "err", err)
	switch {
	case errors.Is(err, queue.ErrUnknownOutcome):
		return problem(http.StatusServiceUnavailable,
			"the answer of the database was lost, so it may have been done or not; doing it again is safe with an Idempotency-Key, or with a unique key that lasts: unique_for")
	case errors.Is(err, queue.ErrRefused):
		return problem(http.StatusConflict,
			"the database refuses to record a job's outcome, and no other worker gets the job meanwhile; GET the job to see why, under refused. The outcomes of other jobs are recorded")
	case a.db.Dialect.ReadOnly(err), errors.Is(err, dialect.ErrReadOnly):
		return problem(http.StatusServiceUnavailable, "the database takes no writes at the moment; try again later")
	case a.db.Dialect.NoSpace(err):
		return problem(http.StatusInsufficientStorage, "the disk of the database is full, so nothing was changed; make room there, and try again")
	case a.db.Dialect.Unreachable(err):
		return problem(http.StatusServiceUnavailable, "the database does not answer; try again later")
	case a.db.Dialect.Temporary(err):
		return problem(http.StatusServiceUnavailable, "the database is too busy, or has broken it off; try again later")
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		return problem(http.StatusServiceUnavailable, "it took too long and was broken off; a part of it may have been done")
	}
	return problem(http.StatusInternalServerError, "internal error; the daemon's log has the cause")
}

// field returns the field that an error is about, as its location in the request.
func (o *operation) field(err error) (location, text string) {
	var invalid *queue.InvalidError
	switch {
	case errors.As(err, &invalid):
		location, text = invalid.Field, invalid.Problem
	case errors.Is(err, queue.ErrTooLarge):
		location, text = "payload", strings.TrimPrefix(err.Error(), queue.ErrTooLarge.Error()+": payload: ")
	default:
		return "", ""
	}
	var one *queue.JobError
	switch {
	case errors.As(err, &one):
		return fmt.Sprintf("body.jobs[%d].%s", one.Index, location), text
	case location == idempotencyField:
		return "header.Idempotency-Key", text
	case strings.Contains(o.path, "{"+location+"}"):
		return "path." + location, text
	case o.method == http.MethodGet || o.method == http.MethodDelete:
		return "query." + location, text
	}
	return "body." + location, text
}
