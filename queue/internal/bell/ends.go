package bell

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Ends tells those who wait for jobs in this process which have ended in it. While nobody waits, an end costs one load.
type Ends struct {
	some atomic.Bool
	mu   sync.Mutex
	ears []*func(id int64)
}

// Listen has hear called with the id of each job whose end workers of this process have written. hear must return at
// once: it is called with a worker's mutex held.
func (e *Ends) Listen(hear func(id int64)) (stop func()) {
	ear := &hear
	e.set(func(ears []*func(int64)) []*func(int64) { return append(slices.Clone(ears), ear) })
	return func() {
		e.set(func(ears []*func(int64)) []*func(int64) {
			return slices.DeleteFunc(slices.Clone(ears), func(x *func(int64)) bool { return x == ear })
		})
	}
}

func (e *Ends) set(change func([]*func(int64)) []*func(int64)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ears = change(e.ears)
	e.some.Store(len(e.ears) > 0)
}

// Awaited reports whether anybody listens.
func (e *Ends) Awaited() bool { return e.some.Load() }

// Tell tells the listeners that a job has ended.
func (e *Ends) Tell(id int64) {
	e.mu.Lock()
	ears := e.ears
	e.mu.Unlock()
	for _, hear := range ears {
		(*hear)(id)
	}
}
