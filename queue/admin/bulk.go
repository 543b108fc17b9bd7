package admin

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/bell"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A BulkAction is what [Client.Bulk] does with each job.
type BulkAction string

// Actions of [Client.Bulk]. Each does what the Client's method of the same name does with one
// job.
const (
	BulkRetry  BulkAction = "retry"  // dead or delayed jobs
	BulkCancel BulkAction = "cancel" // ready, delayed or running jobs
	BulkDelete BulkAction = "delete" // dead jobs, or done ones that are kept
)

// bulkStates are the states in which jobs can be for an action, the default first.
var bulkStates = map[BulkAction][]State{
	BulkRetry:  {StateDead, StateDelayed},
	BulkCancel: {StateReady, StateDelayed, StateRunning},
	BulkDelete: {StateDead, StateDone},
}

// BulkOptions configure [Client.Bulk].
type BulkOptions struct {
	DryRun   bool             // only count the jobs
	Progress func(BulkResult) // is called after each batch with the result so far

	// Most ends a part after that many jobs were read, whether or not they are selected; the
	// result's Next is then where another call continues. 0 means a single part.
	Most int
	From BulkCursor // where to continue; zero: at the beginning
}

// A BulkCursor is the position between two parts of a [Client.Bulk].
type BulkCursor struct {
	Began int64 // when the first part began, by the database's clock in µs since 1970
	Block int   // the block that was being read
	After int64 // its jobs up to this id have been processed
}

// A BulkResult counts the outcomes of a [Client.Bulk].
type BulkResult struct {
	Done  int // in a dry run: the number of jobs that would be processed
	Gone  int // jobs that others have ended or changed meanwhile
	InUse int // dead jobs that stay dead: another job has their unique key, or waits with their id

	Next *BulkCursor // where to continue if [BulkOptions.Most] or [Filter.Limit] ended it; nil: all jobs have been processed
}

const (
	// retryBatch is the number of jobs per transaction that retries some: it writes several rows for each.
	retryBatch = 200

	// bulkBatch is that of others, as large as what a worker deletes in one: a commit may take as long as a disk likes, and nobody waits
	// for long for locks of so many. A dry run reads as many at once.
	bulkBatch = store.Chunk
)

// Bulk retries, cancels or deletes the jobs that a filter selects; if the filter names no state,
// the dead ones, or for BulkCancel the ready ones. It uses small transactions, each all or
// nothing. It processes each job that exists when it begins once, so a job that is retried and
// dies again meanwhile stays dead. It may miss a job that changes its state meanwhile, or its
// block because the queue is resized.
//
// An error ends it, and the result says what was done before; whether the last transaction was
// committed may be unknown. Another call does the rest, and concurrent calls do nothing twice.
// With [BulkOptions.Most], or the filter's limit, it does one part at a time, for callers that cannot wait: from
// the result's Next on it covers the jobs that existed when the first part began.
func (c *Client) Bulk(ctx context.Context, what BulkAction, f Filter, opt BulkOptions) (r BulkResult, err error) {
	f.Queue = cmpName(f.Queue)
	where, err := f.forBulk(what)
	if err != nil {
		return r, err
	}
	q, err := c.read(ctx, f.Queue)
	if err != nil {
		return r, err
	}
	places, err := c.places(ctx, q, f.State)
	began := opt.From.Began
	if err == nil && began == 0 {
		err = c.db.Get(ctx, store.ReadClock, nil, &began)
	}
	if err != nil {
		return r, err
	}
	left, looked, batch := f.Limit, 0, bulkBatch
	if what == BulkRetry && !opt.DryRun {
		batch = retryBatch
	}
	if opt.Most > 0 {
		batch = min(batch, opt.Most)
	}
	for _, divided := range places {
		after, more := max(f.After, 0), divided >= opt.From.Block // sentinels come before it
		if divided == opt.From.Block {
			after = max(after, opt.From.After)
		}
		for more {
			if opt.Most > 0 && looked >= opt.Most {
				r.Next = &BulkCursor{began, divided, after}
				return r, nil
			}
			part, err := c.part(ctx, q, f.State, divided, after, batch)
			if err != nil {
				return r, err
			}
			looked += len(part)
			if more = len(part) >= batch; more {
				after = part[len(part)-1].ID
				more = after < min(newest(began), f.before(began)) // so that it ends even if new jobs keep coming
			}
			part = slices.DeleteFunc(part, func(i Job) bool { return !f.alike(&i) || !wasThere(&i, what, began) || i.ID >= f.before(began) })
			if part, err = c.matching(ctx, q, where, part); err != nil {
				return r, err
			}
			if f.Limit > 0 {
				part = part[:min(left, len(part))]
				left -= len(part)
			}
			if err := c.deal(ctx, what, f, opt, part, &r); err != nil {
				return r, err
			}
			if f.Limit > 0 && left == 0 {
				r.Next = &BulkCursor{began, divided, part[len(part)-1].ID}
				return r, nil
			}
		}
	}
	return r, nil
}

// forBulk checks a filter and sets its default state.
func (f *Filter) forBulk(what BulkAction) (*where, error) {
	states := bulkStates[what]
	if states == nil {
		return nil, store.Invalid("action", "%q is not retry, cancel or delete", what)
	}
	if f.State == "" {
		f.State = states[0]
	}
	if !slices.Contains(states, f.State) {
		return nil, store.Invalid("state", "%q is none in which jobs can be chosen to %s; use one of %v", f.State, what, states)
	}
	if f.Limit < 0 {
		return nil, store.Invalid("limit", "%d is negative", f.Limit)
	}
	if f.OlderThan < 0 || f.OlderThan > plain.LongestDuration {
		return nil, store.Invalid("older_than", "%v is not 0 to 100 years", f.OlderThan)
	}
	return f.where()
}

// newest returns an id above those of all jobs that existed at a time by the database's clock,
// in µs since 1970: ids may be slightly ahead of that.
func newest(us int64) int64 { return store.TickOf(us + block.Window.Microseconds()) }

// wasThere reports whether the action applies to a job, and the job existed when the bulk
// began.
func wasThere(i *Job, what BulkAction, began int64) bool {
	switch {
	case i.ID >= newest(began):
		return false
	case i.State == StateDead, i.State == StateDone:
		return i.At.UnixMicro() <= began
	case what == BulkRetry: // the retried job is delayed
		return i.At.UnixMicro() > began
	}
	return true
}

// deal applies the action to a batch of jobs, and counts the outcomes.
func (c *Client) deal(ctx context.Context, what BulkAction, f Filter, opt BulkOptions, part []Job, r *BulkResult) error {
	n, inUse := len(part), 0
	if n > 0 && !opt.DryRun {
		q, err := c.read(ctx, f.Queue) // its blocks may have changed
		if err != nil {
			return err
		}
		switch {
		case what != BulkRetry:
			n, err = c.remove(ctx, q, part)
		case f.State == StateDelayed:
			n, err = c.hasten(ctx, q, part)
		default:
			var back, stay []store.KeyRow
			back, stay, err = c.revive(ctx, q, part)
			n, inUse = len(back), len(stay)
		}
		if err != nil {
			return err
		}
	}
	r.Done, r.InUse, r.Gone = r.Done+n, r.InUse+inUse, r.Gone+len(part)-n-inUse
	if opt.Progress != nil {
		opt.Progress(*r)
	}
	return nil
}

// removals has the statements that remove jobs from the table of their state: the first locks
// the existing rows. Whoever deletes a job's row has ended the job.
var removals = map[State]struct {
	lock, remove *sqlrun.Stmt
	table        store.JobTable // of a job that has not ended
}{
	StateReady:   {store.LockJobs, store.AckReady, store.AmongReady},
	StateDelayed: {store.LockDelayed, store.AckDelayed, store.AmongDelayed},
	StateRunning: {store.LockOut, store.RemoveRunning, store.AmongRunning},
	StateDead:    {store.LockDead, store.PurgeDead, store.Nowhere},
	StateDone:    {store.LockDone, store.PurgeDone, store.Nowhere},
}

// remove deletes jobs of one state and releases their ties. Those that have not ended are kept as cancelled, if their queue
// keeps done jobs. It returns the number of jobs that still existed.
func (c *Client) remove(ctx context.Context, q *store.Queue, jobs []Job) (n int, err error) {
	by, over := removals[jobs[0].State], jobs[0].State == StateDead || jobs[0].State == StateDone
	err = c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		n = 0
		for at, ids := range byRank(jobs) {
			here, err := sqlrun.Select(ctx, tx, by.lock, store.JobArgs(q.ID, at.block, at.priority, ids), store.ScanID)
			if err != nil {
				return err
			}
			if len(here) == 0 {
				continue
			}
			if !over {
				if err := keepCancelled(ctx, tx, q, by.table, at, here, jobs); err != nil {
					return err
				}
			}
			gone, err := tx.Exec(ctx, by.remove, store.JobArgs(q.ID, at.block, at.priority, here))
			if err := store.Short(err, gone, len(here)); err != nil {
				return err
			}
			n += len(here)
			if over { // its unique key was freed when it ended
				continue
			}
			var tied []store.Ended
			for i := range jobs {
				if j := &jobs[i]; (j.Unique != "" || j.Group != 0) && rankOf(j) == at && slices.Contains(here, j.ID) {
					tied = append(tied, store.Ended{ID: j.ID, Unique: j.Unique, Group: j.Group, State: store.MemberCancelled})
				}
			}
			if err := store.ReleaseTies(ctx, tx, q.ID, tied); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && !over {
		c.tellEnds(ctx, jobs)
	}
	return n, err
}

// keepCancelled keeps jobs of a rank, whose rows are locked, as cancelled.
func keepCancelled(ctx context.Context, tx *sqlrun.Session, q *store.Queue, from store.JobTable, at rank, here []int64, jobs []Job) error {
	byID := map[int64]*store.Done{}
	for i := range jobs {
		if j := &jobs[i]; rankOf(j) == at {
			byID[j.ID] = &store.Done{ID: j.ID, Priority: at.priority, Attempt: j.Attempts, Crashes: j.Crashes, Cancelled: true}
		}
	}
	end := store.End{BlockID: store.BlockID{Queue: q.ID, Divided: at.block}, Keep: q.KeepDone}
	return end.KeepCancelled(ctx, tx, from, here, byID)
}

// A rank is a set of jobs of one state that one statement reaches.
type rank struct {
	block, priority int // of ready jobs, which have it in their key; otherwise 0
}

func rankOf(i *Job) rank {
	if i.State == StateReady {
		return rank{i.Block, i.Priority}
	}
	return rank{block: i.Block}
}

// byRank groups jobs of one state, in an order that all transactions keep, so that they cannot
// deadlock.
func byRank(jobs []Job) iter.Seq2[rank, []int64] {
	ids := map[rank][]int64{}
	for i := range jobs {
		at := rankOf(&jobs[i])
		ids[at] = append(ids[at], jobs[i].ID)
	}
	order := slices.SortedFunc(maps.Keys(ids),
		func(a, b rank) int { return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.priority, b.priority)) })
	return func(yield func(rank, []int64) bool) {
		for _, at := range order {
			if !yield(at, ids[at]) {
				return
			}
		}
	}
}

// tellEnds tells workers that the groups of some jobs may have ended.
func (c *Client) tellEnds(ctx context.Context, jobs []Job) {
	groups := map[int64]bool{}
	for i := range jobs {
		if g := jobs[i].Group; g != 0 {
			groups[g] = true
		}
	}
	if len(groups) > 0 {
		c.hub.Tell(ctx, c.db, map[int]string{0: bell.Groups(slices.Sorted(maps.Keys(groups)))})
	}
}

// hasten makes delayed jobs due, and returns the number of those that were not due yet.
func (c *Client) hasten(ctx context.Context, q *store.Queue, jobs []Job) (int, error) {
	var n int64
	err := c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error { // a transaction, which uses no cached plan
		n = 0
		for at, ids := range byRank(jobs) {
			part, err := tx.Exec(ctx, store.HastenDelayed, store.JobArgs(q.ID, at.block, 0, ids))
			if n += part; err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		blocks := map[int]bool{}
		for i := range jobs {
			blocks[jobs[i].Block] = true
		}
		c.ring(ctx, q.ID, blocks)
	}
	return int(n), err
}

// A revival is a dead job to be retried.
type revival struct {
	job *Job
	to  int // the block that it belongs to now
}

// revive moves dead jobs to the delayed ones, due at once, in the blocks to which they belong
// now. It returns these, and the jobs that stay because another job has their unique key, or
// waits in their block with their id: the error names that job.
func (c *Client) revive(ctx context.Context, q *store.Queue, jobs []Job) (back, inUse []store.KeyRow, err error) {
	if q.State == "deleted" {
		return nil, nil, fmt.Errorf("%w: %q", ErrDeleted, q.Name)
	}
	var now int64
	if err := c.db.Get(ctx, store.ReadClock, nil, &now); err != nil {
		return nil, nil, err
	}
	to, all := q.GenerationAt(now), make([]revival, len(jobs))
	for i := range jobs {
		all[i] = revival{&jobs[i], to.Block(jobs[i].Key, jobs[i].ID)}
	}
	err = c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		back, inUse, err = reviveIn(ctx, tx, q.ID, jobs, all)
		return err
	})
	switch {
	case c.db.Dialect.Duplicate(err) && len(jobs) == 1:
		return nil, []store.KeyRow{{Queue: q.ID, ID: jobs[0].ID, Holder: jobs[0].ID}}, nil
	case c.db.Dialect.Duplicate(err): // one by one, so that only this job stays
		back, inUse = nil, nil
		for i := range jobs {
			b, u, err := c.revive(ctx, q, jobs[i:i+1])
			if back, inUse = append(back, b...), append(inUse, u...); err != nil {
				return back, inUse, err
			}
		}
		return back, inUse, nil
	}
	if err == nil && len(back) > 0 {
		blocks := map[int]bool{}
		for i := range all {
			blocks[all[i].to] = true
		}
		c.ring(ctx, q.ID, blocks)
	}
	return back, inUse, err
}

// reviveIn does so in a transaction, for the jobs that are still dead.
func reviveIn(ctx context.Context, tx *sqlrun.Session, queue int, jobs []Job, all []revival) (back, inUse []store.KeyRow, err error) {
	dead := map[int][]int64{} // by block
	for at, ids := range byRank(jobs) {
		dead[at.block], err = sqlrun.Select(ctx, tx, store.LockDead, store.JobArgs(queue, at.block, 0, ids), store.ScanID)
		if err != nil {
			return nil, nil, err
		}
	}
	all = slices.DeleteFunc(slices.Clone(all), func(r revival) bool { return !slices.Contains(dead[r.job.Block], r.job.ID) })
	keys := make([]store.KeyRow, len(all))
	for i, r := range all {
		keys[i] = store.KeyRow{Queue: queue, ID: r.job.ID}
		if r.job.UniqueUntil != store.UntilBegin { // which has begun
			keys[i].Unique = r.job.Unique
		}
	}
	if err := store.ReclaimKeys(ctx, tx, queue, keys); err != nil {
		return nil, nil, err
	}
	ids, targets, members := map[int][]int64{}, []sqlrun.Args(nil), []store.Ended(nil)
	for i, r := range all {
		if keys[i].Holder != 0 {
			inUse = append(inUse, keys[i])
			continue
		}
		back = append(back, keys[i])
		ids[r.job.Block] = append(ids[r.job.Block], r.job.ID)
		targets = append(targets, sqlrun.Args{"queue": queue, "block": r.job.Block, "job": r.job.ID, "target": r.to})
		if r.job.Group != 0 { // it waits for the job again
			members = append(members, store.Ended{ID: r.job.ID, Group: r.job.Group, State: store.MemberPending})
		}
	}
	if len(back) == 0 {
		return nil, inUse, nil
	}
	if err := store.Finish(ctx, tx, members); err != nil {
		return nil, nil, err
	}
	n, err := tx.Exec(ctx, store.ReviveDead, sqlrun.Args{"rows": targets})
	if err := store.Short(err, n, len(back)); err != nil {
		return nil, nil, err
	}
	for was, ids := range ids {
		n, err := tx.Exec(ctx, store.PurgeDead, store.JobArgs(queue, was, 0, ids))
		if err := store.Short(err, n, len(ids)); err != nil {
			return nil, nil, err
		}
	}
	return back, inUse, nil
}
