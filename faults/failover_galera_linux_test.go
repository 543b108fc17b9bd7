package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// galeraTransfer replaces the programs that copy all data to a node. The test does not need them:
// Galera itself sends a node what it lacks. The sending node only tells the other, in a file, where
// to start.
const galeraTransfer = `#!/bin/sh
while [ $# -gt 0 ]; do
	case $1 in
	--role) role=$2; shift ;;
	--address) address=$2; shift ;;
	--gtid) gtid=$2; shift ;;
	--bypass) bypass=yes ;;
	--mysqld-args) break ;;
	esac
	shift
done
at=$TRANSFERS/$(echo "$address" | tr -c 'a-zA-Z0-9\n' _)
if [ "$role" = joiner ]; then
	rm -f "$at"
	echo "ready $address"
	while [ ! -e "$at" ]; do sleep 0.1; done
	cat "$at"
elif [ "$bypass" = yes ]; then
	echo "$gtid" >"$at.new"
	mv "$at.new" "$at"
	echo "done $gtid"
else
	echo "the node lacks more than is kept" >&2
	exit 1
fi
`

const galeraProvider = "/usr/lib/galera/libgalera_smm.so"

// Three nodes of Galera each serve a daemon, a worker and a producer. The test cuts one node off,
// stops one for so long that the others leave it behind, and kills one.
func TestFailoverGalera(t *testing.T) {
	asksForFailover(t)
	mariadb := installed(t, "mariadbd", "mariadb-server-core", "/usr/sbin")
	installed(t, filepath.Base(galeraProvider), "galera-4", filepath.Dir(galeraProvider))
	owner := serverUser(t, "mysql")
	origin := serverFolder(t, owner, "origin")
	helper(t, owner, origin, installed(t, "mariadb-install-db", "mariadb-server-core"), "--no-defaults",
		"--auth-root-authentication-method=normal",
		"--skip-name-resolve", "--skip-test-db", "--innodb-log-file-size=64M", "--datadir="+filepath.Join(origin, "data"))

	transfer := filepath.Join(origin, "wsrep_sst_near")
	writeAs(t, owner, transfer, galeraTransfer)
	if err := os.Chmod(transfer, 0o700); err != nil {
		t.Fatal(err)
	}

	var group, sql, incremental []string
	for range 3 {
		group, sql, incremental = append(group, dbtest.FreePort(t)), append(sql, dbtest.FreePort(t)), append(incremental, dbtest.FreePort(t))
	}
	members := "gcomm://127.0.0.1:" + group[0] + ",127.0.0.1:" + group[1] + ",127.0.0.1:" + group[2]
	serve := func(i int, dir string, more ...string) (*serverProgram, *dbtest.DB) {
		args := []string{
			"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--socket=" + filepath.Join(dir, "s"),
			"--pid-file=" + filepath.Join(dir, "pid"),
			"--bind-address=127.0.0.1", "--port=" + sql[i], "--skip-name-resolve", "--max-connections=200", "--default-time-zone=+05:45",
			"--innodb-buffer-pool-size=128M", "--innodb-log-file-size=64M", "--innodb-flush-log-at-trx-commit=2",
			"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--wsrep-on=ON", "--wsrep-provider=" + galeraProvider,
			"--wsrep-cluster-name=failover", "--wsrep-cluster-address=" + members, "--wsrep-node-address=127.0.0.1:" + group[i],
			"--wsrep-sst-method=near", "--wsrep-sst-receive-address=127.0.0.1:" + sql[i],
			"--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:" + group[i] + ";ist.recv_addr=127.0.0.1:" + incremental[i],
		}
		env := []string{"TRANSFERS=" + origin, "PATH=" + origin + ":" + os.Getenv("PATH") + ":/usr/sbin:/usr/bin:/bin"}
		node := launch(t, owner, dir, mariadb, env, append(args, more...)...)
		admin := reached(t, "mysql://root@127.0.0.1:"+sql[i]+"/mysql")
		galeraBecomes(t, admin, "wsrep_local_state_comment", "Synced")
		return node, admin
	}
	// All nodes begin with the data of one cluster, so none has to be copied while it runs.
	node, admin := serve(0, origin, "--wsrep-new-cluster")
	admin.Do(t, `CREATE DATABASE app CHARACTER SET utf8mb4`, nil)
	if err := node.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-node.done
	var nodes []*serverProgram
	var admins []*dbtest.DB
	var urls []string
	for i, name := range []string{"first", "second", "third"} {
		dir := serverFolder(t, owner, name)
		helper(t, owner, dir, "cp", "-r", filepath.Join(origin, "data"), dir)
		more := []string{"--wsrep-node-name=" + name}
		if i == 0 {
			more = append(more, "--wsrep-new-cluster")
		}
		node, admin := serve(i, dir, more...)
		nodes, admins, urls = append(nodes, node), append(admins, admin), append(urls, "mysql://root@127.0.0.1:"+sql[i]+"/app")
	}
	galeraBecomes(t, admins[0], "wsrep_cluster_size", "3")

	cl := &cluster{product: "MariaDB " + versionOf(t, mariadb) + ", three nodes of Galera", urls: urls, dead: map[int]bool{}}
	rejoins := func(i int) {
		galeraBecomes(t, admins[0], "wsrep_cluster_size", "3")
		galeraBecomes(t, admins[i], "wsrep_local_state_comment", "Synced")
	}
	cl.steps = []mishap{
		{"a node is cut off, and joins again", func(c *crew) {
			galeraOption(t, admins[2], "gmcast.isolate=1")
			c.ready(2, 503, "takes no writes: this node of Galera is not ready")
			if said, code := c.command(2, "doctor"); code != 1 || !strings.Contains(said, "wsrep_ready = OFF") ||
				strings.Contains(said, "docs/grants.md") {
				t.Errorf("doctor: exit code %d: %s", code, said)
			}
			if said, code := c.command(2, "queue", "set", failoverQueue, "--max-attempts", "1000", "--connect-timeout", "1s"); code != 1 ||
				!strings.Contains(said, "wsrep_ready = OFF") {
				t.Errorf("queue set: exit code %d: %s", code, said)
			}
			galeraBecomes(t, admins[0], "wsrep_cluster_size", "2")
			galeraOption(t, admins[2], "gmcast.isolate=0")
			rejoins(2)
		}},
		{"a node stands still, and joins again", func(*crew) {
			pid := nodes[2].cmd.Process.Pid
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			galeraBecomes(t, admins[0], "wsrep_cluster_size", "2")
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			rejoins(2)
		}},
		{"a node is killed", func(*crew) {
			cl.dead[1] = true
			nodes[1].crash()
			galeraBecomes(t, admins[0], "wsrep_cluster_size", "2")
		}},
	}
	cl.run(t)
}

func galeraBecomes(t *testing.T, db *dbtest.DB, variable, want string) {
	t.Helper()
	becomes(t, db, `SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '`+variable+`'`, want)
}

// galeraOption sets an option of a node. SET works even on a node that is not ready.
func galeraOption(t *testing.T, db *dbtest.DB, option string) {
	t.Helper()
	if _, err := db.Pool().ExecContext(t.Context(), `SET GLOBAL wsrep_provider_options = '`+option+`'`); err != nil {
		t.Fatal(err)
	}
}
