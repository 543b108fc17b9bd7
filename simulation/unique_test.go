package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// uniqueWork is jobs with unique keys: many programs enqueue them, one by one, in batches that have a key
// twice, and in transactions, some of which roll back; jobs enqueue others under their own keys; clerks cancel and
// retry jobs, two at once.
type uniqueWork struct {
	errands
	admin *admin.Client
	left  []int
	keys  int
	jobs  map[*errand]*uniqueJob
	plain []*errand // jobs that end without an entry of their own

	refusals []refusal
	docs     int
	drafts   int
	revived  int // how many dead jobs a bulk retry is known to have revived
}

// A uniqueJob is what only this workload knows of a job.
type uniqueJob struct {
	*errand
	unique    string
	lasts     time.Duration // how long the key stays in use after enqueueing, at least
	asked     time.Time     // when its enqueueing began
	answered  time.Time     // when it had succeeded; zero: it has not, as far as is known
	over      time.Time     // when it was known to be done or cancelled
	discarded bool
	asks      int // cancellations without an answer
}

// A refusal is an answer that says that another job has a key.
type refusal struct {
	who, unique string // who wanted it
	holder      int64
	asked       time.Time
}

const (
	uniqueQueue  = "unique"
	onceKind     = "once"   // completes in a transaction with its entry
	returnedKind = "return" // only returns

	// clockError bounds how far a client may be off when it takes the server's clock for an id.
	clockError = 3 * time.Second
)

func (u *uniqueWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "down", "written, and the answer lost",
		"a job exists already", "a unique key is there twice in a batch", "a key is used again after its job's end", "a key is used again after a death",
		"a transaction rolls back", "a transaction is refused a key", "a running job's key is refused", "a job enqueues the next one of its key",
		"a key outlasts its job", "an enqueueing with an unknown outcome is repeated", "and it had happened",
		"a job is retried", "a job is dead", "a job is discarded", "a job runs for long", "a running job is cancelled", "a dead job is retried",
		"one of two cancellations wins", "one of two retries wins", "one of two retries of many wins", "a retry is refused since the key is in use",
		"a document changes while it is indexed", "a change waits for a job that has yet to begin", "a document is indexed again after its job", "a job changes its own document",
		"a newer draft replaces one that waits", "a draft stays that has waited long enough",
	}
}

func (u *uniqueWork) Begin(w *World) (err error) {
	lease := time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	if err := u.begin(w, lease+10*time.Second); err != nil {
		return err
	}
	u.jobs = map[*errand]*uniqueJob{}
	if u.admin, err = admin.New(w.Operator, admin.Options{}); err != nil {
		return err
	}
	if _, err := u.admin.Edit(w.Free(), uniqueQueue, func(q *admin.Queue) {
		q.MaxAttempts, q.MaxCrashes = w.Knob("attempts", 1, 2, 5), 100
		q.RetryDelay, q.RetryMaxDelay = 100*time.Millisecond, time.Second
		q.KeepDone = time.Duration(w.Knob("keep.done", 0, 0, 1)) * time.Hour
	}); err != nil {
		return err
	}
	if err := u.admin.Resize(w.Free(), uniqueQueue, w.Knob("blocks", 1, 2, 5, 16)); err != nil {
		return err
	}
	if err := watchKeys(w); err != nil {
		return err
	}
	if err := cmp.Or(u.beginDocs(w), u.beginDrafts(w)); err != nil {
		return err
	}
	u.keys = w.Knob("keys", 1, 3, 10)
	producers, times := w.Knob("producers", 2, 3, 4), w.Knob("times", 20, 60, 120)
	for i := range producers {
		u.left = append(u.left, times/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return u.produce(p, i) })
	}
	for i := range w.Knob("workers", 1, 2, 3) {
		w.Start(fmt.Sprint("worker-", i), func(p *Process) error { return u.work(p, lease) })
	}
	for i := range w.Knob("clerks", 0, 1, 2) {
		w.StartOnce(fmt.Sprint("clerk-", i), u.tidy)
	}
	return nil
}

// unfinished are the jobs that have not ended, and have their keys until they end.
const unfinished = `(SELECT queue_id, id, unique_key FROM dbcron_job WHERE unique_until IS NULL UNION ALL SELECT queue_id, id, unique_key FROM dbcron_job_delayed WHERE unique_until IS NULL
	UNION ALL SELECT queue_id, id, unique_key FROM dbcron_job_running WHERE unique_until IS NULL)`

// watchKeys has the database note each job that comes while another one of its key has not ended, and which jobs die
// and come back.
func watchKeys(w *World) error {
	texts := []string{
		`CREATE TABLE sim_twins (unique_key TEXT NOT NULL, one INTEGER NOT NULL, other INTEGER NOT NULL)`,
		`CREATE TABLE sim_revived (id INTEGER NOT NULL)`,
		`CREATE TRIGGER sim_revival AFTER DELETE ON dbcron_job_dead BEGIN INSERT INTO sim_revived (id) VALUES (OLD.id); END`,
	}
	for _, table := range []string{"dbcron_job", "dbcron_job_delayed", "dbcron_job_running"} {
		texts = append(texts, `CREATE TRIGGER sim_twin_of_`+table+` AFTER INSERT ON `+table+` WHEN NEW.unique_key IS NOT NULL AND NEW.unique_until IS NULL BEGIN
			INSERT INTO sim_twins (unique_key, one, other) SELECT NEW.unique_key, o.id, NEW.id FROM `+unfinished+` AS o
			WHERE o.queue_id = NEW.queue_id AND o.unique_key = NEW.unique_key AND o.id <> NEW.id; END`)
	}
	for _, text := range texts {
		if _, err := w.Operator.Pool().ExecContext(w.Free(), text); err != nil {
			return err
		}
	}
	return nil
}

// produce enqueues jobs in all ways.
func (u *uniqueWork) produce(p *Process, me int) error {
	db, c, err := p.client()
	if err != nil {
		return err
	}
	return each(p, &u.left[me], func(n int) {
		d := p.w.Dice("job", me, n)
		name := fmt.Sprintf("job%d.%d", me, n)
		ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
		defer cancel()
		switch d.IntN(10) {
		case 8:
			u.change(ctx, p, c, db, d)
		case 9:
			u.write(ctx, p, c, db, d)
		case 0, 1:
			for i := range 5 {
				u.insist(p, c, fmt.Sprint(name, "/", i))
			}
		case 2:
			b := u.draw(p, name, 2+d.IntN(4), d)
			all, err := c.EnqueueMany(ctx, b.jobs)
			b.answered(p, all, fateOf(err), err)
		case 3, 4:
			u.transact(ctx, p, c, db, u.draw(p, name, 1+d.IntN(4), d), d)
		default:
			b := u.draw(p, name, 1, d)
			e, err := c.Enqueue(ctx, b.jobs[0])
			b.answered(p, []queue.Enqueued{e}, fateOf(err), err)
		}
		p.Act(func() { p.w.Done("enqueueings") })
	})
}

// A uniqueOrder is some jobs that are enqueued together.
type uniqueOrder struct {
	u    *uniqueWork
	list []*uniqueJob
	jobs []queue.Job
}

// draw draws jobs, and notes that they are about to be enqueued.
func (u *uniqueWork) draw(p *Process, name string, jobs int, d dice) *uniqueOrder {
	b := &uniqueOrder{u: u}
	for i := range jobs {
		job := queue.Job{Unique: fmt.Sprint("unique", d.IntN(u.keys)), Kind: oneOf(d, onceKind, onceKind, returnedKind)}
		if d.once(5) {
			job.Delay = d.between(10*time.Millisecond, 8*time.Second)
		}
		if d.once(6) {
			job.UniqueFor = d.between(time.Second, 15*time.Second)
		}
		if d.once(5) {
			job.Key = fmt.Sprint("line", d.IntN(3))
		}
		b.add(p, fmt.Sprint(name, "/", i), job)
	}
	return b
}

// add adds a job.
func (b *uniqueOrder) add(p *Process, name string, job queue.Job) {
	job.Queue, job.Payload = uniqueQueue, payload(name)
	j := &uniqueJob{
		errand: &errand{name: name, kind: job.Kind, queue: uniqueQueue, key: job.Key, who: p.who()},
		unique: job.Unique, lasts: job.UniqueFor, asked: time.Now(), //nolint:forbidigo // virtual
	}
	b.list, b.jobs = append(b.list, j), append(b.jobs, job)
	p.Act(func() {
		b.u.jobs[j.errand] = j
		b.u.byName[name] = j.errand
		if job.Kind == returnedKind {
			b.u.plain = append(b.u.plain, j.errand)
		} else {
			b.u.list = append(b.u.list, j.errand)
		}
	})
}

// answered notes what became of the jobs of an order: known is what is known of those that were not refused their keys.
func (b *uniqueOrder) answered(p *Process, all []queue.Enqueued, known fate, err error) {
	now := time.Now() //nolint:forbidigo // virtual
	for i, j := range b.list {
		e := queue.Enqueued{}
		if i < len(all) {
			e = all[i]
		}
		p.Note("enqueued %s: %s, %d, existed %v, %v", j.name, j.unique, e.ID, e.Existed, err)
	}
	p.Act(func() {
		for i, j := range b.list {
			j.fate = known
			switch {
			case i >= len(all) || known == refused:
			case !all[i].Existed:
				j.id = all[i].ID
				if known == confirmed {
					j.answered = now
					b.u.noteAgain(p, j)
				}
			case known == confirmed:
				j.fate = refused
				b.u.refusals = append(b.u.refusals, refusal{j.name, j.unique, all[i].ID, j.asked})
				p.w.Reached("a job exists already")
			}
		}
		b.compare(p, all)
	})
}

// compare checks that the jobs of an order that have one key agree on who holds it. The world's mutex is held.
func (b *uniqueOrder) compare(p *Process, all []queue.Enqueued) {
	first := map[string]int{}
	for i := range all {
		at, is := first[b.list[i].unique]
		if !is {
			first[b.list[i].unique] = i
			continue
		}
		p.w.Reached("a unique key is there twice in a batch")
		if !all[i].Existed || all[i].ID != all[at].ID {
			p.w.violate("batch", append(b.list[at].words(), b.list[i].words()...), "%s and %s have the key %s, and were told %+v and %+v",
				b.list[at].name, b.list[i].name, b.list[i].unique, all[at], all[i])
		}
	}
}

// noteAgain notes that a key is in use again. The world's mutex is held.
func (u *uniqueWork) noteAgain(p *Process, j *uniqueJob) {
	var end, death bool
	for _, o := range u.jobs {
		if o != j && o.unique == j.unique {
			end, death = end || !o.over.IsZero() && o.over.Before(j.asked), death || o.dead
		}
	}
	if end {
		p.w.Reached("a key is used again after its job's end")
	}
	if death {
		p.w.Reached("a key is used again after a death")
	}
}

// transact enqueues jobs in a transaction, which may roll back.
func (u *uniqueWork) transact(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, b *uniqueOrder, d dice) {
	all, wake, known, err := b.transaction(ctx, p, c, db, d)
	b.answered(p, all, known, err)
	if known == confirmed {
		wake()
	}
}

// transaction returns what was said in a transaction, and what became of it.
func (b *uniqueOrder) transaction(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, d dice) ([]queue.Enqueued, func(), fate, error) {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, refused, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	all, wake, err := c.EnqueueTx(ctx, tx, b.jobs...)
	if err != nil {
		return nil, nil, refused, err
	}
	if err := p.Sleep(ctx, d.about(20*time.Millisecond)); err != nil {
		return all, nil, refused, errors.Join(err, tx.Rollback())
	}
	p.Act(func() {
		if all[0].Existed {
			p.w.Reached("a transaction is refused a key")
		}
	})
	if d.once(3) {
		p.Act(func() { p.w.Reached("a transaction rolls back") })
		return all, nil, refused, errors.Join(errors.New("rolled back"), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return all, nil, unknown, err
	}
	return all, wake, confirmed, nil
}

// insist enqueues a job, again if need be, under a key that it keeps for long: so it is there once.
func (u *uniqueWork) insist(p *Process, c *queue.Client, name string) {
	b := &uniqueOrder{u: u}
	b.add(p, name, queue.Job{Kind: onceKind, Unique: "once." + name, UniqueFor: time.Hour})
	j := b.list[0]
	for again := false; p.ctx.Err() == nil; again = true {
		ctx, cancel := context.WithTimeout(p.ctx, 3*time.Second)
		e, err := c.Enqueue(ctx, b.jobs[0])
		cancel()
		p.Note("insisted on %s: %d, existed %v, %v", name, e.ID, e.Existed, err)
		if err == nil {
			p.Act(func() {
				j.fate, j.answered, j.id = confirmed, time.Now(), e.ID //nolint:forbidigo // virtual
				if e.Existed {
					p.w.Reached("and it had happened")
				}
				if e.Existed && !again {
					p.w.violate("holder", j.words(), "%s is enqueued for the first time, and %d is said to have its key", name, e.ID)
				}
			})
			return
		}
		if errors.Is(err, queue.ErrUnknownOutcome) {
			p.Act(func() { p.w.Reached("an enqueueing with an unknown outcome is repeated") })
		}
		_ = p.Sleep(p.ctx, time.Second)
	}
}

// work is a worker's process.
func (u *uniqueWork) work(p *Process, lease time.Duration) error {
	db, err := p.Open(10)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	w, err := c.Worker(p.tune(queue.WorkerOptions{
		Queues: []string{uniqueQueue}, Lease: lease, Logger: p.Log, Concurrency: oneOf(p.Dice, 1, 4, 16), Batch: oneOf(p.Dice, 0, 1, 10),
		AckEach: p.Dice.once(4), Isolated: p.Dice.once(3), Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	}))
	if err != nil {
		return err
	}
	err = errors.Join(
		w.Handle(onceKind, func(ctx context.Context, d *queue.Delivery) error {
			return u.handle(p, d, func(j *errand) error {
				if err := u.do(ctx, p, c, d, j); err != nil {
					return err
				}
				return u.complete(ctx, p, c, db, d, j)
			})
		}),
		w.Handle(indexKind, func(ctx context.Context, d *queue.Delivery) error { return u.index(ctx, p, c, db, d) }),
		w.Handle(saveKind, func(ctx context.Context, d *queue.Delivery) error { return u.save(ctx, p, db, d) }),
		w.Handle(returnedKind, func(ctx context.Context, d *queue.Delivery) error {
			return u.handle(p, d, func(j *errand) error { return u.do(ctx, p, c, d, j) })
		}))
	if err != nil {
		return err
	}
	return w.Run(p.ctx)
}

// do is the work of an attempt. It may try to enqueue another job under its own key.
func (u *uniqueWork) do(ctx context.Context, p *Process, c *queue.Client, d *queue.Delivery, j *errand) error {
	dice := p.w.Dice("attempt", j.name, j.begins)
	took := dice.about(80 * time.Millisecond)
	if dice.once(10) {
		took = dice.between(time.Second, 8*time.Second)
		p.Act(func() { p.w.Reached("a job runs for long") })
	}
	p.Act(func() {
		if d.Attempt > 1 {
			p.w.Reached("a job is retried")
		}
	})
	if dice.once(8) {
		b := &uniqueOrder{u: u}
		b.add(p, fmt.Sprint(j.name, "~", j.begins), queue.Job{Kind: onceKind, Unique: d.Unique})
		e, err := c.Enqueue(ctx, b.jobs[0])
		b.answered(p, []queue.Enqueued{e}, fateOf(err), err)
		p.Act(func() {
			if err == nil && e.Existed && e.ID == d.ID {
				p.w.Reached("a running job's key is refused")
			}
		})
	}
	if err := p.Sleep(ctx, took); err != nil {
		return err
	}
	switch p.w.Dice("job", j.name).IntN(12) {
	case 0:
		return queue.Bury(errors.New("it cannot be done"))
	case 1:
		if j.kind == returnedKind {
			p.Act(func() { u.jobs[j].discarded = true; p.w.Reached("a job is discarded") })
			return queue.Discard(errors.New("it need not be done"))
		}
	}
	if dice.once(8) {
		return fmt.Errorf("attempt %d fails", d.Attempt)
	}
	return nil
}

// complete completes a job in a transaction with its entry, and perhaps with the next job of its key.
func (u *uniqueWork) complete(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, d *queue.Delivery, j *errand) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, `INSERT INTO sim_ledger (job, who) VALUES (?, ?)`, j.name, p.who()); err != nil {
		return err
	}
	if err := d.CompleteTx(ctx, tx); err != nil {
		return err
	}
	next := &uniqueOrder{u: u}
	var all []queue.Enqueued
	if dice := p.w.Dice("next", j.name, j.begins); dice.once(4) && len(j.name) < 20 {
		next.add(p, j.name+fmt.Sprint("+", j.begins), queue.Job{Kind: onceKind, Unique: d.Unique})
		if all, _, err = c.EnqueueTx(ctx, tx, next.jobs...); err != nil {
			next.answered(p, nil, refused, err)
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		next.answered(p, all, unknown, err)
		return err
	}
	p.Act(func() { u.jobs[j].over = time.Now() }) //nolint:forbidigo // virtual
	next.answered(p, all, confirmed, nil)
	p.Act(func() {
		switch {
		case len(all) == 0:
		case !all[0].Existed:
			p.w.Reached("a job enqueues the next one of its key")
		case u.jobs[j].lasts > 0:
			p.w.Reached("a key outlasts its job")
		default:
			p.w.violate("held", j.words(), "%s is done, and in that transaction its key is held by %d", j.name, all[0].ID)
		}
	})
	return nil
}

// tidy cancels and retries jobs, two clerks at once, until the last fault has ended.
func (u *uniqueWork) tidy(p *Process) error {
	db, err := p.Open(4)
	if err != nil {
		return err
	}
	a, err := admin.New(db, admin.Options{})
	if err != nil {
		return err
	}
	for !p.w.Over() {
		if err := p.Sleep(p.ctx, p.Dice.about(time.Second)); err != nil {
			return err
		}
		switch p.Dice.IntN(6) {
		case 0:
			u.retryMany(p, a)
		case 1, 2, 3:
			u.retry(p, a)
		default:
			u.cancel(p, a)
		}
	}
	return p.ctx.Err()
}

// twice calls do twice at once.
func twice(p *Process, do func(ctx context.Context) error) (both [2]error) {
	ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for i := range both {
		all.Go(func() { both[i] = do(ctx) })
	}
	all.Wait()
	return both
}

// settled reports whether an error of a clerk's says that nothing has happened, or that it has.
func settled(err error) bool {
	return err == nil || errors.Is(err, admin.ErrNotFound) || errors.Is(err, admin.ErrState)
}

// pick returns one of the last jobs whose id is known; nil: there is none.
func (u *uniqueWork) pick(p *Process, which func(*uniqueJob) bool) (j *uniqueJob, begun bool) {
	p.Act(func() {
		var some []*uniqueJob
		for _, list := range [][]*errand{u.list, u.plain} {
			for _, e := range list[max(0, len(list)-30):] {
				if o := u.jobs[e]; o.id != 0 && which(o) {
					some = append(some, o)
				}
			}
		}
		if len(some) > 0 {
			j = some[p.Dice.IntN(len(some))]
			begun = j.begins > 0
		}
	})
	return j, begun
}

// cancel cancels a job twice at once. One of them is told that it is cancelled, at the most.
func (u *uniqueWork) cancel(p *Process, a *admin.Client) {
	j, begun := u.pick(p, func(o *uniqueJob) bool { return o.over.IsZero() })
	if j == nil {
		return
	}
	p.Act(func() { j.asks++ })
	both := twice(p, func(ctx context.Context) error { return a.Cancel(ctx, uniqueQueue, j.id) })
	p.Note("cancelled %s: %d, %v", j.name, j.id, both)
	p.Act(func() {
		u.stirs()
		for i, err := range both {
			if err != nil {
				continue
			}
			j.gone++
			j.over = time.Now() //nolint:forbidigo // virtual
			if begun {
				p.w.Reached("a running job is cancelled")
			}
			if errors.Is(both[1-i], admin.ErrNotFound) {
				p.w.Reached("one of two cancellations wins")
			}
		}
		if settled(both[0]) && settled(both[1]) {
			j.asks--
		}
	})
}

// retry retries a job twice at once.
func (u *uniqueWork) retry(p *Process, a *admin.Client) {
	dead := map[string]bool{}
	err := eachRow(p.w, `SELECT payload FROM dbcron_job_dead`, func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		dead[name] = true
		return err
	})
	if err != nil {
		p.w.Violate("check", nil, "%v", err)
	}
	j, _ := u.pick(p, func(o *uniqueJob) bool {
		o.dead = dead[string(payload(o.name))]
		return o.dead
	})
	if j == nil {
		return
	}
	asked := time.Now() //nolint:forbidigo // virtual
	both := twice(p, func(ctx context.Context) error { return a.Retry(ctx, uniqueQueue, j.id) })
	p.Note("retried %s: %d, %v", j.name, j.id, both)
	p.Act(func() {
		u.stirs()
		for i, err := range both {
			var holder, id int64
			switch {
			case err == nil && errors.Is(both[1-i], admin.ErrNotFound):
				p.w.Reached("one of two retries wins")
			case err == nil:
				p.w.Reached("a dead job is retried")
			case errors.Is(err, admin.ErrState) && inUse(err, &id, &holder):
				p.w.Reached("a retry is refused since the key is in use")
				u.refusals = append(u.refusals, refusal{"the retry of " + j.name, j.unique, holder, asked})
			}
		}
	})
}

// inUse reports whether an error says which job has the key of another one, and reads that.
func inUse(err error, id, holder *int64) bool {
	n, _ := fmt.Sscanf(err.Error(), admin.ErrState.Error()+": job %d: its unique key is in use by job %d", id, holder)
	return n == 2
}

// retryMany retries the dead, twice at once.
func (u *uniqueWork) retryMany(p *Process, a *admin.Client) {
	var results []admin.BulkResult
	both := twice(p, func(ctx context.Context) error {
		r, err := a.Bulk(ctx, admin.BulkRetry, admin.Filter{Queue: uniqueQueue, State: admin.StateDead}, admin.BulkOptions{})
		p.Act(func() { results = append(results, r) })
		return err
	})
	p.Note("retried many: %+v, %v", results, both)
	p.Act(func() {
		u.stirs()
		wins := 0
		for _, r := range results {
			u.revived += r.Done
			wins += min(r.Done, 1)
			if r.InUse > 0 {
				p.w.Reached("a retry is refused since the key is in use")
			}
		}
		if wins == 1 && both == [2]error{} {
			p.w.Reached("one of two retries of many wins")
		}
	})
}

// Left notices that nothing goes on, and what must never be of a key and its job.
func (u *uniqueWork) Left(w *World) string {
	for _, look := range []struct{ kind, what, text string }{
		{"twins", "came while another job of its key had not ended", `SELECT unique_key, other FROM sim_twins`},
		{"held", "has ended, and holds its key", `SELECT u.unique_key, u.job FROM dbcron_job_unique AS u WHERE u.pending <> 'no'
			AND u.unique_key NOT LIKE 'd%' AND NOT EXISTS (SELECT 1 FROM ` + unfinished + ` AS o WHERE o.queue_id = u.queue_id AND o.id = u.job AND o.unique_key = u.unique_key)`},
		{"unheld", "has not ended, and does not hold its key", `SELECT o.unique_key, o.id FROM ` + unfinished + ` AS o
			LEFT JOIN dbcron_job_unique AS u ON u.queue_id = o.queue_id AND u.unique_key = o.unique_key AND u.pending <> 'no' WHERE o.unique_key IS NOT NULL AND u.job IS NOT o.id`},
		{"crowd", "is the third of it that has not ended", `SELECT unique_key, other FROM sim_crowd`},
		{"held", "has begun or ended, and holds its key", `SELECT u.unique_key, u.job FROM dbcron_job_unique AS u WHERE u.unique_key LIKE 'd%' AND NOT EXISTS (
			SELECT 1 FROM ` + docJobs + ` AS o WHERE o.id = u.job AND o.place <> 'running')`},
		{"two places", "is dead, and has not ended", `SELECT o.unique_key, o.id FROM ` + unfinished + ` AS o JOIN dbcron_job_dead AS d ON d.queue_id = o.queue_id AND d.id = o.id`},
	} {
		err := eachRow(w, look.text, func(scan func(...any) error) error {
			var key string
			var id int64
			if err := scan(&key, &id); err != nil {
				return err
			}
			w.Violate(look.kind, []string{key + ",", fmt.Sprint(id)}, "job %d of the key %s %s", id, key, look.what)
			return nil
		})
		if err != nil {
			return err.Error()
		}
	}
	return u.leftOf(w)
}

// Check accounts for jobs, refusals and keys.
func (u *uniqueWork) Check(w *World) error {
	for _, j := range u.jobs {
		j.dead, j.perhapsGone = false, j.asks > 0
	}
	if err := u.account(w); err != nil {
		return err
	}
	for _, j := range u.plain {
		u.jobs[j].checkPlain(w)
	}
	u.checkRefusals(w)
	if err := cmp.Or(u.checkDocs(w), u.checkDrafts(w)); err != nil {
		return err
	}
	u.checkLasting(w)
	var revived int
	if err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT COUNT(*) FROM sim_revived`).Scan(&revived); err != nil {
		return err
	}
	if u.revived > revived {
		w.Violate("retries", nil, "clerks were told that %d dead jobs were retried, and %d were", u.revived, revived)
	}
	return u.checkFree(w)
}

// checkPlain looks for a job that is lost, or was done without having been enqueued, and has no entry.
func (j *uniqueJob) checkPlain(w *World) {
	ended := j.dead || j.ends > 0 || j.gone > 0 || j.discarded
	switch {
	case j.fate == confirmed && !ended && !j.perhapsGone:
		w.Violate("lost", j.words(), "%s was enqueued, and has not ended", j.name)
	case j.fate == refused && (j.begins > 0 || j.dead):
		w.Violate("phantom", j.words(), "%s was not enqueued, and was done", j.name)
	case j.gone > 1 || j.gone > 0 && j.dead:
		w.Violate("cancelled", j.words(), "%s was cancelled %d times; dead: %v", j.name, j.gone, j.dead)
	}
}

// checkRefusals checks that whoever was named as the holder of a key could be that.
func (u *uniqueWork) checkRefusals(w *World) {
	byID, lost := map[int64]*uniqueJob{}, map[string]bool{} // lost: keys with a job whose id nobody knows
	for _, j := range u.jobs {
		if j.id != 0 && j.fate != refused {
			byID[j.id] = j
		}
		lost[j.unique] = lost[j.unique] || j.fate == unknown && j.begins == 0
	}
	for _, r := range u.refusals {
		words := []string{" " + r.who + ":", fmt.Sprint(r.holder)}
		switch h := byID[r.holder]; {
		case h == nil && lost[r.unique]:
		case h == nil:
			w.Violate("holder", words, "%s is refused %s because of %d, which nobody has enqueued", r.who, r.unique, r.holder)
		case h.unique != r.unique:
			w.Violate("holder", words, "%s is refused %s because of %s, which has %s", r.who, r.unique, h.name, h.unique)
		case h.over.IsZero() || !h.over.Before(r.asked):
		case h.lasts == 0 || h.fate == confirmed && !w.Stepped() && r.asked.Sub(h.answered) > h.lasts+clockError:
			w.Violate("holder", words, "%s is refused %s because of %s, which had ended", r.who, r.unique, h.name)
		}
	}
}

// checkLasting checks that no key was free before its time.
func (u *uniqueWork) checkLasting(w *World) {
	for _, j := range u.jobs {
		if j.fate != confirmed || j.lasts == 0 || w.Stepped() {
			continue
		}
		for _, o := range u.jobs {
			if o.fate == confirmed && o.unique == j.unique && o.asked.After(j.answered) && o.answered.Before(j.asked.Add(j.lasts-clockError)) {
				w.Violate("early", append(j.words(), o.words()...), "%s got %s, which %s has for %v", o.name, o.unique, j.name, j.lasts)
			}
		}
	}
}

// checkFree checks that each key is free, now that all jobs have ended.
func (u *uniqueWork) checkFree(w *World) error {
	c, err := queue.New(w.Operator, queue.Options{})
	if err != nil {
		return err
	}
	lasting := map[int64]bool{}
	for _, j := range u.jobs {
		lasting[j.id] = lasting[j.id] || j.lasts > 0
	}
	for i := range u.keys {
		key := fmt.Sprint("unique", i)
		e, err := c.Enqueue(w.Free(), queue.Job{Queue: uniqueQueue, Kind: onceKind, Unique: key, Payload: payload("last")})
		if err != nil {
			return err
		}
		if e.Existed && !lasting[e.ID] {
			w.Violate("held", []string{key + ",", fmt.Sprint(e.ID)}, "all jobs have ended, and job %d holds the key %s", e.ID, key)
		}
	}
	return nil
}
