package dbserver

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// each runs f for every kind of server.
func each(t *testing.T, f func(t *testing.T, start func(context.Context, Options) (*Server, error))) {
	for _, e := range Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel() // a server's test mostly waits
			f(t, e.Start)
		})
	}
}

// must skips the test if the machine lacks the server; in CI it fails the test.
func must(t *testing.T, s *Server, err error) *Server {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func open(t *testing.T, address string) *sql.DB {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", address)
	if u.Scheme == "mysql" {
		cfg := mysql.NewConfig()
		cfg.Net, cfg.Addr, cfg.User, cfg.DBName = "tcp", u.Host, u.User.Username(), strings.Trim(u.Path, "/")
		cfg.Passwd, _ = u.User.Password()
		cfg.Logger = &mysql.NopLogger{}
		var c driver.Connector
		c, err = mysql.NewConnector(cfg)
		db = sql.OpenDB(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec1(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func get(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var value string
	if err := db.QueryRowContext(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

// eventually waits until f returns "". Otherwise f returns what is still wrong.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		wrong := f()
		if wrong == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(wrong)
		}
	}
}

// left describes what is left of a server.
func left(dir string) string {
	if _, err := os.Stat(dir); err == nil {
		return dir + " is still there"
	}
	if at := processesIn(dir); len(at) > 0 {
		return fmt.Sprintf("processes %v still work in %s", at, dir)
	}
	return ""
}

// processesIn returns the processes whose working directory is below dir.
func processesIn(dir string) []string {
	var found []string
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir) {
			found = append(found, filepath.Base(filepath.Dir(link)))
		}
	}
	return found
}

func TestStartAndStop(t *testing.T) {
	each(t, func(t *testing.T, start func(context.Context, Options) (*Server, error)) {
		s, err := start(t.Context(), Options{})
		must(t, s, err)
		checkSettings(t, s)
		checkPassword(t, s)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if wrong := left(s.dir); wrong != "" {
			t.Error(wrong)
		}
		if err := s.Restart(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("got %v after Stop, want ErrStopped", err)
		}
	})
}

// A server that begins with a copy of what another one began with is like that one, and not changed by it.
func TestKept(t *testing.T) {
	for _, e := range Engines {
		t.Run(e.Name, func(t *testing.T) {
			s, err := e.Start(t.Context(), Options{Keep: true})
			first := must(t, s, err)
			exec1(t, open(t, first.URL()), "CREATE TABLE later (id int PRIMARY KEY)")
			t.Setenv(KeptVariable(e.Name), first.Kept())
			s, err = e.Start(t.Context(), Options{})
			second := must(t, s, err)
			checkSettings(t, second)
			checkPassword(t, second)
			exec1(t, open(t, second.URL()), "CREATE TABLE later (id int PRIMARY KEY)")
			if err := second.Stop(); err != nil {
				t.Fatal(err)
			}
			if wrong := left(second.dir); wrong != "" {
				t.Error(wrong)
			}
			if files, err := os.ReadDir(first.Kept()); err != nil || len(files) < 2 {
				t.Errorf("after the end of a copy there are %v, %v", files, err)
			}
		})
	}
}

func checkSettings(t *testing.T, s *Server) {
	t.Helper()
	want := map[string]string{
		"SELECT @@time_zone":        "+05:45",
		"SELECT @@system_time_zone": "JST",
		"SELECT @@tx_isolation":     "REPEATABLE-READ",
		"SELECT @@max_connections":  "400",
		"SELECT database()":         "test",
		"SELECT group_concat(user, '@', host ORDER BY user) FROM mysql.user": "mariadb.sys@localhost,root@%",
	}
	switch {
	case strings.HasPrefix(filepath.Base(s.dir), "dbcron-mysql-"):
		delete(want, "SELECT @@tx_isolation")
		want["SELECT @@time_zone"] = "-03:30"
		want["SELECT LEFT(@@system_time_zone, 1)"] = "E" // EST or EDT
		delete(want, "SELECT @@system_time_zone")
		want["SELECT @@transaction_isolation"] = "REPEATABLE-READ"
		want["SELECT group_concat(user, '@', host ORDER BY user) FROM mysql.user"] = "mysql.infoschema@localhost,mysql.session@localhost,mysql.sys@localhost,root@%"
	case strings.HasPrefix(s.URL(), "postgres:"):
		want = map[string]string{
			"SHOW timezone":        "America/St_Johns",
			"SHOW max_connections": "400",
			"SHOW fsync":           "off",
			"SHOW server_encoding": "UTF8",
		}
	}
	db := open(t, s.URL())
	for query, value := range want {
		if got := get(t, db, query); got != value {
			t.Errorf("%s: got %s, want %s", query, got, value)
		}
	}
}

func checkPassword(t *testing.T, s *Server) {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"", "wrong"} {
		u.User = url.UserPassword(u.User.Username(), password)
		if err := open(t, u.String()).PingContext(t.Context()); err == nil {
			t.Errorf("password %q is let in", password)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	each(t, func(t *testing.T, start func(context.Context, Options) (*Server, error)) {
		s, err := start(t.Context(), Options{Durable: true})
		address := must(t, s, err).URL()
		db := open(t, address)
		exec1(t, db, "CREATE TABLE kept (id int PRIMARY KEY)")
		for round := range 3 {
			exec1(t, db, fmt.Sprintf("INSERT INTO kept VALUES (%d)", round))
			if err := s.Kill(); err != nil {
				t.Fatal(err)
			}
			// The keeper works in another directory.
			if at := processesIn(s.dir); len(at) > 0 {
				t.Errorf("processes %v outlived Kill", at)
			}
			if err := open(t, address).PingContext(t.Context()); err == nil {
				t.Error("the server answers after Kill")
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			// The pool may still hand out a connection to the dead server.
			db = open(t, s.URL())
			if got, want := get(t, db, "SELECT count(*) FROM kept"), fmt.Sprint(round+1); got != want {
				t.Errorf("got %s rows, want %s", got, want)
			}
		}
		if s.URL() != address {
			t.Errorf("got %s after Restart, want %s", s.URL(), address)
		}
	})
}

func TestKillEndsRunningStatements(t *testing.T) {
	each(t, func(t *testing.T, start func(context.Context, Options) (*Server, error)) {
		s, err := start(t.Context(), Options{})
		address := must(t, s, err).URL()
		slow, watching := "SELECT sleep(60)", "SELECT count(*) FROM information_schema.processlist WHERE info = 'SELECT sleep(60)'"
		if address[:8] == "postgres" {
			slow, watching = "SELECT pg_sleep(60)", "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"
		}
		failed := make(chan error)
		db := open(t, address)
		go func() {
			_, err := db.ExecContext(t.Context(), slow)
			failed <- err
		}()
		watcher := open(t, address)
		eventually(t, func() string {
			if get(t, watcher, watching) == "1" {
				return ""
			}
			return "the statement does not run"
		})
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err == nil {
			t.Error("a statement outlived Kill")
		}
	})
}

func TestRestartOnTakenPort(t *testing.T) {
	each(t, func(t *testing.T, start func(context.Context, Options) (*Server, error)) {
		s, err := start(t.Context(), Options{})
		u, err := url.Parse(must(t, s, err).URL())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		// This makes the first start try another port.
		if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), portTaken) {
			t.Errorf("got %v, want %q", err, portTaken)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEndedContextLeavesNothing(t *testing.T) {
	for _, e := range Engines {
		t.Run(e.Name, func(t *testing.T) {
			// Other tests start servers in the common folder, too.
			own, err := os.MkdirTemp("", "dbcron-ended-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(own)
			if err := os.Chmod(own, 0o755); err != nil { //nolint:gosec // the server's user goes there
				t.Fatal(err)
			}
			t.Setenv("TMPDIR", own)
			t.Setenv(KeptVariable(e.Name), "") // with a copy it may have started by then
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			s, err := e.Start(ctx, Options{})
			if errors.Is(err, ErrMissing) {
				must(t, s, err)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v, want DeadlineExceeded", err)
			}
			if left, err := os.ReadDir(own); len(left) > 0 || err != nil {
				t.Errorf("got %v, %v, want nothing", left, err)
			}
		})
	}
}

// The server and its folder disappear when the process that started it is killed.
func TestDeath(t *testing.T) {
	each(t, func(t *testing.T, start func(context.Context, Options) (*Server, error)) {
		child, lines := runChild(t)
		dir := line(t, lines)
		if strings.HasPrefix(dir, "missing") {
			if os.Getenv("CI") == "true" {
				t.Fatal(dir)
			}
			t.Skip(dir)
		}
		db := open(t, line(t, lines))
		if got := get(t, db, "SELECT 1"); got != "1" {
			t.Errorf("got %s, want 1", got)
		}
		if at := processesIn(dir); len(at) == 0 {
			t.Skip("this system does not show the processes' folders")
		}
		if err := child.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string { return left(dir) })
	})
}

// runChild starts this test binary again, as TestChild for one kind of server.
func runChild(t *testing.T) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	cmd.Env = append(os.Environ(), "DBSERVER_TEST_CHILD="+filepath.Base(t.Name()))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	return cmd, bufio.NewScanner(out)
}

func line(t *testing.T, s *bufio.Scanner) string {
	t.Helper()
	if !s.Scan() {
		t.Fatalf("the child printed too little: %v", s.Err())
	}
	return s.Text()
}

// TestChild is the other process of TestDeath.
func TestChild(t *testing.T) {
	at := slices.IndexFunc(Engines, func(e Engine) bool { return e.Name == os.Getenv("DBSERVER_TEST_CHILD") })
	if at < 0 {
		t.Skip("runs as part of TestDeath")
	}
	s, err := Engines[at].Start(t.Context(), Options{})
	if errors.Is(err, ErrMissing) {
		fmt.Println("missing:", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(s.dir)
	fmt.Println(s.URL())
	select {} // until it is killed
}

func TestKeeperDiesFirst(t *testing.T) {
	each(t, func(t *testing.T, start func(context.Context, Options) (*Server, error)) {
		s, err := start(t.Context(), Options{})
		if err != nil {
			must(t, s, err)
		}
		if err := s.keeper.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(t.Context()); err == nil {
			t.Error("Restart without a keeper returned no error")
		}
		eventually(t, func() string { return left(s.dir) })
	})
}

func TestMissing(t *testing.T) {
	empty := []string{t.TempDir(), "", "/no/such/folder"}
	_, postgresErr := findPostgres(empty)
	_, mariadbErr := findMariaDB(empty)
	_, mysqlErr := findMySQL(empty)
	for _, c := range []struct {
		err   error
		wants []string
	}{
		{postgresErr, []string{"apt-get install postgresql", "DBCRON_TEST_POSTGRES"}},
		{mariadbErr, []string{"mariadb-server-core", "DBCRON_TEST_MARIADB"}},
		{mysqlErr, []string{"tools/test-deps", "DBCRON_TEST_MYSQL"}},
	} {
		if !errors.Is(c.err, ErrMissing) {
			t.Errorf("got %v, want ErrMissing", c.err)
			continue
		}
		for _, want := range c.wants {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("got %q, want it to name %s", c.err, want)
			}
		}
	}
}

func TestNewestPostgresFirst(t *testing.T) {
	for path, want := range map[string]int{
		"/usr/lib/postgresql/15/bin": 15, "/usr/lib/postgresql/9.6/bin": 9,
		"/opt/homebrew/opt/postgresql@17/bin": 17, "/opt/homebrew/opt/postgresql/bin": 0,
	} {
		if got := number(path); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
}

func TestErrorHoldsTheLog(t *testing.T) {
	k := &keeper{
		dir: t.TempDir(), bin: binaries{Server: "/bin/sh"},
		engine: &engine{
			name: "sh", ready: "ready", quit: syscall.SIGKILL,
			args: func(*keeper) []string { return []string{"-c", "echo out of luck >&2; exit 3"} },
		},
	}
	err := k.start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "out of luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v, want the log and the exit status", err)
	}
}
