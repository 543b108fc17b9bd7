package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A move takes a job from its table to another: that of delayed, dead, or running jobs. A
// running job has a lease of its own.
type move struct {
	d        *Delivery
	verdict  verdict
	out      bool // to the running ones
	attempts int
	crashes  int
	charge   string // whose death that includes, of a job that is checked out for it
	delay    time.Duration
	stops    int  // how many workers in a row were stopped soon after they had begun it
	holds    bool // its key waits for it
	err      error
	reason   string // the error's text, and further details
	detail   string
	ended    string // why there are no further attempts, though the job has some left
	here     bool   // its row existed
	keep     int64  // retention of a dead job
}

// Of and Out make it a [block.Move].
func (m *move) Of() *block.Job { return &m.d.state }

// Out reports whether it is a check-out.
func (m *move) Out() bool { return m.out }

// movesOf returns a block's moves as the worker has made them.
func movesOf(list []block.Move) []*move {
	all := make([]*move, len(list))
	for i, m := range list {
		all[i], _ = m.(*move)
	}
	return all
}

// blockMoves is the reverse of movesOf.
func blockMoves(list []*move) []block.Move {
	all := make([]block.Move, len(list))
	for i, m := range list {
		all[i] = m
	}
	return all
}

// limitText shortens an error's text, and makes it storable.
func limitText(text string, limit int) string { return sqlrun.CleanText(text, limit) }

// errBlockLost rolls a move back: another worker has the block.
var errBlockLost = errors.New("another worker has the block")

// A moveGroup is the moves of one transaction from one table to another.
type moveGroup struct {
	from     table
	priority int // of ready jobs
	dead     bool
	out      bool
	moves    []*move
}

// attempt returns the number of the attempt at a job.
func (f *moveGroup) attempt(id int64) int {
	at := slices.IndexFunc(f.moves, func(m *move) bool { return m.d.ID == id })
	return f.moves[at].d.Attempt
}

// groupMoves groups moves by the statements that they need.
func groupMoves(moves []*move) []*moveGroup {
	var all []*moveGroup
	for _, m := range moves {
		f := &moveGroup{from: m.d.state.From, dead: m.verdict == buried && !m.out, out: m.out}
		if f.from == tableReady {
			f.priority = m.d.Priority
		}
		at := slices.IndexFunc(all, func(o *moveGroup) bool {
			return o.from == f.from && o.priority == f.priority && o.dead == f.dead && o.out == f.out
		})
		if at < 0 {
			all = append(all, f)
			at = len(all) - 1
		}
		all[at].moves = append(all[at].moves, m)
	}
	return all
}

// commitMoves writes moves of a block in one transaction. It leaves out jobs that no longer
// exist: somebody else has finished them.
func (f *flusher) commitMoves(ctx context.Context, b *tenure, node string, moves []*move) error {
	all := groupMoves(moves)
	needsBlock := slices.ContainsFunc(all, func(f *moveGroup) bool { return f.from != tableRunning })
	return f.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		for _, group := range all {
			if err := writeMoves(ctx, tx, b.lease(node), group, f.exact); err != nil {
				return err
			}
		}
		if !needsBlock {
			return nil // the rows themselves say who owns them
		}
		return holds(ctx, tx, b, node)
	})
}

// holds returns errBlockLost unless a block is still this worker's, until the end of
// the transaction.
func holds(ctx context.Context, tx *sqlrun.Session, b *tenure, node string) error {
	var fence int64
	err := tx.Get(ctx, store.StillMine, sqlrun.Args{"queue": b.q.id, "divided": b.divided, "fence": b.fence, "node": node}, &fence)
	if errors.Is(err, sql.ErrNoRows) {
		return errBlockLost
	}
	return err
}

// writeMoves writes moves of one table. If it has to be exact, it leaves out jobs whose attempt
// is not the one that was given out.
func writeMoves(ctx context.Context, tx *sqlrun.Session, by blockLease, f *moveGroup, exact bool) error {
	ids := make([]int64, len(f.moves))
	for i, m := range f.moves {
		ids[i] = m.d.ID
	}
	if f.out {
		if err := store.FreeUnique(ctx, tx, by.Queue, begunBy(f.moves)); err != nil {
			return err
		}
	}
	end := store.End{BlockID: by.BlockID, Node: by.node, Own: exact}
	here, err := end.Lock(ctx, tx, f.from, f.priority, ids, f.attempt)
	if err != nil {
		return err
	}
	var arrived []int64
	if len(here) < len(ids) {
		// An earlier transaction may have moved them, if its answer was lost: the job is still
		// this worker's, and its key waits for it.
		args := store.JobArgs(by.Queue, by.Divided, f.priority, ids)
		args["node"] = by.node
		if arrived, err = sqlrun.Select(ctx, tx, arrivals(f), args, store.ScanID); err != nil {
			return err
		}
	}
	rows := make([]sqlrun.Args, 0, len(here))
	for _, m := range f.moves {
		m.here = slices.Contains(arrived, m.d.ID)
		if _, ok := slices.BinarySearch(here, m.d.ID); !ok {
			continue
		}
		m.here = true
		row := sqlrun.Args{
			"queue": by.Queue, "block": by.Divided, "job": m.d.ID, "priority": m.d.Priority, "tries": m.attempts,
			"died": m.crashes, "charge": m.charge, "why": m.reason, "failed": nil, "more": m.detail,
			"later": m.delay.Microseconds(), "holds": nil, "halts": m.stops,
		}
		if m.verdict != snoozed && m.verdict != handed && !m.out {
			row["failed"] = store.FailedAttempt(m.attempts, m.reason, m.ended)
		}
		if m.holds {
			row["holds"] = cmp.Or(m.d.Key, block.FIFO)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	to := sqlrun.Args{"queue": by.Queue, "divided": by.Divided, "node": by.node, "fence": by.fence, "keep": f.moves[0].keep}
	if f.from == tableDelayed && !f.dead && !f.out { // it stays in its table
		n, err := store.ExecParts(ctx, tx, store.Redelay, to, rows)
		return store.Short(err, n, len(rows))
	}
	if n, err := store.ExecParts(ctx, tx, destination(f), to, rows); err != nil || n != int64(len(rows)) {
		return store.Short(err, n, len(rows))
	}
	step := end.RemoveStep(f.from, f.priority, here)
	n, err := tx.Exec(ctx, step.Stmt, step.Args)
	if err != nil || n != int64(len(here)) || !f.dead {
		return store.Short(err, n, len(here))
	}
	var dead []store.Ended
	for _, m := range f.moves {
		if m.d.tied() && slices.Contains(here, m.d.ID) {
			dead = append(dead, store.Ended{ID: m.d.ID, Unique: m.d.unique(), Group: m.d.Group, State: store.MemberDead, Why: m.reason})
		}
	}
	return store.ReleaseTies(ctx, tx, by.Queue, dead)
}

// begunBy returns the jobs that lose their unique keys when they are checked out.
func begunBy(moves []*move) *store.Uniques {
	var begun store.Uniques
	for _, m := range moves {
		if m.d.UniqueUntil == UntilBegin {
			begun.Add(m.d.ID, m.d.Unique)
		}
	}
	return &begun
}

func destination(f *moveGroup) *sqlrun.Stmt {
	switch {
	case f.out && f.from == tableReady:
		return store.CheckOutReady
	case f.out:
		return store.CheckOutDelayed
	case f.dead:
		return map[table]*sqlrun.Stmt{tableReady: store.BuryReady, tableDelayed: store.BuryDelayed, tableRunning: store.BuryRunning}[f.from]
	case f.from == tableReady:
		return store.DelayReady
	}
	return store.DelayRunning
}

// arrivals returns the statement that finds the jobs in the target table of a moveGroup.
func arrivals(f *moveGroup) *sqlrun.Stmt {
	switch {
	case f.out:
		return store.LockRunning
	case f.dead:
		return store.PresentDead
	}
	return store.PresentDelayed
}

// keepOf returns the retention of a queue's dead jobs, in µs; -1: forever.
func keepOf(q *store.Queue) int64 {
	if q.KeepDead < 0 {
		return -1
	}
	return q.KeepDead.Microseconds()
}

// moved records that a move was committed under a name of this worker. mu is held.
func (box *outbox) moved(m *move, node string) {
	d, b := m.d, m.d.b
	if m.out {
		box.runs.checkedOut(m, node)
		return
	}
	if at := box.c.clock.reading(); m.here {
		box.conclude(d, at, m.verdict, m.err, m.delay)
	} else {
		box.conclude(d, at, lost, ErrLost, 0)
	}
	box.logMoved(m)
	if b.Gone {
		return
	}
	if d.state.From != tableRunning {
		b.Forget(d.ID)
	}
	b.Spare(&d.state)
	if m.here && m.verdict != buried {
		box.h.setDue(b, box.c.clock.now()+m.delay.Microseconds())
		if m.holds {
			b.Part(d.line(), d.ID)
			return
		}
	}
	if !m.here {
		b.ReleaseIfHeld(d.line(), d.ID)
		return
	}
	box.release(d)
}

// logMoved logs the end of an attempt at a job that is not done. mu is held.
func (box *outbox) logMoved(m *move) {
	d, level := m.d, slog.LevelInfo
	if m.verdict == buried || m.stops >= pace.Suspicious {
		level = slog.LevelWarn
	}
	if m.verdict == handed {
		box.log.Log(context.Background(), level, "job handed back", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "attempt", d.Attempt,
			"stops", m.stops, "again_in", max(0, m.delay), "why", m.reason)
		return
	}
	box.again.Log(level, repeatOf(d, m.reason), "job failed", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "attempt", d.Attempt, "dead",
		m.verdict == buried, "again_in", m.delay, "error", m.reason)
}

// repeatOf returns what failures that are logged once have in common.
func repeatOf(d *Delivery, why string) string { return d.Queue + "\n" + d.Kind + "\n" + why }
