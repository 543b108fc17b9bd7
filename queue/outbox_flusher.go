package queue

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A flusher runs the statements of a round. The worker plans the round and applies its outcome with mu
// held; in between, the flusher reads and changes nothing but the round. It holds mu only for a snapshot
// at which jobs a block already has.
type flusher struct {
	*core
	names  kindNames
	choice *kindChoice
}

// makeTrip does that work.
func (f *flusher) makeTrip(ctx context.Context, t *trip) error {
	if len(t.plan.Gone) > 0 { // before anything irreversible
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
		err = f.consume(ctx, t)
	}
	return err
}

// ackAndRead deletes done jobs, if there are steps for that, and reads the next ones. If the
// database refuses that, the deletions are made first, without the refused ones.
func (f *flusher) ackAndRead(ctx context.Context, t *trip, acks []*sqlrun.Step) error {
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
func (f *flusher) readSteps(t *trip) (steps []*sqlrun.Step) {
	if t.plan.Batch > 0 {
		t.noting = batchStep(t)
		steps = append(steps, t.noting)
	}
	if t.plan.Reads {
		steps = append(steps, f.fetchStep(t))
	}
	if t.plan.Delayed {
		steps = append(steps, f.delayedSteps(t)...)
	}
	steps = append(steps, f.aheadSteps(t)...)
	if len(t.plan.Loads) > 0 {
		steps = append(steps, f.loadSteps(t)...)
	}
	if len(t.plan.Waits) > 0 && !f.opt.AtMostOnce {
		steps = append(steps, f.checkSteps(t)...)
	}
	return steps
}

// ackAlone deletes done jobs in a transaction, and nothing else.
func (f *flusher) ackAlone(ctx context.Context, t *trip, list []*Delivery) error {
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

// end returns the end of done jobs of a round.
func (f *flusher) end(t *trip) store.End {
	return store.End{BlockID: t.b.at(), Node: t.node, Keep: t.keep, Own: f.exact}
}

// ackExactly deletes done jobs, and records which rows were missing. The others are kept as done
// if their queue does that, and their unique keys and groups are released. Usually all are there, and need not
// be looked for.
func (f *flusher) ackExactly(ctx context.Context, t *trip, list []*Delivery) error {
	end := f.end(t)
	end.All = true
	here, err := f.removeAll(ctx, end, list)
	if errors.Is(err, store.ErrShort) {
		end.All = false
		here, err = f.removeAll(ctx, end, list)
	}
	if err != nil {
		return err
	}
	if t.deleted == nil {
		t.deleted = map[int64]bool{}
	}
	for _, id := range here {
		t.deleted[id] = true
	}
	return nil
}

// removeAll removes done jobs in a transaction, and returns the ids of those that were there.
func (f *flusher) removeAll(ctx context.Context, end store.End, list []*Delivery) (all []int64, err error) {
	err = f.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		end.Reset()
		all = nil
		for _, part := range byTable(list) {
			here, err := end.Remove(ctx, tx, part[0].state.From, doneOf(part))
			if err != nil {
				return err
			}
			all = append(all, here...)
		}
		return end.Release(ctx, tx)
	})
	return all, err
}

// ackSteps delete the jobs that are done.
func (f *flusher) ackSteps(t *trip, list []*Delivery) (steps []*sqlrun.Step) {
	end := f.end(t)
	for _, part := range byTable(list) {
		steps = append(steps, end.RemoveStep(part[0].state.From, part[0].Priority, idsOf(part)))
	}
	return steps
}

// byTable groups jobs by what one statement can reach: those of one table and, of ready ones, of
// one priority.
func byTable(list []*Delivery) (parts [][]*Delivery) {
	var lists [3][Idle + 1][]*Delivery
	for _, d := range list {
		p := 0
		if d.state.From == tableReady {
			p = d.Priority
		}
		lists[d.state.From][p] = append(lists[d.state.From][p], d)
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

func (f *flusher) fetchStep(t *trip) *sqlrun.Step {
	t.found.Got, t.fresh = block.Fetched{}, nil
	stmt := store.FetchReady
	if t.plan.Read.Back {
		stmt = store.FetchAgain
	}
	r := f.reader(stmt, t.b, t.plan.Read.Limit, &t.plan.Room)
	return &sqlrun.Step{Stmt: stmt, Args: sqlrun.Args{
		"queue": t.b.q.id, "divided": t.b.divided, "limit": t.plan.Read.Limit,
		"after1": t.plan.Read.After[1], "after2": t.plan.Read.After[2], "after3": t.plan.Read.After[3], "after4": t.plan.Read.After[4],
	}, Scan: func(row *sqlrun.Row) error {
		d := r.ready(row)
		t.found.Got = block.Fetched{Rows: t.found.Got.Rows + 1, Last: block.Place{Priority: d.Priority, Order: d.ID}}
		t.fresh = append(t.fresh, d)
		return nil
	}}
}

// delayedSteps returns the steps that read due jobs, and when the next one is due.
func (f *flusher) delayedSteps(t *trip) []*sqlrun.Step {
	t.found.Rows, t.found.Last, t.ripe = 0, block.Due{}, nil
	r := f.reader(store.FetchDelayed, t.b, 16, &t.plan.Room)
	due := t.plan.Due
	args := sqlrun.Args{"queue": t.b.q.id, "divided": t.b.divided, "limit": due.Limit, "since": due.After.At, "after": due.After.ID}
	return []*sqlrun.Step{
		{Stmt: store.FetchDelayed, Args: args, Scan: func(row *sqlrun.Row) error {
			d := r.delayed(row)
			t.found.Rows, t.found.Last = t.found.Rows+1, d.state.Due()
			t.ripe = append(t.ripe, d)
			return nil
		}},
	}
}

// checkSteps returns the steps that check whether jobs waiting in memory still exist: somebody
// may have cancelled them.
func (f *flusher) checkSteps(t *trip) (steps []*sqlrun.Step) {
	t.found.There = map[int64]bool{}
	for _, part := range byTable(deliveriesOf(t.plan.Waits)) {
		args := store.JobArgs(t.b.q.id, t.b.divided, part[0].Priority, idsOf(part))
		stmt := store.PresentReady
		if part[0].state.From == tableDelayed {
			stmt = store.PresentDelayed
		}
		steps = append(steps, &sqlrun.Step{Stmt: stmt, Args: args, Scan: func(row *sqlrun.Row) error {
			t.found.There[row.Int(0)] = true
			return nil
		}})
	}
	return steps
}

// consume deletes jobs before they run, and keeps those that it has deleted itself. A refused one
// does not begin, nor do the later ones of its key.
func (f *flusher) consume(ctx context.Context, t *trip) error {
	f.sift(t)
	f.passOver(t)
	mine := map[int64]bool{}
	s := sifter[*Delivery]{refuses: f.refuses, write: func(part []*Delivery) error {
		got, err := f.consumePart(ctx, t, part)
		maps.Copy(mine, got)
		return err
	}, refuse: func(d *Delivery, err error) {
		t.passed = append(t.passed, d)
		if err != nil {
			t.refuse(refusedEnd{d: d, consumes: true, err: err})
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

// sift leaves out what may have to wait for jobs that were missed, while its rows are still there.
func (f *flusher) sift(t *trip) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.found.Fresh = jobsOf(t.fresh)
	if t.b.Sift(t.plan, &t.found); len(t.found.Fresh) == len(t.fresh) {
		return
	}
	t.fresh = slices.DeleteFunc(t.fresh, func(d *Delivery) bool { return !slices.Contains(t.found.Fresh, &d.state) })
}

// passOver leaves out the jobs read that are refused, not for this worker, or behind such a job.
func (f *flusher) passOver(t *trip) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(t.b.Refusals) == 0 && !f.choice.selective {
		return
	}
	stays := func(d *Delivery) bool {
		refused := func(r *block.Refusal) bool { return r.Job.ID == d.ID }
		if !f.choice.leavesRow(t.b, d) && !t.b.Bars(d.line()) && !slices.ContainsFunc(t.b.Refusals, refused) {
			return false
		}
		t.passed = append(t.passed, d)
		return true
	}
	t.fresh, t.ripe = slices.DeleteFunc(t.fresh, stays), slices.DeleteFunc(t.ripe, stays)
}

// consumePart claims jobs of one table, and returns which of them existed.
func (f *flusher) consumePart(ctx context.Context, t *trip, part []*Delivery) (map[int64]bool, error) {
	end := f.end(t)
	end.Own = false
	got, err := f.removeAll(ctx, end, part)
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

// leavesRow reports whether a worker that removes what it reads leaves a job in its table: it
// does not handle the kind, or the job is behind one of its key that it has left. mu is held.
func (k *kindChoice) leavesRow(b *tenure, d *Delivery) bool {
	line := d.line()
	switch {
	case !k.selective:
		return false
	case k.handled.Takes(d.Kind):
		return line != "" && b.barred[line]
	}
	if b.q.stranger(d.Kind) == b.q.othersKinds {
		b.strand = d.Kind
	}
	if line != "" {
		if b.barred == nil {
			b.barred = map[string]bool{}
		}
		b.barred[line] = true
	}
	return true
}

// batchStep writes to a block's row how many jobs are read at once.
func batchStep(t *trip) *sqlrun.Step {
	return &sqlrun.Step{Stmt: store.NoteBatch, Args: sqlrun.Args{
		"queue": t.b.q.id, "divided": t.b.divided, "fence": t.b.fence, "node": t.node, "batch": t.plan.Batch,
	}}
}
