package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue/admin"
)

// Check compares what was enqueued with the ledger, the orders, the dead letters, and what is left.
func (q *queueWork) Check(w *World) error {
	if err := q.readDead(w); err != nil {
		return err
	}
	phantoms, err := q.readLedger(w)
	if err != nil {
		return err
	}
	for _, name := range phantoms {
		w.Violate("phantom", []string{name}, "the ledger has an entry of %s, which nobody has enqueued", name)
	}
	orders, err := q.readOrders(w)
	if err != nil {
		return err
	}
	for _, j := range q.order {
		q.account(w, j, orders[j.name])
	}
	for _, j := range q.order {
		for _, o := range j.waiting {
			if !o.dead {
				w.Violate("order", append(words(o), words(j)...), "%s has begun before %s had ended", j.name, o.name)
			}
		}
	}
	q.checkOrder(w)
	return nil
}

// mayHaveEnded reports whether others may believe that a job has ended a process: it did end, or was away until its
// lease was over, and then for as long as a job that is convicted waits for it (appealFor), less what it takes to say so.
func (q *queueWork) mayHaveEnded(p *Process) bool {
	return p.hasEnded() || p.wasAway() > q.max.lease*2/3+3*time.Second
}

func (q *queueWork) readDead(w *World) error {
	dead, _, err := q.admin.Jobs(w.Free(), admin.Filter{Queue: simQueue, State: admin.StateDead, Limit: 10_000})
	if err != nil {
		return err
	}
	for i := range dead {
		d := &dead[i]
		name := strings.Trim(string(d.Payload), `" `)
		w.count("a job is dead")
		switch j := q.jobs[name]; {
		case j == nil:
			w.Violate("phantom", []string{name}, "%s is dead, which nobody has enqueued", name)
		case d.Crashes < q.max.crashes && !strings.Contains(d.Error, "lost its lease"):
			w.Violate("buried", words(j), "%s is dead after %d crashes of %d: %s", name, d.Crashes, q.max.crashes, d.Error)
			j.dead = true
		case !strings.Contains(d.Error, "lost its lease") && !slices.ContainsFunc(j.workers, q.mayHaveEnded):
			w.Violate("buried", words(j), "%s is dead, and no process that has begun it has died, been stopped or been away for long: %s", name, d.Error)
			j.dead = true
		default:
			j.dead = true
		}
	}
	return nil
}

func (q *queueWork) readLedger(w *World) (phantoms []string, err error) {
	rows, err := w.Operator.Pool().QueryContext(w.Free(), `SELECT seq, job, who FROM sim_ledger ORDER BY seq`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e effect
		var name string
		if err := rows.Scan(&e.seq, &name, &e.who); err != nil {
			return nil, err
		}
		w.mu.Lock()
		w.done["entries"]++
		w.mu.Unlock()
		if j := q.jobs[name]; j != nil {
			j.seen = append(j.seen, e)
		} else {
			phantoms = append(phantoms, name)
		}
	}
	return phantoms, rows.Err()
}

func (q *queueWork) readOrders(w *World) (map[string]bool, error) {
	rows, err := w.Operator.Pool().QueryContext(w.Free(), `SELECT job FROM sim_order`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		all[name] = true
	}
	return all, rows.Err()
}

// account checks one job.
func (q *queueWork) account(w *World, j *simJob, ordered bool) {
	entered := len(j.seen) > 0
	ended := j.dead || entered || j.kind == plainKind && j.ends > 0
	if j.kind != plainKind && entered && j.ends == 0 {
		w.count("an entry of a handler that was not told")
	}
	if len(j.seen) > 1 {
		w.Violate("doubled", words(j), "%s has %d entries: %v", j.name, len(j.seen), j.seen)
	}
	if j.inTx && ordered != ended && (ordered || entered || j.ends > 0) {
		w.Violate(map[bool]string{true: "lost", false: "phantom"}[ordered], words(j),
			"%s: its order is there: %v, and it has ended: %v", j.name, ordered, ended)
	}
	switch {
	case j.fate == confirmed && !ended:
		w.Violate("lost", words(j), "%s was enqueued, and has not ended", j.name)
	case j.fate == refused && (entered || j.ends > 0 || j.dead):
		w.Violate("phantom", words(j), "%s was not enqueued, and was done", j.name)
	case j.kind != plainKind && j.ends > 0 && !entered:
		w.Violate("lost", words(j), "a handler has committed the entry of %s, and there is none", j.name)
	}
}

// checkOrder compares the order of each key's entries with that in which its jobs were enqueued. Only the
// jobs of one process have an order while the server's clock is set.
func (q *queueWork) checkOrder(w *World) {
	if !q.max.strict {
		return
	}
	last := map[string]*simJob{}
	for _, j := range q.order {
		if j.key < 0 || len(j.seen) == 0 {
			continue
		}
		key := fmt.Sprint(j.key)
		if w.Stepped() {
			key += j.who
		}
		if before := last[key]; before != nil && before.seen[0].seq > j.seen[0].seq {
			w.Violate("order", append(words(before), words(j)...), "the entry of %s (%v) comes after that of %s (%v)",
				before.name, before.seen[0], j.name, j.seen[0])
		}
		last[key] = j
	}
}

// checkBegin looks whether a job may begin here and now. The world's mutex is held.
func (q *queueWork) checkBegin(p *Process, j *simJob) {
	if p.w.steppedLocked() {
		return
	}
	switch by := j.worker; {
	case by == nil || by == p:
	case j.open && by.sound(j.began) && q.losses[by] == j.losses:
		p.w.violate("late", words(j), "%s begins on %s although %s has it, which is well", j.name, p.who(), by.who())
	case j.belief != nil && j.belief.Err() == nil && by.runs(): // whatever has happened to its connections, its lease has ended
		p.w.violate("late", words(j), "%s begins on %s, and on %s its handler goes on, whose context has not ended", j.name, p.who(), by.who())
	}
	if j.key < 0 || !q.max.strict {
		return
	}
	for _, o := range q.order {
		switch {
		case o.key != j.key:
		case o.n > j.n && o.told:
			p.w.violate("order", append(words(o), words(j)...), "%s begins on %s after the entry of %s was committed", j.name, p.who(), o.name)
		case o.n < j.n && o.fate == confirmed && o.kind == plainKind && o.ends == 0:
			j.waiting = append(j.waiting, o) // it may be dead
		}
	}
}

// untoldFor is how long a producer may take to ask whom to notify of a job.
const untoldFor = 2 * time.Second

// checkTold looks whether producers have told of their jobs: after each was stored, a statement has notified
// workers, or has seen that there is none. The world's mutex is held.
func (q *queueWork) checkTold(w *World) {
	if w.dialect.Notify == nil {
		return
	}
	for p, stored := range q.untold {
		switch {
		case p.hasEnded() || !p.rangAt().Before(stored):
			delete(q.untold, p)
		case time.Since(stored) > untoldFor && p.sound(stored):
			w.violate("untold", []string{p.who()}, "%s has not asked whom to notify of a job that was stored %v ago", p.who(), time.Since(stored))
		}
	}
}

func (p *Process) storedAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stored
}

func (p *Process) rangAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rang
}

// words are what events about a job mention.
func words(j *simJob) []string {
	all := []string{" " + j.name + ":", `"` + j.name + `"`, j.name + " "}
	if j.id != 0 {
		all = append(all, fmt.Sprint(j.id))
	}
	return all
}
