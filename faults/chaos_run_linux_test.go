package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

// A plan sets the size of a chaos test and how often it disturbs the daemons.
type plan struct {
	cross     bool  // combine each job with all policies
	schedules int   // minimum number of schedules
	every     []int // seconds between slots

	end     time.Duration // counted from the start
	kill    time.Duration // from one SIGKILL to the next
	stop    time.Duration // from one SIGSTOP to the next; a stop lasts two leases
	operate time.Duration // from one order of an operator to the next
}

func planned() plan {
	if *minutes == 0 {
		return plan{
			every: []int{6, 8, 11, 17},
			end:   36 * time.Second, kill: 5 * time.Second, stop: 12 * time.Second, operate: 200 * time.Millisecond,
		}
	}
	return plan{
		schedules: 500, cross: true, every: []int{10, 13, 20, 29, 60},
		end: time.Duration(*minutes) * time.Minute, kill: 5 * time.Second, stop: 20 * time.Second, operate: 200 * time.Millisecond,
	}
}

// Four daemons share a database. The test keeps killing one of them, or stopping one for longer
// than its lease, and kills the server, too. Operators start, cancel, pause and backfill. Each slot
// of each schedule has one outcome, no attempt is made twice, runs that must not overlap do not,
// fences rise, and interrupted runs are taken over in time.
func TestChaos(t *testing.T) {
	binary := build(t)
	var tables tables
	t.Cleanup(func() { tables.log(t) })
	on := func(name string, open func(t *testing.T) (*dbtest.DB, *dbserver.Server)) {
		t.Run(name, func(t *testing.T) {
			if *minutes == 0 {
				t.Parallel()
			}
			db, server := open(t)
			if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			c := &chaos{
				rig: rig{
					t: t, db: db, binary: binary, dir: dir, mark: "FAULTS_MARK=" + dir,
					lease: 3 * time.Second, poll: time.Second, grace: 10 * time.Second,
				},
				plan: planned(), server: server,
				leases: map[int64]leaseEnd{}, refused: map[string]int{}, requests: map[string][]string{},
			}
			c.run()
			sum := c.account()
			tables.add(name, c, sum)
			figures(t, map[string]int{
				"kills": c.kills, "stops": c.stops, "kills of the server": c.restarts, "slots": int(sum.slots), "commands": sum.begun,
				"takeovers": len(sum.afterLease),
			})
			c.reportAll()
		})
	}
	for _, s := range killed() {
		on(s.name, s.empty)
	}
	for _, d := range engines.All {
		if d.SkipLocked == "" && (dbtest.Long() || len(servers) == 0) { // SQLite has no server to kill
			on(d.Name, func(t *testing.T) (*dbtest.DB, *dbserver.Server) { return dbtest.Fresh(t, d.Name), nil })
		}
	}
}

// A chaos is one run of the test on one database.
type chaos struct {
	rig
	plan      plan
	server    *dbserver.Server // nil: there is none
	endpoint  *httptest.Server
	schedules []*given

	mu       sync.Mutex
	seats    []*seat
	gone     []*daemon
	checks   sync.WaitGroup
	leases   map[int64]leaseEnd // by id, of runs whose daemon was killed or stopped
	outages  [][2]time.Time     // of the server
	kills    int
	stops    int
	exits    int // daemons that ended by themselves
	restarts int // of the server

	byHand  []scheduler.Run // runs that Start has promised
	refused map[string]int  // errors that operators received

	heard    sync.Mutex
	requests map[string][]string // the attempts received for each Idempotency-Key
}

// A seat is one daemon's place: a new daemon takes it when the old one dies.
type seat struct {
	*daemon
	number  int
	tags    []string
	stopped bool
}

// A leaseEnd records when a daemon was killed or stopped, and when its run's lease ends.
type leaseEnd struct{ at, end time.Time }

func (c *chaos) run() {
	t := c.t
	c.prepare()
	for i, tags := range [][]string{{"default", "other"}, {"default"}, {"other"}, {"other", "default"}} {
		c.seats = append(c.seats, &seat{number: i, tags: tags})
		c.seat(c.seats[i])
	}
	ctx, cancel := context.WithTimeout(t.Context(), c.plan.end)
	defer cancel()
	var others sync.WaitGroup
	for _, other := range []func(context.Context){c.stopSome, c.restartServer, c.operateAll} {
		others.Go(func() { other(ctx) })
	}
	c.killSome(ctx)
	others.Wait()
	c.settle()
	c.checks.Wait()
	for _, s := range c.seats {
		s.stop()
	}
	if left := processes(c.mark); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// prepare makes the schedules and what they need.
func (c *chaos) prepare() {
	t := c.t
	c.endpoint = httptest.NewServer(http.HandlerFunc(c.answer))
	t.Cleanup(c.endpoint.Close)
	c.db.Do(t, `CREATE TABLE effect (schedule VARCHAR(200) NOT NULL)`, nil)
	text, fromFile := c.crontab()
	if err := os.WriteFile(c.file("crontab"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	now, err := scheduler.Clock(t.Context(), c.db.DB)
	if err != nil {
		t.Fatal(err)
	}
	c.schedules = c.given(now)
	for _, g := range c.schedules {
		if !g.Ends.IsZero() { // on a busy machine the creation so far may have outlasted it
			at, err := scheduler.Clock(t.Context(), c.db.DB)
			if err != nil {
				t.Fatal(err)
			}
			passed := at.Sub(now).Truncate(time.Second)
			g.Starts, g.Ends = g.Starts.Add(passed), g.Ends.Add(passed)
		}
		if err := scheduler.Add(t.Context(), c.db.DB, g.Schedule); err != nil {
			t.Fatal(err)
		}
		stored, err := scheduler.Get(t.Context(), c.db.DB, g.Name)
		if err != nil {
			t.Fatal(err)
		}
		g.first = stored.Due
	}
	c.schedules = append(c.schedules, fromFile...)
}

func (c *chaos) file(name string) string { return filepath.Join(c.dir, name) }

// answer serves the schedules' requests.
func (c *chaos) answer(w http.ResponseWriter, r *http.Request) {
	c.heard.Lock()
	key := r.Header.Get("Idempotency-Key")
	c.requests[key] = append(c.requests[key], r.Header.Get("Dbcron-Attempt"))
	c.heard.Unlock()
	if r.URL.Path == "/flaky" && rand.IntN(3) == 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// seat starts the next daemon in a seat.
func (c *chaos) seat(s *seat) {
	if s.daemon != nil {
		c.gone = append(c.gone, s.daemon)
	}
	s.daemon = c.start(fmt.Sprintf("d%d.%d", s.number, len(c.gone)), c.file("crontab"), s.tags)
}

// each calls do at intervals until ctx ends.
func each(ctx context.Context, interval time.Duration, do func()) {
	for range pace.Ticks(ctx, interval) {
		do()
	}
}

// pick returns a random seat whose daemon is running.
func (c *chaos) pick() *seat {
	for _, i := range rand.Perm(len(c.seats)) {
		if s := c.seats[i]; !s.stopped && !s.ended() {
			return s
		}
	}
	return nil
}

// killSome kills daemons and starts others in their place. As a supervisor does, it also replaces
// daemons that ended by themselves.
func (c *chaos) killSome(ctx context.Context) {
	const look = 100 * time.Millisecond
	var waited time.Duration
	each(ctx, look, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.seats {
			if s.ended() {
				c.exits++
				c.seat(s)
			}
		}
		if waited += look; waited < c.plan.kill {
			return
		}
		s := c.pick()
		if s == nil {
			return
		}
		waited = 0
		c.kills++
		s.signal(syscall.SIGKILL)
		<-s.done
		c.noteLeases(s.daemon)
		killed := s.daemon
		c.checks.Go(func() { killed.freed("after it was killed", 10*time.Second) })
		c.seat(s)
	})
}

// stopSome stops daemons for longer than their leases.
func (c *chaos) stopSome(ctx context.Context) {
	each(ctx, c.plan.stop, func() {
		c.mu.Lock()
		s := c.pick()
		if s == nil {
			c.mu.Unlock()
			return
		}
		d := s.daemon
		s.stopped = true
		c.stops++
		d.signal(syscall.SIGSTOP)
		c.noteLeases(d)
		c.mu.Unlock()
		begin, resume := time.Now(), time.After(2*c.lease) //nolint:forbidigo // takeovers meanwhile may not be counted
		blocked := c.blocked()
		d.freed("after the lease of the stopped daemon", c.lease+c.lease/3)
		<-resume
		c.mu.Lock()
		defer c.mu.Unlock()
		d.signal(syscall.SIGCONT)
		s.stopped = false
		if blocked {
			c.outages = append(c.outages, [2]time.Time{begin, time.Now()}) //nolint:forbidigo // see above
		}
	})
}

// blocked reports whether a stopped daemon is the engine's only writer: nobody can take over
// before it continues.
func (c *chaos) blocked() bool {
	if c.db.Dialect.SkipLocked != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second/2)
	defer cancel()
	_, err := c.db.Exec(ctx, writesNothing, nil)
	return err != nil
}

var writesNothing = sqlrun.Unlisted(`DELETE FROM effect WHERE schedule = ''`)

var leasesOf = sqlrun.Unlisted(`
	SELECT id, {us next_exec}, {us {now}} FROM {prefix}run WHERE state = 'running' AND exec_by LIKE :node`)

// noteLeases records when the leases of a daemon end that can no longer renew them.
func (c *chaos) noteLeases(d *daemon) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	_, err := sqlrun.Select(ctx, &c.db.Session, leasesOf, sqlrun.Args{"node": d.node + ":%"},
		func(rows *sql.Rows) (none struct{}, err error) {
			var id, end, now int64
			err = rows.Scan(&id, &end, &now)
			c.leases[id] = leaseEnd{time.UnixMicro(now), time.UnixMicro(end)}
			return none, err
		})
	if err != nil && c.server == nil {
		c.t.Error(err)
	}
}

// restartServer kills the database's server twice and starts it again.
func (c *chaos) restartServer(ctx context.Context) {
	if c.server == nil {
		return
	}
	each(ctx, c.plan.end*2/5, func() {
		begin := time.Now() //nolint:forbidigo // takeovers meanwhile are not counted
		err := c.server.Kill()
		select {
		case <-time.After(time.Second):
		case <-c.t.Context().Done():
		}
		if err = errors.Join(err, c.server.Restart(c.t.Context())); err != nil {
			c.t.Error(err)
		}
		c.mu.Lock()
		c.restarts++
		c.outages = append(c.outages, [2]time.Time{begin, time.Now()}) //nolint:forbidigo // see above
		c.mu.Unlock()
	})
}

// operateAll issues random orders as operators do.
func (c *chaos) operateAll(ctx context.Context) {
	of := func(name string) (all []*given) {
		for _, g := range c.schedules {
			if strings.HasPrefix(g.Name, name+"-") {
				all = append(all, g)
			}
		}
		return all
	}
	hand, paused, backfilled := of("hand"), of("paused"), of("backfilled")
	one := func(all []*given) *given { return all[rand.IntN(len(all))] }
	each(ctx, c.plan.operate, func() {
		var err error
		switch rand.IntN(8) {
		case 0, 1, 2:
			err = c.startByHand(ctx, one(hand).Name)
		case 3:
			err = c.startByHand(ctx, one(c.schedules).Name)
		case 4:
			err = c.cancelOne(ctx)
		case 5:
			err = scheduler.Pause(ctx, c.db.DB, one(paused).Name, "chaos")
		case 6:
			err = c.resume(ctx, one(paused))
		case 7:
			err = c.backfill(ctx, one(backfilled).Name)
		}
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, scheduler.ErrBusy), errors.Is(err, scheduler.ErrNotRunning): // expected
		default:
			c.refused[err.Error()]++
		}
	})
}

func (c *chaos) startByHand(ctx context.Context, name string) error {
	run, err := scheduler.Start(ctx, c.db.DB, name)
	if err == nil {
		c.byHand = append(c.byHand, run)
	}
	return err
}

func (c *chaos) resume(ctx context.Context, g *given) error {
	now, err := scheduler.Clock(ctx, c.db.DB)
	if err != nil {
		return err
	}
	g.resumed = append(g.resumed, now)
	return scheduler.Resume(ctx, c.db.DB, g.Name)
}

var openRuns = sqlrun.Unlisted(`SELECT id FROM {prefix}run WHERE state IN ('waiting', 'running')`)

func (c *chaos) cancelOne(ctx context.Context) error {
	ids, err := sqlrun.Select(ctx, &c.db.Session, openRuns, nil, func(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) })
	if err != nil || len(ids) == 0 {
		return err
	}
	_, err = scheduler.Cancel(ctx, c.db.DB, ids[rand.IntN(len(ids))], cancelledBy)
	return err
}

const cancelledBy = "cancelled by the chaos"

func (c *chaos) backfill(ctx context.Context, name string) error {
	now, err := scheduler.Clock(ctx, c.db.DB)
	if err != nil {
		return err
	}
	_, err = scheduler.Backfill(ctx, c.db.DB, name, now.Add(-10*time.Second), now, false)
	return err
}

var (
	unplanned = sqlrun.Unlisted(`SELECT COUNT(*) FROM {prefix}schedule WHERE state = 'active' AND next_exec IS NULL`)
	putOff    = sqlrun.Unlisted(`UPDATE {prefix}schedule SET next_exec = {time :never} WHERE state = 'active'`)
	unended   = sqlrun.Unlisted(`SELECT COUNT(*) FROM {prefix}run WHERE next_exec IS NOT NULL`)
)

// settle stops further slots from coming due and waits until no run is running or waiting, as long as they become fewer.
func (c *chaos) settle() {
	t := c.t
	for _, g := range c.schedules {
		if g.paused {
			c.insist(func() error { return c.resume(t.Context(), g) })
		}
	}
	c.eventually("resumed schedules are planned", 20*time.Second, func() bool { return c.count(unplanned) == 0 })
	never := time.Date(9998, time.January, 1, 0, 0, 0, 0, time.UTC)
	c.insist(func() error {
		_, err := c.db.Exec(t.Context(), putOff, sqlrun.Args{"never": never.UnixMicro()})
		return err
	})
	for left := -1; left != 0; { // how many there are depends on the machine
		fell := false
		c.eventually(fmt.Sprintf("fewer runs than %d run or wait", left), 2*time.Minute, func() bool {
			n := c.count(unended)
			if fell = n >= 0 && (left < 0 || n < left); fell {
				left = n
			}
			return fell
		})
		if !fell {
			return
		}
	}
}

// insist repeats do until it succeeds.
func (c *chaos) insist(do func() error) {
	c.t.Helper()
	var err error
	c.eventually("an order is carried out", time.Minute, func() bool { err = do(); return err == nil })
	if err != nil {
		c.t.Error(err)
	}
}

// count returns a number from the database, or -1 while the database does not answer.
func (c *chaos) count(stmt *sqlrun.Stmt) int {
	var n int
	if err := c.db.Get(c.t.Context(), stmt, nil, &n); err != nil {
		return -1
	}
	return n
}

// lines reads the lines that commands wrote to a file, split into words.
func (c *chaos) lines(name string) (all [][]string) {
	text, err := os.ReadFile(c.file(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		all = append(all, strings.Fields(line))
	}
	return all
}

// reportAll prints the daemons' logs and the operators' errors if the test failed.
func (c *chaos) reportAll() {
	if !c.t.Failed() {
		return
	}
	for _, d := range c.gone {
		d.report()
	}
	for _, s := range c.seats {
		s.report()
	}
	for _, text := range slices.Sorted(maps.Keys(c.refused)) {
		c.t.Logf("operators were told, %d times: %s", c.refused[text], text)
	}
}
