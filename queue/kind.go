package queue

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dbcron/dbcron/internal/barrier"
)

// A Kind is a kind of job whose payload is a T, encoded as JSON.
type Kind[T any] struct {
	Name  string
	Queue string // as in a Job
}

// Job returns a job with args as its payload. If they cannot be encoded, enqueueing the job
// returns the error.
func (k Kind[T]) Job(args T) Job {
	var payload []byte
	_, err := barrier.Call(func() (err error) {
		payload, err = json.Marshal(args)
		return err
	})
	if err != nil {
		err = invalid("payload", "%v", err)
	}
	return Job{Queue: k.Queue, Kind: k.Name, Payload: payload, err: err}
}

// HandleKind sets the handler of a typed kind. A job whose payload does not fit T becomes a dead
// letter.
func HandleKind[T any](w *Worker, k Kind[T], h func(ctx context.Context, args T, d *Delivery) error) error {
	return HandleKindWith(w, k, RetryPolicy{}, h)
}

// HandleKindWith is [HandleKind] with a retry policy for the kind.
func HandleKindWith[T any](w *Worker, k Kind[T], p RetryPolicy, h func(ctx context.Context, args T, d *Delivery) error) error {
	return w.HandleWith(k.Name, p, func(ctx context.Context, d *Delivery) error {
		var args T
		if err := d.Decode(&args); err != nil {
			return err
		}
		return h(ctx, args, d)
	})
}

// A TypedDelivery is a [Delivery] whose payload was decoded.
type TypedDelivery[T any] struct {
	Args T
	*Delivery
}

// HandleKindBatch sets the batch handler of a typed kind: see [Worker.HandleBatch]. A job whose
// payload does not fit T becomes a dead letter, and is left out of the batch. A Results has an
// error or nil for each job that h was given.
func HandleKindBatch[T any](w *Worker, k Kind[T], opt BatchOptions, h func(ctx context.Context, batch []TypedDelivery[T]) error) error {
	return w.HandleBatch(k.Name, opt, func(ctx context.Context, batch []*Delivery) error {
		fit := make([]TypedDelivery[T], 0, len(batch))
		all := make(Results, len(batch))
		for i, d := range batch {
			var args T
			if all[i] = d.Decode(&args); all[i] == nil {
				fit = append(fit, TypedDelivery[T]{args, d})
			}
		}
		if len(fit) == 0 {
			return all
		}
		err := h(ctx, fit)
		if len(fit) == len(batch) {
			return err
		}
		var each Results
		if errors.As(err, &each) && len(each) != len(fit) {
			each = nil // the error may be about any of them: all get it
		}
		n := 0
		for i := range all {
			if all[i] != nil {
				continue
			}
			if all[i] = err; each != nil {
				all[i] = each[n]
			}
			n++
		}
		return all
	})
}
