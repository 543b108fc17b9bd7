package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
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
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

var (
	schedules = numbers{1_000, 100_000, 1_000_000}
	fleets    = numbers{1, 2, 4}
	rates     = numbers{10, 100, 1_000}
	churn     = flag.Int("churn", 1_000_000, "claims without vacuum between the figures before and after")
	failing   = flag.Bool("failing", false, "functions fail")
	maxRuns   = flag.Int("max-runs", 400, "runs that a daemon executes at a time")
	herd      = flag.Int("herd", 10_000, "functions that are due at the same moment")
	compare   = flag.Bool("compare", true, "measure the floors too")
	commands  = flag.Int("commands", 1_000, "commands that are due at the same moment")
)

func init() {
	flag.Var(&schedules, "schedules", "schedules in the table; where one size is enough, the last")
	flag.Var(&fleets, "daemons", "daemons, each with a pool of its own")
	flag.Var(&rates, "rates", "fires a second")
	flag.Var(&stallRates, "stall", "schedules that are due every second, for a stall")
}

// numbers is a flag: a list of numbers separated by commas.
type numbers []int

func (n *numbers) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*n), " ", ","), "&[]")
}

func (n *numbers) Set(text string) error {
	*n = nil
	for word := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(word)
		if err != nil || i < 1 {
			return fmt.Errorf("%q is not numbers such as 1,2,4", text)
		}
		*n = append(*n, i)
	}
	return nil
}

func (n numbers) last() int { return n[len(n)-1] }

// lane is the lane of these tests' schedules: functions called noop.
const lane = "default func noop"

// Times of schedules. Overdue ones have missed one slot however long the test takes.
const (
	spec   = "@every 24h"
	later  = 24 * time.Hour
	behind = 4 * time.Hour // start of the overdue slots, before now
	width  = 2 * time.Hour // length of their range
	pace   = 1000          // claims a second that churn simulates
)

var (
	// 10 000 numbers from :first on.
	digits = `(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4
		UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)`
	numbered = `(SELECT {int :first} + a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS i
		FROM ` + digits + ` AS a CROSS JOIN ` + digits + ` AS b CROSS JOIN ` + digits + ` AS c CROSS JOIN ` + digits + ` AS e) AS numbered`

	// Not in the order of the ids, as after a while in production. 7919 is prime.
	delaySome = sqlrun.Unlisted(`
		UPDATE {prefix}schedule SET due_at = {time ({int :from} + id * 7919 % {int :width})}, next_exec = {time ({int :from} + id * 7919 % {int :width})}
		WHERE id >= :first AND id < :end AND next_exec > {now} AND lane = :lane`)

	moveSome = sqlrun.Unlisted(`
		UPDATE {prefix}schedule SET due_at = {time ({int :from} + (id - {int :first}) * {int :step})}, next_exec = {time ({int :from} + (id - {int :first}) * {int :step})}
		WHERE id >= :first AND id < :end AND lane = :lane`)
)

// A bed is a database to measure in.
type bed struct {
	*dbtest.DB
	rows int // schedules that are not due
}

// beds runs f on each engine with a table of schedules that are due in a day. Only the test vacuums
// it.
func beds(t *testing.T, rows int, f func(t *testing.T, b *bed)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) { f(t, newBed(t, db, rows)) })
}

func newBed(t *testing.T, db *dbtest.DB, rows int) *bed {
	t.Helper()
	b := &bed{db, rows}
	if b.Dialect.Name == "postgres" {
		for _, table := range []string{"schedule", "run"} {
			b.Do(t, `ALTER TABLE {prefix}`+table+` SET (autovacuum_enabled = false)`, nil)
		}
	}
	b.insert(t, "s", "func", "noop", rows, b.clock(t)+later.Microseconds(), 1000)
	b.vacuum(t)
	return b
}

// fresh returns another database of the same engine, with tables.
func fresh(t *testing.T, engine string) *dbtest.DB {
	t.Helper()
	db := dbtest.Fresh(t, engine)
	if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	return db
}

// clock returns the database's time in µs.
func (b *bed) clock(t *testing.T) (us int64) {
	t.Helper()
	b.Scan(t, `SELECT {us {now}}`, nil, &us)
	return us
}

func (b *bed) insert(t *testing.T, name, kind, command string, n int, from, step int64) {
	t.Helper()
	insert := sqlrun.Unlisted(fmt.Sprintf(`
		INSERT INTO {prefix}schedule (name, spec, kind, command, due_at, next_exec)
		SELECT CONCAT('%s', i), '%s', '%s', '%s', {time ({int :from} + i * {int :step})}, {time ({int :from} + i * {int :step})}
		FROM %s WHERE i < {int :end}`, name, spec, kind, command, numbered))
	for first := 0; first < n; first += 10_000 {
		b.change(t, insert, sqlrun.Args{"first": first, "end": n, "from": from, "step": step})
	}
}

// vacuum cleans up and gathers statistics.
func (b *bed) vacuum(t *testing.T) {
	t.Helper()
	if b.Dialect.Name == "postgres" {
		b.Do(t, `VACUUM ANALYZE {prefix}schedule`, nil)
		b.Do(t, `VACUUM ANALYZE {prefix}run`, nil)
		b.Do(t, `CHECKPOINT`, nil)
		return
	}
	b.Analyze(t, "schedule", "run")
}

// some calls f for ranges of a table's ids until it returns false.
func (b *bed) some(t *testing.T, table string, f func(first, end int64) bool) {
	t.Helper()
	var least, most int64
	b.Scan(t, `SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM `+table, nil, &least, &most)
	for first := least; first <= most; first += 10_000 {
		if !f(first, first+10_000) {
			return
		}
	}
}

// churn moves schedules as that number of claims would have, one per millisecond up to now. Then
// all schedules are due in a day again. It returns the last simulated slot.
func (b *bed) churn(t *testing.T, claims int) (last int64) {
	t.Helper()
	at, step := b.clock(t)-int64(claims)*(1e6/pace), int64(1e6/pace)
	for left := int64(claims); left > 0; {
		b.some(t, "{prefix}schedule", func(first, end int64) bool {
			n := b.change(t, moveSome, sqlrun.Args{"first": first, "end": end, "from": at, "step": step, "lane": lane})
			at += n * step
			left -= n
			return left > 0
		})
	}
	last, at = at, b.clock(t)+later.Microseconds()
	b.some(t, "{prefix}schedule", func(first, end int64) bool {
		at += b.change(t, moveSome, sqlrun.Args{"first": first, "end": end, "from": at, "step": step, "lane": lane}) * step
		return true
	})
	return last
}

// overdue makes all schedules overdue that are not.
func (b *bed) overdue(t *testing.T) {
	t.Helper()
	from := b.clock(t) - behind.Microseconds()
	b.some(t, "{prefix}schedule", func(first, end int64) bool {
		b.change(t, delaySome, sqlrun.Args{"first": first, "end": end, "from": from, "width": width.Microseconds(), "lane": lane})
		return true
	})
}

// change is Do for a *sqlrun.Stmt instead of text.
func (b *bed) change(t *testing.T, stmt *sqlrun.Stmt, args sqlrun.Args) int64 {
	t.Helper()
	n, err := b.Exec(t.Context(), stmt, args)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A call is what a function saw of a run.
type call struct {
	id    int64
	delay time.Duration // from the slot to the call
}

// A daemon is a Scheduler with its own pool, as in another process.
type daemon struct {
	s     *scheduler.Scheduler
	count atomic.Int64

	mu    sync.Mutex
	calls []call
}

func (d *daemon) noop(_ context.Context, run *scheduler.Running) error {
	at := time.Now() // client and server share the host and its clock
	d.mu.Lock()
	d.calls = append(d.calls, call{run.ID, at.Sub(run.Due)})
	d.mu.Unlock()
	d.count.Add(1)
	if *failing {
		return errors.New("it fails")
	}
	return nil
}

// A fleet is a number of running daemons.
type fleet struct {
	daemons []*daemon
	cancel  context.CancelFunc
	group   sync.WaitGroup
}

// launch starts n daemons. They run until stop or the end of the test.
func launch(t *testing.T, b *bed, n int, opt scheduler.Options) *fleet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fleet{cancel: cancel}
	for range n {
		f.run(t, ctx, open(t, b.URL, 10), opt)
	}
	t.Cleanup(f.stop)
	return f
}

// run starts another daemon.
func (f *fleet) run(t *testing.T, ctx context.Context, db *dialect.DB, opt scheduler.Options) {
	t.Helper()
	opt.Logger = slog.New(slog.DiscardHandler)
	opt.MaxRuns = *maxRuns
	s, err := scheduler.New(db, opt)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{s: s}
	if err := s.Handle("noop", d.noop); err != nil {
		t.Fatal(err)
	}
	f.daemons = append(f.daemons, d)
	f.group.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// stop lets the daemons finish what they have started.
func (f *fleet) stop() {
	f.cancel()
	f.group.Wait()
}

func (f *fleet) count() (n int64) {
	for _, d := range f.daemons {
		n += d.count.Load()
	}
	return n
}

// calls returns the calls of all daemons, ordered by delay. The daemons must have stopped.
func (f *fleet) calls() []call {
	var all []call
	for _, d := range f.daemons {
		all = append(all, d.calls...)
	}
	slices.SortFunc(all, func(a, b call) int { return int(a.delay - b.delay) })
	return all
}

// shares returns the minimum and the maximum that one daemon ran.
func (f *fleet) shares() string {
	counts := make([]int64, len(f.daemons))
	for i, d := range f.daemons {
		counts[i] = d.count.Load()
	}
	return fmt.Sprintf("%d–%d each", slices.Min(counts), slices.Max(counts))
}

// until waits until enough functions were called, or until span is over.
func (f *fleet) until(t *testing.T, enough int64, span time.Duration) {
	t.Helper()
	over := time.After(span)
	for f.count() < enough {
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-over:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(d):
	}
}

// newest returns the id of the newest run.
func (b *bed) newest(t *testing.T) (id int64) {
	t.Helper()
	b.Scan(t, `SELECT COALESCE(MAX(id), 0) FROM {prefix}run`, nil, &id)
	return id
}

// A tally is what the table says about the runs of a phase.
type tally struct {
	runs            int64
	claiming, doing time.Duration // from the first start to the last start, and to the last end
}

// tally reads the outcomes of the runs after an id, and fails if any is lost or doubled.
func (b *bed) tally(t *testing.T, after int64, f *fleet) tally {
	t.Helper()
	var r tally
	var good, slots, from, start, end int64
	want := "ok"
	if *failing {
		want = "failed"
	}
	b.Scan(t, `SELECT COUNT(*), COALESCE(SUM(CASE WHEN state = :want AND attempt = 1 AND next_exec IS NULL THEN 1 ELSE 0 END), 0),
			COUNT(DISTINCT schedule), COALESCE({us MIN(started_at)}, 0), COALESCE({us MAX(started_at)}, 0), COALESCE({us MAX(finished_at)}, 0)
		FROM {prefix}run WHERE id > :after`, sqlrun.Args{"after": after, "want": want}, &r.runs, &good, &slots, &from, &start, &end)
	if good != r.runs || slots != r.runs {
		t.Errorf("of %d runs %d are %s at the first attempt, of %d schedules: want all", r.runs, good, want, slots)
		for _, line := range b.List(t, `SELECT state, error, COUNT(*) FROM {prefix}run WHERE id > :after GROUP BY state, error`,
			sqlrun.Args{"after": after}) {
			t.Log(line)
		}
	}
	ids := map[int64]bool{}
	for _, c := range f.calls() {
		ids[c.id] = true
	}
	if f.count() != r.runs || int64(len(ids)) != r.runs {
		t.Errorf("%d runs, and %d calls for %d of them", r.runs, f.count(), len(ids))
	}
	r.claiming, r.doing = time.Duration(start-from)*time.Microsecond, time.Duration(end-from)*time.Microsecond
	return r
}

// due counts the due schedules.
func (b *bed) due(t *testing.T) (n int64) {
	t.Helper()
	b.Scan(t, `SELECT COUNT(*) FROM {prefix}schedule WHERE state = 'active' AND lane = :lane AND next_exec <= {now}`,
		sqlrun.Args{"lane": lane}, &n)
	return n
}

func perSecond(n int64, d time.Duration) float64 { return float64(n) / max(d.Seconds(), 1e-3) }

// again repeats f as long as the engine asks for a retry.
func again(ctx context.Context, d *sqlrun.Dialect, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil || !d.Retryable(err) {
			return err
		}
	}
}

var errOver = errors.New("over")

// A usage is processor time, which says more than elapsed time on a shared machine.
type usage struct{ client, server time.Duration }

// cpu returns what this process and the server have used so far; 0 for a server on another host.
func (b *bed) cpu(t *testing.T) (u usage) {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	u.client = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	switch b.Dialect.Name {
	case "postgres":
		var backend string
		b.Scan(t, `SELECT CAST(pg_backend_pid() AS TEXT)`, nil, &backend)
		if stat := procStat(backend); stat != nil {
			u.server = family(stat[3])
		}
	case "mysql":
		var file string
		b.Scan(t, `SELECT @@pid_file`, nil, &file)
		pid, _ := os.ReadFile(file) // another host's server has none
		u.server = family(strings.TrimSpace(string(pid)))
	}
	return u
}

// family returns the processor time of a process, its children, and its former children.
func family(pid string) (total time.Duration) {
	own, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	for _, pid := range append(strings.Fields(string(own)), pid) {
		if stat := procStat(pid); stat != nil {
			for _, field := range stat[13:17] {
				ticks, _ := strconv.Atoi(field)
				total += time.Duration(ticks) * time.Second / 100
			}
		}
	}
	return total
}

// procStat returns a process's line in /proc. Its second field may contain blanks.
func procStat(pid string) []string {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	before, after, ok := strings.Cut(string(text), ") ")
	if err != nil || !ok {
		return nil
	}
	return append([]string{pid, before}, strings.Fields(after)...)
}

// since returns the usage per fire of n fires.
func (u usage) since(before usage, n int64) usage {
	n = max(1, n)
	return usage{(u.client - before.client) / time.Duration(n), (u.server - before.server) / time.Duration(n)}
}

func (u usage) String() string {
	return fmt.Sprintf("CPU %.0f+%.0f µs", float64(u.client)/1e3, float64(u.server)/1e3)
}
