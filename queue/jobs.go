package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
)

// A State is where a job stands.
type State string

// States of a job.
const (
	StateReady   State = "ready"
	StateDelayed State = "delayed" // until its time, or its retry
	StateRunning State = "running" // for more than a second, or under suspicion
	StateDead    State = "dead"
)

// Info is a job as the tables have it.
type Info struct {
	Job
	ID       int64
	State    State
	Enqueued time.Time
	Attempts int       // made so far; of a running job with this one
	Crashes  int       // workers that died with it
	At       time.Time // delayed: when it is due; running: since when; dead: when it died
	Error    string    // why it failed last
	Detail   string    // of a dead one: the stack of a panic
	Worker   string    // of a running one
	Block    int
	Callback int64 // the group whose callback it is
}

func (c *Client) info(q *Queue, row *dialect.Row, state State, number int) Info {
	d := (&reader{w: &Worker{}, b: &block{q: &workQueue{id: q.id, name: q.Name}}, limit: 1}).body(row)
	i := Info{Job: d.Job, ID: d.ID, State: state, Enqueued: TimeOf(d.ID), Block: number, Callback: d.Callback}
	if state == StateReady {
		return i
	}
	i.Attempts, i.Crashes = int(row.Int(bodyEnd)), int(row.Int(bodyEnd+1))
	i.At = time.UnixMicro(row.Int(bodyEnd + 2)).UTC()
	i.Error = string(row.Bytes(bodyEnd + 3))
	return i
}

// A Filter selects jobs of a queue.
type Filter struct {
	Queue string // default: default
	State State  // default: ready
	Kind  string // "" for all
	Key   string

	// Where is a condition on the payload: a path, and what it is compared with, such as
	// $.user.ids[0] >= 42, by = != < <= > or >= with any JSON; a path alone has to be
	// there. Names with other characters than letters, digits, _ and - are quoted:
	// $."first name". Numbers are compared as such, exactly, and texts by their bytes.
	// A job whose payload has no such path is not listed, also with !=.
	Where string

	After int64 // those with greater ids
	Limit int   // at the most; default: 100
}

// Jobs lists jobs of a queue that are in one state, by id, those after an id. With a
// filter by kind, key or payload it may read more than it returns, and stops after so many
// rows: then there are fewer, and more says that there may be others after the last
// one looked at.
func (c *Client) Jobs(ctx context.Context, f Filter) (jobs []Info, more int64, err error) {
	if f.Queue == "" {
		f.Queue = defaultQueue
	}
	if f.State == "" {
		f.State = StateReady
	}
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 1 || f.Limit > 10_000 {
		return nil, 0, invalid("limit", "%d is not 1 to 10000", f.Limit)
	}
	var where *where
	if f.Where != "" {
		if where, err = parseWhere(f.Where); err != nil {
			return nil, 0, err
		}
	}
	q, err := c.read(ctx, f.Queue)
	if err != nil {
		return nil, 0, err
	}
	for looked := 0; ; {
		part, err := c.page(ctx, q, f)
		if err != nil {
			return nil, 0, err
		}
		looked += len(part)
		for i := range part {
			f.After = part[i].ID
			if (f.Kind == "" || part[i].Kind == f.Kind) && (f.Key == "" || part[i].Key == f.Key) && where.holds(&part[i].Job) {
				jobs = append(jobs, part[i])
			}
			if len(jobs) == f.Limit {
				return jobs, f.After, nil
			}
		}
		if len(part) < f.Limit {
			return jobs, 0, nil
		}
		if looked >= 100*f.Limit {
			return jobs, f.After, nil
		}
	}
}

// page returns the next jobs in a state, by id.
func (c *Client) page(ctx context.Context, q *Queue, f Filter) (all []Info, err error) {
	if f.State == StateDead {
		return all, c.db.Pipeline(ctx, &dialect.Step{
			Stmt: listDead, Args: dialect.Args{"queue": q.id, "after": f.After, "limit": f.Limit},
			Scan: func(row *dialect.Row) error {
				i := c.info(q, row, StateDead, 0)
				i.Detail = string(row.Bytes(bodyEnd + 4))
				all = append(all, i)
				return nil
			},
		})
	}
	rows, err := c.blocks(ctx, q.id)
	if err != nil {
		return nil, err
	}
	for _, b := range rows {
		step := &dialect.Step{Args: dialect.Args{"queue": q.id, "divided": b.divided, "after": f.After, "limit": f.Limit}}
		switch f.State {
		case StateReady:
			step.Stmt = readyByID
			for _, p := range []string{"1", "2", "3", "4"} {
				step.Args["after"+p] = f.After
			}
		case StateDelayed:
			step.Stmt = delayedByID
		case StateRunning:
			step.Stmt = listRunning
		default:
			return nil, invalid("state", "%q is not ready, delayed, running or dead", f.State)
		}
		step.Scan = func(row *dialect.Row) error {
			i := c.info(q, row, f.State, b.divided)
			if f.State == StateRunning {
				i.Worker = string(row.Bytes(bodyEnd + 4))
			}
			all = append(all, i)
			return nil
		}
		if err := c.db.Pipeline(ctx, step); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return int(min(1, max(-1, a.ID-b.ID))) })
	return all[:min(len(all), f.Limit)], nil
}

func (c *Client) blocks(ctx context.Context, queue int) ([]blockRow, error) {
	return dialect.Select(ctx, &c.db.Session, blocks, dialect.Args{"queue": queue}, scanBlock)
}

// Job returns a job, wherever it stands, or ErrNotFound: then it is done, was
// removed, or never was.
func (c *Client) Job(ctx context.Context, queue string, id int64) (Info, error) {
	q, err := c.read(ctx, cmpName(queue))
	if err != nil {
		return Info{}, err
	}
	// In the order in which jobs move, so that one that moves meanwhile is found;
	// and once more, for one that went back.
	for range 2 {
		for _, look := range []func(context.Context, *Queue, int64) (*Info, error){c.inReady, c.inDelayed, c.inRunning, c.inDelayed, c.inDead} {
			if i, err := look(ctx, q, id); err != nil || i != nil {
				if err != nil {
					return Info{}, err
				}
				return *i, nil
			}
		}
	}
	return Info{}, fmt.Errorf("%w: job %d in queue %q", ErrNotFound, id, q.Name)
}

func cmpName(queue string) string {
	if queue == "" {
		return defaultQueue
	}
	return queue
}

func (c *Client) inReady(ctx context.Context, q *Queue, id int64) (*Info, error) {
	return c.findIn(ctx, q, id, findReady, StateReady, Idle)
}

func (c *Client) inDelayed(ctx context.Context, q *Queue, id int64) (*Info, error) {
	return c.findIn(ctx, q, id, findDelayed, StateDelayed, Urgent)
}

func (c *Client) inRunning(ctx context.Context, q *Queue, id int64) (*Info, error) {
	return c.findIn(ctx, q, id, findRunning, StateRunning, Urgent)
}

func (c *Client) inDead(ctx context.Context, q *Queue, id int64) (*Info, error) {
	return c.find(ctx, q, findDead, dialect.Args{"queue": q.id, "id": id}, StateDead)
}

// findIn looks for a job in all blocks, by the keys that it would have there: which
// one it is in, and with what priority up to the last, only its row tells.
func (c *Client) findIn(ctx context.Context, q *Queue, id int64, stmt *dialect.Stmt, state State, last int) (*Info, error) {
	rows, err := c.blocks(ctx, q.id)
	if err != nil {
		return nil, err
	}
	var probes []dialect.Args
	for _, b := range rows {
		for p := Urgent; p <= last; p++ {
			probes = append(probes, dialect.Args{"divided": b.divided, "priority": p})
		}
	}
	for part := range slices.Chunk(probes, 256) {
		found, err := c.find(ctx, q, stmt, dialect.Args{"rows": part, "queue": q.id, "id": id}, state)
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

func (c *Client) find(ctx context.Context, q *Queue, stmt *dialect.Stmt, args dialect.Args, state State) (found *Info, err error) {
	err = c.db.Pipeline(ctx, &dialect.Step{
		Stmt: stmt, Args: args,
		Scan: func(row *dialect.Row) error {
			if state == StateReady {
				i := c.info(q, row, state, int(row.Int(bodyEnd)))
				found = &i
				return nil
			}
			i := c.info(q, row, state, int(row.Int(bodyEnd+4)))
			switch state {
			case StateRunning:
				i.Worker = string(row.Bytes(bodyEnd + 5))
			case StateDead:
				i.Detail = string(row.Bytes(bodyEnd + 5))
			}
			found = &i
			return nil
		},
	})
	return found, err
}

// Cancel ends a job that is not dead, wherever it stands: it is removed, and the
// context of its handler, if it runs, ends with an [ErrLost], each within a second or
// two; until then a worker that has read it may begin it all the same. It returns
// ErrNotFound if there is no such job.
func (c *Client) Cancel(ctx context.Context, queue string, id int64) error {
	return c.removing(ctx, queue, id, func(i *Info) (*dialect.Stmt, error) {
		switch i.State {
		case StateReady:
			return removeReady, nil
		case StateDelayed:
			return removeDelayed, nil
		case StateRunning:
			return removeRunning, nil
		}
		return nil, fmt.Errorf("%w: job %d is dead; delete or retry it", ErrState, id)
	})
}

// Delete removes a dead job. It returns ErrNotFound if there is no such job, and
// ErrState if it is not dead: see Cancel.
func (c *Client) Delete(ctx context.Context, queue string, id int64) error {
	return c.removing(ctx, queue, id, func(i *Info) (*dialect.Stmt, error) {
		if i.State != StateDead {
			return nil, fmt.Errorf("%w: job %d is %s, not dead; cancel it", ErrState, id, i.State)
		}
		return removeDead, nil
	})
}

// removing deletes a job from where it stands, and looks again if it has moved.
func (c *Client) removing(ctx context.Context, queue string, id int64, from func(*Info) (*dialect.Stmt, error)) error {
	for range 10 {
		i, err := c.Job(ctx, queue, id)
		if err != nil {
			return err
		}
		stmt, err := from(&i)
		if err != nil {
			return err
		}
		q, err := c.queue(ctx, i.Queue)
		if err != nil {
			return err
		}
		n, err := c.remove(ctx, q, stmt, &i)
		if err != nil || n > 0 {
			return err
		}
	}
	return fmt.Errorf("%w: job %d moves on and on; try again", ErrNotFound, id)
}

// remove deletes a job by a statement, and unties it.
func (c *Client) remove(ctx context.Context, q *Queue, stmt *dialect.Stmt, i *Info) (n int64, err error) {
	args := dialect.Args{"queue": q.id, "divided": i.Block, "priority": i.Priority, "id": i.ID}
	if !i.tied() || i.State == StateDead {
		return c.db.Exec(ctx, stmt, args)
	}
	err = c.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		if n, err = tx.Exec(ctx, stmt, args); err != nil || n == 0 {
			return err
		}
		return untie(ctx, tx, q.id, []ended{{id: i.ID, unique: i.Unique != "", group: i.Group, state: memberCancelled}})
	})
	if err == nil && n > 0 && i.Group != 0 {
		c.tryConclude(ctx, i.Group)
	}
	return n, err
}

// Retry lets a dead job be tried anew, with all its attempts before it, or one that
// waits for its time at once: it takes its place among the jobs that are due now. It
// returns ErrNotFound if there is no such job, and ErrState if it is ready or runs, or if
// it is dead and another job has its unique key by now.
func (c *Client) Retry(ctx context.Context, queue string, id int64) error {
	i, err := c.Job(ctx, queue, id)
	if err != nil {
		return err
	}
	q, err := c.queue(ctx, i.Queue)
	if err == nil {
		err = c.clock.sync(ctx, &c.db.Session, instant.Now())
	}
	if err != nil {
		return err
	}
	block := i.Block
	var n int64
	switch i.State {
	case StateDelayed:
		n, err = c.db.Exec(ctx, hasten, dialect.Args{"queue": q.id, "divided": block, "id": id})
	case StateDead:
		if q.State == "deleted" {
			return fmt.Errorf("%w: %q", ErrDeleted, q.Name)
		}
		block = q.generationAt(c.clock.now()).block(i.Key, id)
		n, err = c.revive(ctx, q, &i, block)
	default:
		return fmt.Errorf("%w: job %d is %s", ErrState, id, i.State)
	}
	if err == nil && n == 0 && i.State == StateDelayed {
		if now, again := c.Job(ctx, queue, id); again == nil && now.State == StateDelayed && now.Block != block {
			return c.Retry(ctx, queue, id) // its queue's blocks are being changed
		} else if again == nil && now.State == StateDelayed {
			return nil // it is due already
		}
	}
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: job %d has moved on meanwhile", ErrNotFound, id)
	}
	if err == nil {
		c.bells.ring([]jobRow{{Job: &i.Job, queue: q.id, divided: block, id: id, runAt: c.clock.now()}})
	}
	return err
}

// revive moves a dead job to those that are due.
func (c *Client) revive(ctx context.Context, q *Queue, i *Info, block int) (n int64, err error) {
	err = c.db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		n = 0
		args := dialect.Args{"queue": q.id, "id": i.ID, "divided": block}
		locked, err := dialect.Select(ctx, tx, lockDead, args, scanID)
		if err != nil || len(locked) == 0 {
			return err
		}
		if err := reclaimKey(ctx, tx, q, i); err != nil {
			return err
		}
		if i.Group != 0 {
			if _, err := tx.Exec(ctx, reopenMember, dialect.Args{"group": i.Group, "id": i.ID}); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, revive, args); err != nil {
			return err
		}
		n, err = tx.Exec(ctx, removeDead, args)
		return err
	})
	return n, err
}
