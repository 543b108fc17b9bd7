package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// limitWork is a queue with limits: of all its jobs, of those that run of one kind, of how many begin of
// another one, and of both of each tenant. Each worker handles some of the kinds. The queue may be FIFO, and may be paused for a while.
type limitWork struct {
	errands
	admin        *admin.Client
	left         []int
	fifo         bool
	active       []*stint
	begins       []beginning          // of jobs of the kind with a rate
	limits       map[string][]setting // what was set, and when
	rate         int
	burst        int
	tenantRate   int // of each tenant; 0: any
	tenantBegins map[string][]beginning
	paused       time.Time // since when everybody knows that; zero: it is not
}

// A setting is a limit on how many run, from some time on. Who sets it may get no answer.
type setting struct {
	running int
	since   time.Time
}

// A beginning is that of a job that counts for so many at a rate.
type beginning struct {
	at   time.Time
	cost int
}

// A stint is a handler at work.
type stint struct {
	p    *Process
	j    *errand
	ctx  context.Context
	over bool // it has returned, or its job's end may be written, though the answer to that has not come
}

const (
	limitQueue = "limited"
	fewKind    = "few"    // not many at a time
	slowlyKind = "slowly" // not many in a second
	freeKind   = "free"

	anyNumber = 1000 // of jobs run, without a limit
	mostCost  = 6    // of a job

	ofTenant  = "tenant " // before the names of tenants, among the limits
	bigTenant = "t0"      // it has a limit of its own, or none
)

func (l *limitWork) Claims() []string {
	return []string{
		"kill", "stop", "lose", "mute", "slow", "hangup", "deaf", "news is lost while a listener reconnects", "news goes down a dead path", "written, and the answer lost", "a limit is reached", "a limit is changed",
		"a rate is used up", "a queue is FIFO", "a worker has other kinds", "a queue is paused for longer", "a limited job's worker dies",
		"a limit of a tenant is reached", "a tenant's rate is used up", "a job counts for several",
	}
}

func (l *limitWork) Begin(w *World) (err error) {
	lease := time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	if err := l.begin(w, lease+12*time.Second); err != nil {
		return err
	}
	l.limits = map[string][]setting{}
	if l.admin, err = admin.New(w.Operator, admin.Options{}); err != nil {
		return err
	}
	l.fifo = w.Knob("fifo", 0, 0, 0, 1) == 1
	if l.fifo {
		w.count("a queue is FIFO")
	}
	if _, err := l.admin.Edit(w.Free(), limitQueue, func(q *admin.Queue) {
		q.MaxAttempts, q.MaxCrashes, q.FIFO = 100_000, 100, l.fifo
		q.RetryDelay, q.RetryMaxDelay = 100*time.Millisecond, time.Second
		q.Fair = !l.fifo && w.Knob("fair", 0, 0, 1) == 1
	}); err != nil {
		return err
	}
	if n := w.Knob("blocks", 1, 2, 5, 16); !l.fifo {
		if err := l.admin.Resize(w.Free(), limitQueue, n); err != nil {
			return err
		}
	}
	l.rate, l.burst = w.Knob("rate", 0, 2, 10, 40), w.Knob("burst", 1, 1, 5)
	for kind, n := range map[string]int{"": w.Knob("running.all", 0, 0, 3, 8), fewKind: w.Knob("running.few", 0, 1, 1, 3)} {
		if n == 0 {
			l.limits[kind] = []setting{{anyNumber, time.Now()}} //nolint:forbidigo // virtual
		} else if err := l.set(w.Free(), l.admin, kind, n); err != nil {
			return err
		}
	}
	if l.rate > 0 {
		if _, err := l.admin.EditLimit(w.Free(), limitQueue, slowlyKind, func(m *admin.Limit) { m.Rate, m.Per, m.Burst = l.rate, time.Second, l.burst }); err != nil {
			return err
		}
	}
	if err := l.limitTenants(w); err != nil {
		return err
	}
	producers, jobs := w.Knob("producers", 1, 2), w.Knob("jobs", 20, 60, 120)
	for i := range producers {
		l.left = append(l.left, jobs/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return l.produce(p, i) })
	}
	for i := range w.Knob("workers", 1, 2, 3, 4) {
		w.Start(fmt.Sprint("worker-", i), func(p *Process) error { return l.work(p, lease, i == 0) })
	}
	if w.Knob("operate", 0, 1) == 1 {
		w.StartOnce("tuner", l.operate)
	}
	return nil
}

// limitTenants sets limits of each tenant, and of one.
func (l *limitWork) limitTenants(w *World) error {
	l.tenantBegins = map[string][]beginning{}
	running, big := w.Knob("running.tenant", 0, 0, 1, 2), w.Knob("running.big", 0, 1, 4)
	l.tenantRate = w.Knob("rate.tenant", 0, 0, 0, 5)
	l.limits[ofTenant] = []setting{{cmp.Or(running, anyNumber), time.Now()}} //nolint:forbidigo // virtual
	if running > 0 || l.tenantRate > 0 {
		_, err := l.admin.EditTenantLimit(w.Free(), limitQueue, admin.EachTenant, func(m *admin.Limit) {
			m.Running, m.Rate, m.Per, m.Burst = running, l.tenantRate, time.Second, l.burst
		})
		if err != nil {
			return err
		}
	}
	if big == 0 {
		return nil
	}
	l.limits[ofTenant+bigTenant] = []setting{{big, time.Now()}} //nolint:forbidigo // virtual
	_, err := l.admin.EditTenantLimit(w.Free(), limitQueue, bigTenant, func(m *admin.Limit) { m.Running = big })
	return err
}

// set sets how many jobs of a kind may run.
func (l *limitWork) set(ctx context.Context, a *admin.Client, kind string, n int) error {
	l.limits[kind] = append(l.limits[kind], setting{n, time.Now()}) //nolint:forbidigo // virtual
	_, err := a.EditLimit(ctx, limitQueue, kind, func(m *admin.Limit) { m.Running = n })
	return err
}

// most returns how many of a kind may run now, at the most; 0: any number. A worker knows a change after three
// seconds, if it is well. The world's mutex is held.
func (l *limitWork) most(kind string) (most int) {
	all := l.limits[kind]
	for i, s := range all {
		if i == len(all)-1 || time.Since(all[i+1].since) < changes {
			most = max(most, s.running)
		}
	}
	return most
}

// changes is how long it takes until all workers know of a change, or have lost their leases.
const changes = 20 * time.Second

// produce enqueues jobs of all kinds.
func (l *limitWork) produce(p *Process, me int) error {
	_, c, err := p.client()
	if err != nil {
		return err
	}
	return each(p, &l.left[me], func(n int) {
		for range 1 + 9*(n%10/9) { // ten at once, now and then
			l.enqueue(p, c, me)
		}
	})
}

func (l *limitWork) enqueue(p *Process, c *queue.Client, me int) {
	j := &errand{queue: limitQueue, who: p.who()}
	p.Act(func() {
		j.name = fmt.Sprintf("job%d.%d", me, len(l.list))
		l.add(j)
	})
	d := p.w.Dice("job", j.name)
	j.kind = oneOf(d, fewKind, slowlyKind, freeKind)
	job := queue.Job{Queue: limitQueue, Kind: j.kind, Payload: payload(j.name)}
	mine := -1
	switch {
	case d.once(3):
		mine = d.IntN(5)
		j.key = fmt.Sprint("key", mine)
		job.Key = j.key
	case !l.fifo:
		job.Priority = oneOf(d, queue.Urgent, queue.Normal, queue.Idle)
	}
	if mine < 0 { // the jobs of a key are of one tenant
		mine = d.IntN(5)
	}
	if mine < 4 {
		j.tenant = fmt.Sprint("t", mine)
	}
	job.Tenant = j.tenant
	if costs := p.w.Dice("cost", j.name); costs.once(5) {
		j.cost = 2 + costs.IntN(mostCost-1)
	}
	job.Cost = j.cost
	ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
	defer cancel()
	e, err := c.Enqueue(ctx, job)
	p.Note("enqueued %s: %d, %v", j.name, e.ID, err)
	p.Act(func() {
		j.id, j.fate = e.ID, fateOf(err)
		p.w.Done("enqueued")
	})
}

// work is a worker's process, for all kinds or for some of them.
func (l *limitWork) work(p *Process, lease time.Duration, all bool) error {
	db, err := p.Open(20)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	w, err := c.Worker(p.tune(queue.WorkerOptions{
		Queues: []string{limitQueue}, Lease: lease, Logger: p.Log, Concurrency: oneOf(p.Dice, 1, 4, 16), Batch: oneOf(p.Dice, 0, 1, 10),
		AckEach: p.Dice.once(4), Isolated: p.Dice.once(3), Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	}))
	if err != nil {
		return err
	}
	kinds := []string{fewKind, slowlyKind, freeKind}
	if !all && p.Dice.once(2) {
		p.Dice.Shuffle(len(kinds), func(i, k int) { kinds[i], kinds[k] = kinds[k], kinds[i] })
		kinds = kinds[:1+p.Dice.IntN(2)]
		p.Act(func() { p.w.Reached("a worker has other kinds") })
	}
	p.Note("works: %v", kinds)
	for _, kind := range kinds {
		err = errors.Join(err, w.Handle(kind, func(ctx context.Context, d *queue.Delivery) error {
			over := l.enters(ctx, p, d)
			defer over()
			return l.handle(p, d, func(j *errand) error {
				dice := p.w.Dice("attempt", j.name, j.begins)
				took := dice.about(100 * time.Millisecond)
				if dice.once(map[bool]int{true: 4, false: 10}[kind == fewKind]) {
					took = dice.between(time.Second, 6*time.Second)
				}
				if err := p.Sleep(ctx, took); err != nil {
					return err
				}
				if dice.once(10) {
					return fmt.Errorf("attempt %d fails", d.Attempt)
				}
				over()
				return enter(ctx, p, db, d)
			})
		}))
	}
	if err != nil {
		return err
	}
	return w.Run(p.ctx)
}

// enters notes that a handler begins, and looks whether it may. It returns what notes its end.
func (l *limitWork) enters(ctx context.Context, p *Process, d *queue.Delivery) (over func()) {
	s := &stint{p: p, ctx: ctx}
	p.Act(func() {
		if s.j = l.byName[nameOf(d)]; s.j == nil || l.byName == nil {
			return
		}
		l.active = slices.DeleteFunc(l.active, func(o *stint) bool {
			if !o.over && o.p.isDead() && o.j.kind == fewKind {
				p.w.Reached("a limited job's worker dies")
			}
			return o.over || o.p.isDead() || o.ctx.Err() != nil
		})
		l.active = append(l.active, s)
		if p.w.steppedLocked() {
			return
		}
		l.checkRunning(p, s.j)
		if d.Kind == slowlyKind {
			l.begins = l.checkRate(p, s.j, l.begins, l.rate, "a rate is used up")
		}
		l.checkTenant(p, s.j)
		if !l.paused.IsZero() && time.Since(l.paused) > 0 && p.sound(l.paused.Add(-changes)) {
			p.w.violate("paused", s.j.words(), "%s begins on %s, and the queue was paused %v ago", s.j.name, p.who(), time.Since(l.paused)+5*time.Second)
		}
	})
	return func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		s.over = !p.isDead() // whoever begins next counts it
	}
}

// checkRunning looks whether more run than may. The world's mutex is held.
func (l *limitWork) checkRunning(p *Process, j *errand) {
	few := 0
	for _, s := range l.active {
		if s.j.kind == fewKind {
			few++
		}
	}
	switch all, most := len(l.active), l.most(""); {
	case l.fifo && all > 1:
		p.w.violate("fifo", j.words(), "%s begins, and %d run in a FIFO queue: %s", j.name, all, l.atWork())
	case most > 0 && all > most:
		p.w.violate("limit", j.words(), "%s begins, and %d run of %d: %s", j.name, all, most, l.atWork())
	case most > 0 && all == most:
		p.w.Reached("a limit is reached")
	}
	switch most := l.most(fewKind); {
	case j.kind != fewKind || most == 0:
	case few > most:
		p.w.violate("limit", j.words(), "%s begins, and %d run of its kind, of %d: %s", j.name, few, most, l.atWork())
	case few == most:
		p.w.Reached("a limit is reached")
	}
}

// checkTenant looks whether more run or begin of a job's tenant than may. The world's mutex is held.
func (l *limitWork) checkTenant(p *Process, j *errand) {
	if j.tenant == "" {
		return
	}
	n := 0
	for _, s := range l.active {
		if s.j.tenant == j.tenant {
			n++
		}
	}
	own, has := l.limits[ofTenant+j.tenant]
	most := l.most(ofTenant)
	if has {
		most = l.most(ofTenant + j.tenant)
	}
	switch {
	case n > most:
		p.w.violate("limit", j.words(), "%s begins, and %d run of its tenant %s, of %d: %s", j.name, n, j.tenant, most, l.atWork())
	case n == most:
		p.w.Reached("a limit of a tenant is reached")
	}
	if own == nil {
		l.tenantBegins[j.tenant] = l.checkRate(p, j, l.tenantBegins[j.tenant], l.tenantRate, "a tenant's rate is used up")
	}
}

func (l *limitWork) atWork() (text string) {
	for _, s := range l.active {
		text += fmt.Sprintf(" %s on %s", s.j.name, s.p.who())
	}
	return text
}

// checkRate looks for a span of time in which more began than may, each counted as its cost. Workers draw a tenth of a second ahead, and
// what becomes available that late is not lost: so one more may begin, and what a tenth of a second has. One job may begin before
// all of its cost is there. The world's mutex is held.
func (l *limitWork) checkRate(p *Process, j *errand, begins []beginning, rate int, usedUp string) []beginning {
	if rate == 0 {
		return nil
	}
	now := time.Now() //nolint:forbidigo // virtual
	begins = append(begins, beginning{now, max(1, j.cost)})
	if j.cost > 1 {
		p.w.Reached("a job counts for several")
	}
	burst, n := max(l.burst, (rate+9)/10), 0
	for _, from := range slices.Backward(begins) {
		n += from.cost
		span := now.Sub(from.at)
		if most := mostCost + float64(burst) + float64(rate)*(span+100*time.Millisecond).Seconds(); float64(n) > most {
			p.w.violate("rate", j.words(), "jobs that cost %d began in %v, with the rate %d/s and the burst %d", n, span, rate, burst)
		} else if span > time.Second && float64(n) > most*0.7 {
			p.w.Reached(usedUp)
		}
	}
	return begins
}

// operate changes limits, and pauses the queue, until the last fault has ended.
func (l *limitWork) operate(p *Process) error {
	db, err := p.Open(2)
	if err != nil {
		return err
	}
	a, err := admin.New(db, admin.Options{})
	if err != nil {
		return err
	}
	for {
		for { // a pause may have happened without an answer, too, or to one that has died
			p.Act(func() { l.paused = time.Time{}; l.stirs() })
			err := a.Resume(p.ctx, limitQueue)
			if err == nil {
				break
			}
			p.Note("resume: %v", err)
			if err := p.Sleep(p.ctx, time.Second); err != nil {
				return err
			}
		}
		p.w.trouble()
		if p.w.Over() {
			return nil
		}
		if err := p.Sleep(p.ctx, p.Dice.about(6*time.Second)); err != nil {
			return err
		}
		if p.Dice.once(2) {
			kind, n := oneOf(p.Dice, "", fewKind), oneOf(p.Dice, 1, 2, 4, 8)
			p.Act(func() { l.limits[kind] = append(l.limits[kind], setting{n, time.Now()}) }) //nolint:forbidigo // virtual
			_, err := a.EditLimit(p.ctx, limitQueue, kind, func(m *admin.Limit) { m.Running = n })
			p.Note("limits %q to %d: %v", kind, n, err)
			p.Act(func() {
				if err == nil {
					p.w.Reached("a limit is changed")
				}
			})
			if err != nil { // whatever was before goes on, too
				p.Act(func() { l.limits[kind] = append(l.limits[kind], setting{anyNumber, time.Now()}) }) //nolint:forbidigo // virtual
			}
			continue
		}
		if err = a.Pause(p.ctx, limitQueue, "for a while"); err == nil {
			p.Act(func() { l.paused = time.Now().Add(5 * time.Second); p.w.Reached("a queue is paused for longer") }) //nolint:forbidigo // virtual
			_ = p.Sleep(p.ctx, p.Dice.between(time.Second, 12*time.Second))
		}
		p.Note("paused: %v", err)
	}
}

// Left notices that nothing goes on, and says which jobs have not ended.
func (l *limitWork) Left(w *World) string {
	w.mu.Lock()
	if !l.paused.IsZero() {
		l.stirs()
	}
	w.mu.Unlock()
	return l.leftOf(w)
}

// Check compares what was enqueued with the ledger, and the order of a FIFO queue and of keys.
func (l *limitWork) Check(w *World) error {
	if err := l.account(w); err != nil {
		return err
	}
	l.checkOrder(w, func(j *errand) string {
		if l.fifo {
			return "all of " + j.who
		}
		if j.key == "" {
			return ""
		}
		return j.key + " of " + j.who
	})
	return nil
}
