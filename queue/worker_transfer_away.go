package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Jobs are moved to another database in two commits: first they arrive there, and then they leave here. In between they are in both,
// and three things see to it that none is done twice. The queue here is paused, so that no worker begins them even if this process
// dies. With each job, a mark arrives: a unique key made of what the job is. Whoever moves the jobs again finds the marks, and only
// removes the jobs here. And the marks are removed when the jobs have left.

const (
	markPrefix = "moved:"
	markedFor  = 30 * 24 * time.Hour // in which a move that was interrupted can be done again

	awayJobs  = 500     // in a transaction, at the most
	awayBytes = 8 << 20 // of payloads, from which a transaction is not continued
	awayReads = 10      // jobs that are read at once, however large they are
)

// MoveTo moves the waiting and the dead jobs of a queue to a queue in another database, whose client to is. They get new ids. They
// keep their keys with their order, priorities, times, attempts, errors, progress and unique keys. As with [Client.Move], running
// jobs stay, and so do others that Moved counts.
//
// The queue must be paused, and stay so until all is moved: then an error, the end of ctx or of the process leaves no job that could
// be done twice. Another call within 30 days does the rest. Producers continue in both queues; redirect them first. Workers of the
// other queue begin the jobs as they arrive.
//
// It returns [ErrNotFound] if one of the queues does not exist, and ErrState if this one is not paused, or as Move does.
func (c *Client) MoveTo(ctx context.Context, from string, to *Client, queue string, opt MoveOptions) (Moved, error) {
	for _, kind := range opt.Kinds {
		if err := sqlrun.CheckName(kind); err != nil {
			return Moved{}, invalid("kind", "%v", err)
		}
	}
	a := &departure{transfer: transfer{c: c, opt: opt, away: true}, there: to}
	for _, end := range []struct {
		field, name string
		of          *Client
		is          **store.Queue
	}{{"queue", cmpName(from), c, &a.from}, {"to", cmpName(queue), to, &a.to}} {
		err := jobfield.CheckTarget(end.name)
		if err != nil {
			return Moved{}, invalid(end.field, "%v", err)
		}
		if *end.is, err = end.of.read(ctx, end.name); err != nil {
			return Moved{}, err
		}
		if err = end.of.clock.sync(ctx, &end.of.db.Session, instant.Now()); err != nil {
			return Moved{}, err
		}
	}
	if a.to.State == "deleted" {
		return Moved{}, fmt.Errorf("%w: %q", ErrDeleted, a.to.Name)
	}
	// Ids may be slightly ahead of the time. The bound is there so that the move ends even if new jobs keep coming.
	a.began, a.bound = instant.Now(), store.TickOf(c.clock.now()+Window.Microseconds())
	if opt.DryRun {
		return a.sum, a.leaveAll(ctx)
	}
	if err := a.paused(); err != nil {
		return Moved{}, err
	}
	err := a.alone(ctx, []string{a.from.Name}, func() error {
		if err := a.paused(); err != nil {
			return err
		}
		var state string
		switch err := a.there.db.Get(ctx, store.NodeState, sqlrun.Args{"node": a.node}, &state); {
		case err == nil:
			return invalid("to", "queue %q is in the same database: move the jobs within it", a.to.Name)
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		return a.leaveAll(ctx)
	})
	if errors.Is(err, errBlockLost) {
		err = fmt.Errorf("%w: blocks were taken away meanwhile, and some jobs were not moved; try again", ErrState)
	}
	return a.sum, err
}

// A departure is a transfer to another database.
type departure struct {
	transfer
	there *Client

	batch []*leaving // what is read and not moved yet
	bytes int
}

// A leaving is a job that leaves.
type leaving struct {
	pending
	from    table // tableReady or tableDelayed, of one that is not dead
	dead    bool
	divided int
	job     store.Job
	mark    string
	arrived int64 // its id there
	gone    bool  // somebody removed it meanwhile
}

func (a *departure) paused() error {
	if a.from.State != "paused" {
		return fmt.Errorf("%w: queue %q is %s; pause it first, so that no job is done here and there if this is interrupted", ErrState, a.from.Name, a.from.State)
	}
	return nil
}

// leaveAll goes through all jobs, and moves them. Of a key, jobs that hold it go first, then those that are ready or due in their order,
// and last the ones that are due later.
func (a *departure) leaveAll(ctx context.Context) error {
	blocks, err := a.c.blocks(ctx, a.from.ID)
	if err != nil {
		return err
	}
	a.stay = map[string]int64{}
	for _, b := range blocks { // older generations of blocks come first
		if len(a.from.Generations) == 1 {
			clear(a.stay) // a key is in one block
		}
		if err := a.leaveBlock(ctx, b.Divided); err != nil {
			return err
		}
	}
	for after := int64(0); ; {
		all, err := a.deadPage(ctx, after)
		if err != nil {
			return err
		}
		for _, x := range all {
			if a.picks(&x.pending) {
				if err := a.leave(ctx, x); err != nil {
					return err
				}
			}
		}
		if len(all) < store.Chunk {
			return a.deliver(ctx)
		}
		after = all[len(all)-1].id
	}
}

// leaveBlock moves the jobs of a block.
func (a *departure) leaveBlock(ctx context.Context, divided int) error {
	move := func(s *pending, from table) error {
		if !a.goes(s) {
			return nil
		}
		return a.leave(ctx, &leaving{pending: *s, from: from, divided: divided})
	}
	var hold, due, later []*pending
	now := a.c.clock.now()
	err := a.each(ctx, divided, store.StandRunning, func(s *pending) error {
		if a.picks(s) {
			a.sum.Running++
		}
		a.stays(s, 0)
		return nil
	})
	if err == nil {
		err = a.each(ctx, divided, store.StandDelayed, func(s *pending) error {
			switch {
			case s.holds:
				hold = append(hold, s)
			case s.runAt <= now:
				due = append(due, s)
			case a.picks(s):
				later = append(later, s)
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	slices.SortFunc(due, func(x, y *pending) int { return cmp.Or(cmp.Compare(x.order(), y.order()), cmp.Compare(x.id, y.id)) })
	delayed := func(list []*pending, before int64) (rest []*pending, err error) { // moves those whose turn comes before
		for len(list) > 0 && list[0].order() < before && err == nil {
			err = move(list[0], tableDelayed)
			list = list[1:]
		}
		return list, err
	}
	const all = math.MaxInt64
	if _, err = delayed(hold, all); err != nil {
		return err
	}
	err = a.each(ctx, divided, store.StandReady, func(s *pending) (err error) {
		if due, err = delayed(due, s.order()); err == nil {
			err = move(s, tableReady)
		}
		return err
	})
	if err == nil {
		_, err = delayed(append(due, later...), all)
	}
	if err == nil {
		err = a.deliver(ctx)
	}
	return err
}

// each calls do with the jobs of a block that a statement lists, by id.
func (a *departure) each(ctx context.Context, divided int, stmt *sqlrun.Stmt, do func(*pending) error) error {
	for after := int64(0); ; {
		all, err := a.page(ctx, divided, stmt, after)
		if err != nil {
			return err
		}
		last := len(all) < store.Chunk
		all = store.UpTo(all, store.Chunk, func(s *pending) int64 { return s.id })
		for i := range all {
			if err := do(&all[i]); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
		after = all[len(all)-1].id
	}
}

// deadPage returns the next dead jobs by id.
func (a *departure) deadPage(ctx context.Context, after int64) (all []*leaving, err error) {
	const sharers = 4 // jobs with one id: more than happens by chance
	rows := store.NewReader(store.ListDead)
	err = a.c.db.Pipeline(ctx, &sqlrun.Step{
		Stmt: store.ListDead, Args: sqlrun.Args{"queue": a.from.ID, "after": after, "limit": store.Chunk + sharers},
		Scan: func(row *sqlrun.Row) error {
			j := rows.Read(row)
			all = append(all, &leaving{pending: pending{id: j.ID, kind: j.Kind, grouped: j.Group+j.Callback != 0}, dead: true, divided: j.Divided})
			return nil
		},
	})
	return store.UpTo(all, store.Chunk, func(x **leaving) int64 { return (*x).id }), err
}

// leave takes a job into the batch, and moves the batch when it is full.
func (a *departure) leave(ctx context.Context, x *leaving) error {
	if a.opt.DryRun {
		a.sum.Jobs++
		return nil
	}
	if x.dead && x.grouped {
		a.sum.Grouped++
		return nil
	}
	a.batch = append(a.batch, x)
	if len(a.batch)%awayReads == 0 {
		if err := a.load(ctx); err != nil {
			return err
		}
	}
	if len(a.batch) < awayJobs && a.bytes < awayBytes {
		return nil
	}
	return a.deliver(ctx)
}

// load reads the jobs of the batch that have not been read.
func (a *departure) load(ctx context.Context) error {
	var steps []*sqlrun.Step
	for _, x := range a.batch {
		if x.mark != "" || x.gone {
			continue
		}
		stmt := map[table]*sqlrun.Stmt{tableReady: store.FindReady, tableDelayed: store.FindDelayed}[x.from]
		if x.dead {
			stmt = store.FindDead
		}
		x.gone = true // until it is seen
		rows := store.NewReader(stmt)
		steps = append(steps, &sqlrun.Step{
			Stmt: stmt, Args: sqlrun.Args{"queue": a.from.ID, "divided": x.divided, "priority": x.priority, "id": x.id},
			Scan: func(row *sqlrun.Row) error {
				if j := rows.Read(row); j.Divided == x.divided {
					x.job, x.gone, x.mark = *j, false, markOf(a.from.Name, j)
					x.job.Holds = x.holds
					a.bytes += len(j.Payload)
				}
				return nil
			},
		})
	}
	if len(steps) == 0 {
		return nil
	}
	return a.c.db.Pipeline(ctx, steps...)
}

// markOf returns a unique key that no other job makes.
func markOf(queue string, j *store.Job) string {
	h := sha256.New()
	for _, part := range []string{queue, strconv.FormatInt(j.ID, 10), strconv.Itoa(j.Divided), j.Kind, j.Key, string(j.Payload)} {
		fmt.Fprintf(h, "%d %s", len(part), part)
	}
	return markPrefix + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// deliver moves the jobs of the batch, except for those whose unique keys are in use there, and the later jobs of their ordering keys.
func (a *departure) deliver(ctx context.Context) error {
	if err := a.load(ctx); err != nil {
		return err
	}
	batch := slices.DeleteFunc(a.batch, func(x *leaving) bool { return x.gone })
	a.batch, a.bytes = nil, 0
	if err := a.orderThere(ctx, batch); err != nil {
		return err
	}
	for again := 0; len(batch) > 0; {
		taken := map[*leaving]bool{}
		err := a.there.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
			clear(taken)
			return a.arrive(ctx, tx, batch, taken)
		})
		switch {
		case err == nil:
			return a.part(ctx, batch)
		case a.there.taken(err) && again < 3: // an id
			again++
			continue
		case !errors.Is(err, errTaken):
			return err
		}
		var rest []*leaving
		for _, x := range batch {
			if taken[x] {
				a.sum.Taken++
				a.stays(&x.pending, x.order())
			} else if x.dead || a.goes(&x.pending) {
				rest = append(rest, x)
			}
		}
		batch = rest
	}
	return nil
}

// orderThere records that the other queue has keys before it gets a job with one.
func (a *departure) orderThere(ctx context.Context, batch []*leaving) (err error) {
	if !a.to.Ordered && slices.ContainsFunc(batch, func(x *leaving) bool { return x.key != "" }) {
		if _, err = a.there.db.Exec(ctx, store.SetOrdered, sqlrun.Args{"queue": a.to.ID}); err == nil {
			a.to, err = a.there.read(ctx, a.to.Name)
		}
	}
	return err
}

// arrive writes jobs in a transaction of the other database, but for those that have arrived already. It returns errTaken and those
// whose unique keys are in use.
func (a *departure) arrive(ctx context.Context, tx *sqlrun.Session, batch []*leaving, taken map[*leaving]bool) error {
	q, err := a.there.readOn(ctx, tx, a.to.Name) // its blocks may have changed
	if err != nil {
		return err
	}
	keys, err := a.ownKeys(ctx, batch)
	if err != nil {
		return err
	}
	rows := make([]jobRow, len(batch))
	for i, x := range batch {
		j := jobOf(&x.job, q.Name)
		rows[i] = jobRow{Job: &j, of: q, queue: q.ID}
	}
	if err := a.there.name(ctx, tx, rows); err != nil {
		return err
	}
	marks := make([]store.KeyRow, len(rows))
	for i := range rows {
		marks[i] = store.KeyRow{Queue: q.ID, Unique: batch[i].mark, For: markedFor, ID: rows[i].id}
	}
	if err := store.ClaimKeys(ctx, tx, marks); err != nil {
		return err
	}
	var marked store.Uniques
	var uniques []store.KeyRow
	var of []*leaving
	for i, x := range batch {
		if x.arrived = cmp.Or(marks[i].Holder, rows[i].id); marks[i].Holder != 0 {
			continue
		}
		marked.Add(rows[i].id, x.mark)
		if k, has := keys[x.id]; has && !x.dead {
			k.Queue, k.ID = q.ID, rows[i].id
			if k.For > 0 { // from its new id on
				k.For = max(time.Microsecond, store.TimeOf(x.id).Add(k.For).Sub(store.TimeOf(k.ID)))
			}
			uniques, of = append(uniques, k), append(of, x)
		}
	}
	if err := store.ClaimKeys(ctx, tx, uniques); err != nil {
		return err
	}
	for i := range uniques {
		if uniques[i].Holder != 0 {
			taken[of[i]] = true
		}
	}
	if len(taken) > 0 {
		return errTaken
	}
	if err := a.writeArrivals(ctx, tx, q, batch, rows, marks); err != nil {
		return err
	}
	for args := range marked.Args(q.ID) { // no job's end frees the marks
		if _, err := tx.Exec(ctx, store.PartingKeys, args); err != nil {
			return err
		}
	}
	return nil
}

// writeArrivals inserts the jobs whose marks are new.
func (a *departure) writeArrivals(
	ctx context.Context, tx *sqlrun.Session, q *store.Queue, batch []*leaving, rows []jobRow, marks []store.KeyRow,
) error {
	var ready []jobRow
	var delayed, dead store.Jobs
	for i, x := range batch {
		if marks[i].Holder != 0 {
			continue
		}
		j := x.job
		j.ID, j.Queue, j.Divided = rows[i].id, q.ID, rows[i].divided
		switch {
		case x.dead:
			dead = append(dead, j)
		case x.from == tableDelayed:
			delayed = append(delayed, j)
		default:
			ready = append(ready, rows[i])
		}
	}
	if err := a.there.insertRows(ctx, tx, ready, store.Insertion); err != nil {
		return err
	}
	purge := int64(0)
	if keep := keepOf(q); keep >= 0 {
		purge = a.there.clock.now() + keep
	}
	for _, to := range []struct {
		stmt *sqlrun.Stmt
		jobs store.Jobs
	}{{store.ArriveDelayed, delayed}, {store.ArriveDead, dead}} {
		for part := range store.InParts(to.jobs, func(j *store.Job) int { return 1<<13 + 2*len(j.Payload) + 2*len(j.Error) + 2*len(j.Detail) }) {
			if _, err := tx.Exec(ctx, to.stmt, sqlrun.Args{"rows": store.Arrivals{Jobs: part, Line: block.FIFO, Purge: purge}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownKeys returns, by job, the unique keys that the jobs have here.
func (a *departure) ownKeys(ctx context.Context, batch []*leaving) (map[int64]store.KeyRow, error) {
	var theirs store.Uniques
	unique := map[int64]string{}
	for _, x := range batch {
		theirs.Add(x.id, x.unique)
		unique[x.id] = x.unique
	}
	keys := map[int64]store.KeyRow{}
	for args := range theirs.Args(a.from.ID) {
		_, err := sqlrun.Select(ctx, &a.c.db.Session, store.KeysUntil, args, func(rows *sql.Rows) (none struct{}, err error) {
			var id, us, wait int64
			if err = rows.Scan(&id, &us, &wait); err == nil {
				k := store.KeyRow{Unique: unique[id], Until: wait}
				if us > 0 {
					k.For = time.UnixMicro(us).Sub(store.TimeOf(id))
				}
				keys[id] = k
			}
			return none, err
		})
		if err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// part removes jobs that have arrived, and then their marks.
func (a *departure) part(ctx context.Context, batch []*leaving) error {
	type place struct {
		dead     bool
		from     table
		divided  int
		priority int
	}
	places := map[place][]int64{}
	var keys, marks store.Uniques
	var divided int
	held := false
	for _, x := range batch {
		at := place{dead: x.dead, from: x.from, divided: x.divided}
		if !x.dead {
			divided, held = x.divided, true
			keys.Add(x.id, x.unique)
		}
		if !x.dead && x.from == tableReady {
			at.priority = x.priority
		}
		places[at] = append(places[at], x.id)
		marks.Add(x.arrived, x.mark)
	}
	err := a.c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		for at, ids := range places {
			slices.Sort(ids)
			args := store.JobArgs(a.from.ID, at.divided, at.priority, ids)
			remove := store.PurgeDead
			if !at.dead {
				step := (&store.End{BlockID: store.BlockID{Queue: a.from.ID, Divided: at.divided}}).RemoveStep(at.from, at.priority, ids)
				remove, args = step.Stmt, step.Args
			}
			if _, err := tx.Exec(ctx, remove, args); err != nil { // fewer, if somebody has removed them meanwhile
				return err
			}
		}
		for args := range keys.Args(a.from.ID) {
			if _, err := tx.Exec(ctx, store.PassKeys, args); err != nil {
				return err
			}
		}
		if held {
			return a.stillMine(ctx, tx, divided, nil)
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.sum.Jobs += len(batch)
	if a.opt.Progress != nil {
		a.opt.Progress(a.sum)
	}
	for args := range marks.Args(a.to.ID) {
		if _, err := a.there.db.Exec(ctx, store.PassKeys, args); err != nil {
			return err
		}
	}
	return nil
}
