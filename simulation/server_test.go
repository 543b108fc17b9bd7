package simulation

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	moderncsqlite "modernc.org/sqlite"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/sqlschema"
)

// A server is the simulated database server: a SQLite file, a clock that can be set, and what a server says
// when it is down or takes no writes.
type server struct {
	w    *World
	base driver.Connector

	mu       sync.Mutex
	ahead    time.Duration // of its clock, from virtual time
	down     bool
	readOnly bool
	full     bool  // the file may not grow
	serving  *conn // whose statement it does
	ears     []*ear
	listened map[string][]*Process // who has listened, by channel
}

var (
	errRefused  = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	errReadOnly = fmt.Errorf("the simulated server takes no writes: %w", sqlrun.ErrReadOnly)
)

// the is the server that the functions below belong to: SQLite registers functions for a whole process.
var the atomic.Pointer[server]

func init() {
	register := func(name string, args int32, f func(args []driver.Value) driver.Value) {
		moderncsqlite.MustRegisterScalarFunction(name, args, func(_ *moderncsqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			return f(args), nil
		})
	}
	register("sim_now", 0, func([]driver.Value) driver.Value {
		return the.Load().now().Format("2006-01-02 15:04:05.000")
	})
	register("sim_notify", 2, func(args []driver.Value) driver.Value {
		the.Load().tell(fmt.Sprint(args[0]), fmt.Sprint(args[1]))
		return ""
	})
	// PostgreSQL's, which statements that notify call.
	register("set_config", 3, func(args []driver.Value) driver.Value { return args[1] })
	register("has_function_privilege", 2, func([]driver.Value) driver.Value { return int64(1) })
}

// sqliteNow is what the migrations call for the present time.
const sqliteNow = "strftime('%Y-%m-%d %H:%M:%f', 'now')"

// template is the contents of a file with dbcron's tables, whose defaults have the simulated clock.
var template = sync.OnceValues(func() (_ []byte, err error) {
	if *flagTemplate != "" {
		return os.ReadFile(*flagTemplate)
	}
	dir, err := os.MkdirTemp("", "simulation")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "template.db")
	ctx := context.Background()
	db, err := sqlite.Open(ctx, "sqlite:"+file, dialect.Options{})
	if err != nil {
		return nil, err
	}
	if err := sqlschema.Migrate(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c, err := db.Pool().Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	for _, text := range []string{
		"PRAGMA writable_schema = ON",
		"UPDATE sqlite_schema SET sql = replace(sql, '" + strings.ReplaceAll(sqliteNow, "'", "''") + "', 'sim_now()')",
		"PRAGMA writable_schema = RESET",
		"PRAGMA wal_checkpoint(TRUNCATE)",
	} {
		if _, err := c.ExecContext(ctx, text); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", text, err), c.Close(), db.Close())
		}
	}
	if err := errors.Join(c.Close(), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// newServer makes a database in a folder.
func newServer(w *World, dir string) (*server, error) {
	contents, err := template()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "sim.db")
	if err := os.WriteFile(file, contents, 0o600); err != nil {
		return nil, err
	}
	s := &server{w: w, listened: map[string][]*Process{}}
	// The bubble begins in the year 2000, and jobs' ids in 2020.
	s.ahead = time.Until(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC))
	s.base, err = moderncsqlite.NewConnector("file:" + file + "?_txlock=immediate&_pragma=busy_timeout(0)&_pragma=synchronous(OFF)")
	the.Store(s)
	return s, err
}

// folder returns a folder in memory, if the host has one.
func folder(t *testing.T) string {
	t.Helper()
	const memory = "/dev/shm"
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	// A name of the same length each time: what is allocated before a run decides the addresses in it.
	dir := filepath.Join(memory, fmt.Sprintf("simulation%010d", os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// engine is SQLite with the server's clock and errors, and with notifications if notes is set.
func engine(notes bool) *sqlrun.Dialect {
	d := *sqlite.Dialect
	d.Now = "sim_now()"
	d.File = nil // each process has the file to itself, as far as it knows
	d.Check = func(context.Context, *sqlrun.DB) ([]sqlrun.Finding, error) { return nil, nil }
	d.ReadOnly = func(err error) bool { return errors.Is(err, sqlrun.ErrReadOnly) }
	d.Unavailable = func(err error) bool {
		return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, sqlrun.ErrReadOnly)
	}
	if notes {
		d.Notify = func(channel, payload string) string { return "sim_notify(" + channel + ", " + payload + ")" }
		d.Listen = listen
	}
	return &d
}

func (s *server) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead).UTC() //nolint:forbidigo // virtual
}

// set sets the clock forward or back.
func (s *server) set(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// state changes whether the server is there, and takes writes.
func (s *server) state(down, readOnly bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.readOnly = down, readOnly
}

// refuses returns the error with which the server refuses a round trip.
func (s *server) refuses(t *turn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down && t.op == "connect":
		return errRefused
	case s.readOnly && t.write:
		return errReadOnly
	}
	return nil
}

// fill has the disk be full, or not.
func (s *server) fill(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// serve notes whose statement the server does next. While the disk is full, the file cannot grow by it.
func (s *server) serve(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = c
	if c.raw == nil || c.full == s.full || c.p.fragile == spared {
		return
	}
	most := "PRAGMA max_page_count = 4294967294"
	if s.full {
		most = "PRAGMA max_page_count = 1" // SQLite takes the number of pages that there are
	}
	if _, err := c.raw.(driver.ExecerContext).ExecContext(context.Background(), most, nil); err == nil {
		c.full = s.full
	}
}

// A notice is sent when the transaction is committed that tells it.
type notice struct{ channel, payload string }

func (s *server) tell(channel, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := (notice{channel, payload}); s.serving != nil && !slices.Contains(s.serving.told, n) {
		s.serving.told = append(s.serving.told, n)
	}
}

// An ear listens to a channel on a connection.
type ear struct {
	c       *conn
	channel string
	heard   []string
	rings   chan struct{}
}

// send sends what a connection has told, through the gate.
func (s *server) send(c *conn) {
	s.mu.Lock()
	told, ears := c.told, slices.Clone(s.ears)
	c.told = nil
	lost := slices.ContainsFunc(told, s.misses)
	s.mu.Unlock()
	if lost {
		s.w.count("news is lost while a listener reconnects")
	}
	for _, n := range told {
		for _, e := range ears {
			if e.channel == n.channel {
				s.w.gate.post(e, n.payload)
			}
		}
	}
}

// misses reports whether a process lives that has listened to the notification's channel, and does not now. mu is held.
func (s *server) misses(n notice) bool {
	return n.payload != "ping" && slices.ContainsFunc(s.listened[n.channel], func(p *Process) bool {
		return !p.hasEnded() && !slices.ContainsFunc(s.ears, func(e *ear) bool { return e.c.p == p && e.channel == n.channel })
	})
}

// post sends one notification.
func (g *gate) post(e *ear, payload string) {
	t := &turn{p: e.c.p, c: e.c, op: "notify", free: make(chan order, 1), act: func() {
		if e.c.deaf.Load() || e.c.p.isMute() {
			g.w.count("news goes down a dead path")
			return
		}
		g.w.history.add(event{who: e.c.p.who(), what: "hears " + payload})
		e.c.p.w.server.mu.Lock()
		e.heard = append(e.heard, payload)
		e.c.p.w.server.mu.Unlock()
		select {
		case e.rings <- struct{}{}:
		default:
		}
	}}
	g.mu.Lock()
	g.waiting = append(g.waiting, t)
	g.mu.Unlock()
	g.look()
}

// deaden has the connections on which a process listens go nowhere, without an end, as a firewall does that has
// forgotten them. It reports whether there are any.
func (s *server) deaden(p *Process) (any bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ears {
		if e.c.p == p {
			e.c.deaf.Store(true)
			any = true
		}
	}
	return any
}

// deafen removes what a connection listens to.
func (s *server) deafen(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ears = slices.DeleteFunc(s.ears, func(e *ear) bool { return e.c == c })
}

func listen(ctx context.Context, driverConn any, channel string, ready func(), heard func(string)) error {
	c := driverConn.(*conn)
	s, e := c.p.w.server, &ear{c: c, channel: channel, rings: make(chan struct{}, 1)}
	err := c.trip(ctx, &turn{op: "listen"}, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ears = append(s.ears, e)
		if !slices.Contains(s.listened[channel], c.p) {
			s.listened[channel] = append(s.listened[channel], c.p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	ready()
	for {
		select {
		case <-e.rings:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.cut:
			return driver.ErrBadConn
		}
		s.mu.Lock()
		all := e.heard
		e.heard = nil
		s.mu.Unlock()
		for _, payload := range all {
			heard(payload)
		}
	}
}

// pool returns a pool of connections for a process.
func pool(p *Process, most int) *sql.DB {
	all := sql.OpenDB(connector{p})
	all.SetMaxOpenConns(most)
	all.SetMaxIdleConns(most)
	return all
}
