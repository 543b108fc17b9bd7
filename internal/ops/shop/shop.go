// Package shop is the workload of dbcron demo: a made-up shop, whose schedules run every few seconds, whose jobs succeed, fail and
// die, and whose locks change hands.
package shop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// A Shop is the demo's workload. Everything in it is real, except for what its jobs and commands do.
type Shop struct {
	db  *dialect.DB
	c   *queue.Client
	log *slog.Logger
}

// The queues of the shop.
const (
	ordersQueue     = "orders"
	mailQueue       = "mail"
	thumbnailsQueue = "thumbnails"
	exportsQueue    = "exports"
)

// New creates queues, schedules and limits, and some initial jobs.
func New(ctx context.Context, db *dialect.DB, log *slog.Logger) (*Shop, error) {
	c, err := queue.New(db, queue.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	ops, err := admin.New(db, admin.Options{})
	if err != nil {
		return nil, err
	}
	s := &Shop{db: db, c: c, log: log}
	for _, spec := range schedules() {
		if err := scheduler.Add(ctx, db, spec); err != nil {
			return nil, err
		}
	}
	if err := scheduler.Pause(ctx, db, "christmas-sale", "until 1 December"); err != nil {
		return nil, err
	}
	first := make([]queue.Job, 0, 40)
	for i := range cap(first) {
		first = append(first, queue.Job{Queue: exportsQueue, Kind: "invoice.export", Payload: fmt.Appendf(nil, `{"invoice":%d}`, 20_400+i)})
	}
	first = append(first,
		queue.Job{Queue: mailQueue, Kind: "newsletter", Delay: 3 * time.Hour, Payload: []byte(`{"edition":48}`)},
		queue.Job{Queue: ordersQueue, Kind: "order.remind", Delay: 26 * time.Hour, Key: "customer-4207", Payload: []byte(`{"order":"A-10077"}`)})
	if _, err := c.EnqueueMany(ctx, first); err != nil {
		return nil, err
	}
	for _, name := range []string{mailQueue, ordersQueue, thumbnailsQueue} {
		if _, err := ops.Edit(ctx, name, func(q *admin.Queue) {
			q.MaxAttempts, q.RetryDelay, q.RetryMaxDelay = 3, 2*time.Second, 20*time.Second
		}); err != nil {
			return nil, err
		}
	}
	if _, err := ops.EditLimit(ctx, mailQueue, "", func(l *admin.Limit) { l.Rate, l.Per, l.Burst = 8, time.Second, 8 }); err != nil {
		return nil, err
	}
	return s, ops.Pause(ctx, exportsQueue, "the ledger moves to its new server tonight")
}

// schedules returns the shop's schedules: some for each situation that an operator meets.
func schedules() []scheduler.Schedule {
	retry := scheduler.Policy{MaxAttempts: 2, RetryDelay: 2 * time.Second}
	return []scheduler.Schedule{
		{Name: "stock-sync", Spec: "@every 7s", Command: "echo 'asking the warehouse'; sleep 1; echo '214 articles, 3 changed'"},
		{
			Name: "prices-import", Spec: "@every 15s",
			Command: "echo 'connecting to prices.example.com:5432'; echo 'connection refused' >&2; exit 3", Policy: retry,
		},
		{Name: "search-index", Spec: "@every 20s", Command: "for part in 1 2 3 4 5; do echo \"part $part of 5\"; sleep 5; done"},
		{Name: "backup", Spec: "30 3 * * *", Zone: "Europe/Berlin", Command: "echo 'dumping the database'; sleep 2; echo done"},
		{Name: "weekly-report", Spec: "0 6 * * 1", Zone: "America/New_York", Command: "echo 'the report of the week'"},
		{Name: "abandoned-carts", Spec: "@every 11s", Kind: "job", Command: "cart.remind", Job: scheduler.JobOptions{Queue: mailQueue}},
		{Name: "statistics", Spec: "@every 1m", Kind: "sql", Command: "ANALYZE"},
		{Name: "christmas-sale", Spec: "0 0 1 12 *", Command: "echo 'all at half the price'"},
		{Name: "recalculate-all", Spec: "@manual", Command: "sleep 3; echo 'recalculated'"},
	}
}

// Live runs the shop until the context ends, and then reports what went wrong.
func (s *Shop) Live(ctx context.Context) <-chan error {
	closed := make(chan error, 1)
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, part := range []func(context.Context) error{s.work, s.slowWork, s.customers, s.photographers, s.warehouse, s.rivals} {
		all.Go(func() {
			if err := part(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("a part of the demo has ended", "err", err)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	go func() {
		all.Wait()
		closed <- errors.Join(errs...)
	}()
	return closed
}

// work runs the fast handlers.
func (s *Shop) work(ctx context.Context) error {
	w, err := s.c.Worker(queue.WorkerOptions{Queues: []string{ordersQueue, mailQueue}, Concurrency: 8, Grace: -1})
	if err != nil {
		return err
	}
	for kind, do := range map[string]queue.Handler{
		"order.pack": func(ctx context.Context, _ *queue.Delivery) error {
			return takes(ctx, 30*time.Millisecond, 300*time.Millisecond)
		},
		"order.pay": func(ctx context.Context, _ *queue.Delivery) error {
			err := takes(ctx, 50*time.Millisecond, 200*time.Millisecond)
			switch luck := rand.Float64(); {
			case err != nil:
				return err
			case luck < 0.02:
				return queue.Bury(errors.New("the bank refuses: card expired"))
			case luck < 0.1:
				return errors.New("POST https://bank.example.com/charge: 503 Service Unavailable")
			}
			return nil
		},
		"order.confirm": s.mail, "cart.remind": s.mail, "newsletter": s.mail,
		"order.remind": func(context.Context, *queue.Delivery) error { return nil },
	} {
		if err := w.Handle(kind, do); err != nil {
			return err
		}
	}
	return w.Run(ctx)
}

// mail is a handler of jobs that sometimes fail, as a mail server does.
func (s *Shop) mail(ctx context.Context, _ *queue.Delivery) error {
	err := takes(ctx, 20*time.Millisecond, 120*time.Millisecond)
	switch luck := rand.Float64(); {
	case err != nil:
		return err
	case luck < 0.03:
		return queue.Bury(fmt.Errorf("550 5.1.1 <customer-%d@example.org>: no such user here", 4200+rand.IntN(30)))
	case luck < 0.12:
		return errors.New("dial tcp 192.0.2.25:25: i/o timeout")
	}
	return nil
}

// slowWork runs handlers that take long and report progress.
func (s *Shop) slowWork(ctx context.Context) error {
	w, err := s.c.Worker(queue.WorkerOptions{Queues: []string{thumbnailsQueue}, Concurrency: 3, Grace: -1})
	if err != nil {
		return err
	}
	if err := w.Handle("photo.scale", func(ctx context.Context, d *queue.Delivery) error {
		const sizes = 4
		for n := range sizes {
			if err := d.SetProgress(ctx, queue.Progress{Percent: 100 * n / sizes, Message: fmt.Sprintf("size %d of %d", n+1, sizes)}); err != nil {
				return err
			}
			if err := takes(ctx, 300*time.Millisecond, 900*time.Millisecond); err != nil {
				return err
			}
		}
		if rand.Float64() < 0.05 {
			return errors.New("libjpeg: premature end of file after 48213 bytes")
		}
		return nil
	}); err != nil {
		return err
	}
	if err := w.Handle("gallery.publish", func(context.Context, *queue.Delivery) error { return nil }); err != nil {
		return err
	}
	return w.Run(ctx)
}

// customers enqueues orders at a varying rate.
func (s *Shop) customers(ctx context.Context) error {
	for n := 0; ; n++ {
		customer := fmt.Sprint("customer-", 4200+rand.IntN(30))
		order := fmt.Appendf(nil, `{"order":"A-%d","customer":%q,"amount":"%d.%02d","items":[{"sku":"B-%d","n":%d}]}`,
			10_100+n, customer, 5+rand.IntN(200), rand.IntN(100), rand.IntN(900), 1+rand.IntN(4))
		if _, err := s.c.EnqueueMany(ctx, []queue.Job{
			{Queue: ordersQueue, Kind: "order.pay", Key: customer, Payload: order},
			{Queue: ordersQueue, Kind: "order.pack", Key: customer, Payload: order},
			{Queue: mailQueue, Kind: "order.confirm", Payload: order},
		}); err != nil {
			return err
		}
		pace := 150 * time.Millisecond
		if n/100%2 == 1 { // slower for a while
			pace = 500 * time.Millisecond
		}
		if err := takes(ctx, pace/2, 3*pace/2); err != nil {
			return nil
		}
	}
}

// photographers enqueues galleries, each as a group of jobs.
func (s *Shop) photographers(ctx context.Context) error {
	for n := 1; ; n++ {
		photos := make([]queue.Job, 20+rand.IntN(20))
		for i := range photos {
			photos[i] = queue.Job{
				Queue: thumbnailsQueue, Kind: "photo.scale",
				Payload: fmt.Appendf(nil, `{"gallery":%d,"photo":"IMG_%04d.jpg"}`, n, 1000*n%9000+i),
			}
		}
		if _, _, err := s.c.EnqueueGroup(ctx, queue.Group{
			Name:     fmt.Sprint("gallery ", n),
			Callback: &queue.Job{Queue: thumbnailsQueue, Kind: "gallery.publish"},
		}, photos...); err != nil {
			return err
		}
		if err := takes(ctx, 15*time.Second, 25*time.Second); err != nil {
			return nil
		}
	}
}

// warehouse holds a lock for as long as the demo lasts.
func (s *Shop) warehouse(ctx context.Context) error {
	locker, err := lock.New(s.db, lock.Options{Owner: "warehouse-2", TTL: 10 * time.Second, Meta: "counts the stock of hall B", Logger: s.log})
	if err != nil {
		return err
	}
	return locker.Do(ctx, "stock-count", func(ctx context.Context, _ *lock.Lease) error {
		<-ctx.Done()
		return nil
	})
}

// rivals take a lock by turns.
func (s *Shop) rivals(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		all.Go(func() {
			locker, err := lock.New(s.db, lock.Options{
				Owner: fmt.Sprint("web-", i+1), TTL: 5 * time.Second,
				Meta: "warms the cache of the front page", Logger: s.log,
			})
			for err == nil && ctx.Err() == nil {
				err = locker.Do(ctx, "cache-warmup", func(ctx context.Context, _ *lock.Lease) error { return takes(ctx, 3*time.Second, 6*time.Second) })
				if errors.Is(err, lock.ErrLost) { // by force, or on a busy host: the next turn comes
					err = nil
				}
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// takes waits for a random time between two durations, or until the context ends.
func takes(ctx context.Context, least, most time.Duration) error {
	if !pace.Sleep(ctx, least+rand.N(most-least)) {
		return context.Cause(ctx)
	}
	return nil
}
