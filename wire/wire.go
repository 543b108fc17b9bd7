// Package wire defines the nouns of dbcron as they leave the process: jobs, queues, schedules and all
// else that the HTTP API, the Go client, the commands with -o json, events and notifications show or
// take. There is one type for each noun, so that all of them say the same.
//
// The package imports nothing but the standard library and the formats below it. A program that uses
// the client brings no database.
//
// These rules hold for every type:
//
//   - A field that has nothing to say is left out: there is no null and no empty text. A number, a
//     boolean and a list that always apply are always there.
//   - An id is a decimal number in a text, since readers of JSON round large numbers.
//   - An instant is an [Instant]: 2026-01-02T03:04:05.000000Z.
//   - A length of time is a [Duration]: 1h30m, none or forever.
//   - A priority is a word: see [PriorityName].
//   - A number in whose place a word can stand is a [Count], a text: how many are kept is "100" or all, how
//     often something may happen is "3" or none.
//   - A size is a number of bytes.
//   - A state is one of the words that its field lists.
//   - Bytes that are not JSON are in base64, in a field whose name ends with _base64.
package wire

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// An Instant is a time. As JSON it is in RFC 3339, in UTC, with microseconds. The zero Instant means
// that there is none, and its field is left out.
type Instant struct{ time.Time }

// At returns the Instant of a time.
func At(t time.Time) Instant { return Instant{t} }

// MarshalJSON formats the instant.
func (i Instant) MarshalJSON() ([]byte, error) {
	if i.IsZero() {
		return []byte("null"), nil
	}
	return []byte(i.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}

// UnmarshalJSON parses an instant, with any offset.
func (i *Instant) UnmarshalJSON(text []byte) error {
	if err := i.Time.UnmarshalJSON(text); err != nil {
		return fmt.Errorf("%.60s is not a time with its zone, such as 2026-12-31T18:00:00Z or 2026-12-31T18:00:00+01:00", text)
	}
	return nil
}

// ID formats an id. 0, which means none, becomes the empty text.
func ID(id int64) string {
	if id == 0 {
		return ""
	}
	return strconv.FormatInt(id, 10)
}

// ParseID is the inverse of ID, for an id that is there.
func ParseID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 || text[0] == '+' {
		return 0, fmt.Errorf("it is not an id, which is a number from 1 to %d", math.MaxInt64)
	}
	return id, nil
}
