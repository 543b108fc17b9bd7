package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Receiver hands jobs to a program that has no handlers: it receives some, does
// them however it likes, and says of each what has become of it. It is a Worker
// otherwise, and shares blocks with others.
type Receiver struct {
	w      *Worker
	cancel context.CancelFunc
	ended  chan struct{}
	err    error
	once   sync.Once
}

// Receiver returns a Receiver that has begun. Concurrency does not count: what is
// received and not finished is limited by the caller. Close it when done.
func (c *Client) Receiver(ctx context.Context, opt WorkerOptions) (*Receiver, error) {
	opt.AckEach = true // so that Complete can wait for it
	w, err := c.Worker(opt)
	if err != nil {
		return nil, err
	}
	w.exact = true
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &Receiver{w: w, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = w.run(inner, 0)
	}()
	select {
	case <-w.joined:
		return r, nil
	case <-r.ended:
		cancel()
		return nil, r.err
	case <-ctx.Done():
		r.Close()
		return nil, ctx.Err()
	}
}

// Receive returns up to limit jobs, as soon as there is one, and none after wait.
// Each must be given to Complete or Fail before its timeout, if it has one: then it
// has failed. Receive returns ErrClosed after Close.
func (r *Receiver) Receive(ctx context.Context, limit int, wait time.Duration) ([]*Delivery, error) {
	if limit < 1 {
		return nil, invalid("limit", "%d is not at least 1", limit)
	}
	w := r.w
	over := false
	wake := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.work.Broadcast()
	}
	defer time.AfterFunc(wait, wake).Stop()
	defer context.AfterFunc(ctx, wake)()
	w.mu.Lock()
	defer w.mu.Unlock()
	var got []*Delivery
	for {
		for len(got) < limit && !w.closing {
			d := w.popReady()
			if d == nil {
				break
			}
			w.taken[d] = true
			got = append(got, d)
		}
		switch {
		case len(got) > 0:
			return got, nil
		case w.closing:
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case over: // it has looked once more
			return nil, nil
		}
		w.await()
	}
}

// Context is the job's: it ends when the job is not this process's any more, or
// its time is over.
func (d *Delivery) Context() context.Context { return &d.ctx }

// Complete says that a received job is done, and waits until that is committed. It
// returns ErrLost if the job was not this process's any more: it is done again, or
// was done, elsewhere.
func (r *Receiver) Complete(ctx context.Context, d *Delivery) error { return r.settle(ctx, d, nil) }

// Fail says that a received job has failed, with an error as a handler would return
// it, and waits until that is committed.
func (r *Receiver) Fail(ctx context.Context, d *Delivery, err error) error {
	return r.settle(ctx, d, orText(err, "failed"))
}

func (r *Receiver) settle(ctx context.Context, d *Delivery, err error) error {
	w := r.w
	w.mu.Lock()
	if !w.taken[d] {
		w.mu.Unlock()
		return fmt.Errorf("%w: job %d was finished before, or its time is over", ErrLost, d.ID)
	}
	delete(w.taken, d)
	if d.ctx.over && errors.Is(d.ctx.cause, ErrLost) {
		err = d.ctx.cause
	}
	d.ctx.end(nil)
	w.end(d, err, "")
	w.mu.Unlock()
	select {
	case <-d.acked:
		return d.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close hands over what the receiver has, and waits for jobs that were received and
// not finished as long as the grace says.
func (r *Receiver) Close() error {
	r.once.Do(r.cancel)
	<-r.ended
	return r.err
}
