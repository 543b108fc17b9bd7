package health

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/plain"
)

// Actions of the audit about a finding, whose ID is the object. The newest one counts.
const (
	Acknowledge = "finding.acknowledge"
	Reopen      = "finding.reopen"
)

const (
	// KnownFor is how long a finding stays acknowledged that does not change.
	KnownFor = 30 * 24 * time.Hour

	mostKnown = 1000
)

// ID identifies a finding until it changes: until something else is wrong, or the same again. It is "" for one that counts others,
// which nobody can acknowledge.
func (p *Problem) ID() string {
	if p.Name == "" && p.change == "" {
		return ""
	}
	since := ""
	if p.Of == Schedules || p.Of == Runs || p.Of == Processes { // the moment of what has happened, and not that of a look
		since = p.Since.Format(time.RFC3339Nano)
	}
	what := withoutNumbers(p.what)
	if p.Dead {
		what = "died" // one job, or more
	}
	return idOf(string(p.Of), p.Name, what, fmt.Sprint(p.Bad, " ", p.Run), since, p.change)
}

// ID is like that of a Problem.
func (c *Check) ID() string {
	switch {
	case c.Status == OK, c.id == nobodys:
		return ""
	case c.id == "":
		return idOf(c.Name, string(c.Status), withoutNumbers(c.Detail))
	}
	return c.id
}

// nobodys is the id of a check that tells of a problem without one.
const nobodys = "-"

// Of gives a check the identity of the problem that it tells of.
func (c Check) Of(p *Problem) Check {
	c.id = cmp.Or(p.ID(), nobodys)
	return c
}

// withoutNumbers leaves out what changes from look to look.
func withoutNumbers(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

func idOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// Acknowledged returns the findings that were acknowledged, by their IDs. It is empty if this user may not read the audit.
func Acknowledged(ctx context.Context, db *dialect.DB, now time.Time) (map[string]audit.Entry, error) {
	known := map[string]audit.Entry{}
	for _, action := range []string{Acknowledge, Reopen} {
		entries, _, err := audit.List(ctx, db, audit.Filter{Action: action, Since: now.Add(-KnownFor), Limit: mostKnown})
		if err != nil && db.Dialect.Denied(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			switch has, there := known[e.Object]; {
			case action == Acknowledge && !there:
				known[e.Object] = e
			case action == Reopen && there && has.ID < e.ID:
				delete(known, e.Object)
			}
		}
	}
	return known, nil
}

// Acknowledging is the detail of an entry about a finding.
func Acknowledging(finding, reason string) string {
	finding = plain.Cut(finding, 250)
	if reason == "" {
		return finding
	}
	return finding + because + reason
}

const because = "; because: "

// KnownText says who has acknowledged a finding, when, and why.
func KnownText(e *audit.Entry, now time.Time) string {
	when := "just now"
	if ago := now.Sub(e.At); ago >= time.Second {
		when = plain.Span(ago) + " ago"
	}
	text := fmt.Sprintf("acknowledged by %s %s", plain.Cut(e.Actor, 100), when)
	if reason := ReasonOf(e); reason != "" {
		text += ": " + plain.Line(reason, 200)
	}
	return text
}

// ReasonOf returns why a finding was acknowledged; "" if nobody has said.
func ReasonOf(e *audit.Entry) string {
	_, reason, _ := strings.Cut(e.Detail, because)
	return reason
}

// Unknown leaves out problems that were acknowledged.
func Unknown(all []Problem, known map[string]audit.Entry) []Problem {
	return slices.DeleteFunc(all, func(p Problem) bool {
		_, is := known[p.ID()]
		return is
	})
}
