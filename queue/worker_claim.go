package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// How any process can report the outcome of a job that another process's Receiver has handed out.
//
// What makes it safe: whoever deletes the row has ended the job, here as anywhere. The
// transaction locks the row, checks that its attempt is the one that was handed out, and ends
// with a locking read of the block: it is still leased, under the same fence, by the worker that
// handed the job out, and that worker is live. Taking the block waits for this transaction, or
// came before it, and then this one does nothing. A checked-out job belongs to its worker by its
// own row, which is locked, so there it suffices that the worker is live. The worker notices
// within seconds that the row is gone.

// AttemptLimit returns the number of failed attempts after which the job is dead, from the job or its
// queue.
func (d *Delivery) AttemptLimit() int {
	run := d.runner()
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.policy(d).MaxAttempts
}

var claimedStatements = map[table]*sqlrun.Stmt{
	tableReady: store.ClaimedReady, tableDelayed: store.ClaimedDelayed,
	tableRunning: store.ClaimedRunning,
}

// SettleClaims records the outcomes of jobs that Receivers of any process have handed out. It returns an error
// for each in its place: nil, ErrLost if the job no longer belongs to that worker under that claim, or why it
// could not be recorded. Jobs of the same block share statements. It is safe for concurrent use.
func (c *Client) SettleClaims(ctx context.Context, all []ClaimOutcome) []error {
	errs := make([]error, len(all))
	if err := c.clock.sync(ctx, &c.db.Session, instant.Now()); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	parts := map[Claim][]int{} // by block and its holder
	for i, o := range all {
		of := Claim{Node: o.Claim.Node, Queue: o.Claim.Queue, Block: o.Claim.Block, Fence: o.Claim.Fence}
		parts[of] = append(parts[of], i)
	}
	queues := map[string]*store.Queue{}
	for of, indexes := range parts {
		for part := range slices.Chunk(indexes, store.Chunk) {
			err := c.settlePart(ctx, queues, of, all, part, errs)
			for _, i := range part {
				if err != nil {
					errs[i] = err
				}
			}
		}
	}
	return errs
}

// settlePart does so for some jobs of a block.
func (c *Client) settlePart(ctx context.Context, queues map[string]*store.Queue, of Claim, all []ClaimOutcome, part []int,
	errs []error,
) error {
	q := queues[of.Queue]
	if q == nil {
		var err error
		q, err = c.read(ctx, of.Queue)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		queues[of.Queue] = q
	}
	left := part
	// A job's row may be on its way from the first tables to the last.
	for _, step := range []struct {
		tables []table
		holds  *sqlrun.Stmt
	}{{[]table{tableReady, tableDelayed}, store.ClaimHolds}, {[]table{tableRunning}, store.NodeLives}} {
		if q == nil || len(left) == 0 {
			break
		}
		s := &settling{c: c, q: q, of: of, all: all, tables: step.tables, holds: step.holds}
		var err error
		if left, err = s.sift(ctx, left, errs); err != nil {
			return err
		}
	}
	for _, i := range left {
		errs[i] = fmt.Errorf("%w: job %d", ErrLost, all[i].Claim.Job)
	}
	return nil
}

// sift runs for some jobs of a block, and returns those that it has not found. Refused batches
// are halved, as in a worker, so that one job does not keep others from ending. Two jobs of one
// key are never handed out at a time, so they need not be a unit.
func (s *settling) sift(ctx context.Context, part []int, errs []error) (left []int, err error) {
	sift := sifter[int]{refuses: func(err error) bool { return refuses(s.c.db.Dialect, err) }, write: func(some []int) error {
		err := s.run(ctx, some)
		switch {
		case err == nil:
			s.tell(ctx)
			left = append(left, slices.DeleteFunc(slices.Clone(some), func(i int) bool { return s.found[s.all[i].Claim.Job] != nil })...)
		case errors.Is(err, ErrLost):
			left, err = append(left, some...), nil
		}
		return err
	}, refuse: func(i int, err error) { errs[i] = fmt.Errorf("%w: job %d: %w", ErrRefused, s.all[i].Claim.Job, err) }}
	units := make([][]int, len(part))
	for i := range part {
		units[i] = part[i : i+1]
	}
	err = sift.sift(units)
	slices.Sort(left)
	return left, err
}

// A settling ends jobs of a block that another process has handed out.
type settling struct {
	c      *Client
	q      *store.Queue
	of     Claim
	all    []ClaimOutcome
	tables []table
	holds  *sqlrun.Stmt

	found map[int64]*Delivery
	moves []*move
}

// lease is the lease of the block under which the jobs were handed out.
func (s *settling) lease() blockLease {
	return blockLease{store.BlockID{Queue: s.q.ID, Divided: s.of.Block}, s.of.Fence, s.of.Node}
}

// moveFor returns the move of a job that is not done. The policies of kinds are only known to their
// workers, so those of the queue and the job apply.
func (s *settling) moveFor(d *Delivery, end *result) *move {
	policy := policyOf(s.q)
	policy.MaxAttempts = cmp.Or(d.MaxAttempts, policy.MaxAttempts)
	return newMove(d, s.q, policy, d.Key != "" || s.q.FIFOAt(s.of.Block), end, "")
}

// run ends those jobs that are found in its tables.
func (s *settling) run(ctx context.Context, part []int) error {
	return s.c.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		s.found, s.moves = map[int64]*Delivery{}, nil
		for _, from := range s.tables {
			for _, list := range s.byStatement(part, from) {
				if err := s.find(ctx, tx, from, list); err != nil {
					return err
				}
			}
		}
		if len(s.found) == 0 {
			return ErrLost
		}
		acks := s.outcomes(part)
		if err := s.ack(ctx, tx, acks); err != nil {
			return err
		}
		for _, f := range groupMoves(s.moves) {
			if err := writeMoves(ctx, tx, s.lease(), f, false); err != nil {
				return err
			}
		}
		args := sqlrun.Args{"node": s.of.Node}
		var err error
		if s.holds == store.ClaimHolds {
			args["queue"], args["divided"], args["fence"] = s.q.ID, s.of.Block, s.of.Fence
			err = tx.Get(ctx, s.holds, args, new(int64))
		} else {
			err = tx.Get(ctx, s.holds, args, new(string))
		}
		if errors.Is(err, sql.ErrNoRows) {
			return ErrLost
		}
		return err
	})
}

// byStatement groups jobs that were not found yet by what one statement reaches: ready ones
// have their priority in their key.
func (s *settling) byStatement(part []int, from table) (lists [Idle + 1][]int) {
	for _, i := range part {
		claim := &s.all[i].Claim
		if s.found[claim.Job] != nil {
			continue
		}
		p := 0
		if from == tableReady {
			p = claim.Priority
		}
		if p >= 0 && p < len(lists) {
			lists[p] = append(lists[p], i)
		}
	}
	return lists
}

// find locks and reads those of the jobs that are in a table, under the attempt that was handed
// out.
func (s *settling) find(ctx context.Context, tx *sqlrun.Session, from table, list []int) error {
	if len(list) == 0 {
		return nil
	}
	priority, byJob := s.all[list[0]].Claim.Priority, map[int64]*Claim{} // ready jobs all have the same priority
	ids := make([]int64, len(list))
	for i, at := range list {
		claim := &s.all[at].Claim
		ids[i], byJob[claim.Job] = claim.Job, claim
	}
	end := store.End{BlockID: s.lease().BlockID, Node: s.of.Node}
	here, err := end.Lock(ctx, tx, from, priority, slices.Compact(slices.Sorted(slices.Values(ids))), nil)
	if err != nil || len(here) == 0 {
		return err
	}
	args := store.JobArgs(s.q.ID, s.of.Block, priority, here)
	args["node"] = s.of.Node
	rows, err := sqlrun.Select(ctx, tx, claimedStatements[from], args, func(rows *sql.Rows) (*Delivery, error) {
		d := &Delivery{}
		var key, unique sql.NullString
		err := rows.Scan(&d.ID, &d.Kind, &key, &unique, &d.MaxAttempts, &d.Group, &d.Attempt, &d.Crashes)
		d.Queue, d.Key, d.Unique, d.Group = s.q.Name, key.String, unique.String, max(0, d.Group)
		d.Attempt++
		d.comesFrom(nil)
		d.state.From = from
		return d, err
	})
	for _, d := range rows {
		if claim := byJob[d.ID]; d.Attempt == claim.Attempt {
			d.Priority = claim.Priority
			s.found[d.ID] = d
		}
	}
	return err
}

// outcomes decides the outcome of the jobs that were found. It returns those that are done.
func (s *settling) outcomes(part []int) (acks []*Delivery) {
	said := map[int64]bool{}
	for _, i := range part {
		o := &s.all[i]
		d := s.found[o.Claim.Job]
		if d == nil || said[d.ID] {
			continue
		}
		said[d.ID] = true
		switch what, after := verdictOf(d, o.Err); what {
		case done:
			d.result = o.Result
			acks = append(acks, d)
		case discard:
			d.state.Phase, d.what, d.reason = block.PhaseEnded, discard, limitText(o.Err.Error(), 4000)
			acks = append(acks, d)
		default:
			s.moves = append(s.moves, s.moveFor(d, &result{o.Err, what, after}))
		}
	}
	return acks
}

// ack deletes done jobs whose rows are locked.
func (s *settling) ack(ctx context.Context, tx *sqlrun.Session, acks []*Delivery) error {
	end := store.End{BlockID: s.lease().BlockID, Node: s.of.Node, Keep: s.q.KeepDone, All: true, Locked: true}
	for _, list := range byTable(acks) {
		if _, err := end.Remove(ctx, tx, list[0].state.From, doneOf(list)); err != nil {
			return err
		}
	}
	return end.Release(ctx, tx)
}

// tell counts and logs what was committed, and ends groups whose last jobs these were. The
// duration of the jobs is not known here, so the averages count them as if they had taken no
// time.
func (s *settling) tell(ctx context.Context) {
	counts, groups := map[countKey]*count{}, map[int64]bool{}
	minute := (s.c.clock.skew() + instant.Now().Sub(0).Microseconds()) / 60_000_000
	of := func(d *Delivery) *count {
		key := countKey{minute, s.q.ID, d.Kind}
		if counts[key] == nil {
			counts[key] = &count{}
		}
		return counts[key]
	}
	moved := map[int64]bool{}
	for _, m := range s.moves {
		d := m.d
		moved[d.ID] = true
		level := slog.LevelInfo
		switch m.verdict {
		case buried:
			level = slog.LevelWarn
			of(d).dead++
			groups[d.Group] = true
		case snoozed:
		default:
			of(d).failed++
		}
		s.c.again.Log(level, repeatOf(d, m.reason), "job failed", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "attempt", d.Attempt, "dead",
			m.verdict == buried, "again_in", m.delay, "error", m.reason)
	}
	for _, d := range s.found {
		if s.c.bells.hub.Ends.Awaited() {
			s.c.bells.hub.Ends.Tell(d.ID)
		}
		if !moved[d.ID] {
			of(d).done++
			groups[d.Group] = true
		}
	}
	if err := s.c.addCounts(ctx, counts); err != nil {
		s.c.opt.Logger.Warn("finished jobs could not be counted", "err", err)
	}
	delete(groups, 0)
	for id := range groups {
		s.c.tryConclude(ctx, id)
	}
}
