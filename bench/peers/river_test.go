package peers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// riverConns is the size of each of River's pools.
const riverConns = 20

// A riverJob has the fields of payload.
type riverJob struct {
	Order    int    `json:"order"`
	Customer string `json:"customer"`
	Address  string `json:"address"`
	Paid     bool   `json:"paid"`
}

func (riverJob) Kind() string { return "noop" }

func newRiverJob(n int) riverJob {
	return riverJob{n + firstOrder, fmt.Sprintf("customer-%d", n%1000+1000), "12 High Street, Springfield", true}
}

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	do func(n int)
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverJob]) error {
	w.do(j.Args.Order - firstOrder)
	return nil
}

// riverQueue is River with the best settings for throughput and latency: it fetches as often as River
// allows, with many workers and without a timer per job.
type riverQueue struct {
	db *dbtest.DB
	c  *river.Client[pgx.Tx]
}

var riverBest = river.Config{
	FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond, JobTimeout: -1,
	Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}},
}

func riverQueues(t *testing.T) []queueSystem {
	r := &riverQueue{db: dbtest.Fresh(t, "postgres")}
	pool := r.connect(t)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: strict(t)})
	if err == nil {
		_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.c = r.client(t, pool, nil)
	return []queueSystem{r}
}

func (r *riverQueue) connect(t *testing.T) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(r.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = riverConns
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// client returns a client, which works if it has workers.
func (r *riverQueue) client(t *testing.T, pool *pgxpool.Pool, workers *river.Workers) *river.Client[pgx.Tx] {
	t.Helper()
	config := riverBest
	config.Logger, config.Workers = strict(t), workers
	if workers == nil {
		config.Queues = nil
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (*riverQueue) String() string { return "River on PostgreSQL" }
func (*riverQueue) durable() bool  { return true }
func (*riverQueue) bulk() bool     { return true }

func (r *riverQueue) one(ctx context.Context, n int) error {
	_, err := r.c.Insert(ctx, newRiverJob(n), nil)
	return err
}

func (r *riverQueue) unique(ctx context.Context, n int) error {
	_, err := r.c.Insert(ctx, newRiverJob(n), &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
	return err
}

func (r *riverQueue) many(ctx context.Context, first, n int) error {
	batch := make([]river.InsertManyParams, n)
	for i := range batch {
		batch[i].Args = newRiverJob(first + i)
	}
	_, err := r.c.InsertManyFast(ctx, batch)
	return err
}

func (r *riverQueue) work(t *testing.T, do func(n int)) (stop func()) {
	t.Helper()
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{do: do})
	pool := r.connect(t)
	c := r.client(t, pool, workers)
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("%v: %v", r, err)
		}
		pool.Close()
	})
}

func (r *riverQueue) wipe(t *testing.T) {
	t.Helper()
	r.db.Do(t, `TRUNCATE river_job`, nil)
}
