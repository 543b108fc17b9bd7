package queue

import "github.com/dbcron/dbcron/dialect"

// copyRows are ready jobs as a bulk load takes them.
type copyRows []jobRow

func (r copyRows) Len() int { return len(r) }

func (r copyRows) Values(i int, to []any) []any {
	j := &r[i]
	var words, bytes any
	switch {
	case j.Binary:
		bytes = j.Payload
	case len(j.Payload) > 0:
		words = dialect.JSON(j.Payload)
	}
	return append(to, int32(j.queue), int32(j.divided), int32(j.Priority), j.id, j.Kind, orNull(j.Key), words, bytes,
		orNull(int32(j.MaxAttempts)), orNull(j.Timeout.Microseconds()), orNull(j.Trace), orNull(j.Endpoint))
}
