package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Rounds: when a worker looks after which of its queues. A round reads the same few statements
// for all queues that are due: see survey.go. So an idle worker costs the same for one
// queue and for hundreds.
//
// An active queue has a round every shareEvery; and so, for a while, has a queue whose workers
// have changed, and one with free blocks. An idle queue has a round when a bell announces that
// there may be something to share, and otherwise less often the more blocks a worker has. One
// statement that returns one row shows once a second whether processes have come, gone or died.

const (
	// pulseEvery is the interval between checks whether the other processes are the same.
	pulseEvery = time.Second

	// alertFor is how long a worker looks for changes on its queues when the processes have
	// changed: a new process registers its queues some moments after it has joined.
	alertFor = 3 * time.Second

	// settlesIn is how long a queue whose workers have changed has frequent rounds: blocks are
	// handed over and taken meanwhile.
	settlesIn = 4 * leaveWithin

	// toldEvery is the minimum interval between rounds caused by bells.
	toldEvery = 100 * time.Millisecond

	// seldomRound is the longest interval between two rounds of an idle queue.
	seldomRound = 30 * time.Second

	// maxRound is the maximum number of idle queues in one round.
	maxRound = maxSurveyed
)

// rounds is what a worker needs to know to schedule its rounds.
type rounds struct {
	membership membership       // the last one
	alert      instant.Instant  // until then it checks the workers of its queues
	longs      int              // consecutive checks that found all slots taken by long jobs
	isBusy     bool             // it is busy with long jobs: its share is for others
	said       string           // what the others were told: its kinds
	hungry     bool             // and that its handlers wait for connections
	stirred    map[*tenure]bool // its blocks that are not still
	unrung     instant.Instant  // when an unannounced job was last found; 0: never
}

// A cadence schedules the rounds of a queue.
type cadence struct {
	roster    []share.Worker  // its workers, as last read
	rounded   instant.Instant // when its last round began; 0: never
	told      instant.Instant // when a bell announced that there may be something to share
	unsettled instant.Instant // until then it has frequent rounds
	stirs     int             // number of its blocks that are not still
	look      instant.Instant // when to poll it for new jobs
	lookWait  time.Duration   // the previous poll interval; 0: something was found
}

// share looks after the blocks of all queues.
func (h *holder) share(ctx context.Context) {
	defer close(h.life.shared)
	var trials sync.WaitGroup // which take jobs over, too
	defer trials.Wait()
	trials.Go(func() { h.occupants.tryAlone(ctx) })
	trouble := trouble.New(h.log, "sharing the blocks")
	for nudged := true; ; {
		h.mu.Lock()
		name, closing := h.lease.node, h.life.closing
		h.mu.Unlock()
		if closing {
			return // drain does the rest
		}
		again := shareEvery
		if name != "" {
			err := h.runDueRounds(ctx, name, nudged)
			if ctx.Err() == nil {
				trouble.Note(err)
			}
			again = h.nextRound()
		}
		nudged = false
		select {
		case <-ctx.Done():
			return
		case <-h.life.stopping:
		case <-time.After(inStep(again)):
		case <-h.tick:
			nudged = true
		}
	}
}

// nextRound returns how long to wait before the next round.
func (h *holder) nextRound() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	again := shareEvery
	for _, q := range h.queues {
		if q.joining {
			return 0
		}
		if q.told > q.rounded {
			again = toldEvery
		}
	}
	return again
}

// runDueRounds runs a round of the queues that are due. nudged reports whether something has
// happened in those that are not idle.
func (h *holder) runDueRounds(ctx context.Context, name string, nudged bool) error {
	failed := h.checkPeers(ctx)
	due := h.dueQueues(nudged)
	if len(due) == 0 {
		return failed
	}
	failed = errors.Join(failed, h.shareQueues(ctx, due, name))
	h.noteShare(due)
	h.noteRound(failed)
	return failed
}

// noteShare records that the worker has taken blocks of some queues.
func (h *holder) noteShare(due []*workQueue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range due {
		q.joining = false
		q.recheck()
	}
}

// checkPeers checks once a second whether the other processes are the same. If not, it looks for
// a while which of its queues are affected.
func (h *holder) checkPeers(ctx context.Context) error {
	h.mu.Lock()
	at, queues, was := instant.Now(), h.queues, h.membership
	h.mu.Unlock()
	if at.Sub(was.at) >= pulseEvery-shareEvery/4 {
		h.c.bells.prove(ctx)
		now, err := h.c.commons.memberships.get(ctx, struct{}{})
		if err != nil {
			return err
		}
		h.mu.Lock()
		if !was.same(&now) {
			h.alert = at.Add(alertFor)
		}
		h.membership = now
		h.mu.Unlock()
	}
	h.mu.Lock()
	alert := at < h.alert
	h.mu.Unlock()
	if !alert {
		return nil
	}
	found, err := h.c.commons.rosters.get(ctx, idsOfQueues(queues)...)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range queues {
		h.noteRoster(q, found[q.id])
	}
	return nil
}

func idsOfQueues(queues []*workQueue) []int {
	ids := make([]int, len(queues))
	for i, q := range queues {
		ids[i] = q.id
	}
	return ids
}

// noteRoster notes who works on a queue. Where this worker is alone nobody hands over or takes
// anything but itself. mu is held.
func (h *holder) noteRoster(q *workQueue, all []share.Worker) {
	if slices.EqualFunc(all, q.roster, share.Worker.Same) {
		return
	}
	if q.roster = all; len(all) != 1 || all[0].Node != h.lease.node {
		q.unsettled = instant.Now().Add(settlesIn)
	}
}

// dueQueues returns the queues that are due, and records their rounds.
func (h *holder) dueQueues(nudged bool) (due []*workQueue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, every := instant.Now(), h.idleEvery()
	if changed := h.restate(); changed {
		for _, q := range h.queues {
			q.rounded = 0
		}
	}
	idle, mine := 0, h.occupants.queuesOut()
	for _, q := range h.queues {
		since := at.Sub(q.rounded)
		switch {
		case q.told > q.rounded && since >= toldEvery-shareEvery/20:
		case q.told > q.set.At && since >= shareEvery/2 && at.Sub(q.set.At) >= settingsEvery:
		case h.happens(q, at, mine) && (nudged || since >= shareEvery*3/4):
		case (q.rounded == 0 || since >= every) && idle < maxRound:
			idle++
		default:
			continue
		}
		q.rounded = at
		due = append(due, q)
	}
	return due
}

// happens reports whether a queue is active. mu is held.
func (h *holder) happens(q *workQueue, at instant.Instant, out map[*workQueue]bool) bool {
	return q.rounded != 0 && (q.stirs > 0 || at < q.unsettled || q.waits || out[q] ||
		len(q.orphans) > 0 || len(q.vacant) > 0 || len(q.set.Generations) > 1)
}

// idleEvery returns the interval between rounds of an idle queue: it grows with the number of
// rows to read, and is longer where bells announce what others do. mu is held.
func (h *holder) idleEvery() time.Duration {
	n := 0
	for _, q := range h.queues {
		n += max(1, q.set.Blocks)
	}
	if h.hearing() {
		return min(max(4*shareEvery, time.Duration(n)*3*time.Millisecond), seldomRound)
	}
	return min(max(shareEvery, time.Duration(n)*250*time.Microsecond), seldomRound)
}

// restate reports whether the others have to be told something new about this worker: whether
// it is busy with long jobs, or which kinds it handles. mu is held.
func (h *holder) restate() (changed bool) {
	long, starved := h.occupants.areBusy()
	busy := long || starved
	says := ""
	if h.choice.selective {
		says = h.choice.handled.Text
	}
	changed = busy != h.isBusy || says != h.said || starved != h.hungry
	h.isBusy, h.said, h.hungry = busy, says, starved
	return changed
}

// tellRounds records that some queues may have something to share; none means all.
func (h *holder) tellRounds(queues ...int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := instant.Now()
	if len(queues) == 0 {
		for _, q := range h.queues {
			q.told = at
		}
	}
	for _, id := range queues {
		for _, q := range h.queues {
			if q.id == id {
				q.told = at
			}
		}
	}
	h.nudge()
}

// stir makes a block be watched until it is still. mu is held.
func (h *holder) stir(b *tenure) {
	if b.stirred || b.Gone {
		return
	}
	b.stirred = true
	if h.stirred == nil {
		h.stirred = map[*tenure]bool{}
	}
	h.stirred[b] = true
	if b.q.stirs++; b.q.stirs == 1 && b.q.rounded != 0 && since(b.q.set.At) >= settingsEvery {
		h.nudge() // its knowledge of the queue is old, and jobs may begin
	}
}

// calm stops watching a block that is still. mu is held.
func (h *holder) calm(b *tenure) {
	if b.stirred {
		b.stirred = false
		b.q.stirs--
		delete(h.stirred, b)
	}
}

// still reports whether nothing of a block is under way, and nothing in it waits for more than
// a bell, a poll, or a delayed job's time. mu is held.
func (b *tenure) still() bool { return !b.agitated() && !b.HoldsSome() && b.Reads.Level() }

// agitated reports whether a block is to be read, served or handed over. mu is held.
func (b *tenure) agitated() bool {
	return b.Reads.Dirty || b.Dues.Ripe || b.Reads.Full || b.Reads.Unseen || b.Serving || b.queued || b.Leaving || b.Reads.Shaken || b.Left ||
		b.Reads.Whole == 0 || b.Reads.Again != 0 || b.failures > 0 || b.accused > 0 || b.Suspect > 0 ||
		b.waiting != 0 || b.stuck > 0 || len(b.barred) > 0 || b.kept != 0 || b.strand != ""
}

// refreshSettings reads settings and limits of queues again if they are old. If that fails, the
// previous ones stay in effect.
func (h *holder) refreshSettings(ctx context.Context, due []*workQueue) error {
	names := map[int]string{}
	for _, q := range due {
		if since(q.set.At) >= settingsEvery {
			names[q.id] = q.name
		}
	}
	if len(names) == 0 {
		return nil
	}
	sets, limits, err := h.c.settingsOf(ctx, names)
	for _, q := range due {
		if set := sets[q.id]; set != nil {
			h.meet(q, set)
		}
		if bounds, read := limits[q.id]; read {
			h.occupants.meetLimits(q, bounds)
		}
	}
	return err
}

// lookForDue looks when the next delayed job of each block of some queues is due.
func (h *holder) lookForDue(ctx context.Context, due []*workQueue) error {
	return h.lookForNext(ctx, h.dueRows(due))
}

// dueRows lists the blocks to look at. While jobs of a block are due and not read, it is read anyway:
// a look would only find a job that was read and is not done yet, send the reads back to the horizon,
// and walk over everything deleted on MariaDB, which does not use the time for the range.
func (h *holder) dueRows(due []*workQueue) (rows []dueRow) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := instant.Now()
	upto := h.now(at).DuesUpto()
	for _, q := range due {
		for _, b := range q.blocks {
			if b.Leaving || b.Dues.Ripe {
				continue
			}
			from := b.Dues.Horizon()
			if b.still() { // late commits
				from = b.Dues.LookFrom(at, upto)
				if at.Sub(b.swept) >= h.terms.Whole {
					from, b.swept = 0, at
				}
			}
			rows = append(rows, dueRow{b, from})
		}
	}
	return rows
}

// A dueRow is a block, and the time in µs after which its next delayed job is wanted.
type dueRow struct {
	b     *tenure
	since int64
}

// lookForNext looks when the next delayed job of each of some blocks is due.
func (h *holder) lookForNext(ctx context.Context, all []dueRow) (failed error) {
	rows, byID := make([]sqlrun.Args, len(all)), map[store.BlockID]*tenure{}
	for i, r := range all {
		rows[i], byID[r.b.at()] = sqlrun.Args{"queue": r.b.q.id, "block": r.b.divided, "since": r.since}, r.b
	}
	for part := range slices.Chunk(rows, maxLooked) {
		failed = errors.Join(failed, h.db.Pipeline(ctx, &sqlrun.Step{ // so that its plan is cached
			Stmt: store.NextDelayed, Args: sqlrun.Args{"rows": part},
			Scan: func(row *sqlrun.Row) error {
				h.mu.Lock()
				defer h.mu.Unlock()
				b := byID[store.BlockID{Queue: int(row.Int(0)), Divided: int(row.Int(1))}]
				if now, at := row.Int(2), row.Int(3); !b.Gone && !row.Null(3) && at < now+dueAhead.Microseconds() {
					if at < b.Dues.Horizon() { // it was committed late
						b.Dues.Anew()
					}
					b.Dues.Saw(at)
					h.setDue(b, at)
				}
				return nil
			},
		}))
	}
	return failed
}

// dueAhead is how long before a delayed job is due a worker knows of it: longer than between
// two rounds.
const dueAhead = 4 * seldomRound

// setDue schedules a look at a block's delayed jobs when one is due. mu is held.
func (h *holder) setDue(b *tenure, us int64) {
	now := h.c.clock.now()
	if b.due > now && b.due <= us {
		return
	}
	b.due = us
	time.AfterFunc(max(0, time.Duration(us-now)*time.Microsecond)+time.Millisecond, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !b.Gone {
			b.IsDue()
			h.enlist(b)
		}
	})
}
