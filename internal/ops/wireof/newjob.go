package wireof

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// NewJob returns a job to enqueue, or a [queue.InvalidError].
func NewJob(n *wire.NewJob) (j queue.Job, err error) {
	j = queue.Job{
		Kind: n.Kind, Queue: n.Queue, Payload: n.Payload, Key: n.Key, Unique: n.Unique, UniqueUntil: n.UniqueUntil, MaxAttempts: n.MaxAttempts, RunAt: n.RunAt.Time,
		Trace: n.Trace, Endpoint: n.Endpoint, Tenant: n.Tenant, Cost: n.Cost,
	}
	if err := CheckNames("kind", n.Kind, "queue", n.Queue, "key", n.Key, "unique", n.Unique); err != nil {
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
		if j.Group, err = wire.ParseID(n.Group); err != nil {
			return j, invalid("group", "%v", err)
		}
	}
	for _, d := range []struct {
		field string
		text  wire.Duration
		to    *time.Duration
	}{
		{"unique_for", n.UniqueFor, &j.UniqueFor},
		{"debounce", n.Debounce, &j.Debounce},
		{"delay", n.Delay, &j.Delay},
		{"timeout", n.Timeout, &j.Timeout},
	} {
		if *d.to, err = d.text.Finite(); err != nil {
			return j, invalid(d.field, "%v", err)
		}
	}
	if n.Timeout != "" && j.Timeout < time.Millisecond {
		return j, invalid("timeout", "%q is less than 1ms; leave it out for the queue's", string(n.Timeout))
	}
	return j, j.Check()
}

// CheckNames returns an error about the first invalid name. Names are given each after its field, and empty ones are
// skipped. It refuses the replacement character: names that differ in unreadable characters would become equal.
func CheckNames(fieldsAndNames ...string) error {
	for i := 0; i+1 < len(fieldsAndNames); i += 2 {
		field, name := fieldsAndNames[i], fieldsAndNames[i+1]
		if name == "" {
			continue
		}
		if err := sqlrun.CheckName(name); err != nil {
			return invalid(field, "%v", err)
		}
		if strings.ContainsRune(name, utf8.RuneError) {
			return invalid(field, "name %q: it has the character U+FFFD, which stands for what could not be read", name)
		}
	}
	return nil
}
