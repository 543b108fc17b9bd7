package faults

import (
	"path/filepath"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// The test kills a primary and promotes its synchronous standby. All programs use one URL, which
// names both.
func TestFailoverPostgres(t *testing.T) {
	asksForFailover(t)
	postgres := installed(t, "postgres", "postgresql", "/usr/lib/postgresql/*/bin")
	bin := filepath.Dir(postgres)
	owner := serverUser(t, "postgres")
	first, second := serverFolder(t, owner, "first"), serverFolder(t, owner, "second")
	ports := []string{dbtest.FreePort(t), dbtest.FreePort(t)}
	url := func(hosts, more string) string {
		return "postgres://postgres@" + hosts + "/postgres?sslmode=disable" + more
	}
	serve := func(dir, port string) *serverProgram {
		return launch(t, owner, dir, postgres, nil, "-D", filepath.Join(dir, "data"), "-c", "listen_addresses=127.0.0.1", "-c", "port="+port,
			"-c", "unix_socket_directories=", "-c", "dynamic_shared_memory_type=mmap", "-c", "max_connections=200")
	}

	helper(t, owner, first, filepath.Join(bin, "initdb"), "-D", filepath.Join(first, "data"), "-U", "postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	primary := serve(first, ports[0])
	admin := reached(t, url("127.0.0.1:"+ports[0], ""))
	helper(t, owner, second, filepath.Join(bin, "pg_basebackup"), "-h", "127.0.0.1", "-p", ports[0], "-U", "postgres",
		"-D", filepath.Join(second, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	serve(second, ports[1])
	standby := reached(t, url("127.0.0.1:"+ports[1], ""))
	admin.Do(t, `ALTER SYSTEM SET synchronous_standby_names = '*'`, nil)
	admin.List(t, `SELECT pg_reload_conf()`, nil)
	becomes(t, admin, `SELECT COALESCE(MAX(sync_state), '') FROM pg_stat_replication`, "sync")

	both := url("127.0.0.1:"+ports[0]+",127.0.0.1:"+ports[1], "&target_session_attrs=read-write")
	(&cluster{
		product: "PostgreSQL " + versionOf(t, postgres) + ", primary and synchronous standby",
		urls:    []string{both, both},
		steps: []mishap{{"the primary is killed, the standby promoted", func(*crew) {
			primary.crash()
			standby.List(t, `SELECT pg_promote()`, nil)
		}}},
	}).run(t)
}
