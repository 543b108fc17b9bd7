package faults

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

// Two servers run under Patroni, which keeps its state in etcd. The test changes the primary by a
// switchover and then kills the new primary's whole host.
func TestFailoverPatroni(t *testing.T) {
	asksForFailover(t)
	postgres := installed(t, "postgres", "postgresql", "/usr/lib/postgresql/*/bin")
	patroni, etcd := installed(t, "patroni", "patroni"), installed(t, "etcd", "etcd-server")
	owner := serverUser(t, "postgres")

	store := serverFolder(t, owner, "etcd")
	clients, peers := dbtest.FreePort(t), dbtest.FreePort(t)
	launch(t, owner, store, etcd, nil, "--data-dir="+filepath.Join(store, "data"), "--name=store", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:"+clients, "--advertise-client-urls=http://127.0.0.1:"+clients,
		"--listen-peer-urls=http://127.0.0.1:"+peers, "--initial-advertise-peer-urls=http://127.0.0.1:"+peers,
		"--initial-cluster=store=http://127.0.0.1:"+peers)
	ask := func(method, url, body, want string) {
		t.Helper()
		var got string
		for begun := instant.Now(); ; {
			r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewBufferString(body))
			if err != nil {
				t.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(r)
			if err == nil {
				text, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				got = string(text)
				if answer.StatusCode == http.StatusOK && strings.Contains(got, want) {
					return
				}
			}
			if instant.Now().Sub(begun) > patience || wait(t.Context(), 100*time.Millisecond) != nil {
				t.Fatalf("%s: %s %v, want %q", url, got, err, want)
			}
		}
	}
	ask("GET", "http://127.0.0.1:"+clients+"/health", "", "true")

	var sql, rest, folders []string
	var managers []*serverProgram
	// No node is called first: that is a keyword of synchronous_standby_names.
	for i, name := range []string{"one", "two"} {
		dir := serverFolder(t, owner, name)
		folders, sql, rest = append(folders, dir), append(sql, dbtest.FreePort(t)), append(rest, dbtest.FreePort(t))
		file := filepath.Join(dir, "patroni.yaml")
		writeAs(t, owner, file, fmt.Sprintf(`
scope: failover
name: %[1]s
restapi: {listen: "127.0.0.1:%[2]s", connect_address: "127.0.0.1:%[2]s"}
etcd3: {host: "127.0.0.1:%[3]s"}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 2
    retry_timeout: 5
    synchronous_mode: true
    postgresql: {use_pg_rewind: true, parameters: {max_connections: 200}}
  initdb: [{encoding: UTF8}, {locale: C}, no-sync, data-checksums]
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
postgresql:
  listen: "127.0.0.1:%[4]s"
  connect_address: "127.0.0.1:%[4]s"
  data_dir: %[5]s/data
  bin_dir: %[6]s
  pgpass: %[5]s/pgpass
  parameters: {unix_socket_directories: "%[5]s", dynamic_shared_memory_type: mmap}
  authentication:
    superuser: {username: postgres, password: x}
    replication: {username: replicator, password: x}
`, name, rest[i], clients, sql[i], dir, filepath.Dir(postgres)))
		t.Cleanup(func() { crashPostgres(dir) }) // after Patroni, which would start it again
		managers = append(managers, launch(t, owner, dir, patroni, nil, file))
		if i == 0 {
			ask("GET", "http://127.0.0.1:"+rest[0]+"/primary", "", "running")
		}
	}
	ask("GET", "http://127.0.0.1:"+rest[0]+"/cluster", "", `"sync_standby"`)

	url := "postgres://postgres:x@127.0.0.1:" + sql[0] + ",127.0.0.1:" + sql[1] + "/postgres?sslmode=disable&target_session_attrs=read-write"
	(&cluster{
		product: "PostgreSQL " + versionOf(t, postgres) + " under Patroni " + versionOf(t, patroni) + " with etcd",
		urls:    []string{url, url},
		steps: []mishap{
			{"a switchover", func(*crew) {
				ask("POST", "http://127.0.0.1:"+rest[0]+"/switchover", `{"leader": "one", "candidate": "two"}`, "")
				ask("GET", "http://127.0.0.1:"+rest[1]+"/primary", "", "running")
				ask("GET", "http://127.0.0.1:"+rest[1]+"/cluster", "", `"sync_standby"`)
			}},
			{"the primary and its Patroni are killed", func(*crew) {
				_ = managers[1].cmd.Process.Signal(syscall.SIGSTOP) // otherwise it would see its server end
				crashPostgres(folders[1])
				managers[1].crash()
				ask("GET", "http://127.0.0.1:"+rest[0]+"/primary", "", "running")
			}},
		},
	}).run(t)
}

// crashPostgres kills the server of a folder if there is one. That server is not a child of the
// process that started it.
func crashPostgres(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return
	}
	if args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err != nil || !strings.Contains(string(args), dir) {
		return // it has ended, and its number is reused
	}
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for _, child := range children(pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}
