package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
)

const (
	commandPrefix = "command:"

	maxPending  = 20_000 // notices per transaction
	maxListed   = 200    // per message
	namesAtOnce = 1000   // per statement
)

// A notice is a row of the table of that name.
type notice struct {
	Trouble
	target           string // as stored: "" for the daemons' default
	tell, told, well int64  // µs
	toldTo           string
}

// A present is the result of glance.
type present struct{ notices, queue, look bool }

func (n *Notifier) glance(ctx context.Context) (p present, err error) {
	var notices, there, fresh int
	args := sqlrun.Args{"queue": Queue, "ago": -lookEvery.Microseconds(), "ahead": lookEvery.Microseconds()}
	err = n.db.Get(ctx, glance, args, &notices, &there, &fresh)
	return present{notices > 0, there > 0, fresh == 0}, err
}

// stored returns a target as tables name it: a command is neither shown there nor taken from there.
func stored(target string) string {
	if !strings.HasPrefix(target, commandPrefix) {
		return target
	}
	return commandPrefix + digest(target)
}

func digest(target string) string {
	sum := sha256.Sum256([]byte(target))
	return hex.EncodeToString(sum[:8])
}

// reference returns a target as a message names it. Everybody who may read jobs reads messages, so the URL of a webhook, which
// is often a secret, is not in them: ref finds it among the targets that messages were made for.
func reference(target string) (shown, ref string) {
	if shown = Shown(target); shown != target {
		ref = digest(target)
	}
	return shown, ref
}

// dereference finds the target that a message refers to.
func (n *Notifier) dereference(ctx context.Context, m *Message) error {
	if m.Ref == "" {
		return nil
	}
	all, err := sqlrun.Select(ctx, &n.db.Session, webhooks, nil, func(rows *sql.Rows) (target string, err error) {
		return target, rows.Scan(&target)
	})
	if err != nil {
		return err
	}
	for _, target := range all {
		if digest(target) == m.Ref {
			m.Target = target
			return nil
		}
	}
	return queue.Bury(fmt.Errorf("the URL of %s is not in the table notice_target any more, so the message cannot be sent", m.Target))
}

// targetsOf returns the targets of a notice.
func (n *Notifier) targetsOf(x *notice) []string {
	text := x.target
	if x.told != 0 {
		text = x.toldTo
	}
	if text != "" {
		return strings.Fields(text)
	}
	all := make([]string, len(n.opt.Targets))
	for i, target := range n.opt.Targets {
		all[i] = stored(target)
	}
	return all
}

// gather makes messages of all pending notices and marks these as told, in one transaction. With wait, new
// notices wait for more of their kind.
func (n *Notifier) gather(ctx context.Context, wait bool) error {
	if _, err := n.db.Exec(ctx, openBook, nil); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		var wake func()
		err := n.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) (err error) {
			wake, err = n.gatherIn(ctx, tx, wait)
			return err
		})
		// A generated job id may equal that of another process: repeat everything with new ids.
		if n.db.Dialect.Duplicate(err) && tries < 3 {
			continue
		}
		if err == nil && wake != nil {
			wake()
		}
		return err
	}
}

func (n *Notifier) gatherIn(ctx context.Context, tx *sqlrun.Session, wait bool) (wake func(), err error) {
	var target string
	if err := tx.Get(ctx, lockBook, nil, &target); err != nil {
		return nil, err
	}
	defaults := 0
	if len(n.opt.Targets) > 0 {
		defaults = 1
	}
	var now int64
	all, err := sqlrun.Select(ctx, tx, pending, sqlrun.Args{"defaults": defaults, "limit": maxPending},
		func(rows *sql.Rows) (x notice, err error) {
			var row sqlrun.Reading // what is unread of a row that was written by hand is left out of its message
			return x, rows.Scan(row.Into("subject", &x.Subject), row.Into("name", &x.Name), row.Into("problem", &x.Problem),
				row.Into("detail", &x.Detail),
				row.Into("target", &x.target), row.Into("run_id", &x.Run), row.Instant("due_at", &x.Due), row.Into("times", &x.Times),
				row.Instant("begun_at", &x.Begun), row.Instant("last_at", &x.Last), row.Instant("tell_at", &x.tell), row.Instant("told_at", &x.told),
				row.Instant("well_at", &x.well), row.Into("told_to", &x.toldTo), &now)
		})
	if err != nil || len(all) == 0 {
		return nil, err
	}
	groups := map[string][]notice{}
	for _, x := range all {
		to := strings.Join(n.targetsOf(&x), " ")
		groups[to] = append(groups[to], x)
	}
	limits, err := n.limits(ctx, tx, groups)
	if err != nil {
		return nil, err
	}
	var jobs []queue.Job
	for _, to := range slices.Sorted(maps.Keys(groups)) {
		group, targets := groups[to], strings.Fields(to)
		if !n.ripe(group, targets, limits, now, wait) {
			continue
		}
		made, err := n.tell(ctx, tx, group, targets, limits, now)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, made...)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	_, wake, err = n.queues.EnqueueIn(ctx, tx, jobs...)
	return wake, err
}

// A tally is what a target was sent in an hour.
type tally struct {
	last, hour int64 // µs
	sent       int
	known      bool // the table has its row
}

// limits reads the tallies of the targets of all groups.
func (n *Notifier) limits(ctx context.Context, tx *sqlrun.Session, groups map[string][]notice) (map[string]*tally, error) {
	all := map[string]*tally{}
	for to := range groups {
		for _, target := range strings.Fields(to) {
			all[target] = &tally{}
		}
	}
	for part := range slices.Chunk(slices.Sorted(maps.Keys(all)), namesAtOnce) {
		_, err := sqlrun.Select(ctx, tx, sentTo, sqlrun.Args{"targets": part}, func(rows *sql.Rows) (target string, err error) {
			t := tally{known: true}
			err = rows.Scan(&target, &t.last, &t.hour, &t.sent)
			if all[target] != nil {
				*all[target] = t
			}
			return target, err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// within reports whether an instant is less than d from now, in µs. One that is further ahead was noted before the
// clock was set back.
func within(d time.Duration, at, now int64) bool {
	return -d.Microseconds() < now-at && now-at < d.Microseconds()
}

// ripe reports whether a group is told now: it has waited for more of its kind, and each target may be
// sent a message. A group that must wait is told together with what arrives meanwhile.
func (n *Notifier) ripe(group []notice, targets []string, limits map[string]*tally, now int64, wait bool) bool {
	if wait && within(n.opt.gather, group[0].tell, now) {
		return false
	}
	for _, target := range targets {
		t := limits[target]
		if within(n.opt.Every, t.last, now) || within(time.Hour, t.hour, now) && t.sent >= n.opt.Limit {
			return false
		}
	}
	return true
}

// tell makes the messages of a group, one per target, and updates its rows.
func (n *Notifier) tell(ctx context.Context, tx *sqlrun.Session, group []notice, targets []string,
	limits map[string]*tally, now int64,
) (jobs []queue.Job, err error) {
	m := Message{At: now}
	news, ended := map[string][]string{}, map[string][]string{}
	for i := range group {
		x := &group[i]
		x.Well, x.Detail = x.well, plain.Cut(x.Detail, 300)
		switch {
		case x.told != 0 && x.well != 0:
			m.addRecovered(x.Trouble)
		default:
			m.addTrouble(x.Trouble)
		}
		if x.well != 0 {
			ended[x.Subject] = append(ended[x.Subject], x.Name)
		} else {
			news[x.Subject] = append(news[x.Subject], x.Name)
		}
	}
	to := strings.Join(targets, " ")
	for stmt, bySubject := range map[*sqlrun.Stmt]map[string][]string{told: news, over: ended} {
		for subject, names := range bySubject {
			for part := range slices.Chunk(names, namesAtOnce) {
				if _, err := tx.Exec(ctx, stmt, sqlrun.Args{"subject": subject, "names": part, "to": to}); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, target := range targets {
		t := limits[target]
		if err := t.add(ctx, tx, target, now); err != nil {
			return nil, err
		}
		m.Target, m.Ref = reference(target)
		m.Last = t.sent >= n.opt.Limit
		payload, err := json.Marshal(m)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, queue.Job{Queue: Queue, Kind: jobKind, Key: digest(target), Payload: payload})
	}
	return jobs, nil
}

// add counts a message.
func (t *tally) add(ctx context.Context, tx *sqlrun.Session, target string, now int64) error {
	stmt := count
	switch {
	case !t.known:
		stmt, t.hour, t.sent = countFirst, now, 0
	case !within(time.Hour, t.hour, now):
		t.hour, t.sent = now, 0
	}
	t.sent++
	t.last, t.known = now, true
	_, err := tx.Exec(ctx, stmt, sqlrun.Args{"target": target, "hour": t.hour, "sent": t.sent})
	return err
}

// sorted groups similar troubles.
func sorted(all []Trouble) []Trouble {
	slices.SortStableFunc(all, func(a, b Trouble) int {
		return cmp.Or(cmp.Compare(a.Last, b.Last), strings.Compare(a.Name, b.Name))
	})
	return all
}
