package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

// errands are the jobs of a workload: what their producers know of them, and what was seen of them. The
// world's mutex guards all of it.
type errands struct {
	list     []*errand // as enqueued
	byName   map[string]*errand
	running  int       // handlers at work
	progress time.Time // when something last began, ended or changed
	patience time.Duration
}

// An errand is a job as its producer knows it.
type errand struct {
	name   string // also its payload
	kind   string
	queue  string // in which it was enqueued
	key    string
	tenant string
	cost   int    // 0: 1
	who    string // the life of its producer
	fate   fate
	id     int64

	begins, ends int      // ends: handlers of live processes that have returned nil
	seen         []effect // its entries in the ledger
	dead         bool
	late         bool // its enqueueing took longer than two seconds
	retried      int  // how many times somebody was told that it is, when it was dead
	gone         int  // how many times somebody was told that it is cancelled
	perhapsGone  bool // somebody got no answer to that
	epoch        int  // see moveWork
}

// begin makes the ledger.
func (e *errands) begin(w *World, patience time.Duration) error {
	e.byName, e.progress, e.patience = map[string]*errand{}, time.Now(), patience //nolint:forbidigo // virtual
	_, err := w.Operator.Pool().ExecContext(w.Free(), `CREATE TABLE sim_ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, who TEXT NOT NULL)`)
	return err
}

// add notes a job that is about to be enqueued. The world's mutex is held.
func (e *errands) add(j *errand) {
	e.byName[j.name] = j
	e.list = append(e.list, j)
}

// stirs notes that something happens, which is no standstill. The world's mutex is held.
func (e *errands) stirs() { e.progress = time.Now() } //nolint:forbidigo // virtual

// fateOf says what an error of enqueueing tells.
func fateOf(err error) fate {
	switch {
	case err == nil:
		return confirmed
	case errors.Is(err, queue.ErrUnknownOutcome):
		return unknown
	}
	return refused
}

// payload is that of a job: its name.
func payload(name string) []byte { return fmt.Appendf(nil, "%q", name) }

// spread calls do until it has returned false or the process stops, spread over the time of the faults.
func spread(p *Process, times int, do func() bool) error {
	pause := time.Duration(p.w.minutes*float64(time.Minute)) / time.Duration(max(1, times))
	for do() {
		if err := p.Sleep(p.ctx, p.Dice.about(pause)); err != nil {
			return err
		}
	}
	return p.ctx.Err()
}

// each does what is left to do, over all lives of a process, spread over the time of the faults.
func each(p *Process, left *int, do func(n int)) error {
	return spread(p, *left, func() bool {
		n := take(p, left)
		if n >= 0 {
			do(n)
		}
		return n >= 0
	})
}

// client connects a process that enqueues.
func (p *Process) client() (*dialect.DB, *queue.Client, error) {
	db, err := p.Open(4)
	if err != nil {
		return nil, nil, err
	}
	c, err := queue.New(db, queue.Options{Logger: p.Log, Doorbell: p.doorbell()})
	return db, c, err
}

// take counts down what is left to do, over all lives of a process; it returns -1 when nothing is left.
func take(p *Process, left *int) (n int) {
	n = -1
	p.Act(func() {
		if *left > 0 {
			*left--
			n = *left
		}
	})
	return n
}

// handle surrounds a handler with what the checks need to know.
func (e *errands) handle(p *Process, d *queue.Delivery, do func(j *errand) error) error {
	if err := p.awake(context.Background(), nil); err != nil { // it stands still, or is dead
		return err
	}
	var j *errand
	name := nameOf(d)
	p.Note("begins %s: %d, attempt %d, %d crashes", name, d.ID, d.Attempt, d.Crashes)
	p.Act(func() {
		e.running++
		e.stirs()
		if j = e.byName[name]; j != nil {
			j.begins++
			j.id = d.ID
		} else {
			p.w.violate("phantom", []string{name}, "%s begins, which nobody has enqueued", name)
		}
	})
	if j == nil {
		return errDead
	}
	err := do(j)
	p.w.mu.Lock()
	e.running--
	e.stirs()
	p.w.mu.Unlock()
	p.Note("ends %s: %d, %v", name, d.ID, err)
	p.Act(func() {
		if err == nil {
			j.ends++
			p.w.Done("done")
		}
	})
	return err
}

// errDead is what handlers of dead processes return.
var errDead = errors.New("the process is dead")

// enter writes entries into the ledger, and completes the jobs in that transaction.
func enter(ctx context.Context, p *Process, db *dialect.DB, all ...*queue.Delivery) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	for _, d := range all {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sim_ledger (job, who) VALUES (?, ?)`, nameOf(d), p.who()); err != nil {
			return err
		}
		if err := d.CompleteTx(ctx, tx); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		p.Act(func() { p.w.Reached("a job fails at its commit") })
		return err
	}
	return nil
}

// tune draws options of a worker that its workload does not.
func (p *Process) tune(opt queue.WorkerOptions) queue.WorkerOptions {
	d := p.w.Dice("worker", p.Name, p.Life)
	opt.Connections, opt.ReadAhead = oneOf(d, 0, 1, 4), oneOf(d, 0, 0, 1000)
	return opt
}

// leftOf says which programs and which jobs have not ended, and looks for what must never be.
func (e *errands) leftOf(w *World) string {
	ready, left, err := leftJobs(w)
	if err != nil {
		return err.Error()
	}
	w.mu.Lock()
	if ready == 0 {
		e.stirs()
	}
	running, since := e.running, time.Since(e.progress)
	w.mu.Unlock()
	if ready > 0 && running == 0 && since > e.patience && w.Quiet() > e.patience && w.Healthy("worker", e.patience) {
		w.Violate("stuck", nil, "%d jobs are ready, a worker is well, and nothing has begun or ended for %v", ready, e.patience)
	}
	return left
}

// leftJobs counts the jobs that have not ended, and says which programs have not.
// No job is in two places, and no unique key has two jobs, at any time.
func leftJobs(w *World) (ready int, text string, err error) {
	const places = `SELECT queue_id, id, unique_key, unique_until FROM dbcron_job WHERE id > 0 UNION ALL SELECT queue_id, id, unique_key, unique_until FROM dbcron_job_delayed WHERE id > 0
		UNION ALL SELECT queue_id, id, unique_key, unique_until FROM dbcron_job_running`
	pool := w.Operator.Pool()
	var delayed, running, places2, keys2 int
	err = pool.QueryRowContext(w.Free(), `SELECT (SELECT COUNT(*) FROM dbcron_job WHERE id > 0),
		(SELECT COUNT(*) FROM dbcron_job_delayed WHERE id > 0), (SELECT COUNT(*) FROM dbcron_job_running),
		(SELECT COUNT(*) FROM (SELECT 1 FROM (`+places+`) GROUP BY queue_id, id HAVING COUNT(*) > 1)),
		(SELECT COUNT(*) FROM (SELECT 1 FROM (`+places+`) WHERE unique_key IS NOT NULL AND unique_until IS NULL GROUP BY queue_id, unique_key HAVING COUNT(*) > 1))`).
		Scan(&ready, &delayed, &running, &places2, &keys2)
	if err != nil {
		return 0, "", err
	}
	if places2 > 0 {
		w.Violate("two places", nil, "%d jobs are in two tables at a time", places2)
	}
	if keys2 > 0 {
		w.Violate("unique", nil, "%d unique keys have two jobs at a time", keys2)
	}
	left := leftPrograms(w)
	if n := ready + delayed + running; n > 0 {
		left = append(left, fmt.Sprintf("%d ready, %d delayed, %d running jobs", ready, delayed, running))
	}
	return ready, strings.Join(left, "; "), nil
}

// leftPrograms lists the programs that have something to do, and have not done it.
func leftPrograms(w *World) (left []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		if h.once && !h.ended {
			left = append(left, h.name)
		}
	}
	return left
}

// account reads the ledger and the dead letters, and compares them with what was enqueued.
func (e *errands) account(w *World) error {
	err := eachRow(w, `SELECT seq, job, who FROM sim_ledger ORDER BY seq`, func(scan func(...any) error) error {
		var f effect
		var name string
		if err := scan(&f.seq, &name, &f.who); err != nil {
			return err
		}
		w.mu.Lock()
		w.done["entries"]++
		w.mu.Unlock()
		if j := e.byName[name]; j != nil {
			j.seen = append(j.seen, f)
		} else {
			w.Violate("phantom", []string{name}, "the ledger has an entry of %s, which nobody has enqueued", name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = eachRow(w, `SELECT payload FROM dbcron_job_dead`, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		name := strings.Trim(text, `"`)
		if j := e.byName[name]; j != nil {
			j.dead = true
			w.count("a job is dead")
		} else {
			w.Violate("phantom", []string{name}, "%s is dead, which nobody has enqueued", name)
		}
		return nil
	})
	for _, j := range e.list {
		j.check(w)
	}
	return err
}

// check looks for a job that is lost, was done twice, or was done without having been enqueued.
func (j *errand) check(w *World) {
	entered := len(j.seen) > 0
	ended := j.dead || entered || j.gone > 0
	if len(j.seen) > 1 {
		w.Violate("doubled", j.words(), "%s has %d entries: %v", j.name, len(j.seen), j.seen)
	}
	switch {
	case j.fate == confirmed && !ended && !j.perhapsGone:
		w.Violate("lost", j.words(), "%s was enqueued, and has not ended", j.name)
	case j.fate == refused && (entered || j.begins > 0 || j.dead):
		w.Violate("phantom", j.words(), "%s was not enqueued, and was done", j.name)
	case j.ends > 0 && !entered:
		w.Violate("lost", j.words(), "a handler has committed the entry of %s, and there is none", j.name)
	case j.dead && entered:
		w.Violate("doubled", j.words(), "%s has an entry, and is dead", j.name)
	}
	if j.gone > 0 && (entered || j.dead) {
		w.Violate("cancelled", j.words(), "%s was cancelled, and has ended otherwise: entries %v, dead %v", j.name, j.seen, j.dead)
	}
	if j.gone > 1 {
		w.Violate("cancelled", j.words(), "%s was cancelled %d times", j.name, j.gone)
	}
}

// checkOrder compares the order of entries with that of enqueueing, for jobs that line puts into the same
// line; "" is none.
func (e *errands) checkOrder(w *World, line func(*errand) string) {
	last := map[string]*errand{}
	for _, j := range e.list {
		at := line(j)
		if at == "" || len(j.seen) == 0 {
			continue
		}
		if w.Stepped() { // only the jobs of one process have an order then
			at += "\n" + j.who
		}
		if before := last[at]; before != nil && before.seen[0].seq > j.seen[0].seq {
			w.Violate("order", append(before.words(), j.words()...), "the entry of %s (%v) comes after that of %s (%v)",
				before.name, before.seen[0], j.name, j.seen[0])
		}
		last[at] = j
	}
}

// words are what events about a job mention.
func (j *errand) words() []string {
	all := []string{" " + j.name + ":", `"` + j.name + `"`, j.name + " "}
	if j.id != 0 {
		all = append(all, fmt.Sprint(j.id))
	}
	return all
}

// eachRow reads the rows of a query of the operator.
func eachRow(w *World, text string, read func(scan func(...any) error) error) error {
	rows, err := w.Operator.Pool().QueryContext(w.Free(), text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
