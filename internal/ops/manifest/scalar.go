package manifest

import (
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/pattern"
)

// decimal matches accepted numbers: some read 010 as 8, and 1_000 as a text.
var decimal = pattern.Lazy(`^-?(?:0|[1-9][0-9]{0,11})$`)

// readNumber reads a number, or a word that may stand in its place.
func (r *reader) readNumber(e entry, words []string) (string, bool) {
	v := e.value
	if !r.scalar(e.key, v, "a number") {
		return "", false
	}
	for _, word := range words {
		if v.is(word) {
			return word, true
		}
	}
	switch {
	case v.node.Tag != "!!int" || !decimal().MatchString(v.node.Value):
		r.fail(v.line, "%s is %s; write a whole number such as 3, without quotes", e.key, describe(v.node))
	case v.node.Value == "0": // in Go it would mean the default
		r.fail(v.line, "%s is 0; use at least 1", e.key)
	default:
		return v.node.Value, true
	}
	return "", false
}

func (r *reader) readFlag(e entry) (is, ok bool) {
	v := e.value
	if !r.scalar(e.key, v, "true or false") {
		return false, false
	}
	if v.node.Tag != "!!bool" {
		r.fail(v.line, "%s is %s; write true or false, without quotes", e.key, describe(v.node))
		return false, false
	}
	return strings.EqualFold(v.node.Value, "true"), true
}

const instantAdvice = "write for example 2026-12-31T18:00:00+01:00, or 2026-12-31 18:00 for the time in the schedule's time zone"

// readInstant reads RFC 3339, or a date and time in the schedule's zone. A date alone is refused later: it would be
// unclear whether a schedule that ends on a day still runs on that day.
func (it *item) readInstant(e entry) (string, bool) {
	v := e.value
	if !it.scalar(e.key, v, "a time") {
		return "", false
	}
	if v.node.Tag != "!!str" && v.node.Tag != "!!timestamp" {
		it.fail(v.line, "%s is %s; %s", e.key, describe(v.node), instantAdvice)
		return "", false
	}
	if at, err := time.Parse(time.RFC3339, v.node.Value); err == nil && at.Nanosecond()%1e6 != 0 {
		it.fail(v.line, "%s: %s is finer than a millisecond; use at most three digits after the point", e.key, quoted(v.node.Value))
		return "", false
	}
	return v.node.Value, true
}
