package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// progressWork is long jobs of several steps, which store their progress and continue from it. Some take too
// long, stall, cannot be decoded, have failed hundreds of times, die and are retried, or are cancelled.
type progressWork struct {
	errands
	admin *admin.Client
	left  []int
	steps map[*errand]*steps
	open  []*stint
	gone  map[*errand]time.Time // when somebody was told that it is cancelled
	lease time.Duration

	hung     map[*Process][]time.Time // since when its handlers have not returned
	slots    map[*Process]int         // its concurrency
	deaf     int                      // one of so many handlers does not return when its time is over
	endStuck time.Duration            // until a worker ends none of whose handlers does
}

// steps is what is known of a job's progress.
type steps struct {
	stored int // what was confirmed
	tried  int // the most that anybody has sent
	late   int // the attempt whose time was over; 0: none, or its end was written
}

const (
	progressQueue = "long"
	stepsKind     = "steps"
	stallKind     = "stall"
	typedKind     = "typed" // its payload is a text, or is not

	stallAfter = 2 * time.Second
	maxDelay   = 3 * time.Second
	manyErrors = 400
)

func (g *progressWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "deaf", "news is lost while a listener reconnects", "news goes down a dead path", "written, and the answer lost", "an attempt continues", "an attempt continues elsewhere",
		"progress is refused", "the answer to progress is lost", "progress after a rollback", "a job's time is over", "a job stalls", "a job is given more time",
		"a job cannot be decoded", "a job has failed hundreds of times", "a dead job continues", "a running job is cancelled",
		"a handler does not return when its time is over", "a worker ends, since none of its handlers returns",
	}
}

func (g *progressWork) Begin(w *World) (err error) {
	g.lease = time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	g.deaf, g.endStuck = w.Knob("deaf", 0, 0, 2), time.Duration(w.Knob("end.stuck", 1, 5))*time.Second
	if err := g.begin(w, g.lease+maxDelay+15*time.Second); err != nil {
		return err
	}
	g.hung, g.slots = map[*Process][]time.Time{}, map[*Process]int{}
	g.steps, g.gone = map[*errand]*steps{}, map[*errand]time.Time{}
	if g.admin, err = admin.New(w.Operator, admin.Options{}); err != nil {
		return err
	}
	if _, err := g.admin.Edit(w.Free(), progressQueue, func(q *admin.Queue) {
		q.MaxAttempts, q.MaxCrashes = 30_000, 100
		q.RetryDelay, q.RetryMaxDelay = 100*time.Millisecond, maxDelay
	}); err != nil {
		return err
	}
	if err := g.admin.Resize(w.Free(), progressQueue, w.Knob("blocks", 1, 2, 5, 16)); err != nil {
		return err
	}
	producers, jobs := w.Knob("producers", 1, 2), w.Knob("jobs", 10, 30, 60)
	for i := range producers {
		g.left = append(g.left, jobs/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return g.produce(p, i) })
	}
	for i := range w.Knob("workers", 1, 2, 3) {
		w.Start(fmt.Sprint("worker-", i), g.work)
	}
	if w.Knob("clerk", 0, 1) == 1 {
		w.StartOnce("clerk", g.tidy)
	}
	return nil
}

func (g *progressWork) produce(p *Process, me int) error {
	_, c, err := p.client()
	if err != nil {
		return err
	}
	return each(p, &g.left[me], func(n int) {
		d := p.w.Dice("job", me, n)
		j := &errand{name: fmt.Sprintf("job%d.%d", me, n), who: p.who(), kind: oneOf(d, stepsKind, stepsKind, stallKind, typedKind)}
		job := queue.Job{Queue: progressQueue, Kind: j.kind, Payload: payload(j.name)}
		if d.once(3) {
			j.key = fmt.Sprintf("key%d.%d", me, d.IntN(4))
			job.Key = j.key
		}
		if d.once(3) {
			job.Timeout = d.between(time.Second, 5*time.Second)
		}
		if j.kind == typedKind && d.once(3) {
			j.name = fmt.Sprintf("%d%03d", me+1, n)
			job.Payload = []byte(j.name) // a number
		}
		p.Act(func() { g.add(j); g.steps[j] = &steps{} })
		ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
		defer cancel()
		e, err := c.Enqueue(ctx, job)
		p.Note("enqueued %s: %d, %v", j.name, e.ID, err)
		p.Act(func() {
			j.id, j.fate = e.ID, fateOf(err)
			p.w.Done("enqueued")
		})
	})
}

// work is a worker's process.
func (g *progressWork) work(p *Process) error {
	db, err := p.Open(20)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	opt := queue.WorkerOptions{
		Queues: []string{progressQueue}, Lease: g.lease, Logger: p.Log, Concurrency: oneOf(p.Dice, 1, 4, 16), Batch: oneOf(p.Dice, 0, 1, 10),
		AckEach: p.Dice.once(4), Isolated: p.Dice.once(3), Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	}
	if g.deaf > 0 {
		opt.EndStuck = g.endStuck
		p.Act(func() { g.slots[p] = opt.Concurrency })
	}
	w, err := c.Worker(p.tune(opt))
	if err != nil {
		return err
	}
	do := func(ctx context.Context, d *queue.Delivery) error {
		done := g.enters(ctx, p, d)
		defer done()
		return g.handle(p, d, func(j *errand) error { return g.do(ctx, p, db, d, j) })
	}
	err = errors.Join(
		w.Handle(stepsKind, do),
		w.HandleWith(stallKind, queue.RetryPolicy{Stall: stallAfter}, do),
		queue.HandleKind(w, queue.Kind[string]{Name: typedKind, Queue: progressQueue}, func(ctx context.Context, _ string, d *queue.Delivery) error { return do(ctx, d) }))
	if err != nil {
		return err
	}
	err = w.Run(p.ctx)
	if errors.Is(err, queue.ErrStuck) {
		p.Act(func() { p.w.Reached("a worker ends, since none of its handlers returns") })
	}
	return err
}

// enters notes that a handler is at work, and returns what notes its end.
func (g *progressWork) enters(ctx context.Context, p *Process, d *queue.Delivery) (done func()) {
	s := &stint{p: p, ctx: ctx}
	p.Act(func() {
		if s.j = g.byName[nameOf(d)]; s.j != nil {
			g.open = append(g.open, s)
		}
	})
	return func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		g.open = slices.DeleteFunc(g.open, func(o *stint) bool { return o == s })
	}
}

// do does the steps that are left.
func (g *progressWork) do(ctx context.Context, p *Process, db *dialect.DB, d *queue.Delivery, j *errand) error {
	dice := p.w.Dice("attempt", j.name, j.begins)
	at, _ := strconv.Atoi(string(d.Progress().State))
	over := d.Left() == 0 // it stood still before its first line
	p.Act(func() {
		s := g.steps[j]
		switch {
		case over:
		case at < s.stored:
			p.w.violate("progress", j.words(), "%s continues at %d on %s, and %d was stored", j.name, at, p.who(), s.stored)
		case at > s.tried:
			p.w.violate("progress", j.words(), "%s continues at %d on %s, and nobody has sent more than %d", j.name, at, p.who(), s.tried)
		case at > 0:
			p.w.Reached("an attempt continues")
			if d.Attempt > 1 || d.Crashes > 0 {
				p.w.Reached("an attempt continues elsewhere")
			}
			if j.dead {
				p.w.Reached("a dead job continues")
			}
		}
		if s.late == d.Attempt {
			p.w.Reached("a job's time was over, and nobody has written that")
			if p.w.steppedLocked() {
				p.w.Reached("the same, and the server's clock was set")
			}
		}
		j.dead, s.late = false, 0
	})
	for most := p.w.Dice("steps", j.name).IntN(8); at < most; {
		took := dice.about(300 * time.Millisecond)
		if dice.once(10) {
			took = dice.between(time.Second, 5*time.Second)
		}
		if dice.once(6) {
			d.Extend(5 * time.Second)
			p.Act(func() { p.w.Reached("a job is given more time") })
		}
		if err := p.Sleep(ctx, took); err != nil {
			p.Act(func() {
				switch cause := context.Cause(ctx); {
				case errors.Is(cause, queue.ErrTimeout):
					g.steps[j].late = d.Attempt
					p.w.Reached("a job's time is over")
				case errors.Is(cause, queue.ErrStalled):
					p.w.Reached("a job stalls")
				}
			})
			g.hang(context.Cause(ctx), p, j)
			return err
		}
		if dice.once(12) {
			return fmt.Errorf("attempt %d fails at %d", d.Attempt, at)
		}
		if dice.once(25) {
			p.Act(func() { j.dead = true })
			return queue.Bury(errors.New("it cannot go on"))
		}
		if dice.once(8) {
			if err := rollBack(ctx, p, db, j); err != nil {
				return err
			}
		}
		at++
		p.Act(func() { g.steps[j].tried = max(g.steps[j].tried, at) })
		err := d.SetProgress(ctx, queue.Progress{State: []byte(strconv.Itoa(at)), Percent: 1 + at})
		p.Note("progress of %s: %d at %d, %v", j.name, d.ID, at, err)
		p.Act(func() {
			switch {
			case err == nil:
				g.steps[j].stored = max(g.steps[j].stored, at)
				p.w.Done("steps")
			case errors.Is(err, queue.ErrLost):
				p.w.Reached("progress is refused")
			default:
				p.w.Reached("the answer to progress is lost")
			}
		})
		if err != nil && dice.once(2) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return enter(ctx, p, db, d)
}

// hang is what a handler does that does not return, though its time is over.
func (g *progressWork) hang(why error, p *Process, j *errand) {
	d := p.w.Dice("deaf", j.name, j.begins)
	if !errors.Is(why, queue.ErrTimeout) && !errors.Is(why, queue.ErrStalled) || !d.once(g.deaf) {
		return
	}
	p.Act(func() {
		p.w.Reached("a handler does not return when its time is over")
		p.Note("%s goes on, deaf", j.name)
		g.hung[p] = append(g.hung[p], time.Now()) //nolint:forbidigo // virtual
	})
	_ = p.Sleep(context.Background(), d.between(20*time.Second, 2*time.Minute))
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	g.hung[p] = g.hung[p][1:] // of two, it may be the other one's time: they have been longer at it than this says
}

// noticeStuck looks for workers that go on although none of their handlers returns. The world's mutex is held.
func (g *progressWork) noticeStuck(w *World) {
	for p, all := range g.hung {
		if len(all) == 0 || len(all) < g.slots[p] {
			continue
		}
		const most = 10*time.Second + 10*time.Second + 5*time.Second // until they count as stuck, its grace, and what it writes
		if last := all[len(all)-1]; time.Since(last) > g.endStuck+most && p.sound(last) {
			w.violate("hopeless", []string{p.who()}, "none of the %d handlers of %s has returned for %v, and it goes on", len(all), p.who(), g.endStuck+most)
		}
	}
}

// rollBack writes something that must not stay.
func rollBack(ctx context.Context, p *Process, db *dialect.DB, j *errand) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO sim_ledger (job, who) VALUES (?, 'rolled back')`, j.name)
	p.Act(func() { p.w.Reached("progress after a rollback") })
	return errors.Join(err, tx.Rollback())
}

// tidy cancels running jobs and retries dead ones, until the last fault has ended.
func (g *progressWork) tidy(p *Process) error {
	db, err := p.Open(2)
	if err != nil {
		return err
	}
	a, err := admin.New(db, admin.Options{})
	if err != nil {
		return err
	}
	for !p.w.Over() {
		if err := p.Sleep(p.ctx, p.Dice.about(3*time.Second)); err != nil {
			return err
		}
		if p.Dice.once(2) {
			g.retry(p, a)
			continue
		}
		var j *errand
		var id int64
		p.Act(func() {
			if len(g.open) > 0 {
				j = g.open[p.Dice.IntN(len(g.open))].j
				id, j.perhapsGone = j.id, true
			}
		})
		if j == nil {
			continue
		}
		err := a.Cancel(p.ctx, progressQueue, id)
		p.Note("cancelled %s: %d, %v", j.name, id, err)
		p.Act(func() {
			g.stirs()
			if err == nil {
				j.gone++
				g.gone[j] = time.Now() //nolint:forbidigo // virtual
				p.w.Reached("a running job is cancelled")
			}
		})
	}
	return p.ctx.Err()
}

// retry retries the dead, all but those that cannot be decoded.
func (g *progressWork) retry(p *Process, a *admin.Client) {
	for _, kind := range []string{stepsKind, stallKind} {
		r, err := a.Bulk(p.ctx, admin.BulkRetry, admin.Filter{Queue: progressQueue, Kind: kind}, admin.BulkOptions{})
		p.Note("retried: %+v, %v", r, err)
	}
	p.Act(g.stirs)
}

// Left looks for jobs that run although they were cancelled, and for delays that are too long, makes a job that
// has failed one that has failed very often, and says what has not ended.
func (g *progressWork) Left(w *World) string {
	pool := w.Operator.Pool()
	if !w.Over() {
		r, err := pool.ExecContext(w.Free(), `UPDATE dbcron_job_delayed SET attempt = ? WHERE id = (SELECT MIN(id) FROM dbcron_job_delayed WHERE id > 0 AND attempt BETWEEN 1 AND ?)`,
			manyErrors, manyErrors-1)
		if err != nil {
			return err.Error()
		}
		if n, _ := r.RowsAffected(); n > 0 {
			w.count("a job has failed hundreds of times")
		}
	}
	var late int
	err := pool.QueryRowContext(w.Free(), `SELECT COUNT(*) FROM dbcron_job_delayed WHERE id > 0 AND (julianday(run_at) - julianday(sim_now())) * 86400 > ?`,
		(maxDelay + time.Second).Seconds()).Scan(&late)
	if err != nil {
		return err.Error()
	}
	if late > 0 && !w.Stepped() {
		w.Violate("backoff", nil, "%d jobs are delayed for more than %v", late, maxDelay)
	}
	w.mu.Lock()
	g.noticeStuck(w)
	for _, s := range g.open {
		if at, is := g.gone[s.j]; is && time.Since(at) > 6*time.Second && s.ctx.Err() == nil && s.p.sound(at.Add(-g.lease)) {
			w.violate("deaf", s.j.words(), "%s goes on on %s, %v after it was cancelled", s.j.name, s.p.who(), time.Since(at).Round(time.Second))
		}
	}
	w.mu.Unlock()
	return g.leftOf(w)
}

// Check compares what was enqueued with the ledger.
func (g *progressWork) Check(w *World) error {
	for _, j := range g.list {
		j.dead = false // of those that were buried some have been retried
	}
	if err := g.account(w); err != nil {
		return err
	}
	for _, j := range g.list {
		if j.kind == typedKind && j.name[0] != 'j' && j.dead {
			w.count("a job cannot be decoded")
		}
	}
	return nil
}
