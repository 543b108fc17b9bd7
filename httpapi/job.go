package httpapi

import (
	"context"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

const (
	// longestListed limits the payloads that lists include, in bytes.
	longestListed = 64 << 10

	// maxListed limits the total of payloads, errors and details in a list, in bytes.
	maxListed = 1 << 20
)

// shownJob returns a job as the sender may see it.
func shownJob(ctx context.Context, i *admin.Job) wire.Job {
	j := wireof.Job(i)
	j.Endpoint = shownURL(ctx, i.Endpoint)
	return j
}
