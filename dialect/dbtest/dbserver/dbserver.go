// Package dbserver starts real database servers for tests: private ones, on free ports of
// 127.0.0.1, from the binaries installed on the machine.
//
// A server ends with the process that started it, however that process ends, and its data folder is
// removed. A second process, the keeper, takes care of that: see keeper.go.
//
// The settings are chosen to make mistakes show: neither the server nor its host is in UTC, MySQL is
// west of it and MariaDB east, and PostgreSQL sorts text by language unless a column says otherwise.
package dbserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrMissing means that the server's binaries are not installed. The full message says what to
// install.
var ErrMissing = errors.New("dbserver: server not installed")

// ErrStopped means that the server was stopped for good.
var ErrStopped = errors.New("dbserver: server is stopped")

// Options configures a server. The zero value is a fast one.
type Options struct {
	Durable bool // what is committed survives Kill; slower
	Keep    bool // others can be set up by copying: see Kept
}

// An Engine is a kind of server.
type Engine struct {
	Name     string // names the subtests
	Variable string // environment variable with the URL of a server to use instead

	// Start starts a server and waits until it answers. If ctx ends first, it
	// leaves nothing behind.
	Start func(ctx context.Context, opt Options) (*Server, error)
}

// Engines lists the servers that the tests need.
var Engines = slices.DeleteFunc([]Engine{
	{"postgres", "DBCRON_TEST_POSTGRES", StartPostgres},
	{"mariadb", "DBCRON_TEST_MARIADB", StartMariaDB},
	{"mysql", "DBCRON_TEST_MYSQL", StartMySQL},
}, func(e Engine) bool { return LeftOut(e.Name) })

// LeftOut reports whether the tests should skip the engine called name. DBCRON_TEST_ENGINES lists
// the engines to run, comma-separated; without it, the tests run on all.
func LeftOut(name string) bool {
	return len(chosen) > 0 && slices.Contains(known, name) && !slices.Contains(chosen, name)
}

var (
	known  = []string{"postgres", "mariadb", "mysql", "sqlite"}
	chosen = func() (names []string) {
		for name := range strings.FieldsFuncSeq(os.Getenv("DBCRON_TEST_ENGINES"), func(r rune) bool { return r == ',' }) {
			if !slices.Contains(known, name) {
				panic("DBCRON_TEST_ENGINES names " + name + ", which is none of " + strings.Join(known, ", "))
			}
			names = append(names, name)
		}
		return names
	}()
)

// StartPostgres starts a PostgreSQL server and waits until it answers. If ctx
// ends first, it leaves nothing behind.
func StartPostgres(ctx context.Context, opt Options) (*Server, error) {
	bin, err := findPostgres(postgresFolders())
	if err != nil {
		return nil, err
	}
	return start(ctx, order{Do: doStart, Engine: "postgres", Bin: bin, Durable: opt.Durable, Keep: opt.Keep})
}

// StartMariaDB starts a MariaDB server and waits until it answers. If ctx ends
// first, it leaves nothing behind.
func StartMariaDB(ctx context.Context, opt Options) (*Server, error) {
	bin, err := findMariaDB(mariadbFolders())
	if err != nil {
		return nil, err
	}
	return start(ctx, order{Do: doStart, Engine: "mariadb", Bin: bin, Durable: opt.Durable, Keep: opt.Keep})
}

// StartMySQL starts a MySQL server and waits until it answers. If ctx ends first,
// it leaves nothing behind.
func StartMySQL(ctx context.Context, opt Options) (*Server, error) {
	bin, err := findMySQL(mysqlFolders())
	if err != nil {
		return nil, err
	}
	return start(ctx, order{Do: doStart, Engine: "mysql", Bin: bin, Durable: opt.Durable, Keep: opt.Keep})
}

// A Server is a database server that belongs to this process. Its methods are safe for concurrent
// use.
type Server struct {
	url     string
	dir     string
	version string

	mu      sync.Mutex
	keeper  *exec.Cmd
	orders  io.WriteCloser
	answers *json.Decoder
	stopped bool
}

// URL returns the server's address, as postgres://… or mysql://…, with the name and password of a
// superuser and an empty database (postgres, test). It stays the same after Restart.
func (s *Server) URL() string { return s.url }

// Version returns the version that the server's program prints.
func (s *Server) Version() string { return s.version }

// Kept returns a folder with what the server began with, until it ends; it was started with Keep. Servers that a
// program starts are set up with a copy of that, and have the same password, if the engine's KeptVariable names the
// folder: to set one up takes seconds of a processor.
func (s *Server) Kept() string { return filepath.Join(s.dir, keptFolder) }

// KeptVariable returns the name of an environment variable.
func KeptVariable(engine string) string { return "DBCRON_TEST_KEPT_" + strings.ToUpper(engine) }

// Stop stops the server at once and removes its data. Further calls do nothing.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	return s.stop()
}

// Kill kills all processes of the server with SIGKILL, like a crash. The data stay.
func (s *Server) Kill() error {
	_, err := s.send(context.Background(), order{Do: doKill})
	return err
}

// Restart starts the server again after Kill, with the same data and port, and waits until it
// answers. It kills a running server first. If ctx ends before the server answers, the server is
// stopped for good.
func (s *Server) Restart(ctx context.Context) error {
	_, err := s.send(ctx, order{Do: doRestart})
	return err
}

// start starts a keeper and has it carry out the first order.
func start(ctx context.Context, first order) (*Server, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The keeper outlives ctx; it ends at the end of its standard input.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe)
	cmd.Args = []string{keeperName}
	cmd.Dir = os.TempDir()
	cmd.SysProcAttr = ownSession()
	// Stderr stays closed: a keeper that held the test's would make go test
	// wait for it.
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{version: version(first.Bin.Server), keeper: cmd, orders: in, answers: json.NewDecoder(out)}
	a, err := s.send(ctx, first)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.url, s.dir = a.URL, a.Dir
	return s, nil
}

func (s *Server) send(ctx context.Context, o order) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return answer{}, ErrStopped
	}
	defer context.AfterFunc(ctx, func() { s.orders.Close() })()

	var a answer
	err := json.NewEncoder(s.orders).Encode(o)
	if err == nil {
		err = s.answers.Decode(&a)
	}
	switch {
	case ctx.Err() != nil:
		return a, errors.Join(context.Cause(ctx), s.stop())
	case err != nil:
		return a, errors.Join(fmt.Errorf("dbserver: the server's keeper is gone: %w", err), s.stop())
	case a.Err != "":
		return a, errors.New("dbserver: " + a.Err)
	}
	return a, nil
}

// stop tells the keeper to stop the server, by closing its input, and waits for its last answer.
// The caller holds s.mu.
func (s *Server) stop() error {
	s.stopped = true
	s.orders.Close()
	var last answer
	for {
		var a answer
		if s.answers.Decode(&a) != nil {
			break
		}
		last = a
	}
	err := s.keeper.Wait()
	if last.Err != "" {
		err = errors.New("dbserver: " + last.Err)
	}
	if s.dir != "" { // in case the keeper was killed
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
