package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// groupWork is groups of jobs with callbacks. Jobs of them succeed, fail for good, add others, and have
// unique keys; clerks cancel and retry jobs, one by one and many at once.
type groupWork struct {
	errands
	admin  *admin.Client
	left   []int
	groups []*simGroup
	named  map[string]*simGroup
}

// A simGroup is a group as its producer knows it.
type simGroup struct {
	name     string
	id       int64
	fate     fate // of the group
	sealed   fate
	members  []*errand
	retried  bool // somebody may have retried a dead job of it
	callback []int64
	entries  int
}

const (
	groupQueue   = "groups"
	memberKind   = "member"
	callbackKind = "callback"
)

func (g *groupWork) Claims() []string {
	return []string{
		"kill", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "a callback begins", "a group is made with its jobs",
		"a group is filled and sealed", "a job adds one to its group", "a job exists already", "a unique key is there twice in a batch",
		"a job is dead", "a job is cancelled", "a running job is cancelled", "the loser of two cancellations", "many jobs are cancelled",
		"a dead job is retried", "the loser of two retries", "many jobs are retried",
	}
}

func (g *groupWork) Begin(w *World) (err error) {
	lease := time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	if err := g.begin(w, lease+10*time.Second); err != nil {
		return err
	}
	g.named = map[string]*simGroup{}
	if g.admin, err = admin.New(w.Operator, admin.Options{}); err != nil {
		return err
	}
	if _, err := g.admin.Edit(w.Free(), groupQueue, func(q *admin.Queue) {
		q.MaxAttempts, q.MaxCrashes = w.Knob("attempts", 1, 3, 10), 100
		q.RetryDelay, q.RetryMaxDelay = 100*time.Millisecond, time.Second
	}); err != nil {
		return err
	}
	if err := g.admin.Resize(w.Free(), groupQueue, w.Knob("blocks", 1, 2, 5, 16)); err != nil {
		return err
	}
	producers, groups := w.Knob("producers", 1, 2), w.Knob("groups", 4, 12, 30)
	for i := range producers {
		g.left = append(g.left, groups/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return g.produce(p, i) })
	}
	for i := range w.Knob("workers", 1, 2, 3) {
		w.Start(fmt.Sprint("worker-", i), func(p *Process) error { return g.work(p, lease) })
	}
	for i := range w.Knob("clerks", 0, 1, 2) {
		w.StartOnce(fmt.Sprint("clerk-", i), g.tidy)
	}
	return nil
}

// produce makes groups.
func (g *groupWork) produce(p *Process, me int) error {
	_, c, err := p.client()
	if err != nil {
		return err
	}
	return each(p, &g.left[me], func(n int) {
		d := p.w.Dice("group", me, n)
		s := &simGroup{name: fmt.Sprintf("group%d.%d", me, n)}
		p.Act(func() { g.groups = append(g.groups, s); g.named[s.name] = s })
		if d.once(2) {
			g.whole(p, c, d, s)
		} else {
			g.piecewise(p, c, d, s)
		}
		p.Act(func() { p.w.Done("groups") })
	})
}

// of is a group's settings.
func (s *simGroup) of() queue.Group {
	return queue.Group{Name: s.name, Callback: &queue.Job{
		Queue: groupQueue, Kind: callbackKind, Payload: payload("callback of " + s.name), MaxAttempts: 30000,
	}}
}

// job draws a job of a group.
func (g *groupWork) job(p *Process, s *simGroup, n string, d dice) (*errand, queue.Job) {
	j := &errand{name: s.name + "/" + n, kind: memberKind, queue: groupQueue, who: p.who()}
	job := queue.Job{Queue: groupQueue, Kind: memberKind, Payload: payload(j.name)}
	if d.once(6) {
		job.Unique = fmt.Sprint("unique", d.IntN(4))
	}
	if d.once(5) {
		job.Delay = d.between(10*time.Millisecond, 10*time.Second)
	}
	p.Act(func() { g.add(j); s.members = append(s.members, j) })
	return j, job
}

// whole makes a group with its jobs.
func (g *groupWork) whole(p *Process, c *queue.Client, d dice, s *simGroup) {
	var list []*errand
	var jobs []queue.Job
	for n := range d.IntN(12) {
		j, job := g.job(p, s, fmt.Sprint(n), d)
		list, jobs = append(list, j), append(jobs, job)
	}
	ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
	defer cancel()
	id, all, err := c.EnqueueGroup(ctx, s.of(), jobs...)
	p.Note("made %s: %d with %d jobs, %v", s.name, id, len(jobs), err)
	p.Act(func() {
		s.id, s.fate, s.sealed = id, fateOf(err), fateOf(err)
		p.w.Reached("a group is made with its jobs")
		for i, j := range list {
			j.fate = s.fate
			if i < len(all) {
				g.answered(p, j, all[i])
			}
			if i < len(all) && all[i].Existed && slices.ContainsFunc(all[:i], func(e queue.Enqueued) bool { return e.ID == all[i].ID && !e.Existed }) {
				p.w.Reached("a unique key is there twice in a batch")
			}
		}
	})
}

// answered notes what was said of a job. The world's mutex is held.
func (g *groupWork) answered(p *Process, j *errand, e queue.Enqueued) {
	j.id = e.ID
	if e.Existed {
		j.id, j.fate = 0, refused
		p.w.Reached("a job exists already")
	}
}

// piecewise makes an open group, adds jobs, and seals it.
func (g *groupWork) piecewise(p *Process, c *queue.Client, d dice, s *simGroup) {
	id, err := c.NewGroup(p.ctx, s.of())
	p.Note("made %s: %d, %v", s.name, id, err)
	p.Act(func() {
		s.fate, s.id = fateOf(err), id
		if err != nil {
			s.fate = unknown
		}
		s.sealed = refused
	})
	if err != nil {
		return
	}
	for n := range d.IntN(8) {
		g.join(p, c, s, fmt.Sprint(n), d)
		_ = p.Sleep(p.ctx, d.about(300*time.Millisecond))
	}
	p.Act(func() { s.sealed = unknown })
	for p.ctx.Err() == nil {
		err := c.Seal(p.ctx, id)
		p.Note("sealed %s: %d, %v", s.name, id, err)
		if err == nil {
			p.Act(func() { s.sealed = confirmed; p.w.Reached("a group is filled and sealed") })
			return
		}
		_ = p.Sleep(p.ctx, time.Second)
	}
}

// join adds a job to a group.
func (g *groupWork) join(p *Process, c *queue.Client, s *simGroup, n string, d dice) {
	j, job := g.job(p, s, n, d)
	job.Group = s.id
	ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 30*time.Second))
	defer cancel()
	e, err := c.Enqueue(ctx, job)
	p.Note("added %s: %d, %v", j.name, e.ID, err)
	p.Act(func() {
		j.fate = fateOf(err)
		g.answered(p, j, e)
	})
}

// work is a worker's process.
func (g *groupWork) work(p *Process, lease time.Duration) error {
	db, err := p.Open(10)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	w, err := c.Worker(p.tune(queue.WorkerOptions{
		Queues: []string{groupQueue}, Lease: lease, Logger: p.Log, Concurrency: oneOf(p.Dice, 1, 4, 16), Batch: oneOf(p.Dice, 0, 1, 10),
		AckEach: p.Dice.once(4), Isolated: p.Dice.once(3), Grace: oneOf(p.Dice, -1, time.Second, 10*time.Second),
	}))
	if err != nil {
		return err
	}
	err = errors.Join(
		w.Handle(memberKind, func(ctx context.Context, d *queue.Delivery) error {
			return g.handle(p, d, func(j *errand) error { return g.member(ctx, p, c, db, d, j) })
		}),
		w.Handle(callbackKind, func(ctx context.Context, d *queue.Delivery) error { return g.callback(ctx, p, c, db, d) }))
	if err != nil {
		return err
	}
	return w.Run(p.ctx)
}

// member is the work of a job of a group. It may add another one.
func (g *groupWork) member(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, d *queue.Delivery, j *errand) error {
	dice := p.w.Dice("attempt", j.name, j.begins)
	took := dice.about(80 * time.Millisecond)
	if dice.once(10) {
		took = dice.between(time.Second, 8*time.Second)
	}
	if err := p.Sleep(ctx, took); err != nil {
		return err
	}
	name, _, _ := strings.Cut(j.name, "/")
	if s := g.group(p, name); s != nil && s.id != 0 /* its producer has had an answer */ && j.begins == 1 && dice.once(4) && len(j.name) < 30 {
		g.join(p, c, s, strings.TrimPrefix(j.name, name+"/")+"+", dice)
		p.Act(func() { p.w.Reached("a job adds one to its group") })
	}
	switch p.w.Dice("job", j.name).IntN(20) {
	case 0:
		return queue.Bury(errors.New("it cannot be done"))
	case 1:
		return errors.New("it fails each time")
	}
	if dice.once(10) {
		return fmt.Errorf("attempt %d fails", d.Attempt)
	}
	if err := d.SetResult(j.name); err != nil {
		return err
	}
	return enter(ctx, p, db, d)
}

// group returns a group by its name.
func (g *groupWork) group(p *Process, name string) *simGroup {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return g.named[name]
}

// callback is the work of a group's callback. All jobs of the group have ended.
func (g *groupWork) callback(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, d *queue.Delivery) error {
	if err := p.awake(context.Background(), nil); err != nil {
		return err
	}
	name := strings.TrimPrefix(nameOf(d), "callback of ")
	s := g.group(p, name)
	p.Note("begins the callback of %s: %d, attempt %d", name, d.ID, d.Attempt)
	if s == nil {
		p.w.Violate("phantom", []string{name}, "a callback of %q", name)
		return nil
	}
	p.Act(func() {
		g.stirs()
		p.w.Reached("a callback begins")
		if !slices.Contains(s.callback, d.ID) {
			s.callback = append(s.callback, d.ID)
		}
	})
	var all []queue.Result
	for r, err := range c.Results(ctx, d.Callback) {
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	p.Act(func() {
		for _, r := range all {
			var of string
			_ = json.Unmarshal(r.Result, &of)
			switch {
			case r.State == "pending" && !s.retried:
				p.w.violate("early", []string{name, fmt.Sprint(r.Job)}, "the callback of %s begins, and its job %d is pending", name, r.Job)
			case r.State == "done" && !strings.HasPrefix(of, name+"/"):
				p.w.violate("result", []string{name, fmt.Sprint(r.Job)}, "the job %d of %s is done, and its result is %q", r.Job, name, r.Result)
			}
		}
	})
	err := enter(ctx, p, db, d)
	p.Note("ends the callback of %s: %d, %v", name, d.ID, err)
	return err
}

// tidy cancels and retries jobs until the last fault has ended.
func (g *groupWork) tidy(p *Process) error {
	db, err := p.Open(2)
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
		switch p.Dice.IntN(8) {
		case 0:
			g.many(p, a, admin.BulkRetry, "many jobs are retried")
		case 1:
			g.many(p, a, admin.BulkCancel, "many jobs are cancelled")
		case 2, 3:
			g.again(p, a)
		default:
			g.cancel(p, a)
		}
	}
	return p.ctx.Err()
}

// recent returns one of the last few jobs; nil: there is none.
func (g *groupWork) recent(p *Process) (j *errand, id int64, begun bool) {
	p.Act(func() {
		some := g.list[max(0, len(g.list)-12):]
		if len(some) > 0 {
			j = some[p.Dice.IntN(len(some))]
			id, begun = j.id, j.begins > 0
		}
	})
	return j, id, begun
}

// cancel cancels a job. Of two who do so, one is told that it is not there.
func (g *groupWork) cancel(p *Process, a *admin.Client) {
	j, id, begun := g.recent(p)
	if id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
	defer cancel()
	p.Act(func() { j.perhapsGone = true }) // it may be killed meanwhile
	err := a.Cancel(ctx, groupQueue, id)
	p.Note("cancelled %s: %d, %v", j.name, id, err)
	p.Act(func() {
		g.stirs()
		switch {
		case err == nil:
			j.gone++
			p.w.Reached("a job is cancelled")
			if begun {
				p.w.Reached("a running job is cancelled")
			}
		case errors.Is(err, admin.ErrNotFound) && j.gone > 0:
			p.w.Reached("the loser of two cancellations")
		}
	})
}

// again retries a job that may be dead.
func (g *groupWork) again(p *Process, a *admin.Client) {
	j, id, _ := g.recent(p)
	if id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
	defer cancel()
	name, _, _ := strings.Cut(j.name, "/")
	p.Act(func() { g.named[name].retried = true })
	err := a.Retry(ctx, groupQueue, id)
	p.Note("retried %s: %d, %v", j.name, id, err)
	p.Act(func() {
		g.stirs()
		switch {
		case err == nil:
			j.retried++
			p.w.Reached("a dead job is retried")
		case (errors.Is(err, admin.ErrState) || errors.Is(err, admin.ErrNotFound)) && j.retried > 0:
			p.w.Reached("the loser of two retries")
		}
	})
}

// many retries the dead, or cancels those that are delayed.
func (g *groupWork) many(p *Process, a *admin.Client, what admin.BulkAction, situation string) {
	ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
	defer cancel()
	f := admin.Filter{Queue: groupQueue, Kind: memberKind}
	p.Act(func() {
		for _, s := range g.groups {
			s.retried = s.retried || what == admin.BulkRetry
			for _, j := range s.members {
				j.perhapsGone = j.perhapsGone || what == admin.BulkCancel
			}
		}
	})
	if what == admin.BulkCancel {
		f.State, f.OlderThan = admin.StateDelayed, 2*time.Second
	}
	r, err := a.Bulk(ctx, what, f, admin.BulkOptions{})
	p.Note("%s: %+v, %v", situation, r, err)
	p.Act(func() {
		g.stirs()
		if r.Done > 0 {
			p.w.Reached(situation)
		}
	})
}

// Left notices that nothing goes on, and says which jobs and groups have not ended.
func (g *groupWork) Left(w *World) string {
	left := g.leftOf(w)
	var sealed int
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT COUNT(*) FROM dbcron_job_group WHERE state = 'sealed'`).Scan(&sealed)
	switch {
	case err != nil:
		return err.Error()
	case sealed > 0:
		return strings.TrimPrefix(fmt.Sprintf("%s; %d groups have not ended", left, sealed), "; ")
	}
	return left
}

// Check accounts for jobs, callbacks and what groups count.
func (g *groupWork) Check(w *World) error {
	if err := g.checkCallbacks(w); err != nil {
		return err
	}
	if err := g.account(w); err != nil {
		return err
	}
	c, err := queue.New(w.Operator, queue.Options{})
	if err != nil {
		return err
	}
	for _, s := range g.groups {
		if err := g.checkGroup(w, c, s); err != nil {
			return err
		}
	}
	return nil
}

// checkCallbacks takes the callbacks' entries out of the ledger.
func (g *groupWork) checkCallbacks(w *World) error {
	for _, place := range []string{
		`SELECT job FROM sim_ledger WHERE job LIKE 'callback of %'`,
		`SELECT trim(payload, '"') FROM dbcron_job_dead WHERE kind = 'callback'`,
	} {
		err := eachRow(w, place, func(scan func(...any) error) error {
			var name string
			if err := scan(&name); err != nil {
				return err
			}
			if s := g.named[strings.TrimPrefix(name, "callback of ")]; s != nil {
				s.entries++
			} else {
				w.Violate("phantom", []string{name}, "%q was done", name)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	_, err := w.Operator.Pool().ExecContext(w.Free(), `DELETE FROM sim_ledger WHERE job LIKE 'callback of %'`)
	if err == nil {
		_, err = w.Operator.Pool().ExecContext(w.Free(), `DELETE FROM dbcron_job_dead WHERE kind = 'callback'`)
	}
	return err
}

// checkGroup checks one group.
func (g *groupWork) checkGroup(w *World, c *queue.Client, s *simGroup) error {
	words := []string{s.name}
	if len(s.callback) > 1 || s.entries > 1 {
		w.Violate("callbacks", words, "%s has the callbacks %v, with %d entries", s.name, s.callback, s.entries)
	}
	switch {
	case s.fate == confirmed && s.sealed == confirmed && s.entries != 1:
		w.Violate("callbacks", words, "%s was sealed, and its callback has %d entries", s.name, s.entries)
	case (s.fate == refused || s.sealed == refused) && s.entries > 0:
		w.Violate("callbacks", words, "%s was not sealed, and its callback has %d entries", s.name, s.entries)
	}
	if s.fate != confirmed {
		return nil
	}
	got, err := c.Group(w.Free(), s.id)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	var done, dead, gone, perhaps int
	for _, j := range s.members {
		switch {
		case len(j.seen) > 0:
			done++
		case j.dead:
			dead++
		case j.gone > 0:
			gone++
		case j.perhapsGone || j.fate == unknown:
			perhaps++
		}
	}
	if got.Pending != 0 || got.Done != done || got.Dead != dead || got.Cancelled < gone || got.Cancelled > gone+perhaps {
		w.Violate("counts", words, "%s counts %d pending, %d done, %d dead, %d cancelled jobs; there are %d, %d, and %d to %d", s.name,
			got.Pending, got.Done, got.Dead, got.Cancelled, done, dead, gone, gone+perhaps)
	}
	return nil
}
