package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
)

func init() {
	roles["effects producer"] = playEffectsProducer
	roles["effects worker"] = playEffectsWorker
}

// steppingClock is the server's clock plus an offset. The test changes the offset to step the
// clock of all processes at once.
func steppingClock(d *sqlrun.Dialect) string {
	return d.Add(d.Now, "(SELECT us FROM test_offset)")
}

// A link is one job of a chain. One goroutine enqueues the jobs of a chain in turn, all with one
// key, so their effects must come in this order.
type link struct {
	Chain string
	Seq   int
	Pad   string `json:",omitempty"`
}

// A producer enqueues chains and records acknowledged jobs in a journal.
type producer struct {
	*actor
	c       *queue.Client
	journal *os.File
	full    atomic.Bool // enough jobs wait: enqueue no more
}

// maxWaiting limits the waiting jobs approximately: the test has to finish those left at the end.
const maxWaiting = 2000

// watch keeps checking whether enough jobs wait.
func (p *producer) watch(ctx context.Context) {
	for wait(ctx, 200*time.Millisecond) == nil {
		n, err := adminOf(p.c).Count(ctx, p.Name, maxWaiting)
		p.full.Store(err == nil && n.Ready >= maxWaiting)
	}
}

// playEffectsProducer enqueues chains from several goroutines until told to stop.
func playEffectsProducer(ctx context.Context, a *actor) error {
	c, err := queue.New(a.db, queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	journal, err := os.OpenFile(a.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p := &producer{actor: a, c: c, journal: journal}
	ctx, stop := context.WithCancel(ctx)
	go func() {
		for order := range a.orders {
			if order == "stop" {
				stop()
			}
		}
	}()
	var all sync.WaitGroup
	all.Go(func() { p.watch(ctx) })
	for g := range a.Concurrency {
		all.Go(func() { p.produce(ctx, g) })
	}
	all.Wait()
	say("stopped")
	return nil
}

// produce starts one chain after the other. A chain ends after 200 jobs, or when the producer does
// not know whether its last job was enqueued.
func (p *producer) produce(ctx context.Context, g int) {
	for n := 0; ctx.Err() == nil; n++ {
		chain := fmt.Sprintf("%d-%d-%d", os.Getpid(), g, n)
		key := fmt.Sprintf("key-%d", rand.IntN(12)) // shared with other producers
		for seq := 1; seq <= 200 && ctx.Err() == nil; {
			if p.full.Load() {
				_ = wait(ctx, 50*time.Millisecond)
				continue
			}
			jobs := p.links(chain, key, seq, g%3)
			p.note("try", chain, seq+len(jobs)-1)
			inTime, err := p.enqueue(jobs, g%3)
			if err != nil {
				if errors.Is(err, queue.ErrInvalid) {
					say("error", err)
				}
				_ = wait(ctx, 20*time.Millisecond)
				break
			}
			seq += len(jobs)
			p.note("ack", chain, seq-1)
			if !inTime {
				break
			}
			_ = wait(ctx, time.Duration(rand.IntN(10))*time.Millisecond)
		}
	}
}

func (p *producer) note(what, chain string, seq int) {
	if _, err := fmt.Fprintf(p.journal, "%s %s %d\n", what, chain, seq); err != nil {
		say("error", err)
	}
}

// The ways to enqueue; the third is Enqueue.
const (
	enqueueMany = 1
	enqueueTx   = 2
)

// links makes the next jobs of a chain. One in a few hundred carries a payload of 1 MiB.
func (p *producer) links(chain, key string, seq, how int) []queue.Job {
	n := 1
	if how == enqueueMany {
		n = 1 + rand.IntN(20)
	}
	jobs := make([]queue.Job, n)
	for i := range jobs {
		l := link{Chain: chain, Seq: seq + i}
		if rand.IntN(400) == 0 {
			l.Pad = strings.Repeat("x", 1<<20-200)
		}
		payload, err := json.Marshal(l)
		if err != nil {
			say("error", err)
		}
		kind := "effect"
		switch at := rand.IntN(200); {
		case at == 0:
			kind = "slow"
		case at < 10:
			kind = "flaky"
		case at < 30:
			kind = "batch"
		}
		jobs[i] = queue.Job{Queue: p.Name, Kind: kind, Key: key, Payload: payload}
	}
	return jobs
}

// enqueue enqueues jobs. inTime is false if the transaction was so slow that queue.Window no
// longer promises its order.
func (p *producer) enqueue(jobs []queue.Job, how int) (inTime bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch how {
	case enqueueMany:
		_, err = p.c.EnqueueMany(ctx, jobs)
		return true, err
	case enqueueTx:
		tx, err := p.db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: p.db.Dialect.Isolation})
		if err != nil {
			return false, err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		begun := instant.Now()
		_, wake, err := p.c.EnqueueTx(ctx, tx, jobs...)
		if err != nil {
			return false, err
		}
		if err := tx.Commit(); err != nil {
			return false, err
		}
		wake()
		return instant.Now().Sub(begun) < queue.Window/2, nil
	}
	_, err = p.c.Enqueue(ctx, jobs[0])
	return true, err
}

// playEffectsWorker runs the links of chains. Each link appends itself to its chain in the
// transaction that completes the job.
func playEffectsWorker(ctx context.Context, a *actor) error {
	c, err := queue.New(a.db, queue.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		return err
	}
	batch := []int{2, 100}[rand.IntN(2)] // small ones make the worker put waiting jobs back
	w, err := c.Worker(queue.WorkerOptions{
		Queues: []string{a.Name}, Lease: a.TTL, Grace: 5 * time.Second,
		Concurrency: a.Concurrency, Batch: batch,
	})
	if err != nil {
		return err
	}
	one := func(ctx context.Context, d *queue.Delivery) error { return appendLinks(ctx, a.db, d) }
	err = errors.Join(
		w.Handle("effect", one),
		w.Handle("flaky", func(ctx context.Context, d *queue.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("the first attempt fails")
			}
			return one(ctx, d)
		}),
		w.Handle("slow", func(ctx context.Context, d *queue.Delivery) error {
			if err := wait(ctx, 1300*time.Millisecond); err != nil {
				return err
			}
			return one(ctx, d)
		}),
		w.HandleBatch("batch", queue.BatchOptions{Max: 10, ByKey: true}, func(ctx context.Context, batch []*queue.Delivery) error {
			if rand.IntN(4) == 0 {
				return errors.New("a batch fails now and then")
			}
			return appendLinks(ctx, a.db, batch...)
		}),
	)
	if err != nil {
		return err
	}
	a.runs(ctx, w)
	return nil
}

// appendLinks appends links to their chains and records those that are out of order.
func appendLinks(ctx context.Context, db *dialect.DB, batch ...*queue.Delivery) error {
	tx, err := db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: db.Dialect.Isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	for _, d := range batch {
		var l link
		if err := d.Decode(&l); err != nil {
			return err
		}
		text := fmt.Sprintf("UPDATE chain SET seq = %d WHERE name = '%s' AND seq = %d", l.Seq, l.Chain, l.Seq-1)
		if l.Seq == 1 {
			text = fmt.Sprintf("INSERT INTO chain (name, seq) VALUES ('%s', 1)", l.Chain)
		}
		r, err := tx.ExecContext(ctx, text)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil {
			return err
		} else if n == 0 {
			for _, text := range []string{ // and accept what follows as in order again
				fmt.Sprintf("INSERT INTO wrong (chain, seq, kind, attempt, pid) VALUES ('%s', %d, '%s', %d, %d)",
					l.Chain, l.Seq, d.Kind, d.Attempt, os.Getpid()),
				fmt.Sprintf("UPDATE chain SET seq = %d WHERE name = '%s' AND seq < %d", l.Seq, l.Chain, l.Seq),
			} {
				if _, err := tx.ExecContext(ctx, text); err != nil {
					return err
				}
			}
		}
		if err := d.CompleteTx(ctx, tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}
