package push

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/duration"
	"github.com/dbcron/dbcron/queue"
)

// Formats of requests.
const (
	FormatPlain       = "plain"       // the payload, and headers
	FormatCloudEvents = "cloudevents" // also the headers of a CloudEvent in binary mode
)

// What an endpoint may be.
const (
	usualConcurrency = 16
	mostConcurrency  = 10_000
	usualTimeout     = 30 * time.Second
	longestTimeout   = 24 * time.Hour
)

// An Endpoint says where and how the jobs of a queue are sent.
type Endpoint struct {
	Queue       string
	URL         string        // of jobs that name none themselves; empty: those become dead letters
	Format      string        // FormatPlain or FormatCloudEvents
	Concurrency int           // how many are sent at a time by each dispatcher; a limit of the queue bounds all together
	Timeout     time.Duration // of a request to the end of its answer, if neither job nor queue say

	Secret    string // signs requests: whsec_ and a key of 24 to 64 bytes in base64
	OldSecret string // signs them, too, while receivers change to the new one; empty: none

	wrong error  // about a change that cannot be
	id    int    // of the queue
	state string // of the queue
	limit time.Duration
	tries int
}

// Check tells what is wrong with an endpoint that was written by hand: nothing is sent to it then.
func (e *Endpoint) Check() error { return e.check() }

// check tells what is wrong with an endpoint.
func (e *Endpoint) check() error {
	if e.URL != "" {
		if err := queue.CheckEndpoint(e.URL); err != nil {
			return invalid("url", "%v", err)
		}
	}
	switch {
	case e.wrong != nil:
		return e.wrong
	case e.Format != FormatPlain && e.Format != FormatCloudEvents:
		return invalid("format", "%q is not plain or cloudevents", e.Format)
	case e.Concurrency < 1 || e.Concurrency > mostConcurrency:
		return invalid("concurrency", "%d is not 1 to %d", e.Concurrency, mostConcurrency)
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

// Rotate gives the endpoint a new secret, and keeps the one before for receivers that do
// not know it yet. While there is an old one already, the endpoint cannot be stored: that may
// be all that receivers know.
func (e *Endpoint) Rotate(secret string) {
	if e.OldSecret != "" {
		e.wrong = invalid("secret", "there are two already, and receivers may know the old one only; drop that first")
	}
	e.OldSecret, e.Secret = e.Secret, secret
}

// Endpoints are the endpoints of queues, in the database. It is safe for concurrent use.
type Endpoints struct{ db *dialect.DB }

// NewEndpoints returns the endpoints of a database.
func NewEndpoints(db *dialect.DB) *Endpoints { return &Endpoints{db} }

// Get returns the endpoint of a queue, or [queue.ErrNotFound].
func (s *Endpoints) Get(ctx context.Context, name string) (Endpoint, error) {
	return get(ctx, &s.db.Session, name)
}

func get(ctx context.Context, on *dialect.Session, name string) (Endpoint, error) {
	found, err := dialect.Select(ctx, on, getEndpoint, dialect.Args{"name": name}, scanEndpoint)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: queue %q has no endpoint", queue.ErrNotFound, name)
	}
	if err != nil {
		return Endpoint{}, err
	}
	return found[0], nil
}

// List lists endpoints by queue, those after one, up to limit.
func (s *Endpoints) List(ctx context.Context, after string, limit int) ([]Endpoint, error) {
	return dialect.Select(ctx, &s.db.Session, listEndpoints, dialect.Args{"after": after, "limit": limit}, scanEndpoint)
}

// Edit changes the endpoint of a queue that is there, or gives it one: then its jobs are
// sent by dispatchers from then on, within two seconds, and workers should leave it alone.
// change gets the endpoint as it is, or one as is usual, with a new secret, and may be called
// more than once. It returns [queue.ErrNotFound] if there is no such queue, and
// [queue.ErrDeleted] if it was deleted.
func (s *Endpoints) Edit(ctx context.Context, name string, change func(*Endpoint)) (after Endpoint, made bool, err error) {
	if err := dialect.CheckName(name); err != nil {
		return after, false, invalid("queue", "%v", err)
	}
	secret := NewSecret()
	err = s.db.ShortTx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		var id int
		var state string
		switch err := tx.Get(ctx, lockQueue, dialect.Args{"name": name}, &id, &state); {
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
		_, err := tx.Exec(ctx, stmt, dialect.Args{
			"queue": id, "url": after.URL, "format": after.Format, "concurrency": after.Concurrency, "timeout": duration.Format(after.Timeout),
			"secret": after.Secret, "old_secret": after.OldSecret,
		})
		return err
	})
	return after, made, err
}

// A Setting is what [Endpoints.Set] has done.
type Setting struct {
	Endpoint
	Made      bool // the queue had none
	MadeQueue bool // there was no such queue
	NewSecret bool // its secret is another, or the first
}

// Set is Edit, and makes the queue if there is none.
func (s *Endpoints) Set(ctx context.Context, queues *queue.Client, name string, change func(*Endpoint)) (r Setting, err error) {
	before := ""
	noted := func(e *Endpoint) {
		before = e.Secret
		change(e)
	}
	r.Endpoint, r.Made, err = s.Edit(ctx, name, noted)
	if errors.Is(err, queue.ErrNotFound) && !errors.Is(err, queue.ErrInvalid) {
		if _, err = queues.Edit(ctx, name, func(*queue.Queue) {}); err == nil {
			r.MadeQueue = true
			r.Endpoint, r.Made, err = s.Edit(ctx, name, noted)
		}
	}
	r.NewSecret = r.Made || r.Secret != before
	return r, err
}

// usual is a new endpoint.
func usual(secret string) Endpoint {
	return Endpoint{Format: FormatPlain, Concurrency: usualConcurrency, Timeout: usualTimeout, Secret: secret}
}

// Delete takes a queue's endpoint away. Its jobs stay, and wait for workers; what is being
// sent is finished. It returns [queue.ErrNotFound] if it has none.
func (s *Endpoints) Delete(ctx context.Context, name string) error {
	return s.db.ShortTx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		n, err := tx.Exec(ctx, deleteEndpoint, dialect.Args{"name": name})
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: queue %q has no endpoint", queue.ErrNotFound, name)
		}
		if err == nil {
			_, err = tx.Exec(ctx, deleteAnswers, dialect.Args{"name": name})
		}
		return err
	})
}

// scanEndpoint reads a row, which may have been written by hand: what is wrong with it is
// told by check.
func scanEndpoint(rows *sql.Rows) (e Endpoint, err error) {
	var limit, timeout string
	err = rows.Scan(&e.id, &e.Queue, &e.state, &limit, &e.tries, &e.URL, &e.Format, &e.Concurrency, &timeout, &e.Secret, &e.OldSecret)
	if err != nil {
		return e, err
	}
	e.Timeout, _ = duration.Parse(timeout) // 0, which is none
	e.limit, _ = duration.Parse(limit)
	return e, nil
}
