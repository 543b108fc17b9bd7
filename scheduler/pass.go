package scheduler

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A passage is slots of a locked schedule that do not run. Its state is missed or skipped.
type passage struct {
	c     *candidate
	state string
	slotRange
}

// passAll records slots that do not run. It leaves out those that have a run already because
// somebody requested one, so a range may become several. It lengthens the row of the preceding
// slots where that has the same state and reason.
//
// The number of its statements does not depend on that of the slots or schedules: a daemon that is
// behind has the more of them to record.
//
// Notices that others have locked are added to left: see noteAll.
func passAll(ctx context.Context, tx *sqlrun.Session, all []passage, left *leftovers) error {
	if len(all) == 0 {
		return nil
	}
	tails, err := tailsOf(ctx, tx, all)
	if err != nil {
		return err
	}
	taken, err := takenOf(ctx, tx, all, tails)
	if err != nil {
		return err
	}
	w := passing{tails: tails}
	var notes noteRows
	for _, p := range all {
		parts := p.without(p.c.plan, taken[p.c.Name])
		for _, part := range parts {
			w.add(p.c, p.state, part)
		}
		if p.state != "missed" || len(parts) == 0 {
			continue
		}
		notes.add(&p.c.Schedule, incident{problem: p.state, detail: missedText(parts), due: parts[len(parts)-1].to})
	}
	if err := w.write(ctx, tx); err != nil {
		return err
	}
	return noteAll(ctx, tx, notes, left)
}

// A tail is the newest run of a schedule, which further slots may lengthen. If it is not in the table
// yet, its id is 0.
type tail struct {
	id         int64
	due, to    time.Time
	state, why string
	row        int // among the rows to write, if changed
	changed    bool
}

// tailsOf reads the newest run of each schedule.
func tailsOf(ctx context.Context, tx *sqlrun.Session, all []passage) (map[string]*tail, error) {
	var names nameRows
	for _, p := range all {
		if n := len(names); n == 0 || names[n-1] != p.c.Name { // those of a schedule are adjacent
			names = append(names, p.c.Name)
		}
	}
	tails := make(map[string]*tail, len(names))
	_, err := sqlrun.Select(ctx, tx, newest, sqlrun.Args{"rows": names}, func(rows *sql.Rows) (none struct{}, err error) {
		var name string
		var text sql.NullString // NULL: it has no run
		err = rows.Scan(&name, &text)
		if t := tailIn(text.String); t != nil {
			tails[name] = t
		}
		return none, err
	})
	return tails, err
}

// tailIn reads what newest returns of a run; nil: nothing.
func tailIn(text string) *tail {
	const fields = 5
	parts := strings.SplitN(text, between, fields)
	if len(parts) < fields {
		return nil
	}
	var numbers [3]int64
	for i, at := range []int{0, 1, 3} {
		n, err := strconv.ParseInt(parts[at], 10, 64)
		if err != nil {
			return nil
		}
		numbers[i] = n
	}
	return &tail{id: numbers[0], due: instantOf(numbers[1]), state: parts[2], to: instantOf(numbers[2]), why: parts[4]}
}

// takenOf returns by schedule which of the slots have runs. That is seldom any: the newest run
// precedes them.
func takenOf(ctx context.Context, tx *sqlrun.Session, all []passage, tails map[string]*tail) (map[string][]attemptAt, error) {
	wanted := map[string]bool{}
	var from, to time.Time
	for _, p := range all {
		if t := tails[p.c.Name]; t == nil || t.due.Before(p.from) {
			continue
		}
		if len(wanted) == 0 || p.from.Before(from) {
			from = p.from
		}
		if p.to.After(to) {
			to = p.to
		}
		wanted[p.c.Name] = true
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	found, err := attempts(ctx, tx, slices.Sorted(maps.Keys(wanted)), from, to)
	taken := map[string][]attemptAt{}
	for _, a := range found {
		taken[a.schedule] = append(taken[a.schedule], a)
	}
	return taken, err
}

// A passing collects the rows of ranges.
type passing struct {
	tails      map[string]*tail
	inserts    passRows
	lengthened passRows
}

// add lengthens the row before a range, or inserts one.
func (w *passing) add(c *candidate, state string, m slotRange) {
	t := w.tails[c.Name]
	if t == nil || t.state != state || t.why != m.why || !follows(c, t.to, m.from) {
		w.tails[c.Name] = &tail{due: m.from, to: m.to, state: state, why: m.why, row: len(w.inserts), changed: true}
		w.inserts = append(w.inserts, passRow{c: c, state: state, slotRange: m})
		return
	}
	t.to = m.to
	if !t.changed {
		t.row, t.changed = len(w.lengthened), true
		w.lengthened = append(w.lengthened, passRow{id: t.id, c: c, state: state, slotRange: m})
		return
	}
	rows := w.inserts
	if t.id != 0 {
		rows = w.lengthened
	}
	rows[t.row].to = m.to
	rows[t.row].n += m.n
}

// follows reports whether a slot is the next one after another.
func follows(c *candidate, before, slot time.Time) bool {
	next, ok := c.plan.Next(before)
	return ok && next.Equal(slot)
}

func (w *passing) write(ctx context.Context, tx *sqlrun.Session) error {
	if len(w.lengthened) > 0 {
		slices.SortFunc(w.lengthened, func(a, b passRow) int { return int(a.id - b.id) })
		n, err := tx.Exec(ctx, lengthen, sqlrun.Args{"rows": w.lengthened})
		if err == nil && n != int64(len(w.lengthened)) {
			err = w.insertRest(ctx, tx, n)
		}
		if err != nil {
			return err
		}
	}
	if len(w.inserts) == 0 {
		return nil
	}
	slices.SortFunc(w.inserts, func(a, b passRow) int { // of all who insert in one order
		if order := strings.Compare(a.c.Name, b.c.Name); order != 0 {
			return order
		}
		return a.from.Compare(b.from)
	})
	_, err := tx.Exec(ctx, pass, sqlrun.Args{"rows": w.inserts})
	return err
}

// insertRest inserts anew what would have lengthened rows that were purged meanwhile, or that others have locked.
// This transaction holds the locks of those that were lengthened.
func (w *passing) insertRest(ctx context.Context, tx *sqlrun.Session, lengthened int64) error {
	ids := make([]int64, len(w.lengthened))
	for i := range w.lengthened {
		ids[i] = w.lengthened[i].id
	}
	mine, err := ownersOf(ctx, tx, free, ids)
	if err != nil {
		return err
	}
	if int64(len(mine)) != lengthened { // one was let go in between
		return fmt.Errorf("%w: %d ranges were lengthened, and %d are free", errHeld, lengthened, len(mine))
	}
	for _, row := range w.lengthened {
		if _, ok := mine[row.id]; !ok {
			w.inserts = append(w.inserts, row)
		}
	}
	return nil
}

// missedText says how many slots were missed, and why.
func missedText(parts []slotRange) string {
	var n int64
	for _, part := range parts {
		n += part.n
	}
	if n == 1 {
		return "the slot of " + parts[0].from.Format(time.RFC3339) + " was missed: " + parts[0].why
	}
	return fmt.Sprintf("%d slots from %s to %s were missed: %s", n, parts[0].from.Format(time.RFC3339),
		parts[len(parts)-1].to.Format(time.RFC3339), parts[0].why)
}
