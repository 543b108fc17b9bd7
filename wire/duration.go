package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
)

// A Duration is a length of time as text: numbers with the units w, d, h, m, s, ms and µs, such as
// 500ms, 1h30m or 30d; a day has 24 hours. None is a length of 0, and Forever one without an end. The
// empty text means that nothing is said: the usual, or no change.
type Duration string

// Words in the place of a length.
const (
	None    Duration = "none"    // nothing: no limit, no wait, or nothing kept
	Forever Duration = "forever" // without an end
)

// DurationOf formats a length of time: 0 becomes None, and a negative one Forever.
func DurationOf(d time.Duration) Duration {
	switch {
	case d < 0:
		return Forever
	case d == 0:
		return None
	}
	return Duration(plain.FormatDuration(d))
}

// GivenDuration is DurationOf, except that 0 means that nothing is said.
func GivenDuration(d time.Duration) Duration {
	if d == 0 {
		return ""
	}
	return DurationOf(d)
}

// Time returns the length of time. Forever is -1, and the empty text 0.
func (d Duration) Time() (time.Duration, error) {
	switch {
	case d == None:
		return 0, nil
	case d == Forever:
		return -1, nil
	case strings.HasPrefix(string(d), "-"):
		return 0, fmt.Errorf("%q is negative", string(d))
	}
	t, err := plain.ParseDuration(string(d))
	if err == nil && t == 0 && d != "" {
		err = fmt.Errorf("%q is no length; write none", string(d))
	}
	return t, err
}

// Finite is Time, and refuses Forever.
func (d Duration) Finite() (time.Duration, error) {
	if d == Forever {
		return 0, fmt.Errorf("%q is not possible here; write for example 500ms, 90s, 1h30m or 30d", string(d))
	}
	return d.Time()
}
