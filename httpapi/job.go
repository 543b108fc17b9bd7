package httpapi

import (
	"context"
	"time"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// readJob returns the job in a request, or an error about a field.
func readJob(n *wire.NewJob) (j queue.Job, err error) {
	j = queue.Job{
		Kind: n.Kind, Queue: n.Queue, Payload: n.Payload, Key: n.Key, Unique: n.Unique, MaxAttempts: n.MaxAttempts,
		Trace: n.Trace, Endpoint: n.Endpoint,
	}
	if err := checkNames("kind", n.Kind, "queue", n.Queue, "key", n.Key, "unique", n.Unique); err != nil {
		return j, err
	}
	if len(n.Binary) > 0 {
		if len(n.Payload) > 0 {
			return j, invalid("payload_base64", "there is a payload as well; send one of them")
		}
		j.Payload, j.Binary = n.Binary, true
	}
	if n.Priority != "" {
		if j.Priority, err = wire.ParsePriority(n.Priority); err != nil {
			return j, invalid("priority", "%v", err)
		}
	}
	if n.Group != "" {
		if j.Group, err = readID("group", n.Group); err != nil {
			return j, err
		}
	}
	for _, d := range []struct {
		field string
		text  wire.Duration
		to    *time.Duration
	}{{"unique_for", n.UniqueFor, &j.UniqueFor}, {"delay", n.Delay, &j.Delay}, {"timeout", n.Timeout, &j.Timeout}} {
		if *d.to, err = readDuration(d.field, d.text); err != nil {
			return j, err
		}
	}
	j.RunAt = n.RunAt.Time
	return j, j.Check()
}

const (
	// longestListed limits the payloads that lists include, in bytes.
	longestListed = 64 << 10

	// mostListed limits the total of payloads, errors and details in a list, in bytes.
	mostListed = 1 << 20
)

// shownJob returns a job as the sender may see it.
func shownJob(ctx context.Context, i *admin.Job) wire.Job {
	j := wireof.Job(i)
	j.Endpoint = shownURL(ctx, i.Endpoint)
	return j
}
