package simulation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// queueWork is a queue with producers, workers, and an operator who changes its settings. Each producer has
// its own keys, so that it knows in which order the jobs of a key were enqueued. What jobs do is an entry in
// a ledger, written with CompleteTx, or a note of the process alone.
type queueWork struct {
	admin *admin.Client
	keys  int
	left  []int // jobs that each producer has to enqueue
	next  []int // number of the next job of each key; the last key stands for none
	jobs  map[string]*simJob
	order []*simJob // as enqueued

	few      bool // kinds that some workers know
	long     int  // one of so many attempts runs for seconds
	running  int  // handlers at work
	losses   map[*Process]int
	untold   map[*Process]time.Time // when the last job of a producer was stored, until it has asked whom to notify
	progress time.Time
	max      queueSettings
}

// queueSettings are settings that the checks need.
type queueSettings struct {
	lease, retry time.Duration
	poll         time.Duration // the longest
	crashes      int
	strict       bool // later jobs of a key wait for retries
}

// A simJob is a job as its producer knows it.
type simJob struct {
	name string // key/number, which is also its payload
	key  int    // -1: none
	n    int
	kind string
	who  string // the life of the producer
	fate fate
	inTx bool // enqueued in a transaction, with an order
	id   int64
	ends int       // handlers of live processes that have returned nil
	seen []effect  // its entries in the ledger
	due  time.Time // it does not begin before
	dead bool

	worker  *Process // that began it last
	workers []*Process
	begins  int
	began   time.Time
	losses  int             // leases that its worker had lost then
	open    bool            // its handler has not returned, or has returned nil
	belief  context.Context // of its handler at work; nil: it has returned
	told    bool            // its entry was committed, and the handler was told so
	waiting []*simJob
}

// A fate is what a producer knows of a job that it has enqueued.
type fate int

const (
	unknown   fate = iota // it was killed meanwhile, or got no answer
	confirmed             // the job is there
	refused               // it is not
)

// An effect is an entry in the ledger.
type effect struct {
	seq int64
	who string
}

const (
	simQueue = "work"

	ledgerKind = "ledger" // writes an entry, and completes in that transaction
	batchKind  = "batch"  // the same for several jobs of a key
	plainKind  = "plain"  // only returns

	fullWorker = "worker-0" // knows all kinds
)

func (q *queueWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "down", "flap", "readonly", "clock", "written, and the answer lost",
		"a lease is lost", "a job fails", "a job panics", "a job fails at its commit", "a batch of several jobs",
		"an entry of a handler that was not told", "a job is done twice, without an entry", "an order that is rolled back", "the queue is resized",
		"the queue is paused", "a job is delayed", "a job runs for long", "a job moves to another process", "a job is taken over that has just ended",
		"a handler goes on after its job was lost", "a batch is completed again after a rollback", "an answer to an enqueueing is lost", "a doorbell is rung", "a doorbell is rung in vain", "a worker does not know all kinds", "the schema is of the next version",
	}
}

func (q *queueWork) Begin(w *World) (err error) {
	if q.admin, err = admin.New(w.Operator, admin.Options{}); err != nil {
		return err
	}
	q.keys, q.jobs, q.losses = w.Knob("keys", 1, 3, 10, 40), map[string]*simJob{}, map[*Process]int{}
	q.untold = map[*Process]time.Time{}
	q.progress = time.Now() //nolint:forbidigo // virtual
	q.next = make([]int, q.keys+1)
	q.max = queueSettings{
		lease:   time.Duration(w.Knob("lease", 8, 8, 8, 2, 4)) * time.Second,
		retry:   time.Duration(w.Knob("retry.max.ms", 200, 1000, 4000)) * time.Millisecond,
		poll:    time.Duration(w.Knob("poll.max.ms", 250, 250, 20, 8000)) * time.Millisecond,
		crashes: w.Knob("crashes", 3, 1, 100), strict: w.Knob("key.hold", 1, 1, 0) == 1,
	}
	_, err = q.admin.Edit(w.Free(), simQueue, func(s *admin.Queue) {
		s.MaxAttempts, s.MaxCrashes = 100_000, q.max.crashes
		s.RetryDelay, s.RetryMaxDelay = 100*time.Millisecond, q.max.retry
		s.KeyRetry = map[bool]string{true: "hold", false: "pass"}[q.max.strict]
		s.PollMax = q.max.poll
		s.KeepDone = time.Duration(w.Knob("keep.done", 0, 0, 1)) * time.Hour
	})
	if err != nil {
		return err
	}
	if err := q.admin.Resize(w.Free(), simQueue, w.Knob("blocks", 1, 2, 5, 16)); err != nil {
		return err
	}
	for _, text := range []string{
		`CREATE TABLE sim_ledger (seq INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, who TEXT NOT NULL)`,
		`CREATE TABLE sim_order (job TEXT PRIMARY KEY)`,
	} {
		if _, err := w.Operator.Pool().ExecContext(w.Free(), text); err != nil {
			return err
		}
	}
	producers, jobs := w.Knob("producers", 1, 2, 3), w.Knob("jobs", 20, 60, 150, 300, 600)
	q.long = max(w.Knob("long", 15, 15, 3), jobs/10) // at most so many that one key can do them all in time
	for i := range producers {
		q.left = append(q.left, jobs/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return q.produce(p, i, producers) })
	}
	q.few = w.Knob("kinds.few", 0, 0, 1) == 1
	for i := range w.Knob("workers", 1, 2, 3, 4) {
		w.Start(fmt.Sprint("worker-", i), q.work)
	}
	if every := w.Knob("operate", 0, 0, 10, 30); every > 0 {
		w.StartOnce("tuner", func(p *Process) error { return q.operate(p, time.Duration(every)*time.Second) })
	}
	return nil
}

// produce enqueues what is left for a producer to enqueue, spread over the time of the faults.
func (q *queueWork) produce(p *Process, me, producers int) error {
	db, c, err := p.client()
	if err != nil {
		return err
	}
	pause := time.Duration(p.w.minutes*float64(time.Minute)) / time.Duration(max(1, p.w.knobs["jobs"]/producers))
	burst := p.w.Knob("burst", 1, 1, 20) // so many at once
	for n := 1; ; n++ {
		var j *simJob
		p.Act(func() { j = q.draw(p, me, producers) })
		if j == nil {
			return nil
		}
		known, err := q.enqueue(p, c, db, j)
		p.Act(func() {
			j.fate = known
			if err != nil && known == unknown {
				p.w.Reached("an answer to an enqueueing is lost")
			}
			p.w.Done("enqueued")
		})
		p.Note("enqueued %s: %d, %v", j.name, j.id, err)
		if n%burst != 0 {
			continue
		}
		if err := p.Sleep(p.ctx, min(p.Dice.about(time.Duration(burst)*pause), 3*time.Duration(burst)*pause, 20*time.Second)); err != nil {
			return err
		}
	}
}

// draw returns the next job of a producer; nil: it has enqueued all. The world's mutex is held.
func (q *queueWork) draw(p *Process, me, producers int) *simJob {
	if q.left[me] == 0 {
		return nil
	}
	q.left[me]--
	d := p.w.Dice("job", me, q.left[me])
	j := &simJob{key: -1, who: p.who(), inTx: d.once(4)}
	if own := (q.keys - me + producers - 1) / producers; own > 0 && !d.once(6) {
		j.key = me + producers*d.IntN(own)
	}
	at := j.key
	if j.key < 0 {
		at = q.keys
	}
	j.n = q.next[at]
	q.next[at]++
	j.name = fmt.Sprintf("%s/%d", keyName(at), j.n)
	j.kind = oneOf(d, ledgerKind, ledgerKind, plainKind)
	if j.key >= 0 && p.w.Dice("kind", at).once(4) {
		j.kind = batchKind
	}
	q.jobs[j.name] = j
	q.order = append(q.order, j)
	return j
}

func keyName(key int) string { return fmt.Sprint("key", key) }

// enqueue enqueues a job, and returns what is known of it.
func (q *queueWork) enqueue(p *Process, c *queue.Client, db *dialect.DB, j *simJob) (fate, error) {
	d := p.w.Dice("options", j.name)
	job := queue.Job{Queue: simQueue, Kind: j.kind, Payload: fmt.Appendf(nil, "%q%*s", j.name, sizeOf(p.w.Dice("size", j.name)), "")}
	if j.key >= 0 {
		job.Key = keyName(j.key)
	} else {
		job.Priority = oneOf(d, queue.Urgent, queue.Normal, queue.Idle)
		if d.once(3) {
			job.Delay = d.between(10*time.Millisecond, 15*time.Second)
			p.Act(func() { p.w.Reached("a job is delayed") })
		}
	}
	j.due = time.Now().Add(job.Delay) //nolint:forbidigo // virtual
	ctx, cancel := context.WithTimeout(p.ctx, d.between(2*time.Second, 60*time.Second))
	defer cancel()
	if j.inTx {
		return q.enqueueTx(ctx, p, c, db, j, job, d.once(4))
	}
	e, err := c.Enqueue(ctx, job)
	j.id = e.ID
	switch {
	case err == nil:
		p.Act(func() { q.untold[p] = p.storedAt() })
		return confirmed, nil
	case errors.Is(err, queue.ErrUnknownOutcome):
		return unknown, err
	}
	return refused, err
}

// sizeOf draws by how much a job's payload is longer than its name.
func sizeOf(d dice) int {
	switch {
	case d.once(300):
		return 1<<20 - 100
	case d.once(6):
		return d.IntN(64 << 10)
	}
	return 0
}

// enqueueTx enqueues a job in a transaction that also writes an order.
func (q *queueWork) enqueueTx(ctx context.Context, p *Process, c *queue.Client, db *dialect.DB, j *simJob, job queue.Job, back bool) (fate, error) {
	tx, err := db.Pool().BeginTx(ctx, nil)
	if err != nil {
		return refused, err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, `INSERT INTO sim_order (job) VALUES (?)`, j.name); err != nil {
		return refused, err
	}
	all, wake, err := c.EnqueueTx(ctx, tx, job)
	if err != nil {
		return refused, err
	}
	j.id = all[0].ID
	if back {
		p.Act(func() { p.w.Reached("an order that is rolled back") })
		return refused, errors.Join(errors.New("rolled back"), tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return unknown, err
	}
	wake()
	return confirmed, nil
}

// operate changes the queue's settings now and then, until the last fault has ended.
func (q *queueWork) operate(p *Process, every time.Duration) error {
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
			err := a.Resume(p.ctx, simQueue)
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
		if err := p.Sleep(p.ctx, min(p.Dice.about(every), every)); err != nil {
			return err
		}
		p.w.trouble()
		situation := "the queue is paused"
		if p.Dice.once(2) {
			situation = "the queue is resized"
			err = a.Resize(p.ctx, simQueue, 1+p.Dice.IntN(16))
		} else if err = a.Pause(p.ctx, simQueue, "for a while"); err == nil {
			_ = p.Sleep(p.ctx, p.Dice.about(2*time.Second))
		}
		p.Note("%s: %v", situation, err)
		if err == nil {
			p.Act(func() { p.w.Reached(situation) })
		}
	}
}

// Left notices that nothing goes on, and says which jobs have not ended.
func (q *queueWork) Left(w *World) string {
	var ready, delayed, running int
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT (SELECT COUNT(*) FROM dbcron_job WHERE id > 0),
		(SELECT COUNT(*) FROM dbcron_job_delayed WHERE id > 0), (SELECT COUNT(*) FROM dbcron_job_running)`).Scan(&ready, &delayed, &running)
	if err != nil {
		return err.Error()
	}
	q.noticeStandstill(w, ready)
	w.mu.Lock()
	defer w.mu.Unlock()
	q.checkTold(w)
	var left []string
	for _, h := range w.hosts {
		if h.once && !h.ended {
			left = append(left, h.name)
		}
	}
	if ready+delayed+running > 0 {
		left = append(left, fmt.Sprintf("%d ready, %d delayed, %d running jobs", ready, delayed, running))
	}
	return strings.Join(left, "; ")
}

// noticeStandstill looks whether ready jobs wait for nothing.
func (q *queueWork) noticeStandstill(w *World, ready int) {
	w.mu.Lock()
	if ready == 0 {
		q.progress = time.Now() //nolint:forbidigo // virtual
	}
	running, since := q.running, time.Since(q.progress)
	w.mu.Unlock()
	// A lost lease ends, its job waits for a retry, and a verdict for those who come back (runner_return.go).
	who := "worker"
	var turns time.Duration // until a block is handed to one that knows the kinds
	if q.few {
		who, turns = fullWorker, 10*time.Second
	}
	patience := turns + q.max.lease + 2*time.Second + q.max.retry + q.max.poll + 5*time.Second
	if ready > 0 && running == 0 && since > patience && w.Quiet() > patience && w.Healthy(who, patience) {
		w.Violate("stuck", nil, "%d jobs are ready, a worker is well, and nothing has begun or ended for %v", ready, patience)
	}
}
