package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

// work is a worker's process.
func (q *queueWork) work(p *Process) error {
	db, err := p.Open(oneOf(p.Dice, 6, 10, 20))
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell(), LeaseLost: func(string) {
		p.Act(func() { p.w.Reached("a lease is lost"); q.losses[p]++ })
	}})
	if err != nil {
		return err
	}
	opt := queue.WorkerOptions{
		Queues: []string{simQueue}, Lease: q.max.lease, Logger: p.Log,
		Concurrency: oneOf(p.Dice, 1, 4, 16), Connections: oneOf(p.Dice, 1, 2), Batch: oneOf(p.Dice, 0, 1, 10), ReadAhead: oneOf(p.Dice, 0, 100_000),
		AckEach: p.Dice.once(4), Isolated: p.Dice.once(4), Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	}
	p.Note("works: concurrency %d, connections %d, batch %d, ack each %v, isolated %v, grace %v",
		opt.Concurrency, opt.Connections, opt.Batch, opt.AckEach, opt.Isolated, opt.Grace)
	w, err := c.Worker(opt)
	if err != nil {
		return err
	}
	batches := queue.BatchOptions{ByKey: true, Max: 1 + p.Dice.IntN(10), Wait: p.Dice.about(50 * time.Millisecond)}
	handles := []func() error{
		func() error {
			return w.Handle(plainKind, func(ctx context.Context, d *queue.Delivery) error {
				return q.handle(ctx, p, []*queue.Delivery{d}, func() error { return q.do(ctx, p, d) })
			})
		},
		func() error {
			return w.Handle(ledgerKind, func(ctx context.Context, d *queue.Delivery) error {
				return q.handle(ctx, p, []*queue.Delivery{d}, func() error {
					if err := q.do(ctx, p, d); err != nil {
						return err
					}
					return enter(ctx, p, db, d)
				})
			})
		},
		func() error {
			return w.HandleBatch(batchKind, batches, func(ctx context.Context, all []*queue.Delivery) error {
				return q.handle(ctx, p, all, func() error { return q.doBatch(ctx, p, db, all) })
			})
		},
	}
	lacks := -1
	if q.few && p.Name != fullWorker {
		lacks = p.w.Dice("kinds", p.Name, p.Life).IntN(len(handles))
		p.Note("does not know %s", []string{plainKind, ledgerKind, batchKind}[lacks])
		p.Act(func() { p.w.Reached("a worker does not know all kinds") })
	}
	for _, i := range p.Dice.Perm(len(handles)) {
		if i == lacks {
			continue
		}
		if err := handles[i](); err != nil {
			return err
		}
	}
	return w.Run(p.ctx)
}

// handle surrounds what a handler does with what the checks need to know.
func (q *queueWork) handle(ctx context.Context, p *Process, all []*queue.Delivery, do func() error) (err error) {
	p.Act(func() {
		q.running++
		q.progress = time.Now() //nolint:forbidigo // virtual
		for _, d := range all {
			q.begins(ctx, p, d)
		}
		if len(all) > 1 {
			p.w.Reached("a batch of several jobs")
		}
	})
	counted := !p.isDead()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			defer panic(r)
		}
		p.w.mu.Lock()
		if counted {
			q.running--
		}
		q.progress = time.Now() //nolint:forbidigo // virtual
		p.w.mu.Unlock()
		p.Act(func() {
			for i, d := range all {
				q.ends(p, d, resultOf(err, i))
			}
		})
		if d := all[0]; !p.w.Over() && p.w.Dice("last words", nameOf(d), q.times(p, d)).once(p.w.Knob("last.words", 0, 100, 100, 10)) {
			p.w.gate.do(func() { // before its end can be written, if nothing but that writes it
				p.Note("is killed, as a job has ended")
				p.w.trouble()
				p.strike()
				p.kill()
			})
		}
	}()
	// Goroutines of a process that stands still go on until here. So the handler was called before the stop.
	if err := p.awake(context.Background(), nil); err != nil {
		return err
	}
	return do()
}

// resultOf is the outcome of one job of a batch.
func resultOf(err error, i int) error {
	var each queue.Results
	if errors.As(err, &each) {
		return each[i]
	}
	return err
}

// begins notes that a job begins. The world's mutex is held.
func (q *queueWork) begins(ctx context.Context, p *Process, d *queue.Delivery) {
	j := q.jobs[nameOf(d)]
	p.Note("begins %s: %d, attempt %d, %d crashes", nameOf(d), d.ID, d.Attempt, d.Crashes)
	if j == nil {
		return // Check finds it
	}
	j.id = d.ID
	if j.worker != nil && j.worker != p {
		p.w.Reached("a job moves to another process")
	}
	if j.ends > 0 && j.worker != p { // it is done twice: only an entry into the ledger commits with the job's end
		p.w.Reached("a job is taken over that has just ended")
	}
	q.checkBegin(p, j)
	j.begins++
	j.workers = append(j.workers, p)
	j.worker, j.began, j.open, j.losses, j.belief = p, time.Now(), true, q.losses[p], ctx //nolint:forbidigo // virtual
}

// ends notes that a handler has returned. The world's mutex is held.
func (q *queueWork) ends(p *Process, d *queue.Delivery, err error) {
	p.Note("ends %s: %d, %v", nameOf(d), d.ID, err)
	j := q.jobs[nameOf(d)]
	if j == nil {
		return
	}
	if j.worker == p {
		j.belief = nil
	}
	if err != nil {
		j.open = j.open && j.worker != p
		return
	}
	p.w.Done("done")
	j.told = j.kind != plainKind
	if j.ends++; j.ends > 1 && j.kind == plainKind {
		p.w.Reached("a job is done twice, without an entry")
	}
}

func nameOf(d *queue.Delivery) (name string) {
	_ = json.Unmarshal(d.Payload, &name)
	return name
}

// do is the work of one attempt, as the seed has it for this job and attempt.
func (q *queueWork) do(ctx context.Context, p *Process, d *queue.Delivery) error {
	dice := p.w.Dice("attempt", nameOf(d), q.times(p, d))
	took := dice.about(50 * time.Millisecond)
	if dice.once(q.long) {
		took = dice.between(time.Second, 15*time.Second)
		p.Act(func() { p.w.Reached("a job runs for long") })
	}
	if err := p.Sleep(ctx, took); err != nil {
		if errors.Is(context.Cause(ctx), queue.ErrLost) && dice.once(2) {
			q.goOnDeaf(p, dice.between(5*time.Second, time.Minute))
		}
		return err
	}
	switch odds := dice.IntN(100); {
	case odds < 6:
		p.Act(func() { p.w.Reached("a job fails") })
		return fmt.Errorf("attempt %d fails", d.Attempt)
	case odds < 8:
		p.Act(func() { p.w.Reached("a job panics") })
		panic("an attempt panics")
	case odds < 10:
		return queue.Snooze(dice.about(time.Second))
	case odds < 12:
		return queue.RetryAfter(dice.about(time.Second), errors.New("later"))
	}
	return nil
}

// goOnDeaf is what a handler does that does not look at its context, after its job was lost. It keeps its place in its
// worker, so the checks wait for it as for any handler.
func (q *queueWork) goOnDeaf(p *Process, long time.Duration) {
	p.Note("goes on for %v, deaf", long)
	p.Act(func() { p.w.Reached("a handler goes on after its job was lost") })
	_ = p.Sleep(context.Background(), long)
}

// times returns how many times the job has begun: a job that is snoozed keeps its attempt.
func (q *queueWork) times(p *Process, d *queue.Delivery) int {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if j := q.jobs[nameOf(d)]; j != nil {
		return j.begins
	}
	return d.Attempt
}

// doBatch is the work of a batch: each job has its own outcome, and those that succeed are completed
// together, up to the first one that does not.
func (q *queueWork) doBatch(ctx context.Context, p *Process, db *dialect.DB, all []*queue.Delivery) error {
	outcomes := make(queue.Results, len(all))
	good := all
	for i, d := range all {
		if outcomes[i] = q.do(ctx, p, d); outcomes[i] != nil {
			good = all[:i]
			for k := i + 1; k < len(all); k++ {
				outcomes[k] = errors.New("one before it has failed")
			}
			break
		}
	}
	if len(good) == 0 {
		return outcomes
	}
	if dice := p.w.Dice("again", nameOf(good[0]), q.times(p, good[0])); len(good) > 1 && dice.once(4) {
		if err := undone(ctx, db, good[0]); err != nil {
			return err
		}
		p.Note("has rolled back, and waits")
		p.Act(func() { p.w.Reached("a batch is completed again after a rollback") })
		if err := p.Sleep(ctx, dice.between(3*time.Second, 12*time.Second)); err != nil {
			return err
		}
	}
	if err := enter(ctx, p, db, good...); err != nil {
		return err
	}
	return outcomes
}

// undone completes a job in a transaction that does not commit.
func undone(ctx context.Context, db *dialect.DB, d *queue.Delivery) error {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(d.CompleteTx(ctx, tx), tx.Rollback())
}
