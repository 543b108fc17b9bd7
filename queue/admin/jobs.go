package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A State is the state of a job.
type State string

// States of a job.
const (
	StateReady   State = "ready"
	StateDelayed State = "delayed" // waits for its time, or its retry
	StateRunning State = "running" // has run for more than a second, is on trial, or has stored progress
	StateDead    State = "dead"
	StateDone    State = "done" // or cancelled, in queues that keep such jobs: see [Queue.KeepDone]
)

// A Job is a stored job. The fields that producers set are as in
// [github.com/dbcron/dbcron/queue.Job].
type Job struct {
	Queue       string
	Kind        string
	Payload     []byte
	Binary      bool // Payload is not JSON
	Key         string
	Unique      string
	UniqueUntil string // begin; empty: until it has ended
	Group       int64
	Priority    int
	MaxAttempts int
	Timeout     time.Duration
	Trace       string
	Tenant      string
	Cost        int // 0: 1
	Endpoint    string

	ID        int64
	State     State
	Enqueued  time.Time
	Attempts  int            // so far, including the current one of a running job
	Crashes   int            // workers that died while running it
	At        time.Time      // delayed: when it is due; running: since when; dead: when it died; done: when its end was recorded
	Error     string         // the last error
	Errors    []AttemptError // of the newest failed attempts, the newest first; [Client.Jobs] leaves them out
	Detail    string         // of a dead job: the stack of a panic
	Worker    string         // of a running or done job
	Started   time.Time      // of a done job: when its last attempt began
	Discarded bool           // of a done job: it was discarded, and Error says why
	Cancelled bool           // of a done job: it was cancelled, and so not done
	Result    []byte         // of a done job, JSON; nil: none. [Client.Jobs] leaves it out
	Block     int
	Callback  int64    // the group whose callback the job is
	Progress  Progress // as stored by its handler; [Client.Jobs] leaves its State out

	// Refused is set if the database refuses to record the job's outcome. Lists do not set it.
	Refused *Refusal

	// Unreadable says why no worker can ever read the job: somebody has written its row by hand, and a column is wrong.
	Unreadable string

	PayloadBytes int // the length of Payload, even where [Client.Jobs] leaves it out

	stored int // the priority as its row has it
}

// An AttemptError is the error of an attempt at a job.
type AttemptError struct {
	Attempt int
	At      time.Time // when the failure was recorded
	Error   string    // its beginning, up to 500 characters
}

// A Progress is a job's progress as its handler has stored it.
type Progress struct {
	State   []byte // what the next attempt needs to continue
	Percent int    // from 1 to 100; 0: not reported
	Message string // for people
}

// jobOf converts a row of a queue to a Job.
func jobOf(j *store.Job, queue string, state State) Job {
	i := Job{
		Queue: queue, Kind: j.Kind, Payload: j.Payload, Binary: j.Binary, Key: j.Key, Unique: j.Unique, UniqueUntil: j.UniqueUntil, Group: j.Group,
		Priority: store.PriorityOf(j), MaxAttempts: j.MaxAttempts, Timeout: j.Timeout, Trace: j.Trace, Endpoint: j.Endpoint, Tenant: j.Tenant, Cost: j.Cost,
		ID: j.ID, State: state, Enqueued: store.TimeOf(j.ID), Block: j.Divided, Callback: j.Callback,
		Attempts: j.Attempt, Crashes: j.Crashes, Error: j.Error, Detail: j.Detail, Worker: j.Worker, PayloadBytes: len(j.Payload),
		stored: j.Priority,
	}
	for _, e := range j.Errors {
		i.Errors = append(i.Errors, AttemptError{e.Attempt, time.UnixMicro(e.At).UTC(), e.Error})
	}
	if j.Progress != nil {
		i.Progress = Progress(*j.Progress)
	}
	at := int64(0)
	switch state {
	case StateReady:
		return i
	case StateDelayed:
		at = j.RunAt
	case StateRunning:
		at = j.Started
	case StateDead:
		at = j.Died
	case StateDone:
		at, i.Discarded, i.Cancelled, i.Result = j.Ended, j.Outcome == store.OutcomeDiscarded, j.Outcome == store.OutcomeCancelled, j.Result
		if !i.Cancelled {
			i.Started = time.UnixMicro(j.Started).UTC()
		}
	}
	i.At = time.UnixMicro(at).UTC()
	return i
}

// A Filter selects jobs of a queue.
type Filter struct {
	Queue string // default: default
	State State  // default: ready
	Kind  string // "" for all, as in the next two
	Key   string

	Tenant string

	// Where is a condition on the payload: a path, alone or compared with a JSON value, such as
	// $.user.ids[0] >= 42. The operators are = != < <= > and >=; a path alone has to exist. Names
	// with characters other than letters, digits, _ and - are quoted: $."first name". Numbers are
	// compared exactly, and texts by their bytes. A job whose payload lacks the path is not
	// selected, even with !=.
	Where string

	// Match is a further condition on jobs as the tables have them, without their payloads; nil
	// means none.
	Match func(*Job) bool

	OlderThan time.Duration // enqueued longer ago than this, by the database's clock; 0: all

	After int64 // only jobs with greater ids
	Limit int   // maximum number of jobs; default: 100, and all for [Client.Bulk]

	// For [Client.Jobs]: payloads longer than LongestPayload bytes are left out; 0 leaves out
	// none. MaxBytes limits the sum of payloads, errors and details in bytes, except for a single
	// job that has more; with it there may be fewer jobs than Limit. The default is 64 MiB.
	LongestPayload, MaxBytes int
}

// defaultMaxBytes bounds the memory for a page of jobs.
const defaultMaxBytes = 64 << 20

// where parses the filter's condition; nil if there is none.
func (f *Filter) where() (*where, error) {
	if f.Where == "" {
		return nil, nil
	}
	return parseWhere(f.Where)
}

// before returns the id below which jobs are old enough, given the time by the database's clock
// in µs since 1970.
func (f *Filter) before(now int64) int64 {
	if f.OlderThan == 0 {
		return math.MaxInt64
	}
	return store.TickOf(max(now-f.OlderThan.Microseconds(), store.Epoch.UnixMicro()))
}

// alike reports whether the filter selects a job of its state, apart from the payload.
func (f *Filter) alike(i *Job) bool {
	return (f.Kind == "" || i.Kind == f.Kind) && (f.Key == "" || i.Key == f.Key) && (f.Tenant == "" || i.Tenant == f.Tenant) &&
		(f.Match == nil || f.Match(i))
}

// Jobs lists the jobs of a queue in one state, ordered by id, after an id. With a filter by kind,
// key, tenant or payload it may read more jobs than it returns, and stops after a bounded number of rows:
// then it returns fewer, and more is the id after which there may be others. The same happens if
// the jobs are large: see [Filter.MaxBytes].
func (c *Client) Jobs(ctx context.Context, f Filter) (jobs []Job, more int64, err error) {
	where, err := f.forList()
	if err != nil {
		return nil, 0, err
	}
	q, err := c.read(ctx, f.Queue)
	if err != nil {
		return nil, 0, err
	}
	var now int64
	if f.OlderThan > 0 {
		if err := c.db.Get(ctx, store.ReadClock, nil, &now); err != nil {
			return nil, 0, err
		}
	}
	all, err := c.merge(ctx, q, &f)
	if err != nil {
		return nil, 0, err
	}
	l := listing{f: &f, where: where, room: f.MaxBytes}
	for looked := 0; ; {
		part, err := all.next(ctx, f.Limit)
		if err != nil {
			return nil, 0, err
		}
		looked += len(part)
		last := len(part) < f.Limit
		if young := slices.IndexFunc(part, func(i Job) bool { return i.ID >= f.before(now) }); young >= 0 {
			part, last = part[:young], true
		}
		if err := l.add(ctx, c, q, part); err != nil {
			return nil, 0, err
		}
		switch {
		case l.full, len(l.jobs) >= f.Limit:
			return l.jobs, f.After, nil
		case last:
			return l.jobs, 0, nil
		}
		if f.After = part[len(part)-1].ID; looked >= 100*f.Limit {
			return l.jobs, f.After, nil
		}
	}
}

// A listing is a page of a list of jobs under construction.
type listing struct {
	f     *Filter
	where *where
	jobs  []Job
	room  int  // bytes left
	full  bool // the job after f.After does not fit
}

// add appends selected jobs until the listing is full.
func (l *listing) add(ctx context.Context, c *Client, q *store.Queue, part []Job) error {
	longest := l.f.LongestPayload
	if l.where != nil {
		longest = math.MaxInt
	}
	selected := slices.DeleteFunc(slices.Clone(part), func(i Job) bool { return !l.f.alike(&i) })
	return c.withPayloads(ctx, q, selected, longest, func() int { return l.room }, l.take)
}

// take appends a job, and reports whether there is room for more.
func (l *listing) take(i *Job) bool {
	if !l.where.holds(i) {
		l.f.After = i.ID
		return true
	}
	if i.PayloadBytes > l.f.LongestPayload {
		i.Payload = nil
	}
	bytes := len(i.Payload) + len(i.Error) + len(i.Detail)
	// Jobs with the same id stay on one page.
	l.full = len(l.jobs) > 0 && i.ID != l.f.After && (bytes > l.room || len(l.jobs) >= l.f.Limit)
	if !l.full {
		l.jobs, l.f.After, l.room = append(l.jobs, *i), i.ID, l.room-bytes
	}
	return !l.full
}

// forList checks a filter and sets its defaults.
func (f *Filter) forList() (*where, error) {
	f.Queue, f.State = cmpName(f.Queue), cmp.Or(f.State, StateReady)
	f.Limit, f.After = cmp.Or(f.Limit, 100), max(f.After, 0) // sentinels come before it
	f.LongestPayload, f.MaxBytes = cmp.Or(f.LongestPayload, math.MaxInt), cmp.Or(f.MaxBytes, defaultMaxBytes)
	switch {
	case f.Limit < 1 || f.Limit > 10_000:
		return nil, store.Invalid("limit", "%d is not 1 to 10000", f.Limit)
	case f.LongestPayload < 0 || f.MaxBytes < 0:
		return nil, store.Invalid("limit", "%d and %d bytes: they are not to be negative", f.LongestPayload, f.MaxBytes)
	case f.OlderThan < 0 || f.OlderThan > plain.LongestDuration:
		return nil, store.Invalid("older_than", "%v is not 0 to 100 years", f.OlderThan)
	}
	return f.where()
}

// A merge reads the jobs of a state from all places in the order of their ids, without
// payloads, and each row once however many it skips.
type merge struct {
	c      *Client
	q      *store.Queue
	state  State
	places []mergePlace
}

type mergePlace struct {
	divided int
	odd     *Unreadable // no worker can read it
	after   int64       // the last id read
	size    int         // number of rows to read next
	rows    []Job
	over    bool // there are no more
}

// maxMerged is the maximum number of rows to read at once from a place, when few jobs match.
const maxMerged = 500

func (c *Client) merge(ctx context.Context, q *store.Queue, f *Filter) (*merge, error) {
	places, err := c.places(ctx, q, f.State)
	m := &merge{c: c, q: q, state: f.State}
	for _, divided := range places {
		m.places = append(m.places, mergePlace{divided: divided, after: f.After, size: f.Limit/len(places) + f.Limit/8 + 2})
	}
	if err != nil || f.State != StateReady && f.State != StateDelayed {
		return m, err
	}
	unreadable, err := c.unreadable(ctx, q.ID, q.ID, maxServed)
	for i := range unreadable {
		if u := &unreadable[i]; u.State == f.State {
			m.places = append(m.places, mergePlace{divided: u.Block, odd: u, after: f.After, size: f.Limit})
		}
	}
	return m, err
}

// next returns the next jobs, about limit of them: it does not separate jobs with the same id.
// If there are fewer, they are the last.
func (m *merge) next(ctx context.Context, limit int) (all []Job, err error) {
	for {
		var least *mergePlace
		for i := range m.places {
			p := &m.places[i]
			if err := m.fill(ctx, p); err != nil {
				return nil, err
			}
			if len(p.rows) > 0 && (least == nil || p.rows[0].ID < least.rows[0].ID) {
				least = p
			}
		}
		if n := len(all); least == nil || n >= limit && least.rows[0].ID != all[n-1].ID {
			return all, nil
		}
		all, least.rows = append(all, least.rows[0]), least.rows[1:]
	}
}

// fill reads more rows of a place whose rows are used up, and more each time.
func (m *merge) fill(ctx context.Context, p *mergePlace) (err error) {
	if len(p.rows) > 0 || p.over {
		return nil
	}
	if p.odd != nil && p.odd.oddPriority() {
		p.rows, err = m.c.odd(ctx, m.q, p)
	} else {
		p.rows, err = m.c.part(ctx, m.q, m.state, p.divided, p.after, p.size)
	}
	for i := range p.rows {
		if p.odd != nil {
			p.rows[i].Unreadable = p.odd.Wrong
		}
	}
	if n := len(p.rows); err == nil && n < p.size {
		p.over = true
	} else if err == nil {
		p.after, p.size = p.rows[n-1].ID, min(max(p.size, maxMerged), 2*p.size)
	}
	return err
}

// oldest returns the first jobs by id.
func oldest(all []Job, limit int) []Job {
	slices.SortStableFunc(all, func(a, b Job) int { return cmp.Compare(a.ID, b.ID) })
	return store.UpTo(all, limit, func(i *Job) int64 { return i.ID })
}

// sharers is the maximum number of a queue's jobs with the same id when all blocks are listed
// at once: more than happens by chance.
const sharers = 4

// places returns the parts in which the jobs of a state are read: the blocks or, for dead and
// done jobs, a single part.
func (c *Client) places(ctx context.Context, q *store.Queue, state State) (all []int, err error) {
	switch state {
	case StateDead, StateDone:
		return []int{0}, nil
	case StateReady, StateDelayed, StateRunning:
	default:
		return nil, store.Invalid("state", "%q is not ready, delayed, running, dead or done", state)
	}
	rows, err := c.blocks(ctx, q.ID)
	for _, b := range rows {
		all = append(all, b.Divided)
	}
	return all, err
}

// part returns the next jobs of a state in one place, by id, without payloads.
func (c *Client) part(ctx context.Context, q *store.Queue, state State, divided int, after int64, limit int) (all []Job, err error) {
	step := &sqlrun.Step{Args: sqlrun.Args{"queue": q.ID, "divided": divided, "after": after, "limit": limit}}
	switch state {
	case StateReady:
		step.Stmt = store.ListReady
		for _, p := range store.Priorities {
			step.Args["after"+p] = after
		}
	case StateDelayed:
		step.Stmt = store.ListDelayed
	case StateRunning:
		step.Stmt = store.ListRunning
	case StateDead:
		step.Stmt = store.ListDead
	case StateDone:
		step.Stmt = store.ListDone
	}
	ended := state == StateDead || state == StateDone
	if ended {
		step.Args["limit"] = limit + sharers
	}
	rows := store.NewReader(step.Stmt)
	step.Scan = func(row *sqlrun.Row) error {
		i := jobOf(rows.Read(row), q.Name, state)
		if !ended {
			i.Block = divided
		}
		all = append(all, i)
		return nil
	}
	err = c.db.Pipeline(ctx, step)
	return oldest(all, limit), err
}

// odd returns the next ready jobs of a priority that no worker reads.
func (c *Client) odd(ctx context.Context, q *store.Queue, p *mergePlace) (all []Job, err error) {
	rows := store.NewReader(store.ListOdd)
	err = c.db.Pipeline(ctx, &sqlrun.Step{
		Stmt: store.ListOdd,
		Args: sqlrun.Args{"queue": q.ID, "divided": p.divided, "priority": p.odd.Priority, "after": p.after, "limit": p.size},
		Scan: func(row *sqlrun.Row) error {
			i := jobOf(rows.Read(row), q.Name, StateReady)
			i.Block = p.divided
			all = append(all, i)
			return nil
		},
	})
	return all, err
}

// Cancel removes a job that is not dead, whatever its state, and ends the context of its
// running handler with a [github.com/dbcron/dbcron/queue.ErrLost]; each takes effect within a
// second or two. Until then a worker that has read the job may still begin it. If it was the
// last job of its group, the group ends: at once if this process has a
// [github.com/dbcron/dbcron/queue.Client] on the same [dialect.DB], or if a worker is notified,
// and otherwise within a minute. Cancel returns [ErrNotFound] if there is no such job.
func (c *Client) Cancel(ctx context.Context, queue string, id int64) error {
	return c.removeOne(ctx, queue, id, func(i *Job) error {
		switch i.State {
		case StateDead:
			return fmt.Errorf("%w: job %d is dead; delete or retry it", ErrState, id)
		case StateDone:
			return fmt.Errorf("%w: job %d is done", ErrState, id)
		}
		return nil
	})
}

// Delete removes a dead job, or one that is done and kept. It returns [ErrNotFound] if there is no
// such job, and ErrState if it is in another state: see Cancel.
func (c *Client) Delete(ctx context.Context, queue string, id int64) error {
	return c.removeOne(ctx, queue, id, func(i *Job) error {
		if i.State != StateDead && i.State != StateDone {
			return fmt.Errorf("%w: job %d is %s, not dead; cancel it", ErrState, id, i.State)
		}
		return nil
	})
}

// removeOne deletes a job from its table, and searches again if it has moved.
func (c *Client) removeOne(ctx context.Context, queue string, id int64, check func(*Job) error) error {
	for range 10 {
		i, err := c.Job(ctx, queue, id)
		if err != nil {
			return err
		}
		if err := check(&i); err != nil {
			return err
		}
		q, err := c.read(ctx, i.Queue)
		if err != nil {
			return err
		}
		n, err := c.remove(ctx, q, []Job{i})
		if err != nil || n > 0 {
			return err
		}
	}
	return fmt.Errorf("%w: job %d keeps changing its state; try again", ErrNotFound, id)
}

// Retry runs a dead job again, with all its attempts ahead of it, or a delayed job at once: the
// job joins those that are due now. It returns [ErrNotFound] if there is no such job, and
// ErrState if it is ready, running or done, or if it is dead and another job now has its unique
// key.
func (c *Client) Retry(ctx context.Context, queue string, id int64) error {
	i, err := c.Job(ctx, queue, id)
	if err != nil {
		return err
	}
	q, err := c.read(ctx, i.Queue)
	if err != nil {
		return err
	}
	switch i.State {
	case StateDelayed:
		return c.hastenOne(ctx, q, i)
	case StateDead:
		back, inUse, err := c.revive(ctx, q, []Job{i})
		switch {
		case err != nil:
			return err
		case len(inUse) > 0:
			return fmt.Errorf("%w: job %d: its unique key is in use by job %d", ErrState, id, inUse[0].Holder)
		case len(back) == 0:
			return movedOn(id)
		}
		return nil
	}
	return fmt.Errorf("%w: job %d is %s", ErrState, id, i.State)
}

// RunNow runs a delayed job at once, as Retry does. It returns [ErrNotFound] if there is no such
// job, and ErrState if the job is not delayed.
func (c *Client) RunNow(ctx context.Context, queue string, id int64) error {
	i, err := c.Job(ctx, queue, id)
	if err != nil {
		return err
	}
	if i.State != StateDelayed {
		return fmt.Errorf("%w: job %d is %s, not delayed", ErrState, id, i.State)
	}
	q, err := c.read(ctx, i.Queue)
	if err != nil {
		return err
	}
	return c.hastenOne(ctx, q, i)
}

// hastenOne makes a job due that was delayed when it was read.
func (c *Client) hastenOne(ctx context.Context, q *store.Queue, i Job) error {
	for {
		n, err := c.hasten(ctx, q, []Job{i})
		if err != nil || n > 0 {
			return err
		}
		now, err := c.Job(ctx, q.Name, i.ID)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return err
		case err != nil || now.State != StateDelayed:
			return movedOn(i.ID)
		case now.Block == i.Block:
			return nil // it is due already
		}
		i = now // its queue's blocks are being changed
	}
}

func movedOn(id int64) error { return fmt.Errorf("%w: job %d has moved on meanwhile", ErrNotFound, id) }
