package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue/internal/board"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Rounds: when a worker looks after which of its queues. What it reads in a round is the same few
// statements for all queues whose turn has come: see worker_survey.go. So an idle worker costs the
// same for one queue and for hundreds.
//
// A queue in which something happens has a round every shareEvery. So has one, for a while, whose
// workers are not the same as before; and one that has free blocks. An idle one has a round when
// a bell says that there may be something to share, and else more seldom the more blocks a worker
// has. That processes come, go and die is seen once a second by one statement that gives one row.

const (
	// pulseEvery is how often a process looks whether the others are the same as before.
	pulseEvery = time.Second

	// alertFor is for how long it looks who works on its queues when they are not: whoever comes
	// says on which queues it works some moments after it has joined.
	alertFor = 3 * time.Second

	// settlesIn is for how long a queue has frequent rounds whose workers have changed: blocks are
	// handed over and taken meanwhile.
	settlesIn = 4 * leaveWithin

	// toldEvery is how often bells have a queue looked after at the most.
	toldEvery = 100 * time.Millisecond

	// seldomRound is how often an idle queue has a round at least.
	seldomRound = 30 * time.Second

	// mostRound is how many idle queues have a round at a time.
	mostRound = mostSurveyed
)

// The rounds of a worker are what it knows for when its queues are looked after next.
type rounds struct {
	beat    beat            // as it was last
	alert   instant.Instant // until then it looks who works on its queues
	longs   int             // how often in a row all places were found taken by long jobs
	isBusy  bool            // it is busy with long jobs: its share is for others
	said    string          // the kinds that the others were told it does, and whether it is busy
	stirred map[*block]bool // those of its blocks that are not still
	unrung  instant.Instant // when a job was found last of which no bell had told; 0: never
}

// A cadence is when a queue is looked after.
type cadence struct {
	roster    []workerRow     // who works on it, as was read last
	rounded   instant.Instant // when its last round began; 0: it has had none
	told      instant.Instant // when a bell said that there may be something to share
	unsettled instant.Instant // until then it has frequent rounds
	stirs     int             // how many of its blocks are not still
	look      instant.Instant // when it is looked whether it has new jobs
	lookWait  time.Duration   // the last interval between two such looks; 0: there was something
}

// share looks after the blocks of all queues.
func (w *Worker) share(ctx context.Context) {
	defer close(w.shared)
	trouble := trouble.New(w.log, "sharing the blocks")
	for nudged := true; ; {
		w.mu.Lock()
		name, closing := w.lease.node, w.closing
		w.mu.Unlock()
		if closing {
			return // drain does the rest
		}
		again := shareEvery
		if name != "" {
			err := w.lookAfterDue(ctx, name, nudged)
			if ctx.Err() == nil {
				trouble.Note(err)
			}
			again = w.nextRound()
		}
		nudged = false
		select {
		case <-ctx.Done():
			return
		case <-w.stopping:
		case <-time.After(inStep(again)):
		case <-w.tick:
			nudged = true
		}
	}
}

// nextRound is how long to wait for the next round.
func (w *Worker) nextRound() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.queues {
		if q.told > q.rounded {
			return toldEvery
		}
	}
	return shareEvery
}

// lookAfterDue has a round of those queues whose turn has come. nudged tells whether something has
// happened in those that are not idle.
func (w *Worker) lookAfterDue(ctx context.Context, name string, nudged bool) error {
	failed := w.feelPulse(ctx)
	due := w.dueQueues(nudged)
	if len(due) == 0 {
		return failed
	}
	failed = errors.Join(failed, w.shareQueues(ctx, due, name))
	w.noteShare(due)
	w.noteRound(failed)
	return failed
}

// noteShare notes that the worker has taken blocks of some queues.
func (w *Worker) noteShare(due []*workQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range due {
		q.joining = false
		q.recheck()
	}
}

// feelPulse looks once a second whether the others are the same. If they are not, it looks for a while
// on which of its queues.
func (w *Worker) feelPulse(ctx context.Context) error {
	w.mu.Lock()
	at, queues, was := instant.Now(), w.queues, w.beat
	w.mu.Unlock()
	if at.Sub(was.at) >= pulseEvery-shareEvery/4 {
		w.c.bells.prove(ctx)
		now, err := w.c.commons.beats.get(ctx, struct{}{})
		if err != nil {
			return err
		}
		w.mu.Lock()
		if !was.same(&now) {
			w.alert = at.Add(alertFor)
		}
		w.beat = now
		w.mu.Unlock()
	}
	w.mu.Lock()
	alert := at < w.alert
	w.mu.Unlock()
	if !alert {
		return nil
	}
	found, err := w.c.commons.rosters.get(ctx, idsOfQueues(queues)...)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range queues {
		w.noteRoster(q, found[q.id])
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

// noteRoster notes who works on a queue. mu is held.
func (w *Worker) noteRoster(q *workQueue, all []workerRow) {
	if !slices.EqualFunc(all, q.roster, workerRow.same) {
		q.roster, q.unsettled = all, instant.Now().Add(settlesIn)
	}
}

// dueQueues lists the queues whose turn has come, and notes that they have it.
func (w *Worker) dueQueues(nudged bool) (due []*workQueue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, every := instant.Now(), w.idleEvery()
	if changed := w.restate(); changed {
		for _, q := range w.queues {
			q.rounded = 0
		}
	}
	idle, mine := 0, map[*workQueue]bool{}
	for _, d := range w.out {
		mine[d.b.q] = true
	}
	for _, q := range w.queues {
		since := at.Sub(q.rounded)
		switch {
		case q.told > q.rounded && since >= toldEvery-shareEvery/20:
		case q.told > q.set.At && since >= shareEvery/2 && at.Sub(q.set.At) >= settingsEvery:
		case w.happens(q, at, mine) && (nudged || since >= shareEvery*3/4):
		case (q.rounded == 0 || since >= every) && idle < mostRound:
			idle++
		default:
			continue
		}
		q.rounded = at
		due = append(due, q)
	}
	return due
}

// happens tells whether something happens in a queue. mu is held.
func (w *Worker) happens(q *workQueue, at instant.Instant, out map[*workQueue]bool) bool {
	return q.rounded != 0 && (q.stirs > 0 || at < q.unsettled || q.waits || out[q] ||
		len(q.strange) > 0 || len(q.vacant) > 0 || len(q.set.Generations) > 1)
}

// idleEvery is how often an idle queue has a round: the more seldom, the more rows that takes, and
// the more seldom where bells tell of what others do. mu is held.
func (w *Worker) idleEvery() time.Duration {
	n := 0
	for _, q := range w.queues {
		n += max(1, q.set.Blocks)
	}
	if w.hearing() {
		return min(max(4*shareEvery, time.Duration(n)*3*time.Millisecond), seldomRound)
	}
	return min(max(shareEvery, time.Duration(n)*250*time.Microsecond), seldomRound)
}

// restate tells whether the others are to be told something else about this worker: whether it is
// busy with long jobs, or which kinds it does. mu is held.
func (w *Worker) restate() (changed bool) {
	busy := w.findBusy()
	says := ""
	if w.choice.picks {
		says = w.choice.does.text
	}
	changed = busy != w.isBusy || says != w.said
	w.isBusy, w.said = busy, says
	return changed
}

// findBusy tells whether the worker is busy with long jobs. mu is held.
func (w *Worker) findBusy() bool {
	if w.unasked != nil {
		return w.unasked()
	}
	long := 0
	for _, unit := range w.slots {
		if len(unit) > 0 && unit[0].from == tableRunning {
			long++
		}
	}
	if w.longs++; long < len(w.slots) || long == 0 {
		w.longs = 0
	}
	return w.longs >= longTicks
}

// longTicks is how often in a row all places must be found taken by long jobs, so that
// a worker counts as busy: those that are done soon are not worth the change.
const longTicks = 3

// tellRounds notes that there may be something to share in some queues; none: in all.
func (w *Worker) tellRounds(queues ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := instant.Now()
	if len(queues) == 0 {
		for _, q := range w.queues {
			q.told = at
		}
	}
	for _, id := range queues {
		for _, q := range w.queues {
			if q.id == id {
				q.told = at
			}
		}
	}
	w.nudge()
}

// stir has a block watched until it is still. mu is held.
func (w *Worker) stir(b *block) {
	if b.stirred || b.gone {
		return
	}
	b.stirred = true
	if w.stirred == nil {
		w.stirred = map[*block]bool{}
	}
	w.stirred[b] = true
	if b.q.stirs++; b.q.stirs == 1 && b.q.rounded != 0 && since(b.q.set.At) >= settingsEvery {
		w.nudge() // what it knows of the queue is old, and jobs may begin
	}
}

// calm forgets a block that is still. mu is held.
func (w *Worker) calm(b *block) {
	if b.stirred {
		b.stirred = false
		b.q.stirs--
		delete(w.stirred, b)
	}
}

// still tells whether nothing of a block is under way, or waits here for anything but a bell, a look,
// or a delayed job's time. mu is held.
func (b *block) still() bool { return !b.agitated() && !b.holdsSome() && b.reads.Level() }

// agitated tells whether a block is to be read, served or handed over. mu is held.
func (b *block) agitated() bool {
	return b.reads.Dirty || b.dues.Ripe || b.reads.Full || b.reads.Unseen || b.serving || b.queued || b.leaving || b.reads.Shaken || b.left ||
		b.reads.Whole == 0 || b.reads.Again != 0 || b.failures > 0 || b.accused > 0 || b.suspect > 0 ||
		b.waiting != 0 || b.kept != 0 || b.strand != ""
}

// holdsSome tells whether something is known of jobs of a block that have not ended. mu is held.
func (b *block) holdsSome() bool {
	waits := b.count + b.active + b.withheld + len(b.seen) + len(b.keyQueues) + len(b.aside) + len(b.barred)
	ends := len(b.acks) + len(b.moves) + len(b.missed) + len(b.forget) + len(b.lost) + len(b.refusals) + len(b.stuck)
	put := len(b.skipped) + len(b.gated) + len(b.resumed)
	return waits+ends+put > 0
}

// A glance is what a worker knew of its jobs before it read what the tables say.
type glance struct {
	out     map[store.JobID]*Delivery // checked out
	foreign map[*block]map[string]board.Turn
}

// glanceAt notes what is known of the jobs of some queues.
func (w *Worker) glanceAt(due []*workQueue) glance {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := glance{out: maps.Clone(w.out), foreign: map[*block]map[string]board.Turn{}}
	for _, q := range due {
		for _, b := range q.blocks {
			for key, l := range b.keyQueues {
				if turn, held := l.Holder(); held && turn.Away && !b.leaving {
					if g.foreign[b] == nil {
						g.foreign[b] = map[string]board.Turn{}
					}
					g.foreign[b][key] = turn
				}
			}
		}
	}
	return g
}

// refreshSettings reads the settings and limits of queues again that are old. If that fails, those
// count that were read last.
func (w *Worker) refreshSettings(ctx context.Context, due []*workQueue) error {
	names := map[int]string{}
	for _, q := range due {
		if since(q.set.At) >= settingsEvery {
			names[q.id] = q.name
		}
	}
	if len(names) == 0 {
		return nil
	}
	sets, limits, err := w.c.settingsOf(ctx, names)
	for _, q := range due {
		if set := sets[q.id]; set != nil {
			w.meet(q, set)
		}
		if bounds, read := limits[q.id]; read {
			w.limits.meetLimits(q, bounds)
		}
	}
	return err
}

// lookForDue looks when the next delayed job of each block of some queues is due.
func (w *Worker) lookForDue(ctx context.Context, due []*workQueue) (failed error) {
	var rows []sqlrun.Args
	byID := map[int]*workQueue{}
	w.mu.Lock()
	at := instant.Now()
	for _, q := range due {
		byID[q.id] = q
		for _, b := range q.blocks {
			if b.leaving {
				continue
			}
			from := b.dues.Horizon()
			if b.still() && at.Sub(b.swept) >= w.whole { // what was committed late
				from, b.swept = 0, at
			}
			rows = append(rows, sqlrun.Args{"queue": q.id, "block": b.divided, "since": from})
		}
	}
	w.mu.Unlock()
	for part := range slices.Chunk(rows, mostLooked) {
		failed = errors.Join(failed, w.db.Pipeline(ctx, &sqlrun.Step{ // for the sake of its plans
			Stmt: store.NextDelayed, Args: sqlrun.Args{"rows": part},
			Scan: func(row *sqlrun.Row) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				b := byID[int(row.Int(0))].blocks[int(row.Int(1))]
				if now, at := row.Int(2), row.Int(3); b != nil && !row.Null(3) && at < now+dueAhead.Microseconds() {
					if at < b.dues.Horizon() { // it was committed late
						b.dues.Anew()
					}
					b.dues.Saw(at)
					w.setDue(b, at)
				}
				return nil
			},
		}))
	}
	return failed
}

// dueAhead is how long before a delayed job is due a worker knows of it: longer than between two rounds.
const dueAhead = 4 * seldomRound
