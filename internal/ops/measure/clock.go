package measure

import "time"

// A mark is the start of a measurement.
type mark time.Time

func now() mark { return mark(time.Now()) } //nolint:forbidigo // what this package is for: durations

func (m mark) since() time.Duration { return time.Since(time.Time(m)) }
