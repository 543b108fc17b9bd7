package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/queue/admin"
)

// checksOut makes a worker check jobs out after the given time.
func checksOut(w *Worker, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slow = after
}

// settle reports the outcome of a job to another process.
func settle(t *testing.T, c *Client, claim Claim, err error) error {
	t.Helper()
	return c.SettleClaims(t.Context(), []ClaimOutcome{{Claim: claim, Err: err}})[0]
}

// givenFrom has a worker that gives a job out from where it is to stand.
func givenFrom(t *testing.T, c *Client, r *Receiver, job Job, where admin.State) *Delivery {
	t.Helper()
	checksOut(r.w, time.Hour)
	if where == admin.StateRunning {
		checksOut(r.w, 0)
	}
	if where == admin.StateDelayed {
		job.Delay = time.Millisecond
	}
	enqueue(t, c, job)
	d := receive(t, r, 1)[0]
	if where == admin.StateRunning {
		becomes(t, c, d.ID, admin.StateRunning)
	} else {
		info(t, c, d.ID, where)
	}
	return d
}

// Any process can say that a job is done, or has failed, wherever its row stands, once; the
// worker that has it finds out by itself.
func TestSettleClaims(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, elsewhere := client(t, db, Options{}), client(t, db, Options{})
		edit(t, c, func(q *admin.Queue) { q.KeepDone, q.RetryDelay, q.RetryMaxDelay = time.Hour, time.Hour, time.Hour })
		r := receiver(t, c, WorkerOptions{Grace: -1})
		for _, where := range []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning} {
			group, err := c.NewGroup(t.Context(), Group{})
			must(t, err)
			d := givenFrom(t, c, r, Job{Kind: "x", Unique: "u", Group: group, Priority: Low}, where)
			errs := elsewhere.SettleClaims(t.Context(), []ClaimOutcome{{Claim: d.Claim(), Result: json.RawMessage(`{"n":1}`)}})
			must(t, errs[0])
			if i := info(t, c, d.ID, admin.StateDone); i.Attempts != 1 {
				t.Errorf("%s: it is %+v", where, i)
			}
			made, _, err := c.ResultsAfter(t.Context(), group, 0, 9)
			if err != nil || len(made) != 1 || string(made[0].Result) != `{"n":1}` || made[0].State != "done" {
				t.Errorf("%s: results %+v, %v", where, made, err)
			}
			want(t, "twice", settle(t, elsewhere, d.Claim(), nil), ErrLost)
			checksOut(r.w, 0)
			received(t, "its worker finds out", d.Context().Done())
			want(t, "at its worker", r.Complete(t.Context(), d), ErrLost)

			d = givenFrom(t, c, r, Job{Kind: "x", Unique: "u", MaxAttempts: 2}, where) // its key is free
			claim := d.Claim()
			must(t, settle(t, elsewhere, claim, RetryAfter(time.Hour, errTest)))
			if i := info(t, c, d.ID, admin.StateDelayed); i.Attempts != 1 || !strings.Contains(i.Error, "failed") {
				t.Errorf("%s: it is %+v", where, i)
			}
			want(t, "failed twice", settle(t, elsewhere, claim, errTest), ErrLost)
			checksOut(r.w, 0)
			received(t, "its worker finds out", d.Context().Done())
			must(t, adminOf(c).RunNow(t.Context(), "", d.ID))
			again := receive(t, r, 1)[0]
			if again.ID != d.ID || again.Attempt != 2 {
				t.Errorf("%s: %d comes, attempt %d", where, again.ID, again.Attempt)
			}
			want(t, "with the claim of the attempt before", settle(t, elsewhere, claim, nil), ErrLost)
			must(t, settle(t, elsewhere, again.Claim(), errTest))
			info(t, c, d.ID, admin.StateDead)

			d = givenFrom(t, c, r, Job{Kind: "x", Unique: "u"}, where)
			must(t, settle(t, elsewhere, d.Claim(), Discard(errTest)))
			info(t, c, d.ID, admin.StateDone)
		}
		finished, err := adminOf(c).Finished(t.Context(), time.Hour)
		must(t, err)
		if len(finished) != 1 || finished[0].Done != 6 || finished[0].Failed != 3 || finished[0].Dead != 3 {
			t.Errorf("counted %+v", finished)
		}
		empty(t, db)
	})
}

// A job that has failed elsewhere holds its key, and one that is done elsewhere releases it.
func TestSettleClaimsInOrder(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c, elsewhere := client(t, db, Options{}), client(t, db, Options{})
		edit(t, c, impatient)
		r := receiver(t, c, WorkerOptions{Grace: -1})
		for _, slow := range []time.Duration{0, 20 * time.Millisecond} {
			checksOut(r.w, slow)
			var jobs []Job
			for range 4 {
				jobs = append(jobs, Job{Kind: "x", Key: "k"})
			}
			for _, id := range enqueueMany(t, c, jobs) {
				for attempt := 1; attempt <= 3; attempt++ {
					d := receive(t, r, 1)[0]
					if d.ID != id || d.Attempt != attempt {
						t.Fatalf("%d comes, attempt %d, instead of %d, %d; there are %v", d.ID, d.Attempt, id, attempt, left(t, db.DB))
					}
					err := errTest
					if attempt == 3 {
						err = nil
					}
					must(t, settle(t, elsewhere, d.Claim(), err))
				}
			}
		}
		empty(t, db)
	})
}

// Jobs of several blocks are settled with one call, each as it should be.
func TestSettleManyClaims(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c, elsewhere := client(t, db, Options{Blocks: 4}), client(t, db, Options{})
		r := receiver(t, c, WorkerOptions{Grace: -1})
		checksOut(r.w, 0) // some are checked out by then
		var jobs []Job
		for i := range 60 {
			jobs = append(jobs, Job{Kind: "x", Priority: 1 + i%Idle})
		}
		enqueueMany(t, c, jobs)
		var all []ClaimOutcome
		for i, d := range receive(t, r, len(jobs)) {
			o := ClaimOutcome{Claim: d.Claim()}
			if i%3 == 1 {
				o.Err = Bury(errTest)
			}
			all = append(all, o, ClaimOutcome{Claim: d.Claim()})
			all[len(all)-1].Claim.Node = "another"
		}
		for i, err := range elsewhere.SettleClaims(t.Context(), all) {
			if i%2 == 0 && err != nil || i%2 == 1 && !errors.Is(err, ErrLost) {
				t.Fatalf("%d: %v", i, err)
			}
		}
		n, err := adminOf(c).Count(t.Context(), "", 100)
		must(t, err)
		if n.Dead != 20 {
			t.Errorf("%+v", n)
		}
		empty(t, db)
	})
}

// A claim is good as long as the worker that gave the job out has it: its block, and is
// live.
func TestSettleStale(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		of := Claim{Node: "me", Queue: "q", Block: 3, Fence: 5, Priority: Normal, Attempt: 1}
		for i, test := range []struct {
			change         string
			ready, running bool
		}{
			{`UPDATE {prefix}node SET heartbeats = 1`, true, true},
			{`UPDATE {prefix}queue_block SET state = 'FREE'`, false, true},
			{`UPDATE {prefix}queue_block SET fence = 6`, false, true},
			{`UPDATE {prefix}node SET state = 'gone' WHERE name = 'me'`, false, false},
			{`UPDATE {prefix}node SET expire_at = {now + -1000000} WHERE name = 'me'`, false, false},
			{`DELETE FROM {prefix}node WHERE name = 'me'`, false, false},
			{`UPDATE {prefix}job_running SET lock_by = 'left'`, true, false},
		} {
			for id, good := range map[int64]bool{7: test.ready, 17: test.ready, 27: test.running} {
				for _, outcome := range []error{nil, errTest, Bury(errTest)} {
					world(t, db)
					byHand(t, db, `UPDATE {prefix}job_running SET attempt = 1`,
						`INSERT INTO {prefix}node (name, state, expire_at) VALUES ('another', 'live', `+ahead+`)`, test.change)
					claim := of
					claim.Job = id
					err := settle(t, c, claim, outcome)
					if good && err != nil || !good && !errors.Is(err, ErrLost) {
						t.Errorf("%d: job %d, with %v: %v", i, id, outcome, err)
					}
				}
			}
		}
		world(t, db)
		for what, claim := range map[string]Claim{
			"queue": {Node: "me", Queue: "none", Block: 3, Fence: 5, Priority: 2, Attempt: 1, Job: 7},
			"block": {Node: "me", Queue: "q", Block: 4, Fence: 5, Priority: 2, Attempt: 1, Job: 7},
			"place": {Node: "me", Queue: "q", Block: 3, Fence: 5, Priority: 99, Attempt: 1, Job: 7},
			"below": {Node: "me", Queue: "q", Block: 3, Fence: 5, Priority: -1, Attempt: 1, Job: 7},
			"tries": {Node: "me", Queue: "q", Block: 3, Fence: 5, Priority: 2, Attempt: 2, Job: 7},
			"job":   {Node: "me", Queue: "q", Block: 3, Fence: 5, Priority: 2, Attempt: 1, Job: 6},
		} {
			want(t, what, settle(t, c, claim, nil), ErrLost)
		}
		for name, live := range map[string]bool{"me": true, "left": false, "nobody": false} {
			if got, err := adminOf(c).NodeLives(t.Context(), name); err != nil || got != live {
				t.Errorf("%s lives: %v, %v", name, got, err)
			}
		}
	})
}

// A worker that has handed over, or was lost, has none of its claims any more.
func TestClaimsEnd(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c, elsewhere := client(t, db, Options{}), client(t, db, Options{})
		for _, slow := range []time.Duration{0, time.Hour} {
			r := receiver(t, c, WorkerOptions{Grace: -1})
			checksOut(r.w, slow)
			id := enqueue(t, c, Job{Kind: "x"})
			d := receive(t, r, 1)[0]
			if slow == 0 {
				becomes(t, c, id, admin.StateRunning)
			}
			claim := d.Claim()
			must(t, r.Close())
			for _, err := range []error{nil, errTest} {
				want(t, fmt.Sprint("after the close, ", err), settle(t, elsewhere, claim, err), ErrLost)
			}
			r = receiver(t, elsewhere, WorkerOptions{Grace: -1})
			d = receive(t, r, 1)[0]
			if d.ID != id || d.Attempt != 1 {
				t.Errorf("%d comes, attempt %d", d.ID, d.Attempt)
			}
			must(t, settle(t, c, d.Claim(), nil))
			must(t, r.Close())
		}
		empty(t, db)
	})
}

// waitAt waits until n callers wait at a receiver.
func waitAt(t *testing.T, r *Receiver, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " wait"), func() bool {
		r.w.mu.Lock()
		defer r.w.mu.Unlock()
		return len(r.waiting) == n
	})
}

// Waiting callers get jobs in the order in which they came; one that has left gets none, and
// takes none with it.
func TestReceiveInTurn(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		r := receiver(t, c, WorkerOptions{Grace: -1})
		answers := make([]chan []*Delivery, 4)
		leave := make([]context.CancelFunc, len(answers))
		for i := range answers {
			var ctx context.Context
			ctx, leave[i] = context.WithCancel(t.Context())
			defer leave[i]()
			answers[i] = make(chan []*Delivery, 1)
			go func() {
				got, _ := r.Receive(ctx, 2, longWait)
				answers[i] <- got
			}()
			waitAt(t, r, i+1)
		}
		leave[1]()
		if got := received(t, "one leaves", answers[1]); len(got) != 0 {
			t.Errorf("one who has left got %d", len(got))
		}
		waitAt(t, r, 3)
		for n, i := range []int{0, 2, 3} {
			id := enqueue(t, c, Job{Kind: "x"})
			got := received(t, fmt.Sprint(i, " gets one"), answers[i])
			if len(got) != 1 || got[0].ID != id {
				t.Fatalf("%d got %v", i, got)
			}
			must(t, r.Complete(t.Context(), got[0]))
			waitAt(t, r, 2-n)
		}
		empty(t, db)
	})
}

// Before an empty answer, the database is read: a job that exists when a caller asks is found
// without a wait.
func TestReceiveLooks(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c, elsewhere := client(t, db, Options{}), client(t, db, Options{})
		for range 5 {
			enqueue(t, elsewhere, Job{Kind: "x"})
		}
		r := receiver(t, c, WorkerOptions{Grace: -1})
		for i := range 10 {
			if i >= 5 {
				enqueue(t, elsewhere, Job{Kind: "x"})
			}
			got, err := r.Receive(t.Context(), 1, 0)
			must(t, err)
			if len(got) != 1 {
				t.Fatalf("%d: got %d", i, len(got))
			}
			must(t, r.Complete(t.Context(), got[0]))
		}
		got, err := r.Receive(t.Context(), 1, 0)
		if len(got) > 0 || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// What is received at a time has no more bytes than a program can hold.
func TestReceiveBytes(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{Blocks: 1})
		r := receiver(t, c, WorkerOptions{Grace: -1})
		payload := []byte(`"` + strings.Repeat("x", 1<<20-2) + `"`)
		for range 20 {
			enqueue(t, c, Job{Kind: "x", Payload: payload})
		}
		eventually(t, "all were read", func() bool {
			r.w.mu.Lock()
			defer r.w.mu.Unlock()
			return len(r.w.runnable) == 1 && r.w.queues[0].blocks[0].Count == 20
		})
		got, err := r.Receive(t.Context(), 100, longWait)
		must(t, err)
		if len(got) != 16 {
			t.Errorf("got %d", len(got))
		}
	})
}

// A job that another process has ended does not come once more, if its worker learns of that
// while it reads the block, and has begun to read before.
func TestEndedElsewhereDuringARead(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		w, b := idleWorker(t, db)
		enqueue(t, w.c, Job{Kind: "x"})
		take := func() *Delivery {
			w.mu.Lock()
			defer w.mu.Unlock()
			d := w.popReady()
			if d != nil {
				w.taken[d] = true
			}
			return d
		}
		flushOnce(t, w, b, func() {})
		d := take()
		if d == nil {
			t.Fatal("the job was not read")
		}
		w.mu.Lock()
		b.Reads.Distrust() // so that it reads all
		w.mu.Unlock()
		flushOnce(t, w, b, func() {
			must(t, settle(t, client(t, db, Options{}), d.Claim(), nil))
			w.mu.Lock()
			defer w.mu.Unlock()
			d.ctx.end(ErrLost)
			w.giveUpLost(d)
		})
		if again := take(); again != nil {
			t.Errorf("job %d comes again, attempt %d, after it was done", again.ID, again.Attempt)
		}
		flushOnce(t, w, b, func() {})
		if again := take(); again != nil || b.Known() > 0 {
			t.Errorf("then %v comes, and %d are remembered", again, b.Known())
		}
		empty(t, db)
	})
}
