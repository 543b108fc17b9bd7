package postgres_test

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/queue"
)

func ExampleOpen() {
	db, err := postgres.Open(context.Background(), os.Getenv("DATABASE_URL"), dialect.Options{Schema: "jobs"})
	if err != nil {
		panic(err)
	}
	defer db.Close()
}

// A program shares its pgxpool.Pool with dbcron and enqueues jobs in its own transactions.
func ExampleWrap() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	defer pool.Close()
	db, err := postgres.Wrap(ctx, pool, dialect.Options{})
	if err != nil {
		panic(err)
	}
	c, err := queue.New(db, queue.Options{})
	if err != nil {
		panic(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders (number) VALUES ($1)", 1815); err != nil {
			return err
		}
		_, _, err := c.EnqueueTx(ctx, postgres.Tx(tx), queue.Job{Kind: "confirm", Queue: "mail", Payload: []byte(`{"order": 1815}`)})
		return err
	})
	if err != nil {
		panic(err)
	}
}
