package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A process that moves jobs to another queue is a worker of both queues, to which the others
// leave all blocks: they check out what they run, and forget what they have read, as always
// when a block is handed over. So nobody reads the moved jobs in either queue, and rows can
// move as they are. Each transaction ends with a locking read of the fences of the blocks that
// it reaches. If the process dies, its blocks are taken over like those of any worker; some
// jobs have been moved, others not.

// moveLease is how long the workers of both queues wait if it dies.
const moveLease = 10 * time.Second

// handOverTime is how long workers may take to leave their blocks.
const handOverTime = time.Minute

// MoveOptions say what [Client.Move] moves.
type MoveOptions struct {
	Kinds    []string    // of the jobs; default: all
	DryRun   bool        // only count: nothing is moved, and no worker waits
	Progress func(Moved) // is called after each transaction
}

// Moved counts the outcomes of a [Client.Move].
type Moved struct {
	Jobs    int // moved, or that would be moved
	Running int // stay because they run
	Behind  int // stay because an earlier job of their key stays
	Taken   int // stay because another job has their unique key there
	Grouped int // stay because they belong to a group, which is in this database: only of [Client.MoveTo]
}

// Move moves waiting jobs to another queue: ready ones, delayed ones and those that wait for a
// retry, if they were enqueued before the call. They keep id, key, time, attempts and unique key.
// Running jobs stay, as do the later jobs of their keys, and the others that Moved counts. Dead
// jobs stay, too.
//
// Producers continue, but the workers of both queues begin no job until Move returns, or until
// ten seconds after its process died. It moves a thousand jobs in a transaction, those of a key
// in order. An error, or the end of ctx, leaves some of them moved; moving again does the rest.
// Jobs of a key have no order across the two queues, so redirect producers to the other one
// first: SetRoute of package admin.
//
// It returns [ErrNotFound] if one of the queues does not exist, and ErrState if jobs of one of them
// are being moved already, or if a worker does not leave its blocks within a minute, because it
// runs jobs at most once, which have to end first.
func (c *Client) Move(ctx context.Context, from, to string, opt MoveOptions) (Moved, error) {
	for _, kind := range opt.Kinds {
		if err := sqlrun.CheckName(kind); err != nil {
			return Moved{}, invalid("kind", "%v", err)
		}
	}
	from, to = cmpName(from), cmpName(to)
	if from == to {
		return Moved{}, invalid("to", "the jobs are in queue %q already", to)
	}
	for _, end := range []struct{ field, queue string }{{"queue", from}, {"to", to}} {
		if err := jobfield.CheckTarget(end.queue); err != nil {
			return Moved{}, invalid(end.field, "%v", err)
		}
	}
	t := &transfer{c: c, opt: opt}
	var err error
	if t.from, err = c.read(ctx, from); err != nil {
		return Moved{}, err
	}
	if t.to, err = c.read(ctx, to); err != nil {
		return Moved{}, err
	}
	if t.to.State == "deleted" {
		return Moved{}, fmt.Errorf("%w: %q", ErrDeleted, to)
	}
	if err = c.clock.sync(ctx, &c.db.Session, instant.Now()); err != nil {
		return Moved{}, err
	}
	t.began, t.bound = instant.Now(), store.TickOf(c.clock.now())
	if opt.DryRun {
		err = t.walk(ctx)
	} else {
		err = t.run(ctx)
	}
	if errors.Is(err, errBlockLost) {
		err = fmt.Errorf("%w: blocks were taken away meanwhile, and some jobs were not moved; try again", ErrState)
	}
	return t.sum, err
}

// A transfer moves jobs from one queue to another.
type transfer struct {
	c        *Client
	opt      MoveOptions
	from, to *store.Queue
	began    instant.Instant
	bound    int64 // greater ids are of jobs that came later
	sum      Moved
	away     bool // the other queue is in another database

	w    *Worker // the worker that has the blocks; nil if it only counts
	node string

	// stay has, by key, the position of the first job that stays.
	stay map[string]int64
}

// run moves the jobs.
func (t *transfer) run(ctx context.Context) error {
	return t.alone(ctx, []string{t.from.Name, t.to.Name}, func() (err error) {
		if t.to, err = t.c.read(ctx, t.to.Name); err != nil {
			return err
		}
		return t.walk(ctx)
	})
}

// alone calls do while this process has all blocks of some queues, the first of which is the one that jobs leave.
func (t *transfer) alone(ctx context.Context, queues []string, do func() error) error {
	var err error
	t.w, err = t.c.Worker(WorkerOptions{Queues: queues, Batch: 1, Lease: moveLease})
	if err != nil {
		return err
	}
	defer t.w.abandon(context.WithoutCancel(ctx)) // so that its blocks are free, without suspicion
	if err := t.w.tryBegin(ctx); err != nil {
		return err
	}
	t.node = t.w.lease.node
	working, stop := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() { t.w.lease.keep(working); close(kept) }()
	defer func() { stop(); <-kept }()
	if err := t.takeAll(ctx); err != nil {
		return err
	}
	// The present settings: their changes do not wait for this.
	if t.from, err = t.c.read(ctx, t.from.Name); err != nil {
		return err
	}
	if t.from.Ordered { // an earlier job of a key may not be committed yet
		if !pace.Sleep(ctx, Window-since(t.began)) {
			return ctx.Err()
		}
	}
	return do()
}

// takeAll takes all blocks of both queues, as soon as the others leave them.
func (t *transfer) takeAll(ctx context.Context) error {
	for _, q := range t.w.queues {
		args := sqlrun.Args{"rows": []sqlrun.Args{{"queue": q.id, "node": t.node, "busy": share.Moving, "does": nil}}}
		if _, err := t.w.db.Exec(ctx, store.RegisterWorker, args); err != nil {
			return err
		}
	}
	for _, q := range t.w.queues { // if there are several, all see each other and give up
		others, err := t.w.colleagues(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range others {
			if r.Busy == share.Moving && r.InTime && r.Node != t.node {
				return fmt.Errorf("%w: %s moves jobs of queue %q; try again when it has ended", ErrState, r.Node, q.name)
			}
		}
	}
	t.c.bells.announce(ctx)
	for {
		all, slow, err := t.takeSome(ctx)
		late := since(t.began) > handOverTime
		switch {
		case err != nil && t.c.db.Dialect.Retryable(err) && !late: // with serializable transactions, it may fail many times
		case err != nil || all:
			return err
		case late:
			return fmt.Errorf("%w: worker %s does not leave its blocks; nothing was moved", ErrState, cmp.Or(slow, "of another process"))
		}
		if !pace.Sleep(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// takeSome takes free blocks, and reports whether it has all of them. Otherwise it returns a
// worker that has others, if it saw one: another may have taken a free block first.
func (t *transfer) takeSome(ctx context.Context) (all bool, slow string, err error) {
	all = true
	for _, q := range t.w.queues {
		rows, err := t.c.blocks(ctx, q.id)
		if err != nil {
			return false, "", err
		}
		if err := t.w.expelLate(ctx, ofBlocks(rows)); err != nil {
			return false, "", err
		}
		for i := range rows {
			r := &rows[i]
			if r.LockBy == t.node {
				continue
			}
			x := &candidate{of: &allotment{q: q}, row: *r}
			if r.Free() {
				if err = t.w.takeSome(ctx, []*candidate{x}, t.node); err != nil {
					return false, "", err
				}
			}
			if !x.got {
				all, slow = false, cmp.Or(r.LockBy, slow)
			}
		}
	}
	return all, slow, nil
}

// A pending is a job to be moved or not, without its payload.
type pending struct {
	id                int64
	priority          int
	kind, key, unique string
	until             string // until when it has its unique key
	runAt             int64  // of a delayed job, in µs
	holds             bool   // the others of its key wait for it
	grouped           bool   // it belongs to a group, or is the callback of one
}

// order returns its position among the jobs of its key, as workers see it: see Delivery.
func (s *pending) order() int64 {
	if s.runAt == 0 || s.holds {
		return s.id
	}
	return store.TickOf(s.runAt)
}

// walk goes through the blocks and moves the jobs. Of a key, jobs that hold it go first, then
// ready ones, and last the delayed ones: if the move ends early, these run later than others
// that they would have preceded.
func (t *transfer) walk(ctx context.Context) error {
	blocks, err := t.c.blocks(ctx, t.from.ID)
	if err != nil {
		return err
	}
	t.stay = map[string]int64{}
	for _, b := range blocks { // older generations of blocks come first
		if len(t.from.Generations) == 1 {
			clear(t.stay) // a key is in one block
		}
		now := t.c.clock.now()
		for _, pass := range []struct {
			stmt *sqlrun.Stmt
			from table
			pick func(*pending) bool
		}{
			{store.StandRunning, tableRunning, func(s *pending) bool {
				if t.picks(s) {
					t.sum.Running++
				}
				t.stays(s, 0)
				return false
			}},
			{store.StandDelayed, tableDelayed, func(s *pending) bool {
				if !t.picks(s) && (s.holds || s.runAt <= now) {
					t.stays(s, s.order())
				}
				return s.holds && t.goes(s)
			}},
			{store.StandReady, tableReady, t.goes},
			{store.StandDelayed, tableDelayed, func(s *pending) bool { return !s.holds && t.picks(s) && t.goes(s) }},
		} {
			if err := t.pass(ctx, b.Divided, pass.stmt, pass.from, pass.pick); err != nil {
				return err
			}
		}
	}
	return nil
}

// picks reports whether a job should be moved, if it can be.
func (t *transfer) picks(s *pending) bool {
	return s.id <= t.bound && (len(t.opt.Kinds) == 0 || slices.Contains(t.opt.Kinds, s.kind))
}

// goes reports whether a job is moved. A job that stays may keep others of its key here.
func (t *transfer) goes(s *pending) bool {
	if !t.picks(s) {
		t.stays(s, s.order())
		return false
	}
	if t.away && s.grouped {
		t.sum.Grouped++
		t.stays(s, s.order())
		return false
	}
	if first, is := t.stay[s.key]; is && first < s.order() {
		t.sum.Behind++
		return false
	}
	return true
}

// stays records that a job stays, at its position in the order.
func (t *transfer) stays(s *pending, order int64) {
	if s.key == "" {
		return
	}
	if first, is := t.stay[s.key]; !is || order < first {
		t.stay[s.key] = order
	}
}

// pass goes through the jobs of a block in a table, by id, and moves the selected ones.
func (t *transfer) pass(ctx context.Context, divided int, stmt *sqlrun.Stmt, from table, pick func(*pending) bool) error {
	for after := int64(0); ; {
		all, err := t.page(ctx, divided, stmt, after)
		if err != nil {
			return err
		}
		last := len(all) < store.Chunk
		all = store.UpTo(all, store.Chunk, func(s *pending) int64 { return s.id })
		var batch []*pending
		for i := range all {
			if pick(&all[i]) {
				batch = append(batch, &all[i])
			}
		}
		if err := t.send(ctx, divided, from, batch); err != nil || last {
			return err
		}
		after = all[len(all)-1].id
	}
}

// page returns the next jobs by id, those of each priority; so there may be more than a chunk,
// up to which they are complete.
func (t *transfer) page(ctx context.Context, divided int, stmt *sqlrun.Stmt, after int64) (all []pending, err error) {
	args := sqlrun.Args{"queue": t.from.ID, "divided": divided, "limit": store.Chunk, "after": after}
	for _, p := range store.Priorities {
		args["after"+p] = after
	}
	err = t.c.db.Pipeline(ctx, &sqlrun.Step{ // so that its plans are cached
		Stmt: stmt, Args: args,
		Scan: func(row *sqlrun.Row) error {
			all = append(all, pending{
				id: row.Int(0), priority: int(row.Int(1)), kind: string(row.Bytes(2)), key: textOf(row, 3), unique: textOf(row, 4),
				until: textOf(row, 5), grouped: row.Int(6) != 0, runAt: row.Int(7), holds: row.Int(8) != 0,
			})
			return nil
		},
	})
	slices.SortFunc(all, func(a, b pending) int { return cmp.Compare(a.id, b.id) })
	return all, err
}

func textOf(row *sqlrun.Row, column int) string {
	if row.Null(column) {
		return ""
	}
	return string(row.Bytes(column))
}

// errTaken rolls a transaction back in which unique keys could not be taken.
var errTaken = errors.New("unique keys are in use there")

// send moves jobs in one transaction, except for those whose unique keys are in use there, and
// the later jobs of their ordering keys.
func (t *transfer) send(ctx context.Context, divided int, from table, batch []*pending) error {
	for len(batch) > 0 {
		if t.w == nil {
			t.sum.Jobs += len(batch)
			return nil
		}
		if err := t.order(ctx, batch); err != nil {
			return err
		}
		var n int
		var taken map[int64]bool
		err := t.c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			n, taken = 0, map[int64]bool{}
			return t.sendIn(ctx, tx, divided, from, batch, &n, taken)
		})
		if err == nil {
			t.sum.Jobs += n
			if t.opt.Progress != nil {
				t.opt.Progress(t.sum)
			}
			return nil
		}
		if !errors.Is(err, errTaken) {
			return err
		}
		var rest []*pending
		for _, s := range batch {
			if taken[s.id] {
				t.sum.Taken++
				t.stays(s, s.order())
			} else if t.goes(s) {
				rest = append(rest, s)
			}
		}
		batch = rest
	}
	return nil
}

// order records that the other queue has keys before it gets a job with one.
func (t *transfer) order(ctx context.Context, batch []*pending) error {
	if t.to.Ordered || !slices.ContainsFunc(batch, func(s *pending) bool { return s.key != "" }) {
		return nil
	}
	_, err := t.c.db.Exec(ctx, store.SetOrdered, sqlrun.Args{"queue": t.to.ID})
	if err == nil {
		t.to, err = t.c.read(ctx, t.to.Name)
	}
	return err
}

// sendIn moves those of some jobs that still exist. It counts them, or returns those whose
// unique keys are taken.
func (t *transfer) sendIn(ctx context.Context, tx *sqlrun.Session, divided int, from table, batch []*pending,
	n *int, taken map[int64]bool,
) error {
	var parts [Idle + 1][]*pending
	for _, s := range batch {
		p := 0
		if from == tableReady {
			p = s.priority
		}
		parts[p] = append(parts[p], s)
	}
	reached := map[int]bool{}
	for priority, part := range parts {
		if len(part) == 0 {
			continue
		}
		ids := make([]int64, len(part))
		for i, s := range part {
			ids[i] = s.id
		}
		end := store.End{BlockID: store.BlockID{Queue: t.from.ID, Divided: divided}}
		here, err := end.Lock(ctx, tx, from, priority, ids, nil)
		if err != nil {
			return err
		}
		part = slices.DeleteFunc(part, func(s *pending) bool { return !slices.Contains(here, s.id) }) // cancelled
		if len(part) == 0 {
			continue
		}
		if err := t.sendKeys(ctx, tx, part, taken); err != nil {
			return err
		}
		if len(taken) > 0 {
			continue // to find all of them
		}
		rows := make([]sqlrun.Args, len(part))
		for i, s := range part {
			target := t.to.Block(s.key, s.id)
			reached[target] = true
			rows[i] = sqlrun.Args{"queue": t.from.ID, "block": divided, "priority": priority, "job": s.id, "target": target}
		}
		stmt := store.PassReady
		if from == tableDelayed {
			stmt = store.DivideAnew
		}
		m, err := tx.Exec(ctx, stmt, sqlrun.Args{"to": t.to.ID, "rows": rows})
		if t.c.db.Dialect.Duplicate(err) {
			return fmt.Errorf("%w: a job of queue %q has the id of one of queue %q", ErrState, t.to.Name, t.from.Name)
		}
		if err != nil || m != int64(len(here)) {
			return store.Short(err, m, len(here))
		}
		step := end.RemoveStep(from, priority, here)
		if m, err = tx.Exec(ctx, step.Stmt, step.Args); err != nil || m != int64(len(here)) {
			return store.Short(err, m, len(here))
		}
		*n += len(here)
	}
	if len(taken) > 0 {
		return errTaken
	}
	return t.stillMine(ctx, tx, divided, reached)
}

// stillMine returns errBlockLost unless the blocks that a transaction has reached are still
// this process's, until its end.
func (t *transfer) stillMine(ctx context.Context, tx *sqlrun.Session, divided int, reached map[int]bool) error {
	t.w.mu.Lock()
	held := []*tenure{t.w.queues[0].blocks[divided]} // of a transaction that only removes, no other block
	for target := range reached {
		held = append(held, t.w.queues[1].blocks[target])
	}
	t.w.mu.Unlock()
	for _, b := range held {
		if b == nil {
			return errBlockLost
		}
		if err := holds(ctx, tx, b, t.node); err != nil {
			return err
		}
	}
	return nil
}

// sendKeys takes the unique keys of jobs in the other queue, and frees them here. It records
// those that are taken there.
func (t *transfer) sendKeys(ctx context.Context, tx *sqlrun.Session, part []*pending, taken map[int64]bool) error {
	var theirs store.Uniques
	for _, s := range part {
		theirs.Add(s.id, s.unique)
	}
	if len(theirs.IDs) == 0 {
		return nil
	}
	until, replaceable := map[int64]int64{}, map[int64]int64{}
	for args := range theirs.Args(t.from.ID) {
		_, err := sqlrun.Select(ctx, tx, store.KeysUntil, args, func(rows *sql.Rows) (none struct{}, err error) {
			var id, us, wait int64
			err = rows.Scan(&id, &us, &wait)
			until[id], replaceable[id] = us, wait
			return none, err
		})
		if err != nil {
			return err
		}
	}
	var rows []jobRow
	for _, s := range part {
		us, has := until[s.id]
		if s.unique == "" || !has && s.until == UntilBegin { // it has begun
			continue
		}
		j := &Job{Unique: s.unique}
		if us > 0 {
			j.UniqueFor = time.UnixMicro(us).Sub(store.TimeOf(s.id))
		}
		rows = append(rows, jobRow{Job: j, queue: t.to.ID, id: s.id, until: replaceable[s.id]})
	}
	if _, err := claimKeys(ctx, tx, rows, store.ClaimKeys); err != nil {
		return err
	}
	for i := range rows {
		if rows[i].holder != 0 {
			taken[rows[i].id] = true
		}
	}
	if len(taken) > 0 {
		return nil // it is rolled back
	}
	for args := range theirs.Args(t.from.ID) {
		if _, err := tx.Exec(ctx, store.PassKeys, args); err != nil {
			return err
		}
	}
	return nil
}
