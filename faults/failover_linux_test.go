package faults

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

// The failover tests start clusters of servers, put load on them with daemons, workers and
// producers, and then kill, cut off or change servers. They account for every acknowledged job.

var failover = flag.Bool("failover", false, "test where the database fails over: see tools/compat")

func init() { roles["failover worker"] = playFailoverWorker }

// asksForFailover skips a failover test unless it was asked for. Once asked for, a missing
// requirement fails the test.
func asksForFailover(t *testing.T) {
	t.Helper()
	if !*failover {
		t.Skip("not part of make test: run make compat SERVERS=" + strings.ToLower(strings.TrimPrefix(t.Name(), "TestFailover")) + "-failover")
	}
}

// A cluster is a database whose failover is tested.
type cluster struct {
	product string   // with its version
	urls    []string // one daemon and one worker connect to each
	steps   []mishap
	dead    map[int]bool // urls that no longer answer
	primary string       // database with the tables; default: the first of urls
}

// A mishap is an event in a cluster.
type mishap struct {
	what string
	do   func(c *crew)
}

// A figure is the measured effect of a mishap.
type figure struct {
	what string
	gap  time.Duration // longest time without a finished job
	jobs int           // finished from then until the next mishap
}

// A crew is the daemons, workers and producers on a cluster.
type crew struct {
	t       *testing.T
	cluster *cluster
	journal string
	urls    []string // of the daemons' APIs
	health  []string

	daemons []*daemon
	workers []*child

	mu    sync.Mutex
	acked map[string][]int64 // numbers of jobs, by kind
	wrong map[string]int     // errors of producers, other than requests to try again
	told  map[string]int
	next  atomic.Int64
}

const failoverQueue = "failover"

func (cl *cluster) run(t *testing.T) {
	t.Helper()
	c := &crew{
		t: t, cluster: cl, journal: filepath.Join(t.TempDir(), "journal"), acked: map[string][]int64{},
		wrong: map[string]int{}, told: map[string]int{},
	}
	binary := build(t) // before there are slots, of which a missed one is made up for only while it is among the newest
	db := c.prepare()
	for i, url := range cl.urls {
		r := &rig{
			t: t, db: &dbtest.DB{URL: url}, binary: binary, dir: t.TempDir(), lease: 9 * time.Second,
			poll: time.Second, grace: 10 * time.Second,
		}
		api, admin := "127.0.0.1:"+dbtest.FreePort(t), "127.0.0.1:"+dbtest.FreePort(t)
		c.urls, c.health = append(c.urls, "http://"+api), append(c.health, "http://"+admin)
		c.daemons = append(c.daemons, r.serve(binary, fmt.Sprintf("d%d", i), "--poll", r.poll.String(), "--listen", api, "--admin-listen", admin))
		c.workers = append(c.workers, start(t, "failover worker", part{URL: url, Name: failoverQueue, File: c.journal, Concurrency: 4}))
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, d := range c.daemons {
				t.Logf("%s: %s", d.node, last(d.log.String(), 4000))
			}
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producers sync.WaitGroup
	for i := range 2 {
		producers.Go(func() { c.produce(ctx, func(n int64) error { return c.post(ctx, i, n) }, "plain") })
	}
	for _, url := range cl.urls {
		producers.Go(func() { c.enqueue(ctx, url) })
	}

	c.until("jobs are done", 200, instant.Now())
	var figures []figure
	for _, m := range cl.steps {
		at := instant.Now()
		m.do(c)
		t.Logf("%s: took %.1f s", m.what, instant.Now().Sub(at).Seconds())
		c.until("jobs are done after: "+m.what, 300, instant.Now())
		for i := range c.urls {
			c.isReady(i)
		}
		c.until("jobs are done by all after: "+m.what, 300, instant.Now())
		gap, jobs := c.gap(at)
		figures = append(figures, figure{m.what, gap, jobs})
	}
	stop()
	producers.Wait()
	until := c.slotsEnded(db)
	c.settle(db)
	c.account(db, until, figures)
}

func last(text string, n int) string { return text[max(0, len(text)-n):] }

// prepare makes tables and schedules.
func (c *crew) prepare() *dbtest.DB {
	t := c.t
	url := c.cluster.primary
	if url == "" {
		url = c.cluster.urls[0]
	}
	own, err := engines.Open(t.Context(), url, dialect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close() })
	db := &dbtest.DB{DB: own, URL: url}
	if err := sqlschema.Migrate(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	// A cluster's nodes identify rows by their primary key.
	key := "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	if own.Dialect.Name == mysql.Dialect.Name {
		key = "BIGINT AUTO_INCREMENT PRIMARY KEY"
	}
	db.Do(t, `CREATE TABLE effects (id `+key+`, n BIGINT NOT NULL)`, nil)
	db.Do(t, `CREATE TABLE slot_effect (id `+key+`, schedule VARCHAR(100) NOT NULL)`, nil)
	db.Do(t, `CREATE TABLE sent (n BIGINT NOT NULL PRIMARY KEY)`, nil)
	for _, s := range []scheduler.Schedule{
		{Name: "command", Spec: "@every 1s", Command: "true"},
		{Name: "statement", Spec: "@every 1s", Kind: "sql", Command: `INSERT INTO slot_effect (schedule) VALUES ('statement')`},
		{Name: "job", Spec: "@every 1s", Kind: "job", Command: "slot", Job: scheduler.JobOptions{Queue: failoverQueue}},
	} {
		s.Missed, s.Overlap = "all", "allow"
		if s.Kind != "job" { // its queue retries a job
			s.MaxAttempts, s.RetryDelay, s.RetryPastNext = 20, 200*time.Millisecond, true
		}
		if err := scheduler.Add(t.Context(), own, s); err != nil {
			t.Fatal(err)
		}
	}
	q, err := queue.New(own, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adminOf(q).Edit(t.Context(), failoverQueue, func(q *admin.Queue) {
		q.RetryDelay, q.MaxAttempts, q.MaxCrashes = 100*time.Millisecond, 1000, 1000
	}); err != nil {
		t.Fatal(err)
	}
	return db
}

// produce enqueues jobs one after the other, repeating each until it is acknowledged.
func (c *crew) produce(ctx context.Context, enqueue func(n int64) error, kind string) {
	for ctx.Err() == nil {
		n := c.next.Add(1)
		for ctx.Err() == nil {
			err := enqueue(n)
			c.mu.Lock()
			if err == nil {
				c.acked[kind] = append(c.acked[kind], n)
			} else if ctx.Err() == nil {
				c.told[shortened(err)]++
			}
			c.mu.Unlock()
			if err == nil {
				break
			}
			_ = wait(ctx, 100*time.Millisecond)
		}
		_ = wait(ctx, 10*time.Millisecond)
	}
}

// shortened returns an error without the parts that differ from one to the next.
func shortened(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '#'
		}
		return r
	}, err.Error())[:min(len(err.Error()), 160)]
}

// post enqueues over the HTTP API, at another daemon if one does not answer.
func (c *crew) post(ctx context.Context, first int, n int64) (err error) {
	for i := range c.urls {
		var status int
		var text string
		status, text, err = c.send(ctx, c.urls[(first+i)%len(c.urls)]+"/api/v1/jobs", n)
		switch {
		case err != nil:
		case status == http.StatusCreated, status == http.StatusOK:
			return nil
		case status == http.StatusServiceUnavailable:
			err = errors.New(text)
		default:
			c.mu.Lock()
			c.wrong[fmt.Sprintf("%d %s", status, text)]++
			c.mu.Unlock()
			err = errors.New(text)
		}
	}
	return err
}

func (c *crew) send(ctx context.Context, url string, n int64) (status int, text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body := fmt.Sprintf(`{"kind": "plain", "queue": %q, "payload": %d}`, failoverQueue, n)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", strconv.FormatInt(n, 10))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(bytes.TrimSpace(got)), err
}

// enqueue enqueues through the library: plainly, with a unique key, and in its own transactions.
func (c *crew) enqueue(ctx context.Context, url string) {
	db, err := engines.Open(ctx, url, dialect.Options{})
	if err != nil {
		c.t.Error(err)
		return
	}
	defer db.Close()
	q, err := queue.New(db, queue.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		c.t.Error(err)
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		c.produce(ctx, func(n int64) error {
			one, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := q.Enqueue(one, queue.Job{
				Queue: failoverQueue, Kind: "tx", Payload: strconv.AppendInt(nil, n, 10), Unique: strconv.FormatInt(n, 10), UniqueFor: time.Hour,
			})
			return err
		}, "tx")
	})
	both.Go(func() {
		c.produce(ctx, func(int64) error {
			one, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			// Each attempt has its own number: a failed transaction may have committed, which the table of
			// sent jobs shows.
			return enqueueSent(one, db, q, c.next.Add(1))
		}, "sent")
	})
	both.Wait()
}

// enqueueSent enqueues a job in a transaction that records it as sent.
func enqueueSent(ctx context.Context, db *dialect.DB, q *queue.Client, n int64) error {
	tx, err := db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: db.Dialect.Isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, "INSERT INTO sent (n) VALUES ("+strconv.FormatInt(n, 10)+")"); err != nil {
		return err
	}
	_, wake, err := q.EnqueueTx(ctx, tx, queue.Job{Queue: failoverQueue, Kind: "tx", Payload: strconv.AppendInt(nil, n, 10)})
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	wake()
	return nil
}

// playFailoverWorker runs two kinds of jobs: some record themselves in the transaction that
// completes them, the others in a file before they end.
func playFailoverWorker(ctx context.Context, a *actor) error {
	journal, err := os.OpenFile(a.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	note := func(kind string, n int64) error {
		_, err := fmt.Fprintf(journal, "%d %s %d\n", instant.Now(), kind, n)
		return err
	}
	c, err := queue.New(a.db, queue.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	w, err := c.Worker(queue.WorkerOptions{Queues: []string{a.Name}, Concurrency: a.Concurrency})
	if err != nil {
		return err
	}
	inTx := func(ctx context.Context, d *queue.Delivery, n int64) error {
		tx, err := a.db.Pool().BeginTx(ctx, &sql.TxOptions{Isolation: a.db.Dialect.Isolation})
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
		if _, err := tx.ExecContext(ctx, "INSERT INTO effects (n) VALUES ("+strconv.FormatInt(n, 10)+")"); err != nil {
			return err
		}
		if err := d.CompleteTx(ctx, tx); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		return note(d.Kind, n)
	}
	number := func(d *queue.Delivery) (n int64, err error) { return n, d.Decode(&n) }
	err = errors.Join(
		w.Handle("tx", func(ctx context.Context, d *queue.Delivery) error {
			n, err := number(d)
			if err != nil {
				return err
			}
			return inTx(ctx, d, n)
		}),
		w.Handle("slot", func(ctx context.Context, d *queue.Delivery) error { return inTx(ctx, d, -d.ID) }),
		w.Handle("plain", func(_ context.Context, d *queue.Delivery) error {
			n, err := number(d)
			if err != nil {
				return err
			}
			return note(d.Kind, n)
		}),
	)
	if err != nil {
		return err
	}
	a.runs(ctx, w)
	return nil
}

// An ending is a line of the journal.
type ending struct {
	at   instant.Instant
	kind string
	n    int64
}

func (c *crew) endings() (all []ending) {
	c.t.Helper()
	text, err := os.ReadFile(c.journal)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	for row := range strings.Lines(string(text)) {
		if !strings.HasSuffix(row, "\n") {
			break // still being written
		}
		var e ending
		if _, err := fmt.Sscan(row, &e.at, &e.kind, &e.n); err != nil {
			c.t.Fatalf("%q: %v", row, err)
		}
		all = append(all, e)
	}
	return all
}

// until waits until n jobs have ended since an instant.
func (c *crew) until(what string, n int, since instant.Instant) {
	c.t.Helper()
	for begun := instant.Now(); ; {
		all := c.endings()
		late := slices.IndexFunc(all, func(e ending) bool { return e.at >= since })
		if late >= 0 && len(all)-late >= n {
			return
		}
		if instant.Now().Sub(begun) > patience || wait(c.t.Context(), 200*time.Millisecond) != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("not within %v: %s; %d have ended in all, the last %v ago; producers were told %v", patience,
				what, len(all), instant.Now().Sub(all[max(0, len(all)-1)].at), c.told)
		}
	}
}

// gap returns the longest time without a finished job since an instant.
func (c *crew) gap(since instant.Instant) (longest time.Duration, jobs int) {
	at := since
	all := c.endings()
	slices.SortFunc(all, func(a, b ending) int { return int(a.at - b.at) })
	for _, e := range all {
		if e.at < since {
			continue
		}
		longest, at = max(longest, e.at.Sub(at)), e.at
		jobs++
	}
	return longest, jobs
}

// isReady waits until a daemon says that it is ready. A daemon whose server is gone for good must
// say that it is not.
func (c *crew) isReady(i int) {
	c.t.Helper()
	want := http.StatusOK
	if c.cluster.dead[i] {
		want = http.StatusServiceUnavailable
	}
	c.ready(i, want, "")
}

// ready waits for an answer of a daemon's /readyz.
func (c *crew) ready(i, want int, text string) {
	c.t.Helper()
	var got string
	for begun := instant.Now(); ; {
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.health[i]+"/readyz", http.NoBody)
		if err != nil {
			c.t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if got = fmt.Sprint(answer.StatusCode, " ", string(body)); answer.StatusCode == want && strings.Contains(got, text) {
				return
			}
		}
		if instant.Now().Sub(begun) > patience || wait(c.t.Context(), 200*time.Millisecond) != nil {
			c.t.Fatalf("/readyz of daemon %d does not answer %d %q within %v: %s %v", i, want, text, patience, got, err)
		}
	}
}

// command runs a command of the program against one of the servers.
func (c *crew) command(i int, args ...string) (said string, code int) {
	c.t.Helper()
	d := c.daemons[i]
	cmd := exec.CommandContext(c.t.Context(), d.rig.binary, args...)
	cmd.Env = d.cmd.Env
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// settle waits until everything due is done, and then ends all processes.
func (c *crew) settle(db *dbtest.DB) {
	t := c.t
	live := func(i int) bool { return !c.cluster.dead[i] }
	// Nothing more comes due.
	for _, name := range []string{"command", "statement", "job"} {
		for begun := instant.Now(); ; {
			if err := scheduler.Pause(t.Context(), db.DB, name, "the test ends"); err == nil {
				break
			} else if instant.Now().Sub(begun) > patience {
				t.Fatal(err)
			}
			_ = wait(t.Context(), 100*time.Millisecond)
		}
	}
	q, err := queue.New(db.DB, queue.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for begun := instant.Now(); ; {
		n, err := adminOf(q).Count(t.Context(), failoverQueue, 100_000)
		open := db.List(t, `SELECT schedule, state FROM {prefix}run WHERE next_exec IS NOT NULL`, nil)
		if err == nil && n.Ready+n.Delayed+n.Running == 0 && len(open) == 0 {
			break
		}
		if instant.Now().Sub(begun) > patience {
			t.Fatalf("not done within %v: %+v, %v, %v", patience, n, open, err)
		}
		_ = wait(t.Context(), 200*time.Millisecond)
	}
	for i, d := range c.daemons {
		if live(i) {
			d.stop()
		} else {
			d.signal(syscall.SIGKILL)
			<-d.done
		}
	}
	for i, w := range c.workers {
		if live(i) {
			w.tell("stop")
			w.hear("stopped")
		} else {
			w.kill()
		}
	}
}

// slotsEnded waits until each slot up to now has ended, and returns this now: what a pause cancels, or keeps from another attempt, is later.
func (c *crew) slotsEnded(db *dbtest.DB) time.Time {
	c.t.Helper()
	var until int64
	db.Scan(c.t, `SELECT {us {now}}`, nil, &until)
	ask := func(text string) []string {
		open, err := sqlrun.Select(c.t.Context(), &db.Session, sqlrun.Unlisted(text), sqlrun.Args{"until": until},
			func(rows *sql.Rows) (name string, err error) { return name, rows.Scan(&name) })
		if err != nil {
			open = append(open, err.Error())
		}
		return open
	}
	for begun := instant.Now(); ; {
		// In this order: a slot is open from the moment at which its schedule is past it.
		open := slices.Concat(ask(`SELECT name FROM {prefix}schedule WHERE COALESCE({us due_at}, 0) <= :until`),
			ask(`SELECT schedule FROM {prefix}run WHERE next_exec IS NOT NULL AND {us due_at} <= :until`))
		if len(open) == 0 {
			return time.UnixMicro(until)
		}
		if instant.Now().Sub(begun) > patience || wait(c.t.Context(), 200*time.Millisecond) != nil {
			c.t.Fatalf("slots have not ended within %v: %v", patience, open[:min(10, len(open))])
		}
	}
}

// account compares the acknowledged jobs with those done, and the slots up to a moment with their effects.
func (c *crew) account(db *dbtest.DB, until time.Time, figures []figure) {
	t := c.t
	effects := map[int64]int{}
	for _, row := range db.List(t, `SELECT n, COUNT(*) FROM effects GROUP BY n`, nil) {
		var n int64
		var times int
		if _, err := fmt.Sscan(row, &n, &times); err != nil {
			t.Fatalf("%q: %v", row, err)
		}
		effects[n] = times
	}
	plain := map[int64]int{}
	for _, e := range c.endings() {
		if e.kind == "plain" {
			plain[e.n]++
		}
	}
	var lost, twice []int64
	jobs := 0
	for kind, all := range c.acked {
		jobs += len(all)
		for _, n := range all {
			if kind == "tx" && effects[n] == 0 || kind == "plain" && plain[n] == 0 {
				lost = append(lost, n)
			}
		}
	}
	// Every committed job is done, acknowledged or not.
	sent := 0
	for _, row := range db.List(t, `SELECT n FROM sent`, nil) {
		n, err := strconv.ParseInt(row, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if sent++; effects[n] == 0 {
			lost = append(lost, n)
		}
	}
	if acked := len(c.acked["sent"]); sent < acked {
		t.Errorf("%d transactions were acknowledged, and %d were committed", acked, sent)
	}
	again := 0
	for n, times := range effects {
		if times > 1 {
			twice = append(twice, n)
		}
	}
	for _, times := range plain {
		again += times - 1
	}
	slots, wrongSlots := c.slots(db, until, effects)
	if dead := db.List(t, `SELECT kind, attempt, error FROM {prefix}job_dead`, nil); len(dead) > 0 {
		t.Errorf("%d dead letters: %v", len(dead), dead[:min(3, len(dead))])
	}
	if len(lost) > 0 {
		t.Errorf("%d jobs were acknowledged, and not done: %v", len(lost), lost[:min(10, len(lost))])
	}
	if len(twice) > 0 {
		t.Errorf("%d jobs had their effect twice: %v", len(twice), twice[:min(10, len(twice))])
	}
	for _, w := range wrongSlots[:min(10, len(wrongSlots))] {
		t.Error(w)
	}
	if len(c.wrong) > 0 {
		t.Errorf("the HTTP API answered what is neither done nor try again: %v", c.wrong)
	}
	for _, f := range figures {
		t.Logf("figures: %s: %s: no job ended for %.1f s", c.cluster.product, f.what, f.gap.Seconds())
		fmt.Printf("| %s | %s | %.1f s | %d | %d | %d | %d | %d |\n", c.cluster.product, f.what, f.gap.Seconds(),
			jobs, len(lost), len(twice), slots, len(wrongSlots))
	}
	t.Logf("%d jobs were acknowledged, %d done again where they may be; %d slots; producers were told:", jobs, again, slots)
	for _, text := range slices.Sorted(maps.Keys(c.told)) {
		t.Logf("%5d %s", c.told[text], text)
	}
}

// slots checks each schedule's slots: each has one successful run, and the statements and jobs of those took effect once. Not counted are
// those that were skipped since a hundred waited already, on a slow machine, and those after a moment that were paused.
func (c *crew) slots(db *dbtest.DB, until time.Time, effects map[int64]int) (n int, wrong []string) {
	t := c.t
	all, err := scheduler.History(t.Context(), db.DB, "", 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := scheduler.List(t.Context(), db.DB, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stored {
		plan, err := s.Slots()
		if err != nil {
			t.Fatal(err)
		}
		done, first, lastSlot := map[int64]int{}, time.Time{}, time.Time{}
		var passed []scheduler.Run
		ok := 0
		for _, run := range all {
			if run.Schedule != s.Name {
				continue
			}
			if first.IsZero() || run.Due.Before(first) {
				first = run.Due
			}
			if run.Due.After(lastSlot) {
				lastSlot = run.Due
			}
			if run.State == "ok" {
				done[run.Due.UnixMicro()]++
				ok++
			} else if strings.HasPrefix(run.Error, "100 runs") || run.Due.After(until) && strings.Contains(run.Error, "the schedule is paused") {
				passed = append(passed, run)
			}
		}
		lastSlot = later(lastSlot, until)
		for slot := first; !slot.After(lastSlot); slot, _ = plan.Next(slot) {
			times := done[slot.UnixMicro()]
			if times == 0 && spans(passed, slot) {
				t.Logf("%s: slot %v was passed over", s.Name, slot)
				continue
			}
			if n++; times != 1 {
				text := fmt.Sprintf("%s: slot %v was run %d times:", s.Name, slot, times)
				for _, run := range all {
					if run.Schedule == s.Name && run.Due.Equal(slot) {
						text += fmt.Sprintf(" attempt %d %s by %s %s;", run.Attempt, run.State, run.By, run.Error)
					}
				}
				wrong = append(wrong, text)
			}
		}
		had := ok
		switch s.Name {
		case "statement":
			had = len(db.List(t, `SELECT id FROM slot_effect`, nil))
		case "job":
			had = 0
			for n, times := range effects {
				if n < 0 {
					had += times
				}
			}
		}
		if had != ok {
			wrong = append(wrong, fmt.Sprintf("%s: %d slots are ok, and %d had their effect", s.Name, ok, had))
		}
	}
	return n, wrong
}

// spans reports whether a slot is one of those that runs stand for.
func spans(runs []scheduler.Run, slot time.Time) bool {
	return slices.ContainsFunc(runs, func(run scheduler.Run) bool { return !slot.Before(run.Due) && !slot.After(later(run.Due, run.To)) })
}
