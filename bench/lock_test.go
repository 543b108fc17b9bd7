package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/lock"
)

// The least SQL that takes and releases a lock with a fence, as one would write it by hand for one
// program. It is the floor that package lock is compared with, and runs through the same pool,
// without what dialect.DB adds.
var (
	rawTable = `
		CREATE TABLE raw_lock (name VARCHAR(200) NOT NULL, slot INT NOT NULL, state VARCHAR(8) NOT NULL,
			lock_by VARCHAR(128) NOT NULL, expire_at %s, fence BIGINT NOT NULL, PRIMARY KEY (name, slot))`
	rawTake = sqlrun.Unlisted(`
		UPDATE raw_lock SET state = 'LOCK', lock_by = :owner, {next fence}, expire_at = {now + :ttl}
		WHERE name = :name AND slot = 0 AND (state = 'FREE' OR expire_at <= {now})
		{returning fence}`)
	rawRelease = sqlrun.Unlisted(`
		UPDATE raw_lock SET state = 'FREE'
		WHERE name = :name AND slot = 0 AND lock_by = :owner AND fence = :fence`)
	instants = map[string]string{"postgres": "TIMESTAMPTZ(6)", "mysql": "DATETIME(6)", "sqlite": "TEXT"}
)

// A raw is the floor on one database. Its arguments follow the order of the statements.
type raw struct {
	db            *dialect.DB
	take, release string
}

func newRaw(t *testing.T, db *dbtest.DB, names int) *raw {
	t.Helper()
	db.Do(t, fmt.Sprintf(rawTable, instants[db.Dialect.Name]), nil)
	for i := range names {
		db.Do(t, `INSERT INTO raw_lock (name, slot, state, lock_by, fence) VALUES (:name, 0, 'FREE', '', 0)`,
			sqlrun.Args{"name": name(i)})
	}
	return &raw{db.DB, rawTake.Text(db.Dialect), rawRelease.Text(db.Dialect)}
}

func name(i int) string { return fmt.Sprintf("bench-%d", i) }

// pair takes and releases a free lock.
func (r *raw) pair(ctx context.Context, i int) error {
	owner, ttl := fmt.Sprintf("host:4711:%d", i), (30 * time.Second).Microseconds()
	fence, err := r.next(ctx, owner, ttl, name(i))
	if err != nil {
		return err
	}
	released, err := r.db.Pool().ExecContext(ctx, r.release, name(i), owner, fence)
	if err != nil {
		return err
	}
	n, err := released.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("released %d rows", n)
	}
	return err
}

func (r *raw) next(ctx context.Context, args ...any) (fence int64, err error) {
	if returning(r.db.Dialect) {
		err = r.db.Pool().QueryRowContext(ctx, r.take, args...).Scan(&fence)
		return fence, err
	}
	taken, err := r.db.Pool().ExecContext(ctx, r.take, args...)
	if err != nil {
		return 0, err
	}
	if n, err := taken.RowsAffected(); err != nil || n != 1 {
		return 0, errors.Join(err, fmt.Errorf("took %d rows", n))
	}
	return taken.LastInsertId()
}

func locker(t *testing.T, db *dialect.DB, opt lock.Options) *lock.Locker {
	t.Helper()
	opt.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	l, err := lock.New(db, opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// open opens another pool, as another process would.
func open(t *testing.T, url string, conns int) *dialect.DB {
	t.Helper()
	return dbtest.Open(t, url, dialect.Options{MaxConns: conns}).DB
}

// TestLockPairs prints how many free locks package lock and the floor take and release a second, one
// after the other and back again. Target: a ratio of 0.85.
func TestLockPairs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, small *dbtest.DB) {
		db := &dbtest.DB{DB: open(t, small.URL, 20), URL: small.URL}
		floor := newRaw(t, db, 16)
		l := locker(t, db.DB, lock.Options{})
		ways := []func(ctx context.Context, i int) error{
			floor.pair,
			func(ctx context.Context, i int) error {
				lease, err := l.TryAcquire(ctx, name(i))
				if err != nil {
					return err
				}
				return lease.Release(ctx)
			},
		}
		for _, workers := range []int{1, 16} {
			for _, way := range ways { // warm up rows, connections, prepared statements
				pairs(t, db.DB, workers, *span/20, way)
			}
			var sums [2]float64
			var ratios []float64
			for range 4 {
				var figures [2]float64
				for _, i := range []int{0, 1, 1, 0} {
					figures[i] += pairs(t, db.DB, workers, *span/8, ways[i]) / 2
				}
				sums[0], sums[1] = sums[0]+figures[0]/4, sums[1]+figures[1]/4
				ratios = append(ratios, figures[1]/figures[0])
			}
			slices.Sort(ratios)
			t.Logf("%-8s %2d goroutines: raw %6.0f pairs/s, lock %6.0f pairs/s, ratio %.2f (rounds: %.2f)",
				db.Dialect.Name, workers, sums[0], sums[1], sums[1]/sums[0], ratios)
		}
	})
}

// TestLockPools prints the same with a separate pool for each of 16 goroutines, as in programs that
// open the database in several places.
func TestLockPools(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		var each [16]*lock.Locker
		for i := range each {
			each[i] = locker(t, open(t, db.URL, 2), lock.Options{})
		}
		pair := func(ctx context.Context, i int) error {
			lease, err := each[i].TryAcquire(ctx, name(i))
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
		for _, workers := range []int{1, len(each)} {
			pairs(t, db.DB, workers, *span/20, pair) // warm up rows, connections, prepared statements
			var took [16][]time.Duration
			timed := func(ctx context.Context, i int) error {
				begun := time.Now()
				err := pair(ctx, i)
				took[i] = append(took[i], time.Since(begun))
				return err
			}
			rate := pairs(t, db.DB, workers, *span, timed)
			all := slices.Sorted(slices.Values(slices.Concat(took[:]...)))
			t.Logf("%-8s %2d pools: %6.0f pairs/s, p50 %v, p99 %v, at most %v", db.Dialect.Name, workers, rate,
				all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
		}
	})
}

// pairs returns how many times a second the workers together complete pair.
func pairs(t *testing.T, db *dialect.DB, workers int, span time.Duration, pair func(context.Context, int) error) float64 {
	t.Helper()
	ctx := t.Context() // never cancelled: pairs under way finish and count
	var over atomic.Bool
	defer time.AfterFunc(span, func() { over.Store(true) }).Stop()
	var total atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for i := range workers {
		group.Go(func() {
			n := 0
			for ; !over.Load(); n++ {
				err := pair(ctx, i)
				for err != nil && db.Dialect.Retryable(err) && !errors.Is(err, sql.ErrNoRows) {
					err = pair(ctx, i) // on SQLite the floor does not wait long enough for the writer
				}
				if err != nil {
					t.Error(err)
					break
				}
			}
			total.Add(int64(n))
		})
	}
	group.Wait()
	return float64(total.Load()) / time.Since(begun).Seconds()
}
