package health

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

// MostRefusals limits the jobs that are listed because the database refuses to store their outcome.
const MostRefusals = 100

// openTooLong is the age at which a group that nobody has sealed is reported.
const openTooLong = 24 * time.Hour

// A Check is what one check of the database has found.
type Check struct {
	Name   string `json:"check"`
	Status Status `json:"status"`
	Detail string `json:"detail"`               // what was seen
	Advice string `json:"what_to_do,omitempty"` // what to do about it, unless it is OK
	Err    error  `json:"-"`                    // why the check itself failed, which Detail says, too; nil: it was made

	id string // of the problem that it tells of; nobodys: it has none
}

// A Status is the result of a Check.
type Status string

// The results.
const (
	OK      Status = "ok"
	Known   Status = "known" // a Warning or Failed that somebody has acknowledged
	Warning Status = "warning"
	Failed  Status = "failed"
)

// broken is the result of a check that could not be made.
func broken(name string, status Status, err error, advice string) Check {
	return Check{Name: name, Status: status, Detail: err.Error(), Advice: advice, Err: err}
}

// OfDatabase checks the database itself: what the server is and how it is set, the tables, the rights of the
// connection's user, old snapshots and dead rows, the clock. as is what that user is for, one of Purposes; "":
// what its rights come nearest to. usable reports whether the tables can be expected to work, so that it makes
// sense to look at the work.
func OfDatabase(ctx context.Context, db *dialect.DB, as string) (all []Check, usable bool) {
	found, err := db.Findings(ctx)
	if err != nil {
		all = append(all, broken("settings", Failed, err, "let this user read the server's settings"))
	}
	takesWrites, shown := true, true
	for _, f := range found {
		shown = shown && (f.OK || f.Subject != sqlrun.RowSecurity)
		takesWrites = takesWrites && (f.OK || f.Subject != "writable")
		all = append(all, checkOf(f, Failed))
	}
	if !shown { // the tables look as if they were empty
		return append(all, ofClock(ctx, db)), false
	}
	waits, err := db.TableLockWaits(ctx) // before what may have to wait itself
	if err != nil {
		all = append(all, broken("table locks", Warning, err, "try again; if it persists, report it as a bug"))
	}
	for _, f := range waits {
		all = append(all, checkOf(f, Failed))
	}
	schema, version := ofSchema(ctx, db)
	usable = version == unknownVersion || schema.Status == OK
	tables := []Check{schema}
	if version != 0 { // otherwise that they are not there is said
		tables = append(tables, ofTables(ctx, db))
	}
	if !takesWrites { // rights cannot be judged there
		for i := range tables {
			if tables[i].Status == Failed {
				tables[i].Advice = "look at a server that takes writes: see above"
			}
		}
		return append(append(all, tables...), ofClock(ctx, db)), false
	}
	all = append(all, tables...)
	if full := ofSpace(ctx, db); usable && full != nil { // whoever is at work cannot say so
		all = slices.DeleteFunc(all, func(c Check) bool { return c.Name == "writable" })
		return append(append(all, *full), ofClock(ctx, db)), false
	}
	if usable {
		all = append(all, ofRights(ctx, db, as)...)
	}
	for _, look := range []func(context.Context, *dialect.DB) []Check{ofGroups, ofRefused, ofStrain} {
		all = append(all, look(ctx, db)...)
	}
	return append(all, ofClock(ctx, db)), usable
}

// checkOf is a finding of the engine. bad is what it is if it is not OK.
func checkOf(f sqlrun.Finding, bad Status) Check {
	if f.OK {
		return Check{Name: f.Subject, Status: OK, Detail: f.Detail}
	}
	return Check{Name: f.Subject, Status: bad, Detail: f.Detail, Advice: f.Advice}
}

// unknownVersion is that of tables which may be those that this program needs: a user who may not read the version has to be told why.
const unknownVersion = -1

// ofSchema also returns the version of the tables.
func ofSchema(ctx context.Context, db *dialect.DB) (_ Check, version int64) {
	latest := sqlschema.Latest(db.Dialect)
	version, err := sqlschema.Version(ctx, db)
	if err != nil {
		return broken("schema", Failed, err, "let this user read the tables: dbcron help grants"), unknownVersion
	}
	c := Check{Name: "schema", Status: OK, Detail: fmt.Sprintf("version %d of %d", version, latest)}
	switch err := sqlschema.Check(ctx, db); {
	case errors.Is(err, sqlschema.ErrOutdated):
		c.Status, c.Advice = Failed, sqlschema.Advice(ctx, db)
		c.Detail = fmt.Sprintf("the tables are at version %d, and this dbcron needs version %d", version, latest)
		if version == 0 {
			c.Detail = fmt.Sprintf("version 0 of %d: there are no tables", latest)
		}
	case errors.Is(err, sqlschema.ErrNewer):
		c.Status, c.Advice = Failed, fmt.Sprintf("use a dbcron that knows version %d", version)
		c.Detail = fmt.Sprintf("the tables are at version %d, and this dbcron knows up to version %d", version, latest)
	case err != nil:
		return broken("schema", Failed, err, "dbcron help upgrading"), version
	}
	return c, version
}

// ofTables reads from the tables, since a version table alone is no schema. ofRights reports tables that the
// user may not read.
func ofTables(ctx context.Context, db *dialect.DB) Check {
	detail := "they can be read"
	for _, read := range []func() error{
		func() error { _, err := scheduler.List(ctx, db, "", 1); return err },
		func() error { _, err := scheduler.History(ctx, db, "", 1); return err },
		func() error { return readLocks(ctx, db) },
	} {
		switch err := read(); {
		case err == nil:
		case db.Dialect.Denied(err):
			detail = "this user may not read all of them"
		case db.Dialect.Missing(err):
			return broken("tables", Failed, err, "run dbcron migrate up; if that finds nothing to do, the tables were "+
				"dropped by hand: dbcron migrate to 0, then up")
		default:
			return broken("tables", Failed, err, "see above; the server's log may tell more")
		}
	}
	return Check{Name: "tables", Status: OK, Detail: detail}
}

func readLocks(ctx context.Context, db *dialect.DB) error {
	l, err := lock.New(db, lock.Options{})
	if err == nil {
		_, err = l.List(ctx, "", 0, 1)
	}
	return err
}

// ofSpace tries a write of a page, and returns a check if there is no room for it. It leaves nothing: the row is removed, and one of a
// dead process would go after a day. Other checks report what else keeps from writing.
func ofSpace(ctx context.Context, db *dialect.DB) *Check {
	node := "doctor:" + strings.ToLower(rand.Text())
	probe := File{Source: "dbcron doctor", Node: node, Problem: strings.Repeat("a write of dbcron doctor ", 150)}
	err := NoteFile(ctx, db, probe)
	if err == nil {
		err = ForgetFiles(ctx, db, probe.Node)
	}
	if err == nil || !db.Dialect.NoSpace(err) {
		return nil
	}
	return &Check{
		Name: "writable", Status: Failed, Detail: "the disk of the database is full: " + err.Error(),
		Advice: "make room on it; daemons and workers that run go on by themselves then. Until then they cannot record that they are at work, " +
			"so the work was not looked at",
	}
}

// ofGroups reports groups that may never end because nobody has sealed them, for instance because their
// program died before it enqueued the last job. Other checks report what cannot be read.
func ofGroups(ctx context.Context, db *dialect.DB) []Check {
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return nil
	}
	open, err := c.Groups(ctx, queue.GroupOpen, 0, 1)
	if err != nil || len(open) == 0 {
		return nil
	}
	now, err := scheduler.Clock(ctx, db)
	if age := now.Sub(open[0].Created); err != nil || age < openTooLong {
		return nil
	}
	id := strconv.FormatInt(open[0].ID, 10)
	return []Check{{
		Name: "groups", Status: Warning, Detail: "group " + id + " has been open since " + plain.Instant(open[0].Created, time.UTC),
		Advice: "seal it, if all of its jobs were enqueued, or delete it: dbcron group seal " + id + ", dbcron group list --state open",
	}}
}

// ofRefused reports jobs whose outcome the database refuses to store. Other checks report what cannot be read.
func ofRefused(ctx context.Context, db *dialect.DB) []Check {
	c, err := admin.New(db, admin.Options{})
	if err != nil {
		return nil
	}
	all, err := c.AllRefusals(ctx, MostRefusals)
	if err != nil || len(all) == 0 {
		return nil
	}
	r := &all[0]
	detail := fmt.Sprintf("job %d of queue %s, block %d: %s", r.Job, plain.Line(r.Queue, 200), r.Block, RefusalText(r))
	if n := len(all) - 1; n > 0 {
		more := strconv.Itoa(n)
		if len(all) == MostRefusals {
			more += " or more"
		}
		detail = fmt.Sprintf("%s; and %s other jobs", detail, more)
	}
	return []Check{{
		Name: "refused", Status: Warning, Detail: detail,
		Advice: "remove what makes the database refuse it, such as a trigger, a constraint or a " +
			"missing right; workers go on trying. See them with dbcron queue show " + plain.Line(r.Queue, 200),
	}}
}

// RefusalText describes a refusal for people.
func RefusalText(r *admin.Refusal) string {
	times := "1 time"
	if r.Tries != 1 {
		times = fmt.Sprintf("%d times", r.Tries)
	}
	return fmt.Sprintf("%s, since %s, tried %s by %s: %s", r.What, plain.Instant(r.Since, time.UTC), times,
		plain.Line(r.Worker, 200), plain.Line(r.Error, 1000))
}

// ofStrain reports what makes the server slow over time. None of it prevents work.
func ofStrain(ctx context.Context, db *dialect.DB) (all []Check) {
	if db.Dialect.Strain == nil {
		return nil
	}
	found, err := db.Dialect.Strain(ctx, db)
	for _, f := range found {
		all = append(all, checkOf(f, Warning))
	}
	if err != nil {
		all = append(all, broken("strain", Warning, err, "try again; if it persists, report it as a bug"))
	}
	return all
}

// ofClock compares the clocks. The database's decides; people see the host's beside it.
func ofClock(ctx context.Context, db *dialect.DB) Check {
	before := HostNow()
	now, err := scheduler.Clock(ctx, db)
	if err != nil {
		return broken("clock", Failed, err, "see above")
	}
	took := HostNow().Sub(before)
	if back, err := clockCheck(ctx, db, now); err != nil || back != nil {
		if err != nil {
			return broken("clock", Warning, err, "try again; if it persists, report it as a bug")
		}
		return *back
	}
	skew := now.Sub(before.Add(took / 2))
	side := "ahead of"
	if skew < 0 {
		side = "behind"
	}
	c := Check{Name: "clock", Status: OK, Detail: fmt.Sprintf("the database's is %v %s this host's (asked in %v)",
		skew.Abs().Round(time.Millisecond), side, took.Round(time.Microsecond))}
	if skew.Abs() > time.Second+took {
		c.Status = Warning
		c.Advice = "runs start by the database's clock: let NTP set both"
	}
	return c
}

// HostNow is this host's clock, which is only for people to compare. Tests set it.
var HostNow = time.Now //nolint:forbidigo // shown beside the database's, never stored
