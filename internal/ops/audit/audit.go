// Package audit records what operators did from the command line, the HTTP API and the dashboard, in
// one table.
//
// An entry is written after the act has succeeded. It never contains payloads or secrets. An operation on many
// jobs that its caller sends in parts has one entry, to which each part adds what it did.
package audit

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Where an act came from.
const (
	CLI       = "cli"
	API       = "api"
	Dashboard = "dashboard"
)

// How the actor was identified.
const (
	Token = "token" // by a token, whose name is the actor
	Proxy = "proxy" // by a header of a trusted proxy
	OS    = "os"    // by the operating system's user name, which anyone with the database's password can forge
	None  = "none"  // not at all: a program on this host, while there is no token
)

// ThisHost is the actor of a request that needed no token.
const ThisHost = "this host"

const (
	longestName   = 200 // of an actor, in characters
	longestText   = 500 // of an object and a detail
	longestAction = 100
	writeTime     = 5 * time.Second

	// partsFor is how long the parts of an operation are added to its entry. An operation that takes longer has
	// further entries, which also bounds what a caller can do with the entry of an earlier operation.
	partsFor = 24 * time.Hour
)

// failedText ends the detail of an entry whose operation failed after a part of it was done.
const failedText = " (then it failed)"

// An Entry says who did what, to how many objects, and when.
type Entry struct {
	ID     int64
	At     time.Time // by the database's clock
	Actor  string    // a token's name, user@host, or ThisHost
	Login  string    // how the actor was identified: Token, Proxy, OS or None
	Source string    // CLI, API or Dashboard
	Action string    // such as queue.pause
	Object string    // what it was done to, such as the name of a queue
	Count  int       // number of affected objects
	Detail string    // a reason or a filter

	Failed bool // for Write: the operation failed after Count objects; the detail will say so
	More   bool // for Write: further parts of the operation may follow, so their entry's ID is needed
}

// args are the values of an entry. They have its detail in both forms: as it is, and of an operation that failed.
func (e *Entry) args() sqlrun.Args {
	detail := bounded(e.Detail, longestText-len(failedText))
	failed := strings.TrimSpace(detail + failedText)
	args := sqlrun.Args{
		"actor": bounded(e.Actor, longestName), "login": bounded(e.Login, 20), "source": bounded(e.Source, 20),
		"action": bounded(e.Action, longestAction), "object": bounded(e.Object, longestText), "affected": e.Count,
		"detail": detail, "well": detail, "failed": failed,
	}
	if e.Failed {
		args["detail"] = failed
	}
	return args
}

// Write adds an entry, with the database's current time. It works for a moment even if ctx has ended,
// since the act has happened. It cuts texts that are too long.
//
// For a part of an operation, it adds the count to the entry e.ID of the earlier parts, and returns the ID for the
// next one. It adds an entry instead if e.ID is not that of the same act by the same actor within the last day, or if
// the user may only insert.
func Write(ctx context.Context, db *dialect.DB, e Entry) (id int64, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	args := e.args()
	if e.ID != 0 {
		args["id"], args["since"] = e.ID, -partsFor.Microseconds()
		n, err := db.Exec(ctx, writeFurther, args)
		if n > 0 || err != nil && !db.Dialect.Denied(err) {
			return e.ID, err
		}
		if e.Count == 0 && e.Failed {
			return 0, nil // nothing was done
		}
	}
	if e.More {
		id, _, err = db.Next(ctx, writeFirst, args)
		if err == nil || !db.Dialect.Denied(err) {
			return id, err
		}
	}
	_, err = db.Exec(ctx, write, args)
	return 0, err
}

// bounded returns text in a form that each engine stores: valid, without NUL, and not too long.
func bounded(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "�")
	if r := []rune(text); len(r) > most {
		text = string(r[:most-1]) + "…"
	}
	return strings.TrimRight(text, " ") // MySQL ignores trailing blanks in comparisons
}

// FilterText describes a selection of jobs, as the detail of an entry.
func FilterText(state, kind, key, tenant, where string) string {
	var parts []string
	for _, one := range []struct{ name, value string }{{"state", state}, {"kind", kind}, {"key", key}, {"tenant", tenant}, {"where", where}} {
		if one.value != "" {
			parts = append(parts, one.name+"="+one.value)
		}
	}
	return strings.Join(parts, " ")
}

// A Filter selects entries. Empty fields select all.
type Filter struct {
	Actor, Action, Object string
	Since                 time.Time
	Before                int64 // only smaller ids; 0: all
	Limit                 int   // default: 100
}

// List returns entries, newest first. Pass more as Before to continue; it is 0 after the oldest.
func List(ctx context.Context, db *dialect.DB, f Filter) (all []Entry, more int64, err error) {
	f.Limit = cmp.Or(f.Limit, 100)
	args := sqlrun.Args{
		"actor": bounded(f.Actor, longestName), "action": bounded(f.Action, longestAction), "object": bounded(f.Object, longestText),
		"before": cmp.Or(max(f.Before, 0), math.MaxInt64), "since": int64(0), "limit": f.Limit + 1,
	}
	if !f.Since.IsZero() {
		args["since"] = max(0, f.Since.UnixMicro())
	}
	by := list // use the statement whose index selects the fewest rows
	switch {
	case f.Object != "":
		by = listObject
	case f.Actor != "":
		by = listActor
	case f.Action != "":
		by = listAction
	}
	all, err = sqlrun.Select(ctx, &db.Session, by, args, scan)
	if len(all) > f.Limit {
		all = all[:f.Limit]
		more = all[f.Limit-1].ID
	}
	return all, more, err
}

func scan(rows *sql.Rows) (e Entry, err error) {
	var at int64
	err = rows.Scan(&e.ID, &at, &e.Actor, &e.Login, &e.Source, &e.Action, &e.Object, &e.Count, &e.Detail)
	e.At = time.UnixMicro(at).UTC()
	return e, err
}

// writing adds a row.
const writing = `
	INSERT INTO {prefix}audit (done_at, actor, login, source, action, object, affected, detail)
	VALUES ({now}, :actor, :login, :source, :action, :object, {int :affected}, :detail)`

// All SQL of this package.
var (
	// Each act is a row of its own, so writers never conflict.
	write = sqlrun.SQL("audit.write", writing)

	// writeFirst returns the new row's id.
	writeFirst = sqlrun.SQL("audit.write-first", writing+` {returning id}`)

	// writeFurther adds to a row. Parts that are sent at once are all counted, because the database adds. A caller
	// has the id from an earlier answer, but may send any: so the row has to be the same act by the same actor.
	writeFurther = sqlrun.SQL("audit.write-further", `
		UPDATE {prefix}audit SET affected = affected + {int :affected}, detail = :detail
		WHERE id = :id AND actor = :actor AND login = :login AND source = :source AND action = :action
		AND object = :object AND (detail = :well OR detail = :failed) AND done_at > {now + :since}`)

	list      = listBy("audit.list", "")
	listActor = listBy("audit.list-actor",
		"actor = :actor AND (:action = '' OR action = :action) AND (:object = '' OR object = :object) AND ")
	listAction = listBy("audit.list-action",
		"action = :action AND (:actor = '' OR actor = :actor) AND (:object = '' OR object = :object) AND ")
	listObject = listBy("audit.list-object",
		"object = :object AND (:actor = '' OR actor = :actor) AND (:action = '' OR action = :action) AND ")
)

// listBy makes a statement that reads backwards along the index that begins with the first column of
// where, or along the primary key.
func listBy(name, where string) *sqlrun.Stmt {
	return sqlrun.SQL(name, `
		SELECT id, {us done_at}, actor, login, source, action, object, affected, detail FROM {prefix}audit
		WHERE `+where+`id < :before AND done_at >= {time :since} ORDER BY id DESC LIMIT :limit`)
}
