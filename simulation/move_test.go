package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// moveWork is two queues between which an operator moves jobs, again and again, after having sent the
// producers to the other one. One of the queues may be FIFO.
type moveWork struct {
	errands
	admin *admin.Client
	left  []int
	keys  int
	next  int
	epoch int             // rises when a move begins, and when it has ended
	busy  bool            // a move is under way, or its process has died
	since time.Time       // when one began last
	torn  bool            // a move has ended early: of a key, some jobs were moved and others not
	split map[string]bool // keys whose jobs a move may part
}

const movedKind = "moved"

var moveQueues = [2]string{"here", "there"}

func (m *moveWork) Claims() []string {
	return []string{
		"kill", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "jobs are moved", "a job stays because it runs",
		"a job stays behind one of its key", "a job stays since its unique key is taken", "a move ends early", "a job exists already",
		"a moved job is done", "a queue is FIFO",
	}
}

func (m *moveWork) Begin(w *World) (err error) {
	lease := time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	if err := m.begin(w, lease+10*time.Second); err != nil {
		return err
	}
	m.split = map[string]bool{}
	if m.admin, err = admin.New(w.Operator, admin.Options{}); err != nil {
		return err
	}
	for i, name := range moveQueues {
		fifo := w.Knob("fifo."+name, 0, 0, 0, 1) == 1
		if fifo {
			w.count("a queue is FIFO")
		}
		if _, err := m.admin.Edit(w.Free(), name, func(q *admin.Queue) {
			q.MaxAttempts, q.MaxCrashes, q.FIFO = 100_000, 100, fifo
			q.RetryDelay, q.RetryMaxDelay = 100*time.Millisecond, time.Second
		}); err != nil {
			return err
		}
		if n := w.Knob(fmt.Sprint("blocks.", i), 1, 2, 5, 16); !fifo {
			if err := m.admin.Resize(w.Free(), name, n); err != nil {
				return err
			}
		}
	}
	if err := m.admin.SetRoute(w.Free(), movedKind, moveQueues[0]); err != nil {
		return err
	}
	m.keys = w.Knob("keys", 1, 3, 10)
	producers, jobs := w.Knob("producers", 1, 2), w.Knob("jobs", 20, 60, 120)
	for i := range producers {
		m.left = append(m.left, jobs/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return m.produce(p, i) })
	}
	for i := range w.Knob("workers", 1, 2, 3) {
		w.Start(fmt.Sprint("worker-", i), func(p *Process) error { return m.work(p, lease, i == 0) })
	}
	sheltered := w.Knob("mover.sheltered", 1, 1, 0) == 1
	w.StartOnce("mover", func(p *Process) error { return m.move(p, sheltered) })
	return nil
}

// produce enqueues jobs without naming a queue.
func (m *moveWork) produce(p *Process, me int) error {
	_, c, err := p.client()
	if err != nil {
		return err
	}
	return each(p, &m.left[me], func(n int) {
		d := p.w.Dice("job", me, n)
		j := &errand{name: fmt.Sprintf("job%d.%d", me, n), kind: movedKind, who: p.who()}
		job := queue.Job{Kind: movedKind, Payload: payload(j.name)}
		if !d.once(4) {
			j.key = fmt.Sprintf("key%d.%d", me, d.IntN(m.keys))
			job.Key = j.key
		}
		if d.once(6) { // of a key, one stays whose unique key is taken there, and those before it move
			job.Unique = fmt.Sprint("unique", d.IntN(4))
			p.Act(func() { m.split[j.key] = true })
		}
		if job.Key == "" && d.once(4) {
			job.Delay = d.between(10*time.Millisecond, 10*time.Second)
		}
		p.Act(func() { m.add(j); j.epoch = m.epoch })
		ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
		defer cancel()
		e, err := c.Enqueue(ctx, job)
		p.Note("enqueued %s: %d in %s, %v", j.name, e.ID, e.Queue, err)
		p.Act(func() {
			j.id, j.queue, j.fate = e.ID, e.Queue, fateOf(err)
			if j.epoch != m.epoch {
				j.epoch = -1
			}
			if e.Existed {
				j.id, j.fate = 0, refused
				p.w.Reached("a job exists already")
			}
			p.w.Done("enqueued")
		})
	})
}

// work is a worker's process, of both queues, or of one of them.
func (m *moveWork) work(p *Process, lease time.Duration, both bool) error {
	db, err := p.Open(10)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	queues := moveQueues[:]
	if at := p.Dice.IntN(4); at < 2 && !both {
		queues = queues[at : at+1]
	}
	w, err := c.Worker(p.tune(queue.WorkerOptions{
		Queues: queues, Lease: lease, Logger: p.Log, Concurrency: oneOf(p.Dice, 1, 4, 16), Batch: oneOf(p.Dice, 0, 1, 10),
		AckEach: p.Dice.once(4), Isolated: p.Dice.once(3), Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	}))
	if err != nil {
		return err
	}
	err = w.Handle(movedKind, func(ctx context.Context, d *queue.Delivery) error {
		return m.handle(p, d, func(j *errand) error {
			dice := p.w.Dice("attempt", j.name, j.begins)
			took := dice.about(80 * time.Millisecond)
			if dice.once(10) {
				took = dice.between(time.Second, 10*time.Second)
			}
			if err := p.Sleep(ctx, took); err != nil {
				return err
			}
			if dice.once(8) {
				return fmt.Errorf("attempt %d fails", d.Attempt)
			}
			if err := enter(ctx, p, db, d); err != nil {
				return err
			}
			p.Act(func() {
				if d.Queue != "" && j.queue != "" && d.Queue != j.queue {
					p.w.Reached("a moved job is done")
				}
			})
			return nil
		})
	})
	if err != nil {
		return err
	}
	return w.Run(p.ctx)
}

// move sends the producers to the other queue, and moves what waits, until the last fault has ended.
func (m *moveWork) move(p *Process, sheltered bool) error {
	db, err := p.Open(4)
	if err != nil {
		return err
	}
	if sheltered {
		db = p.w.Operator
	}
	a, err := admin.New(db, admin.Options{})
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	for !p.w.Over() {
		if err := p.Sleep(p.ctx, p.Dice.about(4*time.Second)); err != nil {
			return err
		}
		var at int
		p.Act(func() { m.next++; at = m.next % 2 })
		if err := a.SetRoute(p.ctx, movedKind, moveQueues[at]); err != nil {
			p.Note("no route: %v", err)
			continue
		}
		if err := p.Sleep(p.ctx, 2500*time.Millisecond); err != nil { // until producers know
			return err
		}
		for range 1 + p.Dice.IntN(3) {
			m.moveOnce(p, c, moveQueues[1-at], moveQueues[at])
		}
	}
	return p.ctx.Err()
}

func (m *moveWork) moveOnce(p *Process, c *queue.Client, from, to string) {
	p.Act(func() { m.busy, m.since = true, time.Now(); m.epoch++; m.stirs() }) //nolint:forbidigo // virtual
	ctx, cancel := context.WithTimeout(p.ctx, p.Dice.between(20*time.Second, 90*time.Second))
	defer cancel()
	got, err := c.Move(ctx, from, to, queue.MoveOptions{})
	p.Note("moves from %s to %s: %+v, %v", from, to, got, err)
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	m.busy = p.isDead()
	m.epoch++
	m.stirs()
	m.torn = m.torn || err != nil || m.busy
	for situation, n := range map[string]int{
		"jobs are moved": got.Jobs, "a job stays because it runs": got.Running, "a job stays behind one of its key": got.Behind,
		"a job stays since its unique key is taken": got.Taken,
	} {
		if n > 0 {
			p.w.Reached(situation)
		}
	}
	if err != nil {
		p.w.Reached("a move ends early")
	}
	p.w.done["moved"] += got.Jobs
}

// Left notices that nothing goes on, and says which jobs have not ended. During a move nothing begins, and
// a lost mover's blocks are taken over after its lease.
func (m *moveWork) Left(w *World) string {
	w.mu.Lock()
	if m.busy && time.Since(m.since) < 100*time.Second {
		m.stirs()
	}
	w.mu.Unlock()
	return m.leftOf(w)
}

// Check compares what was enqueued with the ledger. Jobs of a key have an order if no move began or ended
// between their enqueueings, and none has ended early.
func (m *moveWork) Check(w *World) error {
	if err := m.account(w); err != nil {
		return err
	}
	if !m.torn {
		m.checkOrder(w, func(j *errand) string {
			if j.key == "" || m.split[j.key] || j.queue == "" || j.epoch < 0 {
				return ""
			}
			return fmt.Sprint(j.queue, " ", j.key, " ", j.epoch)
		})
	}
	return nil
}
