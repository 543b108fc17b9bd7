package faults

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/dbtest/dbserver"
	"github.com/dbcron/dbcron/sqlschema"
)

// A restartable is a kind of server that can be restarted.
type restartable struct {
	name  string
	start func(context.Context, dbserver.Options) (*dbserver.Server, error)
	end   syscall.Signal // makes it exit although clients are connected
}

var servers = func() (all []restartable) {
	for _, e := range dbserver.Engines {
		end := syscall.SIGTERM
		if e.Name == "postgres" { // otherwise it would wait for its clients
			end = syscall.SIGINT
		}
		all = append(all, restartable{e.Name, e.Start, end})
	}
	return all
}()

// killed returns the servers for tests of what any dying server does to daemons and workers: the
// first, and all in the long proofs. TestLockServerRestarted kills each of them in any case.
func killed() []restartable {
	if dbtest.Long() {
		return servers
	}
	return servers[:min(1, len(servers))]
}

// empty starts a server of the test's own, which loses no data when killed.
func (s *restartable) empty(t *testing.T) (*dbtest.DB, *dbserver.Server) {
	t.Helper()
	server, err := s.start(t.Context(), dbserver.Options{Durable: true})
	if err != nil {
		dbtest.Missing(t, err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return dbtest.Open(t, server.URL(), dialect.Options{}), server
}

// migrated is empty plus dbcron's tables.
func (s *restartable) migrated(t *testing.T) (*dbtest.DB, *dbserver.Server) {
	t.Helper()
	db, server := s.empty(t)
	if err := sqlschema.Migrate(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	return db, server
}

// The test kills the server, shuts it down, and starts it again. A lease that is long enough
// survives that, and waiters keep waiting for the lock.
func TestLockServerRestarted(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			_, server := s.migrated(t)
			p := part{URL: server.URL(), Name: "restart", TTL: time.Minute, Heartbeat: time.Second}
			holder, waiter := start(t, "holder", p), start(t, "holder", p)
			holder.tell("acquire")
			fence := holder.hear("granted").number(t, 0)
			waiter.tell("acquire")

			for range 2 {
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				restart(t, server)
				holder.tell("extend")
				if now := holder.hear("extended").number(t, 0); now != fence {
					t.Errorf("fence %d was %d before the server was killed", now, fence)
				}
			}
			pid := serverProcess(t, server.URL())
			if err := syscall.Kill(pid, s.end); err != nil {
				t.Fatal(err)
			}
			gone(t, pid)
			restart(t, server)
			holder.tell("extend")
			holder.hear("extended")

			holder.tell("release")
			released := holder.hear("released")
			if released[1] != "<nil>" {
				t.Errorf("release: %v", released)
			}
			granted := waiter.hear("granted")
			if next := granted.number(t, 0); next != fence+1 {
				t.Errorf("the waiter has fence %d, want the one after %d", next, fence)
			}
			if granted.number(t, 1) < released.number(t, 0) {
				t.Error("the waiter was granted the lock before its holder released it")
			}
		})
	}
}

func restart(t *testing.T, server *dbserver.Server) {
	t.Helper()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// serverProcess finds the process of a server that this program started: its keeper is a child of
// ours, and its port is among its arguments.
func serverProcess(t *testing.T, rawURL string) int {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	for _, keeper := range children(os.Getpid()) {
		for _, pid := range children(keeper) {
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if strings.Contains(string(args), "port="+u.Port()) {
				return pid
			}
		}
	}
	t.Fatal("the server has no process")
	return 0
}

// gone waits until a process no longer exists.
func gone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); syscall.Kill(pid, 0) == nil; {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("process %d does not end", pid)
		}
	}
}
