package admin

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Queue holds a queue's settings. They can be changed at any time: see [Client.Edit].
type Queue struct {
	Name   string
	State  string // active, paused or deleted
	Reason string // why it is paused

	// KeyRetry says what happens to the other jobs of a key while one waits for its retry: hold
	// (they wait too: strict order) or pass.
	KeyRetry string

	MaxAttempts int // failed attempts after which a job is dead
	// worker crashes after which a job is dead, if it ran alone in the last one; after four times as many in any case
	MaxCrashes    int
	RetryDelay    time.Duration // delay before the second attempt; doubles with each further one
	RetryMaxDelay time.Duration // between two attempts at the most
	Timeout       time.Duration // of an attempt; 0: none
	MaxTimeout    time.Duration // the longest timeout that a job may bring, unless Timeout is longer; 0: any
	MaxPayload    int           // bytes
	OriginShare   int           // percentage of the slots that one origin may have of those that jobs name: see docs/push.md
	KeepDead      time.Duration // how long dead jobs are kept; negative: always
	KeepDeadMax   int           // about how many dead jobs are kept, those enqueued last; 0: all
	KeepDone      time.Duration // how long done jobs are kept; 0: not at all
	PollMin       time.Duration // shortest poll interval, after jobs were found, where workers are not notified
	PollMax       time.Duration // longest poll interval

	// FIFO makes the queue run one job after the other, in the order in which they were enqueued,
	// on whichever worker: the next one begins when the previous one is done or dead, or, with
	// KeyRetry pass, has failed. Such a queue has one block. A change takes effect four seconds
	// later, for jobs enqueued from then on, and when the earlier jobs are done.
	FIFO bool

	// Fair gives the tenants that have jobs equal turns, or as many as their shares say, whatever the number of their
	// jobs: see [Client.SetShare]. Workers apply a change within seconds.
	Fair bool

	// Notify says who is notified when it has dead letters or is behind, and when it recovers:
	// mail addresses and URLs, separated by blanks or commas; "none": nobody; empty: the
	// daemons' setting (dbcron serve --notify).
	Notify string

	Blocks int // how many blocks its jobs are divided into; see [Client.Resize]

	// Wrong says what is wrong with its row, if somebody has written one that means nothing: the column and the problem.
	// Its jobs wait until that is repaired, and producers go on.
	Wrong string
}

// A Setting is one of the settings of queues: a flag of dbcron queue set, and a field of the API.
type Setting = setting.Setting[Queue]

// Settings lists the settings of queues but for Name, State, Reason and Blocks, in the order in which they are shown.
func Settings() []Setting { return settings }

var settings = setting.Through(store.Table, func(q *Queue) *store.Settings { return (*store.Settings)(q) })

// Queue returns a queue's settings, or ErrNotFound.
func (c *Client) Queue(ctx context.Context, name string) (Queue, error) {
	q, err := c.read(ctx, name)
	if err != nil {
		return Queue{}, err
	}
	return Queue(q.Settings), nil
}

// Queues lists queues, ordered by name, after a given name.
func (c *Client) Queues(ctx context.Context, after string, limit int) ([]Queue, error) {
	found, err := store.SelectQueues(ctx, &c.db.Session, store.ListQueues, sqlrun.Args{"after": after, "limit": limit})
	all := make([]Queue, len(found))
	for i, q := range found {
		all[i] = Queue(q.Settings)
	}
	return all, err
}

// change applies a caller's change to settings, and returns the result if it is valid.
func change(is store.Settings, by func(*Queue)) (store.Settings, error) {
	q := Queue(is)
	by(&q)
	after := store.Settings(q)
	after.Wrong = ""
	return after, after.Check()
}

// repairs returns an error unless a change sets each setting whose column means nothing: otherwise the default would
// become the setting of a queue for which somebody wanted another one.
func repairs(q *store.Queue, by func(*Queue)) error {
	for i, column := range q.Bad {
		s := setting.Named(settings, column)
		if s == nil {
			continue
		}
		one, other := Queue(q.Settings), Queue(q.Settings)
		first, second := s.Two()
		_, _ = s.Set(&one, first), s.Set(&other, second)
		by(&one)
		by(&other)
		if s.Text(&one) != s.Text(&other) {
			return store.Invalid(column, "the table has a value that means nothing, so set this, too: %s", q.Why[i])
		}
	}
	return nil
}

// Edit changes a queue's settings, and creates the queue if there is none. Workers and producers
// apply them within seconds. It does not change Name and Blocks: see [Client.Resize]. by may be called more than once.
func (c *Client) Edit(ctx context.Context, name string, by func(*Queue)) (Queue, error) {
	if _, err := c.read(ctx, name); errors.Is(err, ErrNotFound) {
		fresh, err := change(store.Defaults(name), by)
		if err != nil {
			return Queue{}, err
		}
		blocks := c.opt.Blocks
		if fresh.FIFO {
			blocks = 1
		}
		err = c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			return store.MakeQueue(ctx, tx, name, blocks, fresh.FIFO)
		})
		if err != nil {
			return Queue{}, err
		}
	} else if err != nil {
		return Queue{}, err
	}
	var after store.Settings
	err := c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var id int
		if err := tx.Get(ctx, store.LockQueue, sqlrun.Args{"name": name}, &id); err != nil {
			return err
		}
		found, err := store.SelectQueues(ctx, tx, store.GetQueue, sqlrun.Args{"name": name})
		if err != nil || len(found) == 0 {
			return orNone(err, name)
		}
		if err := repairs(found[0], by); err != nil {
			return err
		}
		if after, err = change(found[0].Settings, by); err != nil {
			return err
		}
		if after.FIFO != found[0].FIFO {
			if err := c.becomeFIFO(ctx, tx, found[0], after.FIFO); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, store.SetQueue, after.Args(id))
		return err
	})
	if err != nil {
		return Queue{}, err
	}
	c.share(ctx)
	return Queue(after), nil
}

// becomeFIFO starts a new generation of blocks in a locked queue, whose jobs run one after the
// other, or no longer do.
func (c *Client) becomeFIFO(ctx context.Context, tx *sqlrun.Session, q *store.Queue, fifo bool) error {
	n := c.opt.Blocks
	if fifo {
		n = 1
		// So that earlier jobs are done first, as in a queue that has had keys.
		if _, err := tx.Exec(ctx, store.SetOrdered, sqlrun.Args{"queue": q.ID}); err != nil {
			return err
		}
	}
	last := q.Newest()
	return store.NewBlocks(ctx, tx, []int{q.ID}, last.First+last.Blocks, n, last.Number+1, fifo)
}

func orNone(err error, name string) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("%w: queue %q", ErrNotFound, name)
	}
	return err
}

// Pause pauses a queue: its jobs wait, and running ones continue. See Resume.
func (c *Client) Pause(ctx context.Context, name, reason string) error {
	return c.setState(ctx, name, "paused", reason)
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, name string) error {
	return c.setState(ctx, name, "active", "")
}

func (c *Client) setState(ctx context.Context, name, state, reason string) error {
	if q, err := c.read(ctx, name); err != nil { // Edit would create it
		return err
	} else if q.State == "deleted" {
		return fmt.Errorf("%w: %q", ErrDeleted, name)
	}
	_, err := c.Edit(ctx, name, func(q *Queue) { q.State, q.Reason = state, sqlrun.CleanText(reason, 1000) })
	return err
}

// DeleteQueue marks a queue as deleted: it accepts no more jobs. Its settings and its name stay,
// and [Client.Edit] makes it active again. It returns [ErrNotFound] if there is no such queue, and
// ErrInUse if it has jobs, dead ones included, or if a route leads to it.
//
// A producer that has just read the queue's state, or is in the middle of a transaction, may
// still enqueue: such a job waits until the queue is active again.
func (c *Client) DeleteQueue(ctx context.Context, name string) error {
	if _, err := c.read(ctx, name); err != nil {
		return err
	}
	err := c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		args := sqlrun.Args{"name": name}
		var has string
		if err := tx.Get(ctx, store.LockQueue, args, new(int)); err != nil {
			return orNone(err, name)
		}
		found, err := store.SelectQueues(ctx, tx, store.GetQueue, args)
		if err != nil || len(found) == 0 {
			return orNone(err, name)
		}
		args["queue"] = found[0].ID
		if err := tx.Get(ctx, store.QueueUses, args, &has); err != nil {
			return err
		}
		if has != "" {
			return fmt.Errorf("%w: %q has %s", ErrInUse, name, has)
		}
		_, err = tx.Exec(ctx, store.MarkDeleted, args)
		return err
	})
	if err != nil {
		return err
	}
	c.share(ctx)
	return nil
}

// Resize changes the number of a queue's blocks, which is how many workers can share it. Jobs
// enqueued four seconds later or more go to new blocks, and delayed ones are moved there. In a
// queue with ordering keys the new blocks are read when the old ones are empty, so that each key
// keeps its order; jobs wait meanwhile, also for a retry that holds its key. No job is lost.
func (c *Client) Resize(ctx context.Context, name string, n int) error {
	if n < 1 || n > 1000 {
		return store.Invalid("blocks", "%d is not 1 to 1000", n)
	}
	q, err := c.read(ctx, name)
	if err != nil || q.Blocks == n {
		return err
	}
	if q.FIFO {
		return store.Invalid("blocks", "queue %q is FIFO, and has one block", name)
	}
	err = c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var id int
		if err := tx.Get(ctx, store.LockQueue, sqlrun.Args{"name": name}, &id); err != nil {
			return orNone(err, name)
		}
		found, err := store.SelectQueues(ctx, tx, store.GetQueue, sqlrun.Args{"name": name})
		if err != nil || len(found) == 0 || found[0].Blocks == n {
			return err
		}
		if found[0].FIFO {
			return store.Invalid("blocks", "queue %q is FIFO, and has one block", name)
		}
		last := found[0].Newest()
		return store.NewBlocks(ctx, tx, []int{id}, last.First+last.Blocks, n, last.Number+1, false)
	})
	if err != nil {
		return err
	}
	c.share(ctx)
	return nil
}

// Counts are the numbers of a queue's jobs in each state, each counted up to a limit.
type Counts struct {
	Ready, Delayed, Running, Dead int
	Limit                         int // a count that equals Limit means that many or more
	Done                          int // done jobs that are kept
}

// Count counts a queue's jobs, up to limit of each state. Jobs that a worker has read, or that
// have run for less than a second, count as ready.
func (c *Client) Count(ctx context.Context, queue string, limit int) (Counts, error) {
	b, err := c.Backlog(ctx, queue, BacklogOptions{Limit: limit, Done: true})
	return b.Counts, err
}

// BacklogOptions configure [Client.Backlog].
type BacklogOptions struct {
	Limit int       // how far the jobs of each state are counted
	Done  bool      // also count those that are done and kept, which are usually the most
	Since time.Time // for Recent; zero: do not count these
}

// A Backlog describes the jobs of a queue.
type Backlog struct {
	Counts
	Due    int       // delayed jobs that are due, such as retried dead letters: workers take them at once
	Oldest time.Time // when the first ready or due job became ready; zero: there is none
	Recent int       // how many of all these, but for Done, were enqueued since the given time
}

// Backlog counts a queue's jobs as [Client.Count] does, in one round trip where the driver can do that.
// The result describes the counted jobs only, up to the limit of each state.
func (c *Client) Backlog(ctx context.Context, queue string, opt BacklogOptions) (b Backlog, err error) {
	q, err := c.read(ctx, cmpName(queue))
	if err != nil {
		return b, err
	}
	b.Limit = opt.Limit
	args := sqlrun.Args{"queue": q.ID, "limit": opt.Limit, "recent": int64(math.MaxInt64)}
	if !opt.Since.IsZero() {
		args["recent"] = store.TickOf(opt.Since.UnixMicro())
	}
	var steps []*sqlrun.Step
	count := func(stmt *sqlrun.Stmt, n *int) {
		steps = append(steps, &sqlrun.Step{Stmt: stmt, Args: args, Scan: func(row *sqlrun.Row) error {
			*n = int(row.Int(0))
			var first time.Time
			if id, at := row.Int(1), row.Int(2); id > 0 {
				first = store.TimeOf(id)
			} else if at > 0 {
				first = time.UnixMicro(at).UTC()
			}
			if !first.IsZero() && (b.Oldest.IsZero() || first.Before(b.Oldest)) {
				b.Oldest = first
			}
			b.Recent, b.Due = b.Recent+int(row.Int(3)), b.Due+int(row.Int(4))
			return nil
		}})
	}
	count(store.CountReady, &b.Ready)
	count(store.CountDelayed, &b.Delayed)
	count(store.CountRunning, &b.Running)
	count(store.CountDead, &b.Dead)
	if opt.Done {
		count(store.CountDone, &b.Done)
	}
	if err := c.db.Pipeline(ctx, steps...); err != nil {
		return Backlog{Counts: Counts{Limit: opt.Limit}}, err
	}
	return b, nil
}

// A Block is a part of a queue's jobs. One worker at a time leases it.
type Block struct {
	Number, Generation int
	Leased             bool
	Worker             string // the current or last holder
	Since              time.Time
	Fence              int64
	Live               bool // its worker has a valid lease
	Crashes            int  // how many of its workers in a row died
}

// Blocks lists a queue's blocks.
func (c *Client) Blocks(ctx context.Context, queue string) (all []Block, err error) {
	q, err := c.read(ctx, cmpName(queue))
	if err != nil {
		return nil, err
	}
	rows, err := c.blocks(ctx, q.ID)
	for _, r := range rows {
		b := Block{
			Number: r.Divided, Generation: r.Generation, Leased: r.State == "LEASED", Worker: r.LockBy,
			Fence: r.Fence, Live: r.Live && r.InTime, Crashes: r.Suspects,
		}
		if r.LockAt > 0 {
			b.Since = time.UnixMicro(r.LockAt).UTC()
		}
		all = append(all, b)
	}
	return all, err
}
