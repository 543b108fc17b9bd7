package sqlrun

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A Feature is an optional feature of a database: dbcron uses it if it is there.
type Feature string

const (
	// Notifications tell listeners about commits. Without them, dbcron polls.
	Notifications Feature = "notifications"

	// AdvisoryLocks are locks of the server that belong to no table. Without them there are no
	// session locks, and migrations exclude each other by a row lock.
	AdvisoryLocks Feature = "advisory-locks"

	// Functions are stored functions. Without them there are no views and no function for the SQL
	// prompt.
	Functions Feature = "functions"

	// Listening is the part of Notifications that a pooler does not support: receiving them.
	Listening Feature = "listening"

	// Sessions is the part of AdvisoryLocks that a pooler does not support: locks of a session.
	// Migrations can hold a transaction's lock through it.
	Sessions Feature = "session locks"
)

// features are those that a URL or Options can turn off.
var features = []Feature{Notifications, AdvisoryLocks, Functions}

// withoutParameter is the URL parameter that lists features to do without.
const withoutParameter = "dbcron_without"

// takeWithout removes dbcron's own parameter from a URL, since drivers must not see it, and returns
// the features in it. It leaves the other parameters as written.
func takeWithout(u *url.URL) (without []Feature, err error) {
	var kept []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if name != withoutParameter {
			kept = append(kept, pair)
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, fmt.Errorf("parameter %s: %w", withoutParameter, err)
		}
		for word := range strings.SplitSeq(value, ",") {
			without = append(without, Feature(word))
		}
	}
	if len(without) > 0 {
		u.RawQuery = strings.Join(kept, "&")
	}
	return without, nil
}

// checkWithout refuses unknown features, and those that dbcron needs on the engine.
func (d *Dialect) checkWithout(without []Feature) error {
	for _, f := range without {
		if !slices.Contains(features, f) {
			return fmt.Errorf("%s: unknown feature %q; use notifications, advisory-locks or functions, with commas between", withoutParameter, f)
		}
		if f == AdvisoryLocks && d.Exclusive != nil && d.RowLocked == "" {
			return fmt.Errorf("%s: dbcron cannot do without %s on %s", withoutParameter, f, d.Name)
		}
	}
	return nil
}

// A Lack is a feature that a database lacks, and why.
type Lack struct {
	Feature Feature
	Why     string
}

// Lacks reports whether the database lacks a feature, and why.
func (db *DB) Lacks(f Feature) (why string, lacks bool) {
	why, lacks = db.lacks[f]
	return why, lacks
}

// without turns features off. It must be called before db is used.
func (db *DB) without(lacks []Lack) {
	if len(lacks) == 0 {
		return
	}
	d := *db.Dialect
	for _, l := range lacks {
		if _, known := db.lacks[l.Feature]; !known {
			db.lacks[l.Feature] = l.Why
		}
		switch l.Feature {
		case Notifications:
			d.Notify, d.Listen = nil, nil
		case Listening:
			d.Listen = nil
		case AdvisoryLocks:
			d.Session = nil
			db.lacks[Sessions] = l.Why
		case Sessions:
			d.Session = nil
		case Functions:
		}
	}
	db.Dialect = &d
	db.compiled.Clear()
}

// told returns the features that the options turn off.
func (o Options) told() (lacks []Lack) {
	for _, f := range o.Without {
		lacks = append(lacks, Lack{f, withoutParameter + " says so"})
	}
	return lacks
}

// lacking finds the features that the database lacks, besides those known.
func (db *DB) lacking(ctx context.Context) (lacks []Lack, err error) {
	if db.Dialect.Lacks == nil {
		return nil, nil
	}
	c, err := db.pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return db.Dialect.Lacks(ctx, c, db.lacks)
}

// lackFindings describes for people what db does without.
func lackFindings(known map[Feature]string, found []Lack) (all []Finding) {
	why := map[Feature]string{}
	for _, l := range found {
		why[l.Feature] = l.Why
	}
	for f, w := range known {
		why[f] = w
	}
	for _, f := range features {
		if w, lacks := why[f]; lacks {
			all = append(all, Finding{Subject: string(f), OK: true, Detail: fmt.Sprintf("none (%s): %s", w, consequence[f])})
		}
	}
	return all
}

var consequence = map[Feature]string{
	Notifications: "jobs, schedules and locks are looked for instead of being told of",
	AdvisoryLocks: "session locks are refused, elections rest on their leases alone, and migrations exclude each other by the lock of a row",
	Functions:     "the views and the function for the SQL prompt are not made",
}
