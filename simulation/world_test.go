package simulation

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/datagram"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A violation is a promise that was broken.
type violation struct {
	Kind  string   // lost, doubled, order, phantom, stuck, …
	Text  string   // for people
	About []string // words that the events mention that led to it
}

// A World is one run: a server, the processes, what happens to them, and what was seen.
type World struct {
	scenario
	Operator *dialect.DB // of a process that nothing happens to

	dialect *sqlrun.Dialect
	server  *server
	gate    *gate
	history *history
	faults  *nemesis
	postman *postman
	ctx     context.Context // of the hosts
	end     context.CancelFunc
	all     sync.WaitGroup // of hosts and processes

	trip int // how long a request or an answer is under way, in µs, in the mean
	row  int // how long a row takes that is sent, and one that is answered, in µs

	mu       sync.Mutex
	hosts    []*host
	lives    []*Process
	clocks   map[string]*instant.Host // of the hosts, by name
	knobs    map[string]int
	plain    map[string]int // the first value of each knob
	strikes  map[string]int // of each fault, by its knob
	done     map[string]int
	reached  map[string]int
	broken   []violation
	late     time.Duration // how long after a lease's end a takeover came at most, while nothing stood in its way
	troubled time.Time     // when something last disturbed it
	jams     int           // faults under way that may keep all from writing
	jammed   time.Time     // when there was one last
}

// A report is what a life has shown, and how.
type report struct {
	scenario
	outcome
	history *history
}

// run lives through a scenario.
func run(t *testing.T, s scenario) (r report) {
	t.Helper()
	defer instant.Virtual()()
	defer guardian.Virtual(runCommand)()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it makes goroutines wait
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30))
	cryptotest.SetGlobalRandom(t, s.seed)
	dir := folder(t)
	if _, err := template(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(s, dir)
		if err == nil {
			defer datagram.Virtual(w.postman)()
			err = w.live()
		}
		if err != nil {
			t.Fatal(err)
		}
		r = report{s, outcome{
			Workload: s.workload, Seed: s.seed, Knobs: w.knobs, Plain: w.plain, Strikes: w.strikes, Done: w.done, Reached: w.reached,
			Broken: w.broken, Late: w.late, Trips: w.gate.seq, Virtual: time.Since(w.history.began), Sum: w.history.sum.Sum64(),
		}, w.history}
	})
	return r
}

func newWorld(s scenario, dir string) (w *World, err error) {
	w = &World{
		scenario: s, history: newHistory(time.Now()), //nolint:forbidigo // virtual
		clocks: map[string]*instant.Host{}, knobs: map[string]int{}, plain: map[string]int{}, strikes: map[string]int{}, done: map[string]int{}, reached: map[string]int{},
	}
	w.ctx, w.end = context.WithCancel(context.Background())
	w.gate, w.postman = newGate(w), newPostman(w)
	w.server, err = newServer(w, dir)
	return w, err
}

// live is the life of a world, from its beginning to its end.
func (w *World) live() error {
	go w.gate.collect()
	var work Workload
	for _, one := range workloads {
		if one.name == w.workload {
			work = one.make()
		}
	}
	if work == nil {
		return fmt.Errorf("there is no workload %q", w.workload)
	}
	w.dialect = engine(w.Knob("notes", 0, 1) == 1 && w.workload != "lock") // locks' notifications need arrays
	w.postman.every = w.Knob("bells.lost", 0, 0, 5, 1)
	w.trip = w.Knob("trip", 50, 300, 300, 1000, 4000)
	w.row = w.Knob("row", 0, 0, 30, 300)
	operator := w.newProcess("operator", 1)
	var err error
	if w.Operator, err = operator.Open(2); err != nil {
		return err
	}
	if err := work.Begin(w); err != nil {
		return err
	}
	w.faults = w.unleash()
	if after := w.Knob("upgrade", 0, 0, 0, 5, 20); after > 0 {
		w.all.Go(func() { w.upgrade(time.Duration(after) * time.Second) })
	}
	over := time.Now().Add(time.Duration(w.minutes * float64(time.Minute))) //nolint:forbidigo // virtual
	for time.Until(over) > 0 {
		<-time.After(time.Second)
		work.Left(w)
		w.noticeLate()
	}
	w.faults.end()
	w.settle(work)
	w.end()
	if !w.ends() {
		return nil // the bubble cannot end, either
	}
	if err := work.Check(w); err != nil {
		w.Violate("check", nil, "%v", err)
	}
	operator.stop()
	close(operator.done)
	w.checkConnections()
	w.gate.close()
	return nil
}

// upgrade migrates the database, while all work, as a next version might that these processes have to bear: it adds columns.
func (w *World) upgrade(after time.Duration) {
	select {
	case <-time.After(after):
	case <-w.ctx.Done():
		return
	}
	for _, table := range []string{
		"job", "job_running", "job_delayed", "job_dead", "job_done", "job_unique", "queue", "queue_block", "queue_worker",
		"schedule", "run", "node", "lock",
	} {
		for { // another one may write just now
			_, err := w.Operator.Pool().ExecContext(w.Free(), `ALTER TABLE dbcron_`+table+` ADD COLUMN next_version INTEGER NOT NULL DEFAULT 7`)
			if err == nil {
				break
			}
			if !w.Operator.Dialect.Retryable(err) {
				w.Violate("upgrade", nil, "%s: %v", table, err)
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	w.count("the schema is of the next version")
}

// settling is how long after the last fault everything must have ended: leases end, processes come back,
// jobs that have failed are tried again, and the rest is worked off.
const settling = 5 * time.Minute

// settle waits until nothing is left.
func (w *World) settle(work Workload) {
	left := ""
	for range settling / time.Second {
		if left = work.Left(w); left == "" {
			return
		}
		<-time.After(time.Second)
		w.noticeLate()
	}
	w.Violate("stuck", nil, "%v after the last fault there is left: %s", settling, left)
}

// ends waits until all processes have ended, and reports whether they have.
func (w *World) ends() bool {
	over := make(chan struct{})
	go func() { w.all.Wait(); close(over) }()
	select {
	case <-over:
		return true
	case <-time.After(10 * time.Minute):
		var names []string
		for _, p := range w.lives {
			select {
			case <-p.done:
			default:
				names = append(names, p.who())
			}
		}
		w.Violate("goroutines", nil, "ten minutes after they were stopped these have not returned: %s", strings.Join(names, ", "))
		return false
	}
}

// checkConnections looks for connections that processes have left open.
func (w *World) checkConnections() {
	<-time.After(30 * time.Second) // answers are under way, and lockers give back what they may have got
	for _, p := range w.lives {
		p.mu.Lock()
		n := len(p.conns)
		p.mu.Unlock()
		if n > 0 {
			w.Violate("connections", nil, "%s has left %d open", p.who(), n)
		}
	}
}

// Knob returns a number that the seed draws from some values, or that the scenario sets. It is printed with
// a violation, and can be set by -with name=number. The first value is the plainest one: see shrink.
func (w *World) Knob(name string, values ...int) int {
	value := oneOf(w.Dice("knob", name), values...)
	if set, is := w.with[name]; is {
		value = set
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.knobs[name], w.plain[name] = value, values[0]
	return value
}

// Dice returns the dice of something, by its name: the same whenever it is asked for.
func (w *World) Dice(name ...any) dice {
	return newDice(w.seed, append([]any{w.workload, ":"}, name...)...)
}

// Done counts what was done. mu is held: see Process.Act.
func (w *World) Done(kind string) { w.done[kind]++ }

// Reached counts a situation that the workload claims to reach. mu is held: see Process.Act.
func (w *World) Reached(situation string) { w.reached[situation]++ }

// Violate records a broken promise. The events whose text or arguments contain one of the words are printed.
func (w *World) Violate(kind string, words []string, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violate(kind, words, format, args...)
}

// violate is Violate with the mutex held.
func (w *World) violate(kind string, words []string, format string, args ...any) {
	v := violation{kind, fmt.Sprintf(format, args...), words}
	if kind == *flagUntil && *flagOutcome != "" {
		endAt(v)
	}
	if !slices.ContainsFunc(w.broken, func(o violation) bool { return o.Kind == kind && o.Text == v.Text }) {
		w.broken = append(w.broken, v)
		w.history.add(event{who: "a check", what: kind + ": " + v.Text})
	}
}

// Free returns a context for what Operator does.
func (w *World) Free() context.Context { return context.Background() }

// trouble notes that something disturbs the world.
func (w *World) trouble() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.After(w.troubled) { //nolint:forbidigo // virtual
		w.troubled = now
	}
}

// setClock sets the server's clock. Until it shows again what it has shown, nothing needs to become due.
func (w *World) setClock(by time.Duration) {
	w.server.set(by)
	w.trouble()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.troubled = w.troubled.Add(max(0, -by))
}

// Over reports whether the last fault has ended.
func (w *World) Over() bool { return w.faults != nil && w.faults.ctx.Err() != nil }

// jam notes that a fault begins or ends that may keep all processes from writing.
func (w *World) jam(more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jams += more
	w.jammed = time.Now() //nolint:forbidigo // virtual
}

// Quiet returns for how long nothing has disturbed the world.
func (w *World) Quiet() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.jams > 0 {
		return 0
	}
	return time.Since(w.troubled)
}

// Healthy reports whether one of the processes of some hosts, by the beginning of their names, has nothing
// that keeps it from working, and has lived for so long.
func (w *World) Healthy(prefix string, long time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.hosts {
		if p := h.now; p != nil && strings.HasPrefix(h.name, prefix) && p.healthy() && time.Since(h.since) > long {
			return true
		}
	}
	return false
}

// A host runs a program, again whenever it has ended, until the world ends.
type host struct {
	name  string
	run   Program
	once  bool // it is not run again once it has returned by itself
	now   *Process
	since time.Time
	ended bool
}

// Start starts a host. Faults happen to it.
func (w *World) Start(name string, run Program) { w.start(&host{name: name, run: run}) }

// StartOnce is Start for a program that has done its work when it returns nil before it is stopped.
func (w *World) StartOnce(name string, run Program) { w.start(&host{name: name, run: run, once: true}) }

func (w *World) start(h *host) {
	w.mu.Lock()
	w.hosts = append(w.hosts, h)
	w.mu.Unlock()
	w.all.Go(func() {
		for life := 1; w.ctx.Err() == nil; life++ {
			p := w.newProcess(h.name, life)
			w.mu.Lock()
			h.now, h.since = p, time.Now() //nolint:forbidigo // virtual
			w.mu.Unlock()
			p.Note("begins")
			gone := make(chan error, 1)
			w.all.Go(func() {
				defer close(p.done)
				gone <- h.run(p)
			})
			var err error
			select {
			case err = <-gone:
				p.Note("has returned: %v", err)
				p.mu.Lock()
				p.left = w.ctx.Err() == nil
				p.mu.Unlock()
			case <-p.gone:
			}
			w.mu.Lock()
			h.ended = h.once && err == nil && p.ctx.Err() == nil
			over := h.ended
			w.mu.Unlock()
			p.kill() // what it has left behind ends with it
			if over {
				return
			}
			select {
			case <-w.ctx.Done():
			case <-time.After(p.Dice.about(3 * time.Second)):
			}
		}
	})
}

func (w *World) newProcess(name string, life int) *Process {
	p := &Process{
		Name: name, Life: life, Dice: w.Dice("process", name, life), w: w, done: make(chan struct{}), began: time.Now(), //nolint:forbidigo // virtual
		conns: map[*conn]bool{}, gone: make(chan struct{}), changed: make(chan struct{}), slow: 1,
	}
	p.Log = slog.New(&logHandler{p: p})
	p.clock = w.clockOf(name)
	p.ctx, p.stop = context.WithCancel(instant.On(w.ctx, p.clock))
	p.fragile = w.Knob("fault.cut", 0, 0, 50, 300, 300, 2000)
	p.tardy = w.Knob("fault.late", 0, 0, 10, 30)
	if name == "operator" {
		p.fragile, p.tardy = spared, 0
		p.ctx, p.stop = context.WithCancel(context.Background())
	}
	w.mu.Lock()
	p.number = len(w.lives)
	w.lives = append(w.lives, p)
	w.mu.Unlock()
	return p
}

// clockOf returns the wall clock of a host, which may be off by minutes, and which the host's processes share
// one after the other. What the database decides, its own clock decides.
func (w *World) clockOf(name string) *instant.Host {
	off := time.Duration(w.Knob("wall.off", 0, 0, 300)) * time.Second
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clocks[name] == nil {
		w.clocks[name] = &instant.Host{}
		w.clocks[name].StepWall(w.Dice("wall", name).eitherWay(off))
	}
	return w.clocks[name]
}

// spared is the fragility of a process to which no fault happens.
const spared = -1

// A logHandler writes a process's log into the history.
type logHandler struct {
	p     *Process
	attrs []slog.Attr
}

func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}
func (h *logHandler) WithGroup(string) slog.Handler { return h }

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.p, append(slices.Clone(h.attrs), attrs...)}
}

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	add := func(a slog.Attr) bool {
		if a.Key != "took" { // of commands, which are real
			text += " " + a.String()
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	h.p.Note("log: %s", strings.ReplaceAll(text, "\n", ": "))
	return nil
}
