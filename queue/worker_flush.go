package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A round is a flusher's work for a block at a time: it writes the outcomes of jobs, and reads
// the next ones, in one round trip where possible.
type round struct {
	b       *block
	at      instant.Instant // when it began
	node    string
	keyed   bool
	moves   []move
	acks    []*Delivery
	read    board.Read
	reads   bool
	delayed bool // reads jobs that are due
	due     board.DueRead
	batch   int // the batch size to write to the block's row; 0: no change

	sentinels bool           // place sentinels
	placed    bool           // sentinels were placed
	keep      time.Duration  // how long done jobs are kept; 0: not at all
	tied      bool           // some of the acks have ties (unique keys, groups), or all jobs are kept
	ended     []*Delivery    // acks that are committed, whatever happens to the rest
	deleted   map[int64]bool // if it matters: which of their rows existed
	moved     []move         // committed moves

	again   []*refusal      // refused before, to be tried again
	claimed []*Delivery     // retried claims, with their results: see mine
	mine    []bool          // whether their rows existed
	refused []refusedEnd    // steps to set aside
	barred  map[string]bool // their keys
	passed  []*Delivery     // read jobs that stay in their table: refused, or behind such a job

	gone []heldKey // jobs whose keys continue if the block is still this worker's

	waits []*Delivery    // jobs to check for existence
	there map[int64]bool // those that exist

	room   allowance         // payload bytes that may be kept
	loads  []*Delivery       // jobs whose payloads to read
	loaded map[int64]payload // the payloads read

	fresh []*Delivery // the jobs read
	ripe  []*Delivery
	got   board.Fetched // their number and size
	last  board.Due
	m     int
}

// A flusher runs the statements of a round. The worker plans the round and applies its outcome with mu
// held; in between, the flusher reads and changes nothing but the round. It holds mu only for a glance
// at which jobs a block already has.
type flusher struct {
	*core
	known  *kindHandlers
	choice *kindChoice
}

// An outbox holds what is still to be written: the blocks with ended or moved jobs, refused
// outcomes, the rows that belong to this worker, and counters.
type outbox struct {
	chores   sync.Cond                 // wakes flushers that wait for blocks
	serve    []*block                  // blocks that need a flusher
	needs    bool                      // the last one was chosen because it was neediest
	remnants map[*block]bool           // blocks that are gone, with unwritten outcomes
	out      map[store.JobID]*Delivery // checked out jobs
	rows     map[store.JobID]*Delivery // running rows that are this worker's, until they are deleted
	toHand   []*Delivery               // checked out, and cancelled because the worker is stopping
	ends     concluder
	book     refusalBook
	tally    tally
}

// flushBlocks serves the blocks that need it, one after the other.
func (w *Worker) flushBlocks(ctx context.Context) {
	trouble := trouble.New(w.log, "reading and writing jobs")
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.serve) == 0 && !w.stopped {
			w.chores.Wait()
		}
		if w.stopped {
			return
		}
		trouble.Note(w.serveNext(ctx))
		w.tellClosing()
	}
}

// serveNext serves the next block that needs it. mu is held, but not during statements.
func (w *Worker) serveNext(ctx context.Context) error {
	b := w.neediest()
	b.queued, b.serving = false, true
	t := w.round(b)
	w.mu.Unlock()
	err := w.flush.serveRound(ctx, t)
	w.mu.Lock()
	b.serving = false
	w.apply(t, err)
	return err
}

// round determines the work for a block. mu is held.
func (w *Worker) round(b *block) *round {
	t := &round{b: b, node: w.lease.node, keyed: b.keyed, keep: b.q.set.KeepDone}
	n := min(store.Chunk, len(b.acks))
	t.acks, b.acks = b.acks[:n:n], b.acks[n:]
	t.tied = t.keep > 0 || slices.ContainsFunc(t.acks, func(d *Delivery) bool { return d.tied() })
	if !t.keyed || len(b.acks) == 0 {
		t.moves, b.moves = b.moves, nil
	}
	t.gone, b.missed = b.missed, nil
	b.forget, b.lost = append(b.forget, b.lost...), nil
	at := instant.Now()
	t.at = at
	w.keepBehind(t)
	t.again = b.retries(at)
	b.sent = t.acks
	t.sentinels = w.flush.wantsSentinels(b)
	if at >= w.lease.deadline {
		return t
	}
	t.batch = w.rebatch(b)
	t.read, t.reads = b.plan(at, w.c.clock.closed(at))
	if !t.reads {
		t.batch = 0
	}
	if b.open() && b.room() && (b.dues.Ripe || t.read.Whole) {
		t.delayed = true
		t.due = b.dues.Plan(at, w.c.clock.closed(at)-2*Window.Microseconds(), b.atOnce(), len(b.seen), t.read.Whole, b.keyed)
	}
	t.room = w.allow()
	t.loads = b.toLoad(t.room.left)
	for _, d := range t.loads {
		t.room.left = max(0, t.room.left-d.lacks)
	}
	if b.open() && b.checkDue(at) {
		b.checked = at
		t.waits = b.waits()
	}
	return t
}

// serveRound does that work.
func (f *flusher) serveRound(ctx context.Context, t *round) error {
	if len(t.gone) > 0 { // before anything irreversible
		if err := holds(ctx, &f.db.Session, t.b, t.node); err != nil {
			return err
		}
	}
	if err := f.tryAgain(ctx, t); err != nil {
		return err
	}
	if t.sentinels {
		f.placeSentinels(ctx, t)
	}
	steps := f.ackSteps(t, t.acks)
	// Jobs of a key leave in order: done ones before moved ones, and all of them at once.
	alone := f.exact || t.tied || t.keyed && (len(t.moves) > 0 || len(steps) > 1 && f.db.Dialect.Pipeline == nil)
	if alone && len(steps) > 0 {
		if err := f.ackAll(ctx, t); err != nil {
			return err
		}
		steps = nil
	}
	if len(t.moves) > 0 {
		if err := f.commitAllMoves(ctx, t); err != nil {
			return err
		}
	}
	err := f.ackAndRead(ctx, t, steps)
	if err == nil && f.opt.AtMostOnce {
		err = f.claim(ctx, t)
	}
	return err
}

// ackAndRead deletes done jobs, if there are steps for that, and reads the next ones. If the
// database refuses that, the deletions are made first, without the refused ones.
func (f *flusher) ackAndRead(ctx context.Context, t *round, acks []*sqlrun.Step) error {
	steps := slices.Concat(acks, f.readSteps(t))
	if len(steps) == 0 {
		return nil
	}
	err := f.db.Pipeline(ctx, steps...)
	switch {
	case len(acks) == 0:
	case err == nil:
		t.ended, t.acks = append(t.ended, t.acks...), nil
	case f.refuses(err):
		if err = f.ackAll(ctx, t); err == nil {
			err = f.ackAndRead(ctx, t, nil)
		}
	}
	return err
}

// readSteps returns the steps that read jobs.
func (f *flusher) readSteps(t *round) (steps []*sqlrun.Step) {
	if t.batch > 0 {
		steps = append(steps, batchStep(t))
	}
	if t.reads {
		steps = append(steps, f.fetchStep(t))
	}
	if t.delayed {
		steps = append(steps, f.delayedSteps(t)...)
	}
	if len(t.loads) > 0 {
		steps = append(steps, f.loadSteps(t)...)
	}
	if len(t.waits) > 0 && !f.opt.AtMostOnce {
		steps = append(steps, f.checkSteps(t)...)
	}
	return steps
}

// ackAlone deletes done jobs in a transaction, and nothing else.
func (f *flusher) ackAlone(ctx context.Context, t *round, list []*Delivery) error {
	if f.exact || t.tied {
		return f.ackExactly(ctx, t, list)
	}
	steps := f.ackSteps(t, list)
	return f.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		for _, step := range steps {
			if _, err := tx.Exec(ctx, step.Stmt, step.Args); err != nil {
				return err
			}
		}
		return nil
	})
}

// ackExactly deletes done jobs, and records which rows were missing. The others are kept as done
// if their queue does that, and their unique keys and groups are released.
func (f *flusher) ackExactly(ctx context.Context, t *round, list []*Delivery) error {
	lock := map[*sqlrun.Stmt]*sqlrun.Stmt{
		store.AckReady: store.LockJobs, store.AckDelayed: store.LockDelayed,
		store.AckRunning: store.LockRunning,
	}
	parts, steps := byTable(list), f.ackSteps(t, list) // those are applied to the parts
	if all, err := f.ackPresent(ctx, t, list, parts, steps); all || err != nil {
		return err
	}
	var deleted map[int64]bool
	err := f.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		deleted = map[int64]bool{}
		for i, step := range steps {
			here, err := sqlrun.Select(ctx, tx, lock[step.Stmt], step.Args, store.ScanID)
			if err != nil {
				return err
			}
			if f.exact {
				here, err = ownAttempts(ctx, tx, t.b, parts[i][0].from, here, func(id int64) int {
					return parts[i][slices.IndexFunc(parts[i], func(d *Delivery) bool { return d.ID == id })].Attempt
				})
			}
			if err != nil {
				return err
			}
			if len(here) < len(parts[i]) && len(here) > 0 {
				args := store.JobArgs(t.b.q.id, t.b.divided, parts[i][0].Priority, slices.Clone(here))
				args["node"] = t.node
				step = &sqlrun.Step{Stmt: step.Stmt, Args: args}
			}
			if len(here) == 0 {
				continue
			}
			if t.keep > 0 {
				if err := keepDone(ctx, tx, t.b, parts[i][0].from, parts[i], here, t.node, t.keep); err != nil {
					return err
				}
			}
			if _, err := tx.Exec(ctx, step.Stmt, step.Args); err != nil {
				return err
			}
			for _, id := range here {
				deleted[id] = true
			}
		}
		return store.ReleaseTies(ctx, tx, t.b.q.id, endedOf(list, func(id int64) bool { return deleted[id] }))
	})
	if err == nil {
		if t.deleted == nil {
			t.deleted = map[int64]bool{}
		}
		maps.Copy(t.deleted, deleted)
	}
	return err
}

// ackPresent deletes done jobs if all their rows exist, as is usual: the number of deleted rows
// shows that. Otherwise it changes nothing, and ackExactly locks the rows to find out which
// exist. It also leaves jobs that are kept, or may wait for their next attempt, to ackExactly.
func (f *flusher) ackPresent(
	ctx context.Context, t *round, list []*Delivery, parts [][]*Delivery, steps []*sqlrun.Step,
) (all bool, err error) {
	if t.keep > 0 || slices.ContainsFunc(list, func(d *Delivery) bool { return d.from == tableDelayed }) {
		return false, nil
	}
	present := func(int64) bool { return true }
	err = f.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		for i, step := range steps {
			n, err := tx.Exec(ctx, step.Stmt, step.Args)
			if err := store.Short(err, n, len(parts[i])); err != nil {
				return err
			}
		}
		return store.ReleaseTies(ctx, tx, t.b.q.id, endedOf(list, present))
	})
	switch {
	case errors.Is(err, store.ErrShort):
		return false, nil
	case err != nil:
		return false, err
	}
	if t.deleted == nil {
		t.deleted = map[int64]bool{}
	}
	for _, d := range list {
		t.deleted[d.ID] = true
	}
	return true, nil
}

// ackSteps delete the jobs that are done.
func (f *flusher) ackSteps(t *round, list []*Delivery) (steps []*sqlrun.Step) {
	for _, part := range byTable(list) {
		args := store.JobArgs(t.b.q.id, t.b.divided, part[0].Priority, idsOf(part))
		args["node"] = t.node
		steps = append(steps, &sqlrun.Step{Stmt: ackStatements[part[0].from], Args: args})
	}
	return steps
}

// byTable groups jobs by what one statement can reach: those of one table and, of ready ones, of
// one priority.
func byTable(list []*Delivery) (parts [][]*Delivery) {
	var lists [3][Idle + 1][]*Delivery
	for _, d := range list {
		p := 0
		if d.from == tableReady {
			p = d.Priority
		}
		lists[d.from][p] = append(lists[d.from][p], d)
	}
	for from := range lists {
		for _, part := range lists[from] {
			if len(part) > 0 {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

func idsOf(list []*Delivery) []int64 {
	ids := make([]int64, len(list))
	for i, d := range list {
		ids[i] = d.ID
	}
	return ids
}

func (f *flusher) fetchStep(t *round) *sqlrun.Step {
	t.got, t.fresh = board.Fetched{}, nil
	stmt := store.FetchReady
	if t.read.Back {
		stmt = store.FetchAgain
	}
	r := f.reader(stmt, t.b, t.read.Limit, &t.room)
	return &sqlrun.Step{Stmt: stmt, Args: sqlrun.Args{
		"queue": t.b.q.id, "divided": t.b.divided, "limit": t.read.Limit,
		"after1": t.read.After[1], "after2": t.read.After[2], "after3": t.read.After[3], "after4": t.read.After[4],
	}, Scan: func(row *sqlrun.Row) error {
		d := r.ready(row)
		t.got = board.Fetched{Rows: t.got.Rows + 1, Last: board.Place{Priority: d.Priority, Order: d.ID}}
		t.fresh = append(t.fresh, d)
		return nil
	}}
}

// delayedSteps returns the steps that read due jobs, and when the next one is due.
func (f *flusher) delayedSteps(t *round) []*sqlrun.Step {
	t.m, t.last, t.ripe = 0, board.Due{}, nil
	r := f.reader(store.FetchDelayed, t.b, 16, &t.room)
	args := sqlrun.Args{"queue": t.b.q.id, "divided": t.b.divided, "limit": t.due.Limit, "since": t.due.After.At, "after": t.due.After.ID}
	return []*sqlrun.Step{
		{Stmt: store.FetchDelayed, Args: args, Scan: func(row *sqlrun.Row) error {
			d := r.delayed(row)
			t.m, t.last = t.m+1, d.due()
			t.ripe = append(t.ripe, d)
			return nil
		}},
	}
}

// checkSteps returns the steps that check whether jobs waiting in memory still exist: somebody
// may have cancelled them.
func (f *flusher) checkSteps(t *round) (steps []*sqlrun.Step) {
	t.there = map[int64]bool{}
	for _, part := range byTable(t.waits) {
		args := store.JobArgs(t.b.q.id, t.b.divided, part[0].Priority, idsOf(part))
		stmt := store.PresentReady
		if part[0].from == tableDelayed {
			stmt = store.PresentDelayed
		}
		steps = append(steps, &sqlrun.Step{Stmt: stmt, Args: args, Scan: func(row *sqlrun.Row) error {
			t.there[row.Int(0)] = true
			return nil
		}})
	}
	return steps
}

// claim deletes jobs before they run, and keeps those that it has deleted itself. A refused one
// does not begin, nor do the later ones of its key.
func (f *flusher) claim(ctx context.Context, t *round) error {
	f.passOver(t)
	mine := map[int64]bool{}
	s := sifter[*Delivery]{refuses: f.refuses, write: func(part []*Delivery) error {
		got, err := f.claimPart(ctx, t, part)
		maps.Copy(mine, got)
		return err
	}, refuse: func(d *Delivery, err error) {
		t.passed = append(t.passed, d)
		if err != nil {
			t.refuse(refusedEnd{d: d, claim: true, err: err})
		}
	}}
	for _, part := range byTable(slices.Concat(t.fresh, t.ripe)) {
		part = slices.DeleteFunc(part, func(d *Delivery) bool {
			bars := t.barred[d.line()]
			if bars {
				t.passed = append(t.passed, d)
			}
			return bars
		})
		if err := s.sift(byKey(part, keyOf)); err != nil {
			return err
		}
	}
	t.fresh, t.ripe = only(t.fresh, mine), only(t.ripe, mine)
	return nil
}

// passOver leaves out the jobs read that are refused, not for this worker, or behind such a job.
func (f *flusher) passOver(t *round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(t.b.refusals) == 0 && !f.choice.picks {
		return
	}
	stays := func(d *Delivery) bool {
		refused := func(r *refusal) bool { return r.d.ID == d.ID }
		if !f.choice.leavesRow(t.b, d) && !t.b.bars(d.line()) && !slices.ContainsFunc(t.b.refusals, refused) {
			return false
		}
		t.passed = append(t.passed, d)
		return true
	}
	t.fresh, t.ripe = slices.DeleteFunc(t.fresh, stays), slices.DeleteFunc(t.ripe, stays)
}

// claimPart claims jobs of one table, and returns which of them existed.
func (f *flusher) claimPart(ctx context.Context, t *round, part []*Delivery) (map[int64]bool, error) {
	from := part[0].from
	var got []int64
	err := f.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) (err error) {
		args := store.JobArgs(t.b.q.id, t.b.divided, part[0].Priority, idsOf(part))
		if got, err = sqlrun.Select(ctx, tx, lockStatements[from], args, store.ScanID); err != nil || len(got) == 0 {
			return err
		}
		if t.keep > 0 {
			if err := keepDone(ctx, tx, t.b, from, part, got, t.node, t.keep); err != nil {
				return err
			}
		}
		n, err := tx.Exec(ctx, ackStatements[from], store.JobArgs(t.b.q.id, t.b.divided, part[0].Priority, got))
		if err := store.Short(err, n, len(got)); err != nil {
			return err
		}
		return store.ReleaseTies(ctx, tx, t.b.q.id, endedOf(part, func(id int64) bool { return slices.Contains(got, id) }))
	})
	if err != nil {
		return nil, err
	}
	mine := map[int64]bool{}
	for _, id := range got {
		mine[id] = true
	}
	return mine, nil
}

func only(list []*Delivery, ids map[int64]bool) (kept []*Delivery) {
	for _, d := range list {
		if ids[d.ID] {
			kept = append(kept, d)
		}
	}
	return kept
}

// apply records what a round has done. mu is held.
func (w *Worker) apply(t *round, err error) {
	b := t.b
	defer b.q.recheck()
	b.sent = nil
	w.tookEnds(t)
	w.tookDeletions(t)
	for i := range t.moved {
		w.moved(&t.moved[i])
	}
	for _, x := range t.refused {
		w.setAside(x)
	}
	for _, d := range t.passed {
		b.noteRead(d)
	}
	w.tookClaims(t)
	if err != nil {
		w.failedRound(t, err)
		return
	}
	b.failures = 0
	if t.batch > 0 {
		b.batch, b.says = t.batch, t.batch
	}
	if len(b.refusals) == 0 {
		delete(w.remnants, b)
	}
	if b.gone {
		w.enlist(b)
		return
	}
	for _, h := range t.gone {
		b.release(h.key, h.id)
		w.offer(b, 1)
	}
	if t.reads || t.delayed || b.crowded() { // no more of these are read before there is room again
		for _, id := range b.forget {
			delete(b.seen, id)
		}
		b.forget = b.forget[:0]
	}
	w.readAnew(t)
	for _, d := range t.waits {
		if t.there != nil && !t.there[d.ID] && d.began == 0 && !d.ended && !d.moving && d.from != tableRunning {
			b.remove(d)
		}
	}
	b.sized(t.room)
	if t.loads != nil {
		w.tookLoads(t)
	}
	if t.delayed {
		b.dues.Took(t.due, t.m, t.last)
	}
	fresh := w.addFresh(t)
	b.settle()
	b.reads.Shaken = b.reads.Shaken || since(t.at) > Window // a key stands still
	if t.reads {
		b.reads.Took(t.read, t.got, fresh, instant.Now())
		b.restWhole(t.read, since(t.at))
		b.hasReadAgain(t.read)
	}
	b.putBack()
	w.offer(b, fresh)
	w.suspect(b)
	w.enlist(b)
	if b.leaving && b.idle() {
		w.nudge()
	}
	w.nudgeIfExhausted(b)
}

// failedRound keeps the unwritten work of a round for the next one. mu is held.
func (w *Worker) failedRound(t *round, err error) {
	b := t.b
	if errors.Is(err, errBlockLost) {
		w.drop(b, ErrLost)
		b.acks = append(t.acks, b.acks...) // deleting done jobs is right in any case
		w.undone(t.moves)
		w.enlist(b)
		return
	}
	b.acks, b.moves, b.missed = append(t.acks, b.acks...), append(t.moves, b.moves...), append(t.gone, b.missed...)
	b.failures++
	b.reads.Distrust()
	b.retryAt = instant.Now().Add(min(time.Duration(50<<min(b.failures, 6))*time.Millisecond, 2*time.Second))
	if b.gone {
		w.remnants[b] = true
	}
	// watch enlists it again
}

// readAnew discards what a round has read if earlier jobs may be missing, and schedules a read
// of the block from further back. mu is held.
func (w *Worker) readAnew(t *round) {
	b := t.b
	if t.read.Back {
		t.fresh = b.tookAgain(t.read, t.fresh)
	}
	if t.reads && !t.read.Whole && !t.read.Back && !w.opt.AtMostOnce && slices.ContainsFunc(t.fresh, b.comesLate) {
		// A job of its key may have been committed long after its id was drawn.
		b.readWhole(t.fresh)
		t.fresh, t.reads = nil, false
	}
	if !b.keyed && t.reads && !b.reads.FromHorizon(t.read) && !w.opt.AtMostOnce && slices.ContainsFunc(t.fresh, (*Delivery).hasKey) {
		// The first keys: earlier jobs may have been committed after later ones were read. Read
		// again, as in a queue with keys.
		b.keyed = true
		b.reads.Back()
		t.fresh, t.reads = nil, false
	}
}

// addFresh adds the jobs that a round has read to its block, and returns how many are new there.
// mu is held.
func (w *Worker) addFresh(t *round) (fresh int) {
	b := t.b
	for _, list := range [][]*Delivery{t.fresh, t.ripe} {
		for _, d := range list {
			b.noteRead(d)
			w.supersede(d)
			if w.opt.AtMostOnce {
				w.ends.noteEnd(d)
			}
			b.keyed = b.keyed || d.line() != ""
			if d.from == tableReady && !t.read.Back && b.skips(d, t.read) {
				continue
			}
			was := b.seen[d.ID]
			if b.add(d) {
				fresh++
			} else if d.from == tableDelayed && (was.from != tableDelayed || was.runAt != d.runAt) {
				b.dues.Missed(d.due()) // another attempt than the one in memory
			}
		}
	}
	return fresh
}

// tookEnds records the deleted jobs. mu is held.
func (w *Worker) tookEnds(t *round) {
	if len(t.ended) == 0 {
		return
	}
	b, skew, at := t.b, w.c.clock.skew(), instant.Now()
	for _, d := range t.ended {
		held := w.opt.AckEach || d.refusal != nil // the key's next job
		here := !w.exact || t.deleted[d.ID]
		if !here {
			w.settled(d, ErrLost)
			w.c.events.tell(d, lost, ErrLost, 0)
		} else {
			w.settled(d, nil)
			w.c.events.tell(d, done, nil, 0)
			w.tally.count(d, done, skew, at)
		}
		b.forget = append(b.forget, d.ID)
		w.ends.noteEnd(d)
		switch {
		case held && here:
			w.release(d)
		case held:
			w.releaseIfMine(b, d.line(), d.ID)
		}
		b.spare(d)
	}
	clear(t.ended) // release the memory of jobs that are done
}

// nudge wakes a flusher for the blocks at once.
func (wake *wakeups) nudge() { signal(wake.tick) }
