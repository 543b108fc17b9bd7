package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/lock"
)

// Some tests run this program again, as other processes.
const (
	roleVariable = "DBCRON_BENCH_ROLE"
	urlVariable  = "DBCRON_BENCH_URL"

	failoverTTL = 2 * time.Second
	failovers   = 10
)

// roles are what such a process does. Those of the failover test wait for a lock, report when they have
// it, and keep it until they are killed.
var roles = map[string]func(ctx context.Context, db *dialect.DB) error{
	"crowd": crowdRole,
	"lease": func(ctx context.Context, db *dialect.DB) error {
		l, err := lock.New(db, lock.Options{TTL: failoverTTL})
		if err != nil {
			return err
		}
		say("waiting")
		lease, err := l.Acquire(ctx, "failover")
		if err != nil {
			return err
		}
		say("granted")
		<-lease.Context().Done()
		return context.Cause(lease.Context())
	},
	// The default TTL of 30 seconds stays: the session ends sooner.
	"elector": func(ctx context.Context, db *dialect.DB) error {
		l, err := lock.New(db, lock.Options{})
		if err != nil {
			return err
		}
		e, err := l.NewElector("failover", lock.Election{
			Lead: func(ctx context.Context, _ *lock.Lease) error {
				say("granted")
				<-ctx.Done()
				return context.Cause(ctx)
			},
			Follow: func(*lock.HeldError) { say("waiting") },
		})
		if err != nil {
			return err
		}
		return e.Run(ctx)
	},
}

func TestMain(m *testing.M) {
	if play := roles[os.Getenv(roleVariable)]; play != nil {
		os.Exit(act(play))
	}
	os.Exit(m.Run())
}

func act(play func(context.Context, *dialect.DB) error) (code int) {
	go func() { // the test has ended, one way or another
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	db, err := engines.Open(context.Background(), os.Getenv(urlVariable), dialect.Options{MaxConns: 10})
	if err == nil {
		err = play(context.Background(), db)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// say prints an event and its time by the clock that all processes share.
func say(what string) { fmt.Println(what, int64(instant.Now())) }

type child struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
}

func start(t *testing.T, role, url string, environ ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role, urlVariable+"="+url), environ...)
	cmd.Stderr = os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd, in, bufio.NewScanner(out)}
	t.Cleanup(c.kill)
	return c
}

// until waits until the child says wanted, and returns the time that it reports. What the child logged
// before fails the test.
func (c *child) until(t *testing.T, wanted string) instant.Instant {
	t.Helper()
	for c.lines.Scan() {
		what, at, _ := strings.Cut(c.lines.Text(), " ")
		if what == "logged" {
			t.Errorf("a child has logged: %s", at)
		}
		if what == wanted {
			ns, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return instant.Instant(ns)
		}
	}
	t.Fatalf("a child has ended before it was %s: %v", wanted, c.lines.Err())
	return 0
}

// kill kills the child with SIGKILL and waits until it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may be gone
	_ = c.cmd.Wait()         // killed
}

// TestLockFailover prints how long a lock has no holder after its holder was killed: from SIGKILL to
// the grant in a waiting process. Targets: the TTL plus half a second for leases, and a second for
// leaders where session locks exist.
func TestLockFailover(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		failover(t, db, "lease", failoverTTL+500*time.Millisecond)
		if db.Dialect.Session != nil {
			failover(t, db, "elector", time.Second)
		}
	})
}

func failover(t *testing.T, db *dbtest.DB, role string, target time.Duration) {
	t.Helper()
	var took []time.Duration
	holder := start(t, role, db.URL)
	holder.until(t, "granted")
	for range failovers {
		standby := start(t, role, db.URL)
		standby.until(t, "waiting")
		// A random moment between two renewals, once the standby has settled.
		time.Sleep(500*time.Millisecond + rand.N(failoverTTL/2))
		killed := instant.Now()
		holder.kill()
		took = append(took, standby.until(t, "granted").Sub(killed).Round(time.Millisecond))
		holder = standby
	}
	holder.kill()
	slices.Sort(took)
	t.Logf("%-8s %-8s least %v, median %v, most %v (target: %v): %v", db.Dialect.Name, role,
		took[0], took[len(took)/2], took[len(took)-1], target, took)
}
