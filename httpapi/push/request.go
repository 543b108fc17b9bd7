package push

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue"
)

// Headers of requests besides those of Standard Webhooks and CloudEvents.
const (
	headerQueue       = "Dbcron-Queue"
	headerKind        = "Dbcron-Kind"
	headerKey         = "Dbcron-Key"
	headerTenant      = "Dbcron-Tenant"
	headerAttempt     = "Dbcron-Attempt"
	headerMaxAttempts = "Dbcron-Max-Attempts"
	headerDeadline    = "Dbcron-Deadline"
	headerNoRetry     = "Dbcron-No-Retry" // of answers
)

// newRequest makes the request for a job: its payload byte for byte, and its properties in headers. Names
// are escaped as in URLs where headers cannot contain their characters.
func newRequest(ctx context.Context, e *Endpoint, to string, d *queue.Delivery, agent string, now time.Time,
	limit time.Duration,
) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(d.Payload))
	if err != nil {
		return nil, err
	}
	id := strconv.FormatInt(d.ID, 10)
	h := r.Header
	h.Set("Content-Type", "application/json")
	if d.Binary {
		h.Set("Content-Type", "application/octet-stream")
	}
	h.Set("User-Agent", agent)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	signed, err := signatures(e, id, now, d.Payload)
	if err != nil {
		return nil, err
	}
	h.Set("webhook-signature", signed)
	h.Set("Idempotency-Key", id)
	h.Set(headerQueue, headerText(d.Queue))
	h.Set(headerKind, headerText(d.Kind))
	h.Set(headerAttempt, strconv.Itoa(d.Attempt))
	h.Set(headerMaxAttempts, strconv.Itoa(triesOf(e, d)))
	h.Set(headerDeadline, now.Add(limit).UTC().Format("2006-01-02T15:04:05.000Z"))
	if d.Key != "" {
		h.Set(headerKey, headerText(d.Key))
	}
	if d.Tenant != "" {
		h.Set(headerTenant, headerText(d.Tenant))
	}
	if d.Trace != "" {
		h.Set("traceparent", d.Trace)
	}
	if e.Format == FormatCloudEvents {
		h.Set("ce-specversion", "1.0")
		h.Set("ce-id", id)
		h.Set("ce-source", "/dbcron/queues/"+headerText(d.Queue))
		h.Set("ce-type", headerText(d.Kind))
		h.Set("ce-time", d.Enqueued().UTC().Format("2006-01-02T15:04:05.000000Z"))
		if d.Key != "" {
			h.Set("ce-subject", headerText(d.Key))
		}
	}
	return r, nil
}

// triesOf returns the number of failed attempts after which a job is dead.
func triesOf(e *Endpoint, d *queue.Delivery) int {
	if d.MaxAttempts > 0 {
		return d.MaxAttempts
	}
	return e.tries
}

// limitOf returns the timeout of a request: the job's, which the queue cuts, its queue's, or the endpoint's.
func limitOf(e *Endpoint, d *queue.Delivery) time.Duration {
	switch {
	case d.Timeout == 0:
		return usualLimit(e)
	case e.most == 0:
		return min(d.Timeout, longestTimeout)
	}
	return min(d.Timeout, max(e.most, e.limit), longestTimeout)
}

// usualLimit is the timeout of a request for jobs without one: their queue's, or the endpoint's.
func usualLimit(e *Endpoint) time.Duration {
	if e.limit > 0 {
		return min(e.limit, longestTimeout)
	}
	return e.Timeout
}

// headerText writes a name in visible ASCII. Other characters, blanks and % are escaped as in a URL.
func headerText(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c > ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
