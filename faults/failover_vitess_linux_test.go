package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

// Four MySQL servers, each with its tablet, hold an unsharded keyspace of Vitess, whose primary waits for one other. Two gates each serve a
// daemon, a worker and a producer. The test makes another tablet the primary, cuts that one off with its server, kills the next one with
// its server, and then a gate.
func TestFailoverVitess(t *testing.T) {
	asksForFailover(t)
	v := newVitess(t, 4)
	gates, cl := v.start("four tablets, two gates")
	cl.steps = []mishap{
		{"PlannedReparentShard", func(*crew) {
			v.control("PlannedReparentShard", "app/0", "--new-primary", v.tablets[1].alias)
		}},
		{"the primary and its tablet are cut off, EmergencyReparentShard, and are there again", func(c *crew) {
			mend := sync.OnceFunc(v.tablets[1].cutOff())
			defer mend() // or nothing ends
			v.emergency(1, 0)
			c.until("jobs are done by the new primary", 100, instant.Now())
			mend()
		}},
		{"the primary and its tablet are killed, EmergencyReparentShard", func(*crew) {
			v.tablets[0].tablet.crash()
			v.tablets[0].server.crash()
			v.emergency(0, 2)
		}},
		{"a gate is killed", func(*crew) {
			cl.dead[1] = true
			gates[1].crash()
		}},
	}
	cl.run(t)
}

// Three servers with their tablets, whose primary is killed. VTOrc makes another tablet the primary.
func TestFailoverVTOrc(t *testing.T) {
	asksForFailover(t)
	v := newVitess(t, 3)
	_, cl := v.start("three tablets, two gates, VTOrc")
	dir := serverFolder(t, v.owner, "vtorc")
	orc := launch(t, v.owner, dir, installed(t, "vtorc", "VTOrc (tools/test-server vitess)", v.bin), v.rooted(dir), append([]string{
		"--cell", "test", "--port", dbtest.FreePort(t), "--bind-address", "127.0.0.1",
	}, topology(v.etcd)...)...)
	cl.steps = []mishap{{"the primary and its tablet are killed", func(c *crew) {
		for i := range v.tablets {
			orc.says(fmt.Sprintf("Discovered test-%010d", i+1))
		}
		v.tablets[0].tablet.crash()
		v.tablets[0].server.crash()
		c.until("jobs are done by the new primary", 100, instant.Now())
	}}}
	cl.run(t)
}

// A vitess is the programs of a cluster, and where they listen.
type vitess struct {
	t                  *testing.T
	owner, bin, mysqld string
	etcd               string // address
	origin             string // folder with the data of a MySQL server
	tablets            []*vitessTablet
	gates              []string // URLs
}

// A vitessTablet has an address of its own, where others reach it and its server, and where it reaches the global part of etcd.
type vitessTablet struct {
	alias, dir     string
	host           string
	port           string // of its MySQL server
	server, tablet *serverProgram
	wires          []*wire
}

// cutOff cuts it off from all these until mend is called. Nobody sees a connection close.
func (v *vitessTablet) cutOff() (mend func()) {
	for _, w := range v.wires {
		w.toServer.Lock()
		w.toHere.Lock()
	}
	return func() {
		for _, w := range v.wires {
			w.toServer.Unlock()
			w.toHere.Unlock()
		}
	}
}

func newVitess(t *testing.T, tablets int) *vitess {
	t.Helper()
	v := &vitess{
		t: t, owner: serverUser(t, "nobody"),
		bin:    filepath.Dir(installed(t, "vtgate", "Vitess (tools/test-server vitess)", "/var/cache/dbcron-tests/vitess/bin")),
		mysqld: installed(t, "mysqld", "MySQL's server", "/var/cache/dbcron-tests/mysql/bin"),
		etcd:   "127.0.0.1:" + dbtest.FreePort(t),
	}
	v.origin = serverFolder(t, v.owner, "origin")
	users := filepath.Join(v.origin, "users.sql")
	writeAs(t, v.owner, users, `CREATE USER replication@'%' IDENTIFIED BY '';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO replication@'%';
`)
	helper(t, v.owner, v.origin, v.mysqld, "--no-defaults", "--initialize-insecure", "--init-file="+users,
		"--innodb-flush-method=nosync", "--innodb-redo-log-capacity=64M", "--datadir="+filepath.Join(v.origin, "data"))
	if err := os.Remove(filepath.Join(v.origin, "data", "auto.cnf")); err != nil { // each server needs an identity of its own
		t.Fatal(err)
	}
	for i := range tablets {
		v.tablets = append(v.tablets, &vitessTablet{
			alias: fmt.Sprintf("test-%d", i+1), dir: serverFolder(t, v.owner, fmt.Sprintf("tablet%d", i+1)),
			host: fmt.Sprintf("127.0.0.%d", i+2), port: dbtest.FreePort(t),
		})
	}
	dir := serverFolder(t, v.owner, "etcd")
	peers := "http://127.0.0.1:" + dbtest.FreePort(t)
	launch(
		t, v.owner, dir, installed(t, "etcd", "etcd-server"), nil,
		"--data-dir", filepath.Join(dir, "data"), "--unsafe-no-fsync=true",
		"--listen-client-urls", "http://"+v.etcd, "--advertise-client-urls", "http://"+v.etcd,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers,
	)
	return v
}

// start starts the tablets, the first as primary, and two gates.
func (v *vitess) start(what string) (gates []*serverProgram, cl *cluster) {
	t := v.t
	t.Helper()
	for i := range v.tablets {
		v.startServer(i)
	}
	v.control("AddCellInfo", "--root", "/vitess/test", "--server-address", v.etcd, "test")
	v.control("CreateKeyspace", "--durability-policy=semi_sync", "app")
	for i := range v.tablets {
		v.startTablet(i)
	}
	v.control("PlannedReparentShard", "app/0", "--new-primary", v.tablets[0].alias)
	gates = []*serverProgram{v.startGate(0), v.startGate(1)}
	first, second := reached(t, v.gates[0]), reached(t, v.gates[1])
	return gates, &cluster{
		product: "Vitess " + versionOfVitess(t, first) + " on MySQL " + versionOf(t, v.mysqld) + ", " + what,
		urls:    []string{first.URL, second.URL}, dead: map[int]bool{},
	}
}

// topology is the settings with which a program finds etcd, at an address.
func topology(etcd string) []string {
	return []string{"--topo-implementation", "etcd2", "--topo-global-server-address", etcd, "--topo-global-root", "/vitess/global"}
}

// control runs a command of the cluster until it succeeds: programs that were just started, or have lost one another, need a while.
func (v *vitess) control(args ...string) {
	v.t.Helper()
	v.controlAfter(func() {}, args...)
}

// emergency makes a tablet the primary in place of one that does not answer. First all others have to apply what they have received, and on a busy
// machine one may have been stopped by an attempt that took too long: VTOrc would start it again.
func (v *vitess) emergency(from, to int) {
	v.t.Helper()
	v.controlAfter(func() {
		for i, tablet := range v.tablets {
			if i != from {
				_, _ = v.ask("StartReplication", tablet.alias)
			}
		}
	}, "EmergencyReparentShard", "app/0", "--new-primary", v.tablets[to].alias, "--wait-replicas-timeout", "10s")
}

// controlAfter is control with something to do before another attempt.
func (v *vitess) controlAfter(mend func(), args ...string) {
	v.t.Helper()
	for begun := instant.Now(); ; mend() {
		out, err := v.ask(args...)
		if err == nil || strings.Contains(out, "already exists") {
			return
		}
		if instant.Now().Sub(begun) > patience || wait(v.t.Context(), 200*time.Millisecond) != nil {
			v.t.Fatalf("%v: %v\n%s", args, err, last(out, 2000))
		}
	}
}

// ask runs a command of the cluster once.
func (v *vitess) ask(args ...string) (said string, err error) {
	ctx, cancel := context.WithTimeout(v.t.Context(), time.Minute)
	defer cancel()
	args = append(append([]string{"--server", "internal"}, topology(v.etcd)...), args...)
	cmd := exec.CommandContext(ctx, filepath.Join(v.bin, "vtctldclient"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = v.origin, environment(v.origin, nil), asUser(v.t, v.owner)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (v *vitess) startServer(i int) {
	v.t.Helper()
	tablet := v.tablets[i]
	helper(v.t, v.owner, tablet.dir, "cp", "-r", filepath.Join(v.origin, "data"), tablet.dir)
	tablet.server = launch(
		v.t, v.owner, tablet.dir, v.mysqld, nil,
		"--no-defaults", "--datadir="+filepath.Join(tablet.dir, "data"), "--socket="+filepath.Join(tablet.dir, "s"),
		"--pid-file="+filepath.Join(tablet.dir, "pid"), "--bind-address=127.0.0.1", "--port="+tablet.port, "--mysqlx=OFF",
		"--secure-file-priv=NULL", "--skip-name-resolve", "--max-connections=400", "--default-time-zone=-03:30",
		"--innodb-buffer-pool-size=128M", "--innodb-redo-log-capacity=64M", "--performance-schema=OFF",
		"--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0",
		fmt.Sprintf("--server-id=%d", i+1), "--log-bin=binlog", "--relay-log=relay", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--report-host=127.0.0.1", "--report-port="+tablet.port, "--skip-replica-start", "--super-read-only",
		"--plugin-load=rpl_semi_sync_source=semisync_source.so;rpl_semi_sync_replica=semisync_replica.so",
		"--loose-rpl-semi-sync-source-timeout=1000000000000000000", "--loose-rpl-semi-sync-source-wait-no-replica=1",
	)
	socket := filepath.Join(tablet.dir, "s")
	for begun := instant.Now(); ; {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		if instant.Now().Sub(begun) > patience || wait(v.t.Context(), 100*time.Millisecond) != nil {
			v.t.Fatalf("%s does not answer", tablet.alias)
		}
	}
}

func (v *vitess) startTablet(i int) {
	v.t.Helper()
	tablet := v.tablets[i]
	socket := filepath.Join(tablet.dir, "s")
	grpc := dbtest.FreePort(v.t)
	_, etcdPort, _ := strings.Cut(v.etcd, ":")
	for _, port := range []string{grpc, tablet.port, etcdPort} {
		tablet.wires = append(tablet.wires, wireAt(v.t, tablet.host+":"+port, "127.0.0.1:"+port))
	}
	args := append([]string{
		"--tablet-path", fmt.Sprintf("test-%010d", i+1), "--tablet-hostname", tablet.host, "--init-keyspace", "app", "--init-shard", "0",
		"--init-tablet-type", "replica", "--port", dbtest.FreePort(v.t), "--grpc-port", grpc,
		"--bind-address", "127.0.0.1", "--grpc-bind-address", "127.0.0.1", "--service-map", "grpc-queryservice,grpc-tabletmanager,grpc-updatestream",
		"--db-charset", "utf8mb4", "--db-socket", socket, "--db-app-user", "root", "--db-dba-user", "root", "--db-allprivs-user", "root",
		"--db-filtered-user", "root", "--db-appdebug-user", "root", "--db-repl-user", "replication",
		"--mycnf-server-id", fmt.Sprint(i + 1), "--mycnf-mysql-port", tablet.port, "--mycnf-socket-file", socket,
		"--mycnf-data-dir", filepath.Join(tablet.dir, "data"), "--mycnf-pid-file", filepath.Join(tablet.dir, "pid"),
		"--health-check-interval", "1s", "--queryserver-config-pool-size", "60", "--queryserver-config-transaction-cap", "120",
	}, topology(tablet.host+":"+etcdPort)...)
	tablet.tablet = launch(v.t, v.owner, tablet.dir, filepath.Join(v.bin, "vttablet"), v.rooted(tablet.dir), args...)
}

// startGate starts a gate that keeps statements back while there is no primary.
func (v *vitess) startGate(i int) *serverProgram {
	v.t.Helper()
	dir := serverFolder(v.t, v.owner, fmt.Sprintf("gate%d", i+1))
	port := dbtest.FreePort(v.t)
	v.gates = append(v.gates, "mysql://tests@127.0.0.1:"+port+"/app")
	return launch(v.t, v.owner, dir, filepath.Join(v.bin, "vtgate"), v.rooted(dir), append([]string{
		"--cell", "test", "--cells-to-watch", "test", "--port", dbtest.FreePort(v.t), "--grpc-port", dbtest.FreePort(v.t),
		"--bind-address", "127.0.0.1", "--grpc-bind-address", "127.0.0.1", "--service-map", "grpc-vtgateservice",
		"--mysql-server-port", port, "--mysql-server-bind-address", "127.0.0.1", "--mysql-auth-server-impl", "none",
		"--tablet-types-to-wait", "PRIMARY", "--enable-buffer",
	}, topology(v.etcd)...)...)
}

// rooted makes the folder in which the programs of Vitess write, and names it for them.
func (v *vitess) rooted(dir string) []string {
	helper(v.t, v.owner, dir, "mkdir", "-p", filepath.Join(dir, "vt", "tmp"))
	return []string{"VTDATAROOT=" + filepath.Join(dir, "vt"), "USER=nobody"}
}

// versionOfVitess is what a gate says of itself.
func versionOfVitess(t *testing.T, gate *dbtest.DB) string {
	t.Helper()
	var said string
	gate.Scan(t, `SELECT @@version_comment`, nil, &said)
	for _, word := range strings.Fields(said) {
		if len(word) > 2 && word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return said
}
