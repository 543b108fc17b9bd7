package bench

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
)

// riverConns is the size of a pool of River's.
const riverConns = 20

// theirs is River as a peer. It is for PostgreSQL only.
type theirs struct {
	*bed
	c      *river.Client[pgx.Tx]
	config river.Config
	as     string
}

// A riverJob is what payload has.
type riverJob struct {
	Order    int    `json:"order"`
	Customer string `json:"customer"`
	Address  string `json:"address"`
	Paid     bool   `json:"paid"`
}

func (riverJob) Kind() string { return "noop" }

func newRiverJob(n int) riverJob {
	return riverJob{n + 10_000_000, fmt.Sprintf("customer-%d", n%1000+1000), "12 High Street, Springfield", true}
}

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	do func(ctx context.Context, id int64)
}

func (w *riverWorker) Work(ctx context.Context, j *river.Job[riverJob]) error {
	w.do(ctx, j.ID)
	return nil
}

// riverBest has River look for jobs as often as it lets itself be told, for many
// workers, without the timer that each job has by default.
var riverBest = river.Config{
	FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond, JobTimeout: -1,
	Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 500}},
}

// riverDefault is River as it comes.
var riverDefault = river.Config{Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}}

// newTheirs makes River's tables, if they are not there.
func newTheirs(t *testing.T, b *bed, as string, config river.Config) *theirs {
	t.Helper()
	r := &theirs{bed: b, config: config, as: as}
	pool := r.connect(t)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: strict(t)})
	if err == nil {
		_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.c = r.client(t, pool, nil)
	return r
}

func (r *theirs) connect(t *testing.T) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(r.URL)
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

// client is that of another process: one that works, if it has workers.
func (r *theirs) client(t *testing.T, pool *pgxpool.Pool, workers *river.Workers) *river.Client[pgx.Tx] {
	t.Helper()
	config := r.config
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

func (r *theirs) String() string { return r.as }

func (r *theirs) one(ctx context.Context, n int) (int64, error) {
	inserted, err := r.c.Insert(ctx, newRiverJob(n), nil)
	if err != nil {
		return 0, err
	}
	return inserted.Job.ID, nil
}

func (r *theirs) many(ctx context.Context, first, n int) error {
	batch := make([]river.InsertManyParams, n)
	for i := range batch {
		batch[i].Args = newRiverJob(first + i)
	}
	_, err := r.c.InsertManyFast(ctx, batch)
	return err
}

func (r *theirs) work(t *testing.T, do func(ctx context.Context, id int64)) (stop func()) {
	t.Helper()
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{do: do})
	c := r.client(t, r.connect(t), workers)
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func (r *theirs) left(t *testing.T) (n int64) {
	t.Helper()
	r.Scan(t, `SELECT COUNT(*) FROM river_job WHERE state <> 'completed'`, nil, &n)
	return n
}

func (r *theirs) empty(ctx context.Context) (over bool, err error) {
	err = r.DB.Pool().QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM river_job WHERE state IN ('available', 'running', 'retryable', 'scheduled'))`).Scan(&over)
	return over, err
}

func (r *theirs) wipe(t *testing.T) {
	t.Helper()
	r.truncate(t, "river_job")
}

func (r *theirs) analyze(t *testing.T) {
	t.Helper()
	r.Do(t, `ANALYZE river_job`, nil)
}

func (r *theirs) explain(t *testing.T) {
	t.Helper()
	for _, line := range r.List(t, `SELECT state, COUNT(*) FROM river_job GROUP BY state`, nil) {
		t.Logf("state, jobs: %s", line)
	}
}

// rivers is River with its best settings, where it runs and is asked for.
func rivers(t *testing.T, b *bed) []peer {
	t.Helper()
	if b.Dialect.Name != "postgres" || !*compare {
		return nil
	}
	return []peer{newTheirs(t, b, "River", riverBest)}
}
