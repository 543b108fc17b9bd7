package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// takerWork is a queue whose jobs are done at the SQL prompt, by the statements that docs/queue-sql.md has for
// SQLite, and in between by workers in Go, which come and go.
type takerWork struct {
	errands
	left   []int
	prompt promptStatements
}

// promptStatements are the statements of the docs, a transaction each.
type promptStatements struct{ take, renew, complete, fail, bury, giveBack []string }

const takerQueue = "taken"

func (t *takerWork) Claims() []string {
	return []string{
		"kill", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "a job is taken at the prompt", "a worker does one of these jobs",
		"a lease is renewed at the prompt", "a job is completed at the prompt", "a job fails at the prompt", "a job is buried at the prompt",
		"a job is given back at the prompt", "a job is abandoned at the prompt", "a job at the prompt is no longer the session's",
	}
}

// readPrompt reads the statements from the docs, with the simulated clock.
func readPrompt() (s promptStatements, err error) {
	text, err := os.ReadFile("../docs/queue-sql.md")
	if err != nil {
		return s, err
	}
	_, part, _ := strings.Cut(string(text), "\n### SQLite\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var all [][]string
	for i, block := range strings.Split(part, "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "sql\n") {
			continue
		}
		block = strings.NewReplacer("'now'", "sim_now()", "'mail'", "'"+takerQueue+"'", "'+30 seconds'", "'+6 seconds'", "'+5 minutes'", "'+10 seconds'",
			"'+10 seconds'", "'+1 seconds'").Replace(block[4:])
		var list []string
		for one := range strings.SplitSeq(block, ";\n") {
			if one = strings.TrimSpace(one); one != "" && one != "BEGIN IMMEDIATE" && one != "COMMIT" {
				list = append(list, one)
			}
		}
		all = append(all, list)
	}
	if len(all) != 6 {
		return s, fmt.Errorf("docs/queue-sql.md has %d blocks for SQLite", len(all))
	}
	return promptStatements{all[0], all[1], all[2], all[3], all[4], all[5]}, nil
}

func (t *takerWork) Begin(w *World) (err error) {
	lease := time.Duration(w.Knob("lease", 8, 4, 2)) * time.Second
	if err := t.begin(w, lease+20*time.Second); err != nil {
		return err
	}
	if t.prompt, err = readPrompt(); err != nil {
		return err
	}
	a, err := admin.New(w.Operator, admin.Options{})
	if err != nil {
		return err
	}
	if _, err := a.Edit(w.Free(), takerQueue, func(q *admin.Queue) {
		q.MaxAttempts, q.MaxCrashes = 30_000, 100
		q.RetryDelay, q.RetryMaxDelay = 100*time.Millisecond, time.Second
		q.FIFO = w.Knob("fifo", 0, 0, 0, 1) == 1
		q.KeepDone = time.Duration(w.Knob("keep.done", 0, 0, 1)) * time.Hour
	}); err != nil {
		return err
	}
	if n := w.Knob("blocks", 1, 2, 5, 16); w.knobs["fifo"] == 0 {
		if err := a.Resize(w.Free(), takerQueue, n); err != nil {
			return err
		}
	}
	producers, jobs := w.Knob("producers", 1, 2), w.Knob("jobs", 20, 60, 120)
	if w.knobs["fifo"] == 1 { // one after the other, and some are abandoned until their leases end
		jobs = min(jobs, 60)
	}
	for i := range producers {
		t.left = append(t.left, jobs/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return t.produce(p, i) })
	}
	for i := range w.Knob("takers", 1, 2, 3) {
		w.Start(fmt.Sprint("workersql-", i), t.session) // which takes over no block
	}
	for i := range w.Knob("workers", 0, 1, 2) {
		w.Start(fmt.Sprint("go-", i), func(p *Process) error { return t.work(p, lease) })
	}
	return nil
}

func (t *takerWork) produce(p *Process, me int) error {
	_, c, err := p.client()
	if err != nil {
		return err
	}
	return each(p, &t.left[me], func(n int) {
		d := p.w.Dice("job", me, n)
		j := &errand{name: fmt.Sprintf("job%d.%d", me, n), who: p.who()}
		job := queue.Job{Queue: takerQueue, Kind: plainKind, Payload: payload(j.name)}
		if !d.once(3) {
			j.key = fmt.Sprintf("key%d.%d", me, d.IntN(4))
			job.Key = j.key
		} else if d.once(4) {
			job.Delay = d.between(10*time.Millisecond, 5*time.Second)
		}
		if d.once(6) {
			job.Unique = j.name
		}
		p.Act(func() { t.add(j) })
		ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
		defer cancel()
		asked := time.Now() //nolint:forbidigo // virtual
		e, err := c.Enqueue(ctx, job)
		p.Note("enqueued %s: %d, %v", j.name, e.ID, err)
		p.Act(func() {
			j.id, j.fate, j.late = e.ID, fateOf(err), time.Since(asked) > 2*time.Second
			p.w.Done("enqueued")
		})
	})
}

// work is a worker's process, which ends soon.
func (t *takerWork) work(p *Process, lease time.Duration) error {
	_ = p.Sleep(p.ctx, p.Dice.about(4*time.Second))
	db, err := p.Open(10)
	if err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	w, err := c.Worker(p.tune(queue.WorkerOptions{
		Queues: []string{takerQueue}, Lease: lease, Logger: p.Log, Concurrency: oneOf(p.Dice, 1, 4), Isolated: p.Dice.once(3),
		Grace: oneOf(p.Dice, -1, time.Second),
	}))
	if err != nil {
		return err
	}
	err = w.Handle(plainKind, func(ctx context.Context, d *queue.Delivery) error {
		return t.handle(p, d, func(j *errand) error {
			dice := p.w.Dice("attempt", j.name, j.begins)
			if err := p.Sleep(ctx, dice.about(200*time.Millisecond)); err != nil {
				return err
			}
			if dice.once(10) {
				return fmt.Errorf("attempt %d fails", d.Attempt)
			}
			p.Act(func() { p.w.Reached("a worker does one of these jobs") })
			return enter(ctx, p, db, d)
		})
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, p.Dice.about(5*time.Second))
	defer cancel()
	return w.Run(ctx)
}

// session takes one job after the other at the SQL prompt.
func (t *takerWork) session(p *Process) error {
	db, err := p.Open(2)
	if err != nil {
		return err
	}
	for n := 0; p.ctx.Err() == nil; n++ {
		s := &taking{t: t, p: p, pool: db.Pool(), name: fmt.Sprintf("sql:%s:%d", p.who(), n)}
		j, err := s.take()
		if err != nil || j == nil {
			if err != nil {
				p.Note("takes nothing: %v", err)
			}
			if err := p.Sleep(p.ctx, p.Dice.about(300*time.Millisecond)); err != nil {
				return err
			}
			continue
		}
		p.Act(func() { t.running++ })
		err = s.do(j)
		p.w.mu.Lock()
		t.running--
		t.stirs()
		p.w.mu.Unlock()
		if err != nil {
			p.Note("ends %s: %v", j.name, err)
		}
	}
	return p.ctx.Err()
}

// A taking is a session's life with one job.
type taking struct {
	t    *takerWork
	p    *Process
	pool *sql.DB
	name string
}

var errNotMine = errors.New("the job is no longer the session's")

// run runs a transaction of the docs, and what the session adds to it. The first statement must change a row,
// unless it takes the job.
func (s *taking) run(list []string, add ...any) error {
	ctx, cancel := context.WithTimeout(s.p.ctx, 20*time.Second)
	defer cancel()
	tx, err := s.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	for i, text := range list {
		r, err := tx.ExecContext(ctx, s.named(text))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); i == 0 && (n != 1 || err != nil) {
			return errors.Join(errNotMine, err)
		}
	}
	if len(add) > 0 {
		if _, err := tx.ExecContext(ctx, `INSERT INTO sim_ledger (job, who) VALUES (?, ?)`, add...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *taking) named(text string) string {
	return strings.ReplaceAll(text, "sql:web1:8f3a", s.name)
}

// take takes a job; nil: there is none.
func (s *taking) take() (j *errand, err error) {
	last := len(s.t.prompt.take) - 1
	if err := s.run(s.t.prompt.take[:last]); err != nil {
		return nil, err
	}
	var id int64
	var kind, text string
	var attempt, crashes int
	var binary, key any
	ctx, cancel := context.WithTimeout(s.p.ctx, 20*time.Second)
	defer cancel()
	err = s.pool.QueryRowContext(ctx, s.named(s.t.prompt.take[last])).Scan(&id, &kind, &text, &binary, &key, &attempt, &crashes)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	name := strings.Trim(text, `"`)
	s.p.Note("begins %s: %d, attempt %d, %d crashes, as %s", name, id, attempt, crashes, s.name)
	s.p.Act(func() {
		s.t.stirs()
		if j = s.t.byName[name]; j == nil {
			s.p.w.violate("phantom", []string{name}, "%s is taken, which nobody has enqueued", name)
			return
		}
		j.begins++
		j.id = id
		s.p.w.Reached("a job is taken at the prompt")
	})
	return j, nil
}

// do does the job.
func (s *taking) do(j *errand) error {
	p, dice := s.p, s.p.w.Dice("attempt", j.name, j.begins)
	took := dice.about(200 * time.Millisecond)
	if dice.once(6) {
		took = dice.between(time.Second, 12*time.Second)
	}
	if dice.once(3) {
		took /= 2
	}
	if err := p.Sleep(p.ctx, took); err != nil {
		return err
	}
	reached := func(situation string, err error) error {
		p.Act(func() {
			if errors.Is(err, errNotMine) {
				p.w.Reached("a job at the prompt is no longer the session's")
			}
			if err == nil {
				p.w.Reached(situation)
			}
		})
		p.Note("%s: %s, %v", situation, j.name, err)
		return err
	}
	if dice.once(3) {
		if err := reached("a lease is renewed at the prompt", s.run(s.t.prompt.renew)); err != nil {
			return err
		}
		if err := p.Sleep(p.ctx, took); err != nil {
			return err
		}
	}
	switch odds := dice.IntN(30); {
	case odds < 3:
		return reached("a job fails at the prompt", s.run(s.t.prompt.fail))
	case odds == 3:
		return reached("a job is buried at the prompt", s.run(s.t.prompt.bury))
	case odds < 6:
		return reached("a job is given back at the prompt", s.run(s.t.prompt.giveBack))
	case odds < 8:
		return reached("a job is abandoned at the prompt", nil)
	}
	err := s.run(s.t.prompt.complete, j.name, p.who())
	p.Act(func() {
		if err == nil {
			j.ends++
			p.w.Done("done")
		}
	})
	return reached("a job is completed at the prompt", err)
}

// Left notices that nothing goes on, and says which jobs have not ended.
func (t *takerWork) Left(w *World) string { return t.leftOf(w) }

// Check compares what was enqueued with the ledger, and the order of keys.
func (t *takerWork) Check(w *World) error {
	if err := t.account(w); err != nil {
		return err
	}
	t.checkOrder(w, func(j *errand) string {
		if j.late { // see docs/queue.md: later jobs of its key may be done before it
			return ""
		}
		return j.key
	})
	return nil
}
