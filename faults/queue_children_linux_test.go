package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/queue"
)

// The queue tests run this program again as the worker processes. All write to one file, a line for
// each start and end of a job. The file puts the lines of all processes in order.

func init() {
	roles["queue worker"] = playQueueWorker
}

// A diary is the file that all workers of a test append to.
type diary struct{ file *os.File }

func openDiary(name string) (diary, error) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return diary{file}, err
}

// write appends a line. One call is one write.
func (d diary) write(what string, j *queue.Delivery) {
	key := j.Key
	if key == "" {
		key = "-"
	}
	if _, err := fmt.Fprintf(d.file, "%s %d %s %s %d %d\n", what, j.ID, j.Kind, key, j.Attempt, os.Getpid()); err != nil {
		panic(err)
	}
}

func playQueueWorker(ctx context.Context, a *actor) error {
	log, err := openDiary(a.File)
	if err != nil {
		return err
	}
	c, err := queue.New(a.db, queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{
		Queues: strings.Fields(a.Name), Lease: a.TTL, Grace: 5 * time.Second, Concurrency: max(1, a.Concurrency),
	})
	if err != nil {
		return err
	}
	kinds := map[string]queue.Handler{
		"plain": func(context.Context, *queue.Delivery) error { return nil },
		"flaky": func(_ context.Context, d *queue.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("the first attempt fails")
			}
			return nil
		},
		"brief":    func(ctx context.Context, _ *queue.Delivery) error { return wait(ctx, 20*time.Millisecond) },
		"slow":     func(ctx context.Context, _ *queue.Delivery) error { return wait(ctx, 1500*time.Millisecond) },
		"four":     func(ctx context.Context, _ *queue.Delivery) error { return wait(ctx, 4*time.Second) },
		"long":     func(ctx context.Context, _ *queue.Delivery) error { return wait(ctx, time.Hour) },
		"tx":       func(ctx context.Context, d *queue.Delivery) error { return effect(ctx, a.db, d, d.ID) },
		"grouped":  func(_ context.Context, d *queue.Delivery) error { return d.SetResult(d.Attempt) },
		"callback": func(ctx context.Context, d *queue.Delivery) error { return effect(ctx, a.db, d, d.Callback) },
		"poison": func(context.Context, *queue.Delivery) error {
			return unix.Kill(os.Getpid(), unix.SIGKILL)
		},
	}
	for kind, work := range kinds {
		err := w.Handle(kind, func(ctx context.Context, d *queue.Delivery) error {
			log.write("start", d)
			if err := work(ctx, d); err != nil {
				if errors.Is(context.Cause(ctx), queue.ErrLost) {
					log.write("lost", d)
				}
				return err
			}
			log.write("end", d)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := w.HandleBatch("bulk", queue.BatchOptions{Max: 20}, func(ctx context.Context, all []*queue.Delivery) error {
		for _, d := range all {
			log.write("start", d)
		}
		if err := wait(ctx, 1500*time.Millisecond); err != nil {
			return err
		}
		for _, d := range all {
			log.write("end", d)
		}
		return nil
	}); err != nil {
		return err
	}
	a.runs(ctx, w)
	return nil
}

// runs runs a worker until the actor is told to stop.
func (a *actor) runs(ctx context.Context, w *queue.Worker) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for order := range a.orders {
			if order == "stop" {
				stop()
			}
		}
	}()
	say("stopped", w.Run(ctx))
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// effect records a job in the database, which must happen exactly once.
func effect(ctx context.Context, db *dialect.DB, d *queue.Delivery, about int64) error {
	tx, err := db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: db.Dialect.Isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, "INSERT INTO effects (job) VALUES ("+strconv.FormatInt(about, 10)+")"); err != nil {
		return err
	}
	if err := d.CompleteTx(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}

// A line is a line of a diary.
type line struct {
	what, kind, key string
	id              int64
	attempt, pid    int
}

func readDiary(name string) ([]line, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var all []line
	for row := range strings.Lines(string(text)) {
		var l line
		if _, err := fmt.Sscan(row, &l.what, &l.id, &l.kind, &l.key, &l.attempt, &l.pid); err != nil {
			return nil, fmt.Errorf("%q: %w", row, err)
		}
		if l.key == "-" {
			l.key = ""
		}
		all = append(all, l)
	}
	return all, nil
}
