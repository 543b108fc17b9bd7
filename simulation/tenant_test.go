package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// tenantWork is a fair queue in which one tenant enqueues hundreds of jobs at once, again and again, and others a job now and
// then. Theirs must begin soon, whatever the flood.
type tenantWork struct {
	errands
	admin *admin.Client
	left  []int // jobs that each tenant has to enqueue; the first one floods
	came  map[*errand]time.Time
	lease time.Duration
	moved time.Time // when there were last blocks of two generations
}

const (
	tenantQueue = "shared"
	floodPart   = 100 // so many jobs of the flood are enqueued at a time
)

func (s *tenantWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "a small tenant's job begins before the flood's end",
		"a tenant has a share", "the queue is resized", "a job fails", "a job of a small tenant has a key", "a job of a small tenant is delayed",
	}
}

func (s *tenantWork) Begin(w *World) (err error) {
	s.lease = time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	if err := s.begin(w, s.lease+20*time.Second); err != nil {
		return err
	}
	s.came = map[*errand]time.Time{}
	if s.admin, err = admin.New(w.Operator, admin.Options{}); err != nil {
		return err
	}
	if _, err := s.admin.Edit(w.Free(), tenantQueue, func(q *admin.Queue) {
		q.Fair, q.MaxAttempts, q.MaxCrashes, q.RetryDelay, q.RetryMaxDelay = true, 30_000, 100, 100*time.Millisecond, time.Second
	}); err != nil {
		return err
	}
	if err := s.admin.Resize(w.Free(), tenantQueue, w.Knob("blocks", 1, 2, 5)); err != nil {
		return err
	}
	if w.Knob("share", 0, 0, 1) == 1 {
		if err := s.admin.SetShare(w.Free(), tenantQueue, "tenant1", 5); err != nil {
			return err
		}
		w.count("a tenant has a share")
	}
	for i, jobs := range []int{w.Knob("flood", 300, 600, 1200), w.Knob("small", 20, 40), w.Knob("small", 20, 40)} {
		s.left = append(s.left, jobs)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return s.produce(p, i) })
	}
	for i := range w.Knob("workers", 1, 2, 3) {
		w.Start(fmt.Sprint("worker-", i), s.work)
	}
	if w.Knob("operate", 0, 0, 1) == 1 {
		w.StartOnce("tuner", s.operate)
	}
	return nil
}

// produce enqueues the jobs of a tenant: those of the flood by the hundred.
func (s *tenantWork) produce(p *Process, me int) error {
	_, c, err := p.client()
	if err != nil {
		return err
	}
	part := map[bool]int{true: floodPart, false: 1}[me == 0]
	return spread(p, s.left[me]/part, func() bool {
		var list []*errand
		var jobs []queue.Job
		for len(jobs) < part {
			n := take(p, &s.left[me])
			if n < 0 {
				break
			}
			j, job := s.draw(p, me, n)
			list, jobs = append(list, j), append(jobs, job)
		}
		if len(jobs) == 0 {
			return false
		}
		ctx, cancel := context.WithTimeout(p.ctx, p.Dice.between(2*time.Second, 60*time.Second))
		defer cancel()
		p.Act(func() {
			for _, j := range list {
				s.add(j)
			}
		})
		all, err := c.EnqueueMany(ctx, jobs)
		p.Note("enqueued %s and %d others: %v", list[0].name, len(list)-1, err)
		p.Act(func() {
			for i, j := range list {
				if j.fate = fateOf(err); i < len(all) {
					j.id = all[i].ID
				}
				if jobs[i].Delay == 0 && jobs[i].Priority == 0 { // others come when they are due, or behind what is more urgent
					s.came[j] = time.Now() //nolint:forbidigo // virtual
				}
				p.w.Done("enqueued")
			}
		})
		return true
	})
}

// draw makes a job of a tenant.
func (s *tenantWork) draw(p *Process, me, n int) (*errand, queue.Job) {
	d := p.w.Dice("job", me, n)
	j := &errand{name: fmt.Sprintf("job%d.%d", me, n), kind: plainKind, who: p.who()}
	job := queue.Job{Queue: tenantQueue, Kind: plainKind, Payload: payload(j.name), Tenant: fmt.Sprint("tenant", me)}
	switch odds := d.IntN(6); {
	case odds < 2 && (me > 0 || n%10 == 0):
		j.key = fmt.Sprintf("key%d.%d", me, d.IntN(2))
		job.Key = j.key
	case odds == 2:
		job.Priority = queue.Low
	case odds == 3 && me > 0:
		job.Delay = d.between(10*time.Millisecond, 5*time.Second)
	}
	if me > 0 {
		p.Act(func() {
			if job.Key != "" {
				p.w.Reached("a job of a small tenant has a key")
			}
			if job.Delay > 0 {
				p.w.Reached("a job of a small tenant is delayed")
			}
		})
	}
	return j, job
}

// work is a worker's process.
func (s *tenantWork) work(p *Process) error {
	db, err := p.Open(10)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{
		Queues: []string{tenantQueue}, Lease: s.lease, Logger: p.Log, Concurrency: oneOf(p.Dice, 2, 4, 16), Batch: oneOf(p.Dice, 1, 5, 20),
		AckEach: p.Dice.once(4), Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	})
	if err != nil {
		return err
	}
	err = w.Handle(plainKind, func(ctx context.Context, d *queue.Delivery) error {
		return s.handle(p, d, func(j *errand) error { return s.do(ctx, p, db, d, j) })
	})
	if err != nil {
		return err
	}
	return w.Run(p.ctx)
}

func (s *tenantWork) do(ctx context.Context, p *Process, db *dialect.DB, d *queue.Delivery, j *errand) error {
	dice := p.w.Dice("attempt", j.name, j.begins)
	if _, small := s.small(j); small && j.begins == 1 {
		p.Act(func() {
			if s.waits() > floodPart {
				p.w.Reached("a small tenant's job begins before the flood's end")
			}
		})
	}
	if err := p.Sleep(ctx, dice.about(40*time.Millisecond)); err != nil {
		return err
	}
	if dice.once(20) {
		p.Act(func() { p.w.Reached("a job fails") })
		return errors.New("an attempt fails")
	}
	return enter(ctx, p, db, d)
}

// small reports whether a job is of a tenant that does not flood the queue, and may begin at once, and when it came.
func (s *tenantWork) small(j *errand) (came time.Time, is bool) {
	came, is = s.came[j]
	return came, is && j.name[3] != '0'
}

// waits counts the jobs of the flood that have not begun. The world's mutex is held.
func (s *tenantWork) waits() (n int) {
	for _, j := range s.list {
		if j.name[3] == '0' && j.fate == confirmed && j.begins == 0 {
			n++
		}
	}
	return n
}

// operate changes the number of blocks now and then.
func (s *tenantWork) operate(p *Process) error {
	db, err := p.Open(2)
	if err != nil {
		return err
	}
	a, err := admin.New(db, admin.Options{})
	if err != nil {
		return err
	}
	for !p.w.Over() {
		if err := p.Sleep(p.ctx, p.Dice.between(5*time.Second, 20*time.Second)); err != nil {
			return err
		}
		p.w.trouble()
		if err := a.Resize(p.ctx, tenantQueue, 1+p.Dice.IntN(5)); err == nil {
			p.Act(func() { p.w.Reached("the queue is resized") })
		}
	}
	return p.ctx.Err()
}

// Left notices that nothing goes on, and that a small tenant's job waits behind the flood.
func (s *tenantWork) Left(w *World) string {
	bound := s.lease + 12*time.Second
	var generations int // jobs in new blocks wait until the old ones are empty
	if err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT COUNT(DISTINCT generation) FROM dbcron_queue_block`).Scan(&generations); err != nil {
		return err.Error()
	}
	if generations > 1 {
		s.moved = time.Now() //nolint:forbidigo // virtual
	}
	if w.Quiet() > bound && w.Healthy("worker", bound) && !w.Stepped() && time.Since(s.moved) > bound {
		w.mu.Lock()
		for _, j := range s.list {
			came, small := s.small(j)
			if small && j.fate == confirmed && j.begins == 0 && time.Since(came) > bound && s.first(j) {
				w.violate("unfair", j.words(), "%s waits for more than %v, behind a flood of %d", j.name, bound, s.waits())
			}
		}
		w.mu.Unlock()
	}
	return s.leftOf(w)
}

// first reports whether no job before it of its key has still to end, and it is not left to the reads, behind a job of any key that
// follows one that was committed late. The world's mutex is held.
func (s *tenantWork) first(j *errand) bool {
	const mark = 4095 // the low bits of such an id
	if j.key == "" {
		return true
	}
	return !slices.ContainsFunc(s.list, func(o *errand) bool {
		return o != j && o.key == j.key && o.ends == 0 && o.fate != refused || o.key != "" && o.id&mark == mark && o.id <= j.id && o.ends == 0
	})
}

// Check compares what was enqueued with the ledger, and the order of keys.
func (s *tenantWork) Check(w *World) error {
	if err := s.account(w); err != nil {
		return err
	}
	s.checkOrder(w, func(j *errand) string { return j.key })
	return nil
}
