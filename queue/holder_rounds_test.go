package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
)

// A round of many queues asks no more than one of a single queue, once nothing happens in them; and it
// takes in the settings, limits and delayed jobs of each.
func TestRoundsOfManyQueues(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		var asked atomic.Int64
		counted := db.Broken(t, &dbtest.Fault{Random: func() (broken, after bool) { asked.Add(1); return false, false }})
		c := client(t, counted, Options{Blocks: 2})
		names := make([]string, 30)
		for i := range names {
			names[i] = fmt.Sprint("q", i)
			_, err := adminOf(c).Edit(t.Context(), names[i], func(q *admin.Queue) { q.MaxAttempts = i + 1 })
			must(t, err)
			_, err = adminOf(c).EditLimit(t.Context(), names[i], "x", func(l *admin.Limit) { l.Running = i + 1 })
			must(t, err)
		}
		w := worker(t, c, WorkerOptions{Queues: names, Lease: longWait})
		must(t, w.tryBegin(t.Context()))
		must(t, w.shareQueues(t.Context(), w.queues, w.lease.node)) // it says that it is there, and takes the blocks
		round := func(queues []*workQueue) int64 {
			for _, q := range queues {
				q.set.At = 0 // as old as can be
			}
			before := asked.Load()
			must(t, w.shareQueues(t.Context(), queues, w.lease.node))
			return asked.Load() - before
		}
		one, all := round(w.queues[:1]), round(w.queues)
		if one != all || all == 0 {
			t.Errorf("a round of one queue asks %d times, and one of %d queues %d times", one, len(names), all)
		}
		_, err := db.Exec(t.Context(), sqlrun.Unlisted(`UPDATE {prefix}queue SET retry_delay = '99999999d' WHERE name = 'q3'`), nil)
		must(t, err)
		for _, name := range names {
			_, err := adminOf(c).Edit(t.Context(), name, func(q *admin.Queue) { q.MaxAttempts += 100 })
			must(t, ignoring(err, name == "q3"))
		}
		for _, q := range w.queues {
			q.set.At = 0
		}
		must(t, w.shareQueues(t.Context(), w.queues, w.lease.node)) // settings that cannot be read harm no other queue
		for i, q := range w.queues {
			want := i + 101
			if i == 3 { // nobody could change them
				want = i + 1
			}
			if (q.set.Wrong != "") != (i == 3) {
				t.Errorf("queue %s: wrong is %q", q.name, q.set.Wrong)
			}
			if g := q.limits.Of("x"); q.set.MaxAttempts != want || len(q.blocks) != 2 || g == nil || g.Limit().Running != i+1 {
				t.Errorf("queue %s: %d attempts, not %d; %d blocks; limiter %v", q.name, q.set.MaxAttempts, want, len(q.blocks), g)
			}
		}
	})
}

// ignoring is an error, unless it is expected.
func ignoring(err error, expected bool) error {
	if expected {
		return nil
	}
	return err
}

// A pulse changes when processes come, go, are late or drained, and not when they renew their leases.
func TestBeat(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		feel := func() membership {
			b, err := c.readMembership(t.Context())
			must(t, err)
			return b
		}
		node := func(name, state, expires, started string, drained bool) {
			at := "NULL"
			if drained {
				at = "{now}"
			}
			byHand(t, db, fmt.Sprintf(`INSERT INTO {prefix}node (name, state, expire_at, started_at, drained_at) VALUES ('%s', '%s', %s, %s, %s)`,
				name, state, expires, started, at))
		}
		node("e", "live", ahead, ago, false) // the oldest, and the same all the time
		node("a", "live", ahead, ago, false)
		was := feel()
		if was.live != 2 || was.late != 0 || was.drained != 0 {
			t.Errorf("two processes are %+v", was)
		}
		byHand(t, db, `UPDATE {prefix}node SET expire_at = {now + 7200000000}, heartbeats = 9`)
		if now := feel(); !now.same(&was) {
			t.Errorf("a renewal makes %+v of %+v", now, was)
		}
		for _, change := range []func(){
			func() { node("b", "live", ago, ago, false) },
			func() { byHand(t, db, `UPDATE {prefix}node SET expire_at = `+ahead+` WHERE name = 'b'`) },
			func() { byHand(t, db, `UPDATE {prefix}node SET drained_at = {now} WHERE name = 'b'`) },
			func() { byHand(t, db, `UPDATE {prefix}node SET state = 'gone' WHERE name = 'b'`) },
			func() {
				byHand(t, db, `UPDATE {prefix}node SET state = 'lost' WHERE name = 'a'`)
				node("c", "live", ahead, "{now}", false)
			},
		} {
			was := feel()
			if change(); !ptr(feel()).same(&was) {
				continue
			}
			t.Errorf("a change leaves %+v", was)
		}
		node("d", "gone", ahead, ahead, true)
		if now := feel(); now.live != 2 || now.late != 0 || now.drained != 0 || now.newest > c.Now().Add(time.Minute).UnixMicro() {
			t.Errorf("those that are live are %+v", now)
		}
	})
}

func ptr(b membership) *membership { return &b }

// Those who come while a question is under way share the next one, and no answer is older than its
// question. Whoever is stopped keeps nobody else from an answer.
func TestGatherer(t *testing.T) {
	t.Parallel()
	var asked [][]int
	under, goOn := make(chan bool), make(chan bool)
	g := newGatherer(func(ctx context.Context, keys []int) (int, error) {
		asked = append(asked, slices.Sorted(slices.Values(keys)))
		n := len(asked)
		under <- true
		select {
		case <-goOn:
			return n, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	answers := make([]int, 5)
	var all sync.WaitGroup
	ask := func(ctx context.Context, i int) {
		all.Go(func() {
			n, err := g.get(ctx, i)
			if answers[i] = n; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	joined := func(n int) {
		eventually(t, "they wait", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.next != nil && len(g.next.keys) == n
		})
	}
	ask(t.Context(), 0)
	<-under
	ctx, stop := context.WithCancel(t.Context())
	ask(ctx, 1)
	joined(1)
	ask(t.Context(), 2)
	ask(t.Context(), 3)
	joined(3)
	goOn <- true
	<-under
	stop() // who asks for the three
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	for waits := true; waits; { // two or three ask again, together or not
		select {
		case <-under:
			goOn <- true
		case <-over:
			waits = false
		}
	}
	if got := fmt.Sprint(asked); got != "[[0] [1 2 3] [2 3]]" && got != "[[0] [1 2 3] [2] [3]]" && got != "[[0] [1 2 3] [3] [2]]" {
		t.Errorf("asked were %s", got)
	}
	if answers[0] != 1 || answers[1] != 0 || answers[2] < 3 || answers[3] < 3 {
		t.Errorf("answers are %v", answers)
	}
}

// A block counts as still only when nothing is known of its jobs, and its worker does not watch it
// then. A job that is enqueued has it watched until it is done and nothing can come below the cursor.
func TestStillBlocks(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 4})
		w := worker(t, c, WorkerOptions{})
		did := make(chan int64, 1)
		handle(t, w, "x", func(_ context.Context, d *Delivery) error { did <- d.ID; return nil })
		start(t, w)
		still := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.queues[0].blocks) == 4 && len(w.stirred) == 0 && w.queues[0].stirs == 0
		}
		eventually(t, "all blocks are still", still)
		for range 2 {
			id := enqueue(t, c, Job{Kind: "x"})
			if got := received(t, "it is done", did); got != id {
				t.Errorf("%d was done, not %d", got, id)
			}
			eventually(t, "all blocks are still again", still)
		}
		enqueue(t, c, Job{Kind: "x", RunAt: c.Now().Add(50 * time.Millisecond)})
		received(t, "a delayed job is done", did)
		w.mu.Lock() // long after all was read: a look finds that nothing came late
		old := instant.Now().Add(-time.Hour)
		for _, b := range w.queues[0].blocks {
			b.Reads.Whole = old
		}
		w.mu.Unlock()
		eventually(t, "all are read from the beginning", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, b := range w.queues[0].blocks {
				if b.Reads.Whole == old {
					return false
				}
			}
			return true
		})
		eventually(t, "and still", still)
	})
}

// No look is made for the next delayed job of a block that is read because some are due, or that is
// handed over.
func TestDueRows(t *testing.T) {
	b, due, leaving := newBlock(1), newBlock(1), newBlock(1)
	b.Dues.Ripe, due.Dues.Ripe, leaving.Dues.Ripe, leaving.Leaving = false, true, false, true
	q := &workQueue{h: b.q.h, blocks: map[int]*tenure{1: b, 2: due, 3: leaving}}
	rows := b.q.h.dueRows([]*workQueue{q})
	if len(rows) != 1 || rows[0].b != b {
		t.Errorf("a round looks at %d blocks", len(rows))
	}
}
