package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/instant"
)

// Three MySQL servers form a group with one primary. Programs find it through a proxy, which leads
// new connections to it and leaves existing ones alone. The test changes the primary and then kills
// it.
func TestFailoverMySQL(t *testing.T) {
	asksForFailover(t)
	mysqld := installed(t, "mysqld", "MySQL's server", "/var/cache/dbcron-tests/mysql/bin")
	owner := serverUser(t, "mysql")
	origin := serverFolder(t, owner, "origin")
	users := filepath.Join(origin, "users.sql")
	writeAs(t, owner, users, `CREATE USER root@'%' IDENTIFIED BY '';
GRANT ALL PRIVILEGES ON *.* TO root@'%' WITH GRANT OPTION;
CREATE USER replication@'%' IDENTIFIED BY 'x';
GRANT REPLICATION SLAVE, CONNECTION_ADMIN, BACKUP_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO replication@'%';
`)
	helper(t, owner, origin, mysqld, "--no-defaults", "--initialize-insecure", "--init-file="+users,
		"--innodb-flush-method=nosync", "--innodb-redo-log-capacity=64M", "--datadir="+filepath.Join(origin, "data"))
	if err := os.Remove(filepath.Join(origin, "data", "auto.cnf")); err != nil { // each server needs an identity of its own
		t.Fatal(err)
	}

	var group, sql []string
	for range 3 {
		group, sql = append(group, dbtest.FreePort(t)), append(sql, dbtest.FreePort(t))
	}
	seeds := "127.0.0.1:" + strings.Join(group, ",127.0.0.1:")
	var nodes []*serverProgram
	var admins []*dbtest.DB
	for i, name := range []string{"first", "second", "third"} {
		dir := serverFolder(t, owner, name)
		helper(t, owner, dir, "cp", "-r", filepath.Join(origin, "data"), dir)
		nodes = append(nodes, launch(
			t, owner, dir, mysqld, nil,
			"--no-defaults", "--datadir="+filepath.Join(dir, "data"), "--socket="+filepath.Join(dir, "s"), "--pid-file="+filepath.Join(dir, "pid"),
			"--bind-address=127.0.0.1", "--port="+sql[i], "--mysqlx=OFF", "--secure-file-priv=NULL", "--skip-name-resolve", "--max-connections=200",
			"--default-time-zone=-03:30", "--innodb-buffer-pool-size=128M", "--innodb-redo-log-capacity=64M",
			"--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0",
			fmt.Sprintf("--server-id=%d", i+1), "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
			"--report-host=127.0.0.1", "--report-port="+sql[i], "--plugin-load-add=group_replication.so",
			"--loose-group_replication_group_name=11111111-2222-3333-4444-555555555555", "--loose-group_replication_start_on_boot=OFF",
			"--loose-group_replication_local_address=127.0.0.1:"+group[i], "--loose-group_replication_group_seeds="+seeds,
			"--loose-group_replication_ip_allowlist=127.0.0.1/8", "--loose-group_replication_recovery_get_public_key=ON",
		))
		admin := reached(t, "mysql://root@127.0.0.1:"+sql[i]+"/mysql")
		admin.Do(t, `CHANGE REPLICATION SOURCE TO SOURCE_USER = 'replication', SOURCE_PASSWORD = 'x' FOR CHANNEL 'group_replication_recovery'`, nil)
		if i == 0 {
			admin.Do(t, `SET GLOBAL group_replication_bootstrap_group = ON`, nil)
		}
		statement(t, admin, `START GROUP_REPLICATION`)
		if i == 0 {
			admin.Do(t, `SET GLOBAL group_replication_bootstrap_group = OFF`, nil)
		}
		becomes(t, admin, `SELECT MEMBER_STATE FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid`, "ONLINE")
		admins = append(admins, admin)
	}
	admins[0].Do(t, `CREATE DATABASE app`, nil)

	post := newSignpost(t, "127.0.0.1:"+sql[0])
	url := "mysql://root@" + post.address + "/app"
	(&cluster{
		product: "MySQL " + mysqlVersion(t, admins[0]) + ", group replication of three",
		urls:    []string{url, url},
		steps: []mishap{
			{"another server is made the primary", func(*crew) {
				var second string
				admins[1].Scan(t, `SELECT @@server_uuid`, nil, &second)
				statement(t, admins[0], `SELECT group_replication_set_as_primary('`+second+`')`)
				post.to.Store("127.0.0.1:" + sql[1])
			}},
			{"the primary is killed", func(*crew) {
				nodes[1].crash()
				post.to.Store("127.0.0.1:" + newPrimary(t, admins[0], sql[1]))
			}},
		},
	}).run(t)
}

// statement runs a statement that takes longer than dbcron's own may.
func statement(t *testing.T, db *dbtest.DB, text string) {
	t.Helper()
	if _, err := db.Pool().ExecContext(t.Context(), text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func mysqlVersion(t *testing.T, db *dbtest.DB) string {
	t.Helper()
	number, _, _ := strings.Cut(db.List(t, `SELECT VERSION()`, nil)[0], "-")
	return number
}

// newPrimary waits until a group has a primary other than gone, and returns its port.
func newPrimary(t *testing.T, db *dbtest.DB, gone string) (port string) {
	t.Helper()
	for begun := instant.Now(); ; {
		err := db.Pool().QueryRowContext(t.Context(), `SELECT CAST(MEMBER_PORT AS CHAR) FROM performance_schema.replication_group_members
			WHERE MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE'`).Scan(&port)
		if err == nil && port != gone {
			return port
		}
		if instant.Now().Sub(begun) > patience || wait(t.Context(), 0) != nil {
			t.Fatalf("there is no new primary: %q, %v", port, err)
		}
	}
}

// A signpost leads new connections to a server and keeps existing ones.
type signpost struct {
	address string
	to      atomic.Value // string
}

func newSignpost(t *testing.T, to string) *signpost {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &signpost{address: listener.Addr().String()}
	p.to.Store(to)
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := new(net.Dialer).DialContext(context.Background(), "tcp4", p.to.Load().(string))
			if err != nil {
				near.Close()
				continue
			}
			var open sync.RWMutex
			go forward(far, near, &open)
			go forward(near, far, &open)
		}
	}()
	return p
}
