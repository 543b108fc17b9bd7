package faults

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/sqlschema"
)

// TestEffects runs several producers, which enqueue jobs of the same few keys, and workers, which
// record each job in the transaction that completes it. Meanwhile the test kills and stops
// processes, silences the database for longer than queue.Window or kills it, and steps its clock.
// Some payloads have 1 MiB, and the workers' pools are smaller than the number of their handlers.
// The effects of what one goroutine enqueued for one key, one job after the other, exist once and
// came in that order.
//
// It runs only with -minutes: see "make faults".
func TestEffects(t *testing.T) {
	if *minutes == 0 {
		t.Skip("it takes minutes: make faults")
	}
	t.Parallel()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			db, server := s.migrated(t)
			w := newWire(t, db.URL)
			newEffects(t, db, w, func() {
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				restart(t, server)
			}).run()
		})
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
			if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			newEffects(t, db, nil, nil).run()
		})
	})
}

// effects is one run of TestEffects.
type effects struct {
	t       *testing.T
	db      *dbtest.DB
	wire    *wire  // between all processes and the server; nil: there is no network
	crash   func() // kills the server and starts it again; nil: there is no server
	journal string
	span    time.Duration
	step    time.Duration // upper bound of a clock step

	producers, workers []*child
	stopped            map[*child]instant.Instant
	counts             map[string]int // of disturbances, by kind
}

const effectsLease = 3 * time.Second

func newEffects(t *testing.T, db *dbtest.DB, w *wire, crash func()) *effects {
	t.Helper()
	e := &effects{
		t: t, db: db, wire: w, crash: crash, journal: filepath.Join(t.TempDir(), "journal"),
		span: 12 * time.Second, step: 3 * time.Second, stopped: map[*child]instant.Instant{}, counts: map[string]int{},
	}
	if *minutes > 0 {
		e.span, e.step = time.Duration(*minutes)*time.Minute, 30*time.Second
	}
	db.Do(t, "CREATE TABLE chain (name VARCHAR(100) NOT NULL PRIMARY KEY, seq INT NOT NULL)", nil)
	db.Do(t, "CREATE TABLE wrong (chain VARCHAR(100), seq INT, kind VARCHAR(20), attempt INT, pid INT)", nil)
	db.Do(t, "CREATE TABLE test_offset (us BIGINT NOT NULL)", nil)
	db.Do(t, "INSERT INTO test_offset (us) VALUES (0)", nil)
	return e
}

func (e *effects) part(conns, concurrency int) part {
	p := part{
		URL: e.db.URL, Name: "effects", File: e.journal, TTL: effectsLease,
		MaxConns: conns, Concurrency: concurrency, Stepping: true,
	}
	if e.wire != nil {
		p.URL = e.wire.url
	}
	return p
}

func (e *effects) producer() *child { return start(e.t, "effects producer", e.part(2, 9)) }
func (e *effects) worker() *child   { return start(e.t, "effects worker", e.part(6, 8)) }

func (e *effects) run() {
	t := e.t
	c, err := queue.New(e.db.WithNow(steppingClock(e.db.Dialect)), queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adminOf(c).Edit(t.Context(), "effects", func(q *admin.Queue) {
		q.RetryDelay, q.MaxAttempts, q.MaxCrashes = 100*time.Millisecond, 1000, 1000
	}); err != nil {
		t.Fatal(err)
	}
	e.producers = []*child{e.producer(), e.producer()}
	e.workers = []*child{e.worker(), e.worker(), e.worker()}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for begun := instant.Now(); instant.Now().Sub(begun) < e.span; {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			return
		}
		e.disturb()
	}
	for c := range e.stopped {
		c.signal(syscall.SIGCONT)
	}
	for _, p := range e.producers {
		p.tell("stop")
		p.hear("stopped")
	}
	e.untilEmpty(c)
	for _, w := range e.workers {
		w.tell("stop")
		w.hear("stopped")
	}
	e.check()
}

// disturb does something random to the processes or to the database.
func (e *effects) disturb() {
	for c, at := range e.stopped {
		if instant.Now().Sub(at) > 2*effectsLease {
			c.signal(syscall.SIGCONT)
			delete(e.stopped, c)
		}
	}
	switch at := rand.IntN(12); {
	case at < 3:
		e.kill(e.workers, e.worker)
	case at < 5:
		e.kill(e.producers, e.producer)
	case at < 7 && len(e.stopped) == 0:
		c := e.workers[rand.IntN(len(e.workers))]
		e.stop(c)
	case at < 9:
		e.stall(queue.Window + time.Duration(rand.IntN(3000))*time.Millisecond)
	case at < 11:
		e.counts["steps"]++
		e.shift(time.Duration(rand.Int64N(int64(2*e.step))) - e.step)
	case e.crash != nil:
		e.counts["crashes"]++
		e.crash()
	}
}

// kill kills a random process and starts another in its place, unless it is stopped.
func (e *effects) kill(all []*child, begin func() *child) {
	at := rand.IntN(len(all))
	if e.stopped[all[at]] != 0 {
		return
	}
	all[at].kill()
	all[at] = begin()
	e.counts["kills"]++
}

// stop stops a process, unless that would keep all others from writing.
func (e *effects) stop(c *child) {
	c.signal(syscall.SIGSTOP)
	c.stands()
	if e.wire == nil && !e.writable() {
		c.signal(syscall.SIGCONT)
		return
	}
	e.stopped[c] = instant.Now()
	e.counts["stops"]++
}

func (e *effects) writable() bool {
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Second)
	defer cancel()
	_, err := e.db.Exec(ctx, sqlrun.Unlisted("UPDATE test_offset SET us = us"), nil)
	return err == nil
}

// stall keeps the database from answering or writing for a while.
func (e *effects) stall(d time.Duration) {
	e.counts["stalls"]++
	if e.wire == nil {
		tx := e.db.Begin(e.t, &sql.TxOptions{})
		_ = wait(e.t.Context(), d)
		_ = tx.Rollback()
		return
	}
	e.wire.toServer.Lock()
	defer e.wire.toServer.Unlock()
	_ = wait(e.t.Context(), d)
}

// shift steps the clock.
func (e *effects) shift(d time.Duration) {
	for ctx := e.t.Context(); ; {
		_, err := e.db.Exec(ctx, sqlrun.Unlisted("UPDATE test_offset SET us = us + :us"), sqlrun.Args{"us": d.Microseconds()})
		if err == nil {
			return
		}
		if !e.db.Dialect.Retryable(err) || wait(ctx, 10*time.Millisecond) != nil {
			e.t.Fatal(err)
		}
	}
}

// untilEmpty waits until all jobs have ended. How many there are depends on the machine, so it fails
// only if for a while no job has an effect.
func (e *effects) untilEmpty(c *queue.Client) {
	const patience = 2 * time.Minute
	var last string
	var had []string
	for since := instant.Now(); ; {
		n, err := adminOf(c).Count(e.t.Context(), "effects", 10_000)
		if err == nil && n.Ready+n.Delayed+n.Running == 0 {
			return
		}
		last = fmt.Sprintf("%+v, %v", n, err)
		if has := e.db.List(e.t, "SELECT COUNT(*), SUM(seq) FROM chain", nil); !slices.Equal(has, had) {
			had, since = has, instant.Now()
		}
		if wait(e.t.Context(), 100*time.Millisecond) != nil || instant.Now().Sub(since) > patience {
			break
		}
	}
	for _, table := range []string{"node WHERE state = 'live'", "queue_worker", "queue_block"} {
		for _, row := range e.db.List(e.t, "SELECT * FROM {prefix}"+table, nil) {
			e.t.Log(table, row)
		}
	}
	e.t.Fatalf("no job has ended for %v: %s", patience, last)
}

// check compares the chains with what was acknowledged.
func (e *effects) check() {
	t := e.t
	text, err := os.ReadFile(e.journal)
	if err != nil {
		t.Fatal(err)
	}
	acked, tried := map[string]int{}, map[string]int{}
	for row := range strings.Lines(string(text)) {
		var what, chain string
		var seq int
		if _, err := fmt.Sscan(row, &what, &chain, &seq); err != nil {
			t.Fatalf("%q: %v", row, err)
		}
		if what == "ack" {
			acked[chain] = seq
		} else {
			tried[chain] = seq
		}
	}
	there := map[string]int{}
	for _, row := range e.db.List(t, "SELECT name, seq FROM chain", nil) {
		var chain string
		var seq int
		if _, err := fmt.Sscan(row, &chain, &seq); err != nil {
			t.Fatalf("%q: %v", row, err)
		}
		there[chain] = seq
	}
	jobs := 0
	for chain, most := range tried {
		jobs += there[chain]
		if there[chain] < acked[chain] || there[chain] > most {
			t.Errorf("chain %s: %d links were acknowledged and %d sent, and the effects of %d exist", chain, acked[chain], most, there[chain])
		}
	}
	wrong := e.db.List(t, "SELECT chain, seq, kind, attempt, pid FROM wrong", nil)
	if len(wrong) > 0 {
		t.Errorf("%d effects were not in their place: %v", len(wrong), wrong[:min(10, len(wrong))])
	}
	if dead := e.db.List(t, "SELECT kind, attempt, crashes, error FROM {prefix}job_dead", nil); len(dead) > 0 {
		t.Errorf("%d dead letters: %v", len(dead), dead[:min(5, len(dead))])
	}
	if jobs == 0 {
		t.Error("nothing was done: the test shows nothing")
	}
	figures(t, map[string]int{
		"kills": e.counts["kills"], "stops": e.counts["stops"], "stalls": e.counts["stalls"], "steps of the clock": e.counts["steps"],
		"kills of the server": e.counts["crashes"], "effects": jobs,
	})
	t.Logf("%s: %d jobs in %d chains, %d out of their place, %v", e.db.Dialect.Name, jobs, len(tried), len(wrong), e.counts)
}
