package push

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// Formats of requests.
const (
	FormatPlain       = "plain"       // the payload, and dbcron's headers
	FormatCloudEvents = "cloudevents" // in addition, the headers of a CloudEvent in binary mode
)

// Limits of an endpoint's settings.
const (
	usualConcurrency = 16
	maxConcurrency   = 10_000
	usualTimeout     = 30 * time.Second
	longestTimeout   = 24 * time.Hour
	maxBatch         = 1000
)

// An Endpoint says where and how the jobs of a queue are sent.
type Endpoint struct {
	Queue       string
	URL         string        // of jobs that name none; "": such jobs become dead letters
	Format      string        // FormatPlain or FormatCloudEvents
	Concurrency int           // requests of each dispatcher at a time; a limit of the queue applies to all together
	Batch       int           // maximum number of jobs in a request; 1: one job per request
	Timeout     time.Duration // of a request including its answer, if neither job nor queue sets one

	Secret    string // signs requests: whsec_ and a key of 24 to 64 bytes in base64
	OldSecret string // signs them, too, while receivers migrate to the new secret; "": none

	wrong error         // from an invalid change
	id    int           // of the queue
	state string        // of the queue
	limit time.Duration // the timeout of the queue
	most  time.Duration // its max_timeout; 0: none
	share int           // its origin_share
	tries int
}

// Check returns an error for an invalid endpoint, which was written by hand. Nothing is sent to it.
func (e *Endpoint) Check() error { return e.check() }

// check returns what is wrong with an endpoint.
func (e *Endpoint) check() error {
	if e.URL != "" {
		if err := address.CheckEndpoint(e.URL); err != nil {
			return invalid("url", "%v", err)
		}
	}
	switch {
	case e.wrong != nil:
		return e.wrong
	case e.Format != FormatPlain && e.Format != FormatCloudEvents:
		return invalid("format", "%q is not plain or cloudevents", e.Format)
	case e.Concurrency < 1 || e.Concurrency > maxConcurrency:
		return invalid("concurrency", "%d is not 1 to %d", e.Concurrency, maxConcurrency)
	case e.Batch < 1 || e.Batch > maxBatch:
		return invalid("batch", "%d is not 1 to %d", e.Batch, maxBatch)
	case e.Batch > 1 && e.Format != FormatPlain:
		return invalid("batch", "a request of several jobs has the format plain")
	case e.Timeout < time.Millisecond || e.Timeout > longestTimeout:
		return invalid("timeout", "%v is not 1ms to 24h: who never answers would keep a place for ever", e.Timeout)
	}
	if err := CheckSecret(e.Secret); err != nil {
		return invalid("secret", "%v", err)
	}
	if err := CheckSecret(e.OldSecret); e.OldSecret != "" && err != nil {
		return invalid("old_secret", "%v", err)
	}
	return nil
}

func invalid(field, format string, args ...any) error {
	return &queue.InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Rotate sets a new secret, and keeps the previous one for receivers that do not know the new one yet. If
// there is an old secret already, the endpoint cannot be stored, since receivers may only know that one.
func (e *Endpoint) Rotate(secret string) {
	if e.OldSecret != "" {
		e.wrong = invalid("secret", "there are two already, and receivers may know the old one only; drop that first")
	}
	e.OldSecret, e.Secret = e.Secret, secret
}

// Endpoints manages the endpoints of queues in a database. It is safe for concurrent use.
type Endpoints struct{ db *dialect.DB }

// NewEndpoints returns the endpoints of a database.
func NewEndpoints(db *dialect.DB) *Endpoints { return &Endpoints{db} }

// Get returns the endpoint of a queue, or [queue.ErrNotFound].
func (s *Endpoints) Get(ctx context.Context, name string) (Endpoint, error) {
	return get(ctx, &s.db.Session, name)
}

func get(ctx context.Context, on *sqlrun.Session, name string) (Endpoint, error) {
	found, err := sqlrun.Select(ctx, on, getEndpoint, sqlrun.Args{"name": name}, scanEndpoint)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: queue %q has no endpoint", queue.ErrNotFound, name)
	}
	if err != nil {
		return Endpoint{}, err
	}
	return found[0], nil
}

// List lists up to limit endpoints, by queue, whose queues come after a name.
func (s *Endpoints) List(ctx context.Context, after string, limit int) ([]Endpoint, error) {
	return sqlrun.Select(ctx, &s.db.Session, listEndpoints, sqlrun.Args{"after": after, "limit": limit}, scanEndpoint)
}

// Edit changes or creates the endpoint of an existing queue. Dispatchers begin to send its jobs within
// two seconds; do not run other workers for the queue. change gets the current endpoint, or a default
// one with a new secret, and may be called more than once. Edit returns [queue.ErrNotFound] if there is
// no such queue, and [queue.ErrDeleted] if it was deleted.
func (s *Endpoints) Edit(ctx context.Context, name string, change func(*Endpoint)) (after Endpoint, made bool, err error) {
	if err := sqlrun.CheckName(name); err != nil {
		return after, false, invalid("queue", "%v", err)
	}
	if err := jobfield.CheckTarget(name); err != nil {
		return after, false, invalid("queue", "%v", err)
	}
	secret := NewSecret()
	err = s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var id int
		var state string
		switch err := tx.Get(ctx, lockQueue, sqlrun.Args{"name": name}, &id, &state); {
		case errors.Is(err, sql.ErrNoRows):
			after = usual(secret)
			change(&after)
			return errors.Join(after.check(), fmt.Errorf("%w: queue %q", queue.ErrNotFound, name))
		case err != nil:
			return err
		case state == "deleted":
			return fmt.Errorf("%w: %q", queue.ErrDeleted, name)
		}
		stmt := updateEndpoint
		after, err = get(ctx, tx, name)
		if made = errors.Is(err, queue.ErrNotFound); made {
			after, err = usual(secret), nil
			stmt = insertEndpoint
		}
		if err != nil {
			return err
		}
		change(&after)
		after.Queue, after.id, after.state = name, id, state
		if made && after.OldSecret == secret {
			after.OldSecret = "" // nobody has seen it
		}
		if err := after.check(); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, stmt, sqlrun.Args{
			"queue": id, "url": after.URL, "format": after.Format, "concurrency": after.Concurrency, "batch": after.Batch,
			"timeout": plain.FormatDuration(after.Timeout),
			"secret":  after.Secret, "old_secret": after.OldSecret,
		})
		return err
	})
	return after, made, err
}

// A Setting is the result of [Endpoints.Set].
type Setting struct {
	Endpoint
	Made      bool // the queue had none
	MadeQueue bool // the queue did not exist
	NewSecret bool // the secret is new
}

// Set is Edit that also creates the queue if necessary.
func (s *Endpoints) Set(ctx context.Context, queues *admin.Client, name string, change func(*Endpoint)) (r Setting, err error) {
	before := ""
	noted := func(e *Endpoint) {
		before = e.Secret
		change(e)
	}
	r.Endpoint, r.Made, err = s.Edit(ctx, name, noted)
	if errors.Is(err, queue.ErrNotFound) && !errors.Is(err, queue.ErrInvalid) {
		if _, err = queues.Edit(ctx, name, func(*admin.Queue) {}); err == nil {
			r.MadeQueue = true
			r.Endpoint, r.Made, err = s.Edit(ctx, name, noted)
		}
	}
	r.NewSecret = r.Made || r.Secret != before
	return r, err
}

// usual returns a new endpoint with the defaults.
func usual(secret string) Endpoint {
	return Endpoint{Format: FormatPlain, Concurrency: usualConcurrency, Batch: 1, Timeout: usualTimeout, Secret: secret}
}

// Delete removes a queue's endpoint. Its jobs wait for workers; running requests finish. Delete returns
// [queue.ErrNotFound] if the queue has no endpoint.
func (s *Endpoints) Delete(ctx context.Context, name string) error {
	return s.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		n, err := tx.Exec(ctx, deleteEndpoint, sqlrun.Args{"name": name})
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: queue %q has no endpoint", queue.ErrNotFound, name)
		}
		if err == nil {
			_, err = tx.Exec(ctx, deleteAnswers, sqlrun.Args{"name": name})
		}
		return err
	})
}

// scanEndpoint reads a row, which may have been written by hand; check reports what is wrong with it.
func scanEndpoint(rows *sql.Rows) (e Endpoint, err error) {
	var limit, most, timeout string
	var row sqlrun.Reading // what is unread is 0, which is invalid
	err = rows.Scan(&e.id, row.Into("name", &e.Queue), row.Into("state", &e.state), row.Into("timeout", &limit), row.Into("max_timeout", &most),
		row.Into("origin_share", &e.share), row.Into("max_attempts", &e.tries), row.Into("url", &e.URL), row.Into("format", &e.Format),
		row.Into("concurrency", &e.Concurrency), row.Into("batch", &e.Batch), row.Into("timeout", &timeout),
		row.Into("secret", &e.Secret), row.Into("old_secret", &e.OldSecret))
	if err != nil {
		return e, err
	}
	e.Timeout, _ = plain.ParseDuration(timeout) // 0 is invalid
	e.limit, _ = plain.ParseDuration(limit)
	e.most, _ = plain.ParseDuration(most)
	return e, nil
}
