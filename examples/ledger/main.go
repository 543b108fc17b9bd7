// Ledger books payments, in order within each account and concurrently across accounts: jobs
// of one key are done one after the other, on any worker, and later ones wait for one that
// failed. One transaction books a payment and completes its job, so it is booked once.
//
//	ledger --url postgres://user:password@host/database --accounts 10 --payments 20
//
// It ends when all of its payments are booked. Start as many as you like: they share the
// work, and any of them may be killed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/sqlschema"
)

var (
	table = dialect.SQL("ledger.table", `
		CREATE TABLE IF NOT EXISTS example_account (id BIGINT NOT NULL PRIMARY KEY, booked INT NOT NULL, cents BIGINT NOT NULL)`)
	open = dialect.SQL("ledger.open", `INSERT INTO example_account (id, booked, cents) VALUES (:id, 0, 0)`)

	// book changes nothing unless the payment is the next one.
	book = dialect.SQL("ledger.book", `
		UPDATE example_account SET booked = :number, cents = cents + :cents WHERE id = :id AND booked = :number - 1`)
	behind = dialect.SQL("ledger.behind", `SELECT COUNT(*) FROM example_account WHERE id BETWEEN :first AND :last AND booked < :payments`)
)

var bookPayment = queue.Kind[payment]{Name: "book-payment", Queue: "ledger"}

type payment struct {
	Account int64 `json:"account"`
	Number  int   `json:"number"` // from 1, of this account
	Cents   int64 `json:"cents"`
}

func main() {
	url := flag.String("url", os.Getenv("DBCRON_DATABASE_URL"), "the database")
	accounts := flag.Int64("accounts", 10, "how many accounts to open")
	payments := flag.Int("payments", 20, "how many payments each of them gets")
	flag.Parse()
	if err := run(context.Background(), *url, *accounts, *payments); err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, accounts int64, payments int) error {
	db, err := engines.Open(ctx, url, dialect.Options{})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := makeTables(ctx, db); err != nil {
		return err
	}
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{"ledger"}, Concurrency: 8})
	if err != nil {
		return err
	}
	err = queue.HandleKind(w, bookPayment, func(ctx context.Context, p payment, d *queue.Delivery) error {
		return bookOne(ctx, db, p, d)
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	worked := make(chan error, 1)
	go func() {
		err := w.Run(ctx)
		stop(err) // if it could not begin, nothing waits for it
		worked <- err
	}()
	// Ids that no other process uses; a bank would have its own scheme.
	first := int64(os.Getpid()) * 1_000_000
	if err := pay(ctx, db, c, first, accounts, payments); err != nil {
		return err
	}
	if err := booked(ctx, db, first, accounts, payments); err != nil {
		return err
	}
	stop(nil)
	fmt.Println("all payments are booked")
	return <-worked
}

func makeTables(ctx context.Context, db *dialect.DB) error {
	if err := sqlschema.Migrate(ctx, db); err != nil { // makes the queue's tables
		return err
	}
	locker, err := lock.New(db, lock.Options{})
	if err != nil {
		return err
	}
	// Under a lock, because concurrent CREATE TABLE statements can fail.
	return locker.Do(ctx, "ledger table", func(ctx context.Context, _ *lock.Lease) error {
		_, err := db.Exec(ctx, table, nil)
		return err
	})
}

// pay opens accounts, and enqueues their payments.
func pay(ctx context.Context, db *dialect.DB, c *queue.Client, first, accounts int64, payments int) error {
	for id := first; id < first+accounts; id++ {
		if _, err := db.Exec(ctx, open, dialect.Args{"id": id}); err != nil {
			return err
		}
	}
	for number := 1; number <= payments; number++ {
		var jobs []queue.Job
		for id := first; id < first+accounts; id++ {
			job := bookPayment.Job(payment{id, number, 100})
			job.Key = fmt.Sprint("account ", id)
			jobs = append(jobs, job)
		}
		if _, err := c.EnqueueMany(ctx, jobs); err != nil {
			return err
		}
	}
	return nil
}

// bookOne books a payment and completes its job.
func bookOne(ctx context.Context, db *dialect.DB, p payment, d *queue.Delivery) error {
	return db.Tx(ctx, func(ctx context.Context, tx *dialect.Session) error {
		n, err := tx.Exec(ctx, book, dialect.Args{"id": p.Account, "number": p.Number, "cents": p.Cents})
		if err != nil {
			return err
		}
		if err := d.CompleteTx(ctx, tx.Execer()); err != nil {
			return err
		}
		if n == 0 { // never happens: CompleteTx reports a lost job
			return queue.Bury(fmt.Errorf("payment %d of account %d is out of order", p.Number, p.Account))
		}
		return nil
	})
}

// booked waits until all payments of some accounts are booked.
func booked(ctx context.Context, db *dialect.DB, first, accounts int64, payments int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int64
		err := db.Get(ctx, behind, dialect.Args{"first": first, "last": first + accounts - 1, "payments": payments}, &n)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
