package wireof

import (
	"fmt"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// Limit returns a limit.
func Limit(l *admin.LimitInfo) wire.Limit {
	w := wire.Limit{
		Queue: l.Queue, Kind: l.Kind, Tenant: l.Tenant, Running: wire.CountOf(l.Running, wire.Unlimited, 0), Rate: string(wire.Unlimited), Burst: l.Burst,
		Permits: l.Permits, Waiting: l.Waiting,
	}
	if l.Rate > 0 {
		w.Rate = plain.FormatRate(l.Rate, l.Per)
	}
	return w
}

// maxRunning is the greatest number of jobs that a limit lets run at a time.
const maxRunning = 10_000

// LimitChange returns a function that makes a change, or a [queue.InvalidError].
func LimitChange(n *wire.LimitChange) (func(*admin.Limit), error) {
	var to admin.Limit
	var err error
	if n.Running != nil {
		if to.Running, err = n.Running.Number(wire.Unlimited, 0, maxRunning); err != nil {
			return nil, invalid("running", "%v; to have none begin, pause the queue", err)
		}
	}
	if n.Rate != nil && *n.Rate != string(wire.Unlimited) {
		if to.Rate, to.Per, err = plain.ParseRate(*n.Rate); err != nil {
			return nil, invalid("rate", "%v", err)
		}
	}
	return func(l *admin.Limit) {
		if n.Running != nil {
			l.Running = to.Running
		}
		IfGiven(&l.Burst, n.Burst)
		if n.Rate != nil {
			if l.Rate = to.Rate; to.Rate > 0 {
				l.Per = to.Per
			}
		}
	}, nil
}

// invalid returns an error about a field.
func invalid(field, format string, args ...any) error {
	return &queue.InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// IfGiven sets a value to what a change has, if it has it.
func IfGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}
