package queue

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// small returns a client whose pool has the given number of connections.
func small(t *testing.T, db *dbtest.DB, conns int) (*Client, *dialect.DB) {
	t.Helper()
	own := dbtest.Open(t, db.URL, dialect.Options{MaxConns: conns})
	return client(t, own, Options{}), own.DB
}

// An id is drawn when there is a connection, however long the caller has waited for it: by
// each way to enqueue.
func TestIDsWaitForAConnection(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c, own := small(t, db, 1)
		must(t, c.Subscribe(t.Context(), "topic", defaultQueue))
		many := make([]Job, store.Chunk+1)
		for i := range many {
			many[i] = Job{Kind: "x", Key: "k"}
		}
		first := func(all []Enqueued, err error) (int64, error) {
			if err != nil {
				return 0, err
			}
			return all[0].ID, nil
		}
		ways := map[string]func(ctx context.Context) (int64, error){
			"one": func(ctx context.Context) (int64, error) {
				e, err := c.Enqueue(ctx, Job{Kind: "x", Key: "k"})
				return e.ID, err
			},
			"unique": func(ctx context.Context) (int64, error) {
				e, err := c.Enqueue(ctx, Job{Kind: "x", Unique: "u"})
				return e.ID, err
			},
			"some": func(ctx context.Context) (int64, error) { return first(c.EnqueueMany(ctx, many[:2])) },
			"many": func(ctx context.Context) (int64, error) { return first(c.EnqueueMany(ctx, many)) },
			"delayed": func(ctx context.Context) (int64, error) {
				return first(c.EnqueueMany(ctx, []Job{{Kind: "x", Delay: time.Hour}, {Kind: "x"}}))
			},
			"group": func(ctx context.Context) (int64, error) {
				_, all, err := c.EnqueueGroup(ctx, Group{}, many[0])
				return first(all, err)
			},
			"topic": func(ctx context.Context) (int64, error) {
				p, err := c.Publish(ctx, "topic", Job{Kind: "x"})
				return first(p.Copies, err)
			},
		}
		for name, way := range ways {
			enqueue(t, c, Job{Kind: "x", Key: "warm"}) // what has to be known is
			held, err := own.Pool().Conn(t.Context())
			must(t, err)
			waits := own.Pool().Stats().WaitCount
			type answer struct {
				id  int64
				err error
			}
			answers := make(chan answer, 1)
			go func() {
				id, err := way(t.Context())
				answers <- answer{id, err}
			}()
			eventually(t, "it waits for a connection", func() bool { return own.Pool().Stats().WaitCount > waits })
			now := c.clock.now()
			must(t, held.Close())
			got := received(t, name, answers)
			must(t, got.err)
			if store.TimeOf(got.id).UnixMicro() < now {
				t.Errorf("%s: the id is %v older than the connection", name, time.Duration(now-store.TimeOf(got.id).UnixMicro())*time.Microsecond)
			}
		}
	})
}

// A caller that leaves while its job waits for a connection has enqueued nothing.
func TestLeavingBeforeAConnection(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		c, own := small(t, db, 1)
		enqueue(t, c, Job{Kind: "x"})
		held, err := own.Pool().Conn(t.Context())
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		waits := own.Pool().Stats().WaitCount
		go func() {
			_, err := c.Enqueue(ctx, Job{Kind: "x"})
			errs <- err
		}()
		eventually(t, "it waits for a connection", func() bool { return own.Pool().Stats().WaitCount > waits })
		cancel()
		err = received(t, "the error", errs)
		want(t, "leaving", err, context.Canceled)
		if errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("nothing was sent: %v", err)
		}
		must(t, held.Close())
		enqueue(t, c, Job{Kind: "x"})
		if n := rowsOf(t, db); n != 2 {
			t.Errorf("%d jobs", n)
		}
	})
}

// A caller that leaves while its statement waits for the server has an id: its job is there under that, once or not at all.
func TestLeavingInAStatement(t *testing.T) {
	dbtest.SkipGated(t, "a gate locks no tables")
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		sent := make(chan struct{}, 100)
		c := client(t, db.Broken(t, &dbtest.Fault{Text: "INSERT INTO", Stall: func(string) { sent <- struct{}{} }}), Options{})
		enqueue(t, c, Job{Kind: "x"})
		for len(sent) > 0 {
			<-sent
		}
		lock, release := []string{"BEGIN", "LOCK TABLE " + db.Prefix() + "job IN ACCESS EXCLUSIVE MODE"}, "ROLLBACK"
		if db.Dialect.Name != "postgres" {
			lock, release = []string{"LOCK TABLES " + db.Prefix() + "job WRITE"}, "UNLOCK TABLES"
		}
		held := db.Conn(t)
		for _, statement := range lock {
			_, err := held.ExecContext(t.Context(), statement)
			must(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		type answer struct {
			id  int64
			err error
		}
		answers := make(chan answer, 1)
		go func() {
			e, err := c.Enqueue(ctx, Job{Kind: "x"})
			answers <- answer{e.ID, err}
		}()
		received(t, "the statement is sent", sent)
		cancel()
		a := received(t, "the caller leaves", answers)
		want(t, "leaving", a.err, context.Canceled)
		want(t, "leaving", a.err, ErrUnknownOutcome)
		_, err := held.ExecContext(t.Context(), release)
		must(t, err)
		enqueue(t, c, Job{Kind: "x"})
		var named, all int
		db.Scan(t, `SELECT COALESCE(SUM(CASE WHEN id = :id THEN 1 ELSE 0 END), 0), COUNT(*) FROM {prefix}job`, sqlrun.Args{"id": a.id}, &named, &all)
		if a.id == 0 || named > 1 || all != 2+named {
			t.Errorf("%d jobs, %d of them the one of which it is not known, %d", all, named, a.id)
		}
	})
}

// Work in a transaction needs no second connection: with as many transactions as connections,
// cold, and when cached settings are too old.
func TestTransactionsTakeNoSecondConnection(t *testing.T) {
	dbtest.SkipBare(t, "its transactions would have to be run again")
	each(t, func(t *testing.T, db *dbtest.DB) {
		first := client(t, db, Options{})
		enqueue(t, first, Job{Kind: "x"})
		must(t, first.Subscribe(t.Context(), "topic", "copies"))
		for _, n := range []int{1, 3} {
			if n > 1 && db.Dialect.SkipLocked == "" {
				continue // one writer at a time
			}
			c, own := small(t, db, n)
			for round := range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), longWait)
				var all []*sql.Tx
				for range n {
					tx, err := own.Pool().BeginTx(ctx, nil)
					must(t, err)
					all = append(all, tx)
				}
				for i, tx := range all {
					name := fmt.Sprintf("%d of %d, round %d: ", i, n, round)
					wakes := []func(){
						mustEnqueue(t, name+"plain", func() (_ []Enqueued, wake func(), err error) { return c.EnqueueTx(ctx, tx, Job{Kind: "x"}) }),
						mustEnqueue(t, name+"unique", func() (_ []Enqueued, wake func(), err error) {
							return c.EnqueueTx(ctx, tx, Job{Kind: "x", Unique: name + "u", Delay: time.Hour})
						}),
						mustEnqueue(t, name+"group", func() (_ []Enqueued, wake func(), err error) {
							_, got, wake, err := c.EnqueueGroupTx(ctx, tx, Group{Name: "g", Callback: &Job{Kind: "x"}}, Job{Kind: "x"})
							return got, wake, err
						}),
						mustEnqueue(t, name+"topic", func() (_ []Enqueued, wake func(), err error) {
							p, wake, err := c.PublishTx(ctx, tx, "topic", Job{Kind: "x"})
							return p.Copies, wake, err
						}),
					}
					if i == 0 { // others must wait for writes to the queue's row
						wakes = append(wakes,
							mustEnqueue(t, name+"keyed", func() (_ []Enqueued, wake func(),
								err error,
							) {
								return c.EnqueueTx(ctx, tx, Job{Kind: "x", Key: "k"})
							}),
							mustEnqueue(t, name+"new", func() (_ []Enqueued, wake func(), err error) {
								return c.EnqueueTx(ctx, tx, Job{Queue: fmt.Sprint("new", n, round), Kind: "x", Key: "k"},
									Job{Queue: fmt.Sprint("new", n, round), Kind: "x"})
							}))
					}
					defer func() {
						for _, wake := range wakes {
							wake()
						}
					}()
				}
				for _, tx := range all {
					must(t, tx.Commit())
				}
				cancel()
				c.mu.Lock() // which is old by then
				for _, q := range c.queues {
					old := *q
					old.At = instant.Now().Add(-2 * store.SettingsAge)
					c.queues[q.Name] = &old
				}
				if c.routes != nil {
					old := *c.routes
					old.at = instant.Now().Add(-2 * store.SettingsAge)
					c.routes = &old
				}
				c.mu.Unlock()
				eventually(t, "what is learned is", func() bool {
					c.mu.Lock()
					defer c.mu.Unlock()
					return len(c.learning) == 0
				})
			}
		}
		var n int
		db.Scan(t, `SELECT COUNT(*) FROM {prefix}job`, nil, &n)
		// A transaction has three ready jobs and the first of a round three more.
		with := 1 + 2*(3+3)
		if db.Dialect.SkipLocked != "" {
			with += 6*3 + 2*3
		}
		if n != with {
			t.Errorf("%d jobs, want %d", n, with)
		}
	})
}

func mustEnqueue(t *testing.T, name string, do func() ([]Enqueued, func(), error)) func() {
	t.Helper()
	all, wake, err := do()
	if err != nil || len(all) == 0 || all[0].Existed {
		t.Fatalf("%s: %v, %v", name, all, err)
	}
	return wake
}

// refusing returns a client that cannot connect until it is let.
func refusing(t *testing.T, db *dbtest.DB, refusal error) (c *Client, let func(bool), refusals *atomic.Int64) {
	t.Helper()
	u, err := url.Parse(db.URL)
	must(t, err)
	base, err := db.Dialect.Connector(u, sqlrun.Options{ApplicationName: "dbcron"})
	must(t, err)
	var refused atomic.Bool
	refusals = &atomic.Int64{}
	pool := sql.OpenDB(sqlconn.Intercept(base, func(context.Context, driver.Conn) (sqlconn.Around, error) {
		if refused.Load() {
			refusals.Add(1)
			return nil, refusal
		}
		return func(_ context.Context, _ string, call func() error) error { return call() }, nil
	}))
	t.Cleanup(func() { must(t, pool.Close()) })
	own, err := engines.Wrap(t.Context(), pool, dialect.Options(db.Options()))
	must(t, err)
	pool.SetMaxIdleConns(0)
	c, err = New(own, Options{Logger: quiet(), Blocks: 2})
	must(t, err)
	return c, func(yes bool) { refused.Store(!yes) }, refusals
}

// While nobody can connect, nothing is sent: a producer waits, and leaves when its context
// ends, knowing that nothing was enqueued.
func TestEnqueueUnreachable(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		refusal := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		c, let, refusals := refusing(t, db, refusal)
		ways := map[string]func(ctx context.Context) error{
			"one":    func(ctx context.Context) error { _, err := c.Enqueue(ctx, Job{Kind: "x"}); return err },
			"unique": func(ctx context.Context) error { _, err := c.Enqueue(ctx, Job{Kind: "x", Unique: "u"}); return err },
			"many": func(ctx context.Context) error {
				_, err := c.EnqueueMany(ctx, []Job{{Kind: "x"}, {Kind: "x"}})
				return err
			},
			"group": func(ctx context.Context) error { _, _, err := c.EnqueueGroup(ctx, Group{}, Job{Kind: "x"}); return err },
		}
		for _, known := range []bool{false, true} {
			if known {
				let(true)
				enqueue(t, c, Job{Kind: "known"})
			}
			for name, way := range ways {
				let(false)
				refused := func() {
					from := refusals.Load()
					eventually(t, "it is refused again and again", func() bool { return refusals.Load() >= from+3 })
				}
				errs := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { errs <- way(ctx) }()
				refused()
				cancel()
				err := received(t, name, errs)
				want(t, name, err, context.Canceled)
				want(t, name, err, refusal)
				if errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("%s: nothing was sent: %v", name, err)
				}
				go func() { errs <- way(context.WithoutCancel(t.Context())) }() // who writes itself
				refused()
				let(true)
				must(t, received(t, name, errs))
				db.Do(t, `DELETE FROM {prefix}job_unique`, nil)
			}
		}
		if n := rowsOf(t, db); n != 1+2*5 {
			t.Errorf("%d jobs", n)
		}
		c, let, _ = refusing(t, db, errors.New("password authentication failed"))
		let(false)
		if _, err := c.Enqueue(t.Context(), Job{Kind: "x"}); err == nil || errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("refused: %v", err)
		}
	})
}

// With an unknown outcome come the ids that the jobs have if they were enqueued.
func TestUnknownOutcomeTellsIDs(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		enqueue(t, client(t, db, Options{}), Job{Kind: "x"})
		var lose atomic.Bool
		broken := db.Broken(t, &dbtest.Fault{Random: func() (bool, bool) { return lose.Load(), true }})
		c := client(t, broken, Options{})
		enqueue(t, c, Job{Kind: "x"})
		lose.Store(true)
		all, err := c.EnqueueMany(t.Context(), []Job{{Kind: "x"}, {Kind: "x"}})
		want(t, "many", err, ErrUnknownOutcome)
		one, err := c.Enqueue(t.Context(), Job{Kind: "x"})
		want(t, "one", err, ErrUnknownOutcome)
		if len(all) != 2 {
			t.Fatalf("%v", all)
		}
		for _, e := range append(all, one) {
			if _, err := adminOf(client(t, db, Options{})).Job(t.Context(), e.Queue, e.ID); err != nil {
				t.Errorf("%+v: %v", e, err)
			}
		}
	})
}

// Payloads that are too much for one statement are written by several, and one that is
// too much by itself is refused before it is sent.
func TestLargePayloads(t *testing.T) {
	each(t, func(t *testing.T, db *dbtest.DB) {
		c := client(t, db, Options{})
		large := []byte(`"` + strings.Repeat(`\"'`, 1<<20/4) + `"`) // each character escaped
		var group sync.WaitGroup
		for range 24 {
			group.Go(func() {
				if _, err := c.Enqueue(t.Context(), Job{Kind: "x", Payload: large}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		many := make([]Job, 24)
		for i := range many {
			many[i] = Job{Kind: "x", Payload: large, Binary: i%2 == 0, Delay: time.Duration(i%3) * time.Hour}
		}
		enqueueMany(t, c, many)
		many = append(many, Job{Kind: "x", Unique: "u", Payload: large})
		enqueueMany(t, c, many)
		if n := rowsOf(t, db); n != 24+24+25 {
			t.Errorf("%d jobs", n)
		}
		if db.Dialect.MaxPacket == "" {
			return
		}
		edit(t, c, func(q *admin.Queue) { q.MaxPayload = 1 << 30 })
		var most int
		db.Scan(t, db.Dialect.MaxPacket, nil, &most)
		huge := Job{Kind: "x", Payload: bytes.Repeat([]byte("'"), most/2+1), Binary: true}
		_, err := c.Enqueue(t.Context(), huge)
		want(t, "one", err, ErrTooLarge)
		_, err = c.EnqueueMany(t.Context(), []Job{{Kind: "x"}, huge})
		want(t, "many", err, ErrTooLarge)
	})
}

// A queue that others have made since a transaction's snapshot is found there, or the
// transaction is one to be run again.
func TestEnqueueTxOfAnOldSnapshot(t *testing.T) {
	having(t, dbtest.SeveralWriters, func(t *testing.T, db *dbtest.DB) {
		c, own := small(t, db, 1)
		tx, err := own.Pool().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		must(t, err)
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		var n int
		must(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM dbcron_queue`).Scan(&n))
		enqueue(t, client(t, db, Options{Blocks: 4}), Job{Kind: "x"})
		_, _, err = c.EnqueueTx(t.Context(), tx, Job{Kind: "x"})
		if err != nil {
			if !db.Dialect.Retryable(err) {
				t.Error(err)
			}
			return
		}
		must(t, tx.Commit())
		if all, _, err := adminOf(client(t, db, Options{})).Jobs(t.Context(), admin.Filter{}); err != nil || len(all) != 2 {
			t.Errorf("%v, %v", all, err)
		}
		if q, err := adminOf(c).Queue(t.Context(), defaultQueue); err != nil || q.Blocks != 4 {
			t.Errorf("%+v, %v", q, err)
		}
	})
}
