package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// How MySQL, MariaDB and their clusters report that a server takes no writes, or that a commit failed.

// readOnly reports whether a statement was refused because the server takes no writes. A demoted
// primary keeps its connections, and the pool would use them forever. Treating them as bad closes
// them, and the next one may lead to the new primary. The same goes for a Galera node that its
// cluster has left behind (1047). Nothing was changed.
func readOnly(err error) bool {
	var e *mysql.MySQLError
	// 1290 stands for any server option that prevents a statement.
	return errors.As(err, &e) && (e.Number == 1836 || e.Number == 1047 && strings.Contains(e.Message, "WSREP") ||
		e.Number == 1290 && strings.Contains(e.Message, "read-only"))
}

// commitConflict reports whether a commit lost against one of another node and was rolled back. Group
// replication reports this with the storage engine's number for a deadlock.
func commitConflict(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && e.Number == 1180 && strings.Contains(e.Message, "error 149")
}

// halfCommitted reports whether a cluster failed a commit (Galera: 1180, group replication: 3100).
// The other nodes may or may not have it, and this node may have been left behind.
func halfCommitted(err error) bool {
	return numbered(1180, 3100)(err) && !commitConflict(err)
}

func askReadOnly(ctx context.Context, on sqlrun.Execer) (why string, err error) {
	var global, innodb string
	// MariaDB 12 has names as values, others have numbers.
	if err := engine.QueryRow(ctx, on, "SELECT REPLACE(@@global.read_only, '1', 'ON'), REPLACE(@@innodb_read_only, '1', 'ON')",
		nil, &global, &innodb); err != nil {
		return "", err
	}
	ready, err := galeraReady(ctx, on)
	return whyReadOnly(map[string]string{"read_only": global, "innodb_read_only": innodb, "wsrep_ready": ready}), err
}

// galeraReady reports whether a Galera node takes statements, as SHOW STATUS says; "" means that it is
// not a Galera node. A node that is not ready still takes SHOW.
func galeraReady(ctx context.Context, on sqlrun.Execer) (value string, err error) {
	is, err := isGalera(ctx, on)
	if err == nil && is {
		err = engine.QueryRow(ctx, on, "SHOW STATUS LIKE 'wsrep_ready'", nil, new(string), &value)
	}
	return value, err
}

// isGalera reports whether a server is a node of a Galera cluster.
func isGalera(ctx context.Context, on sqlrun.Execer) (bool, error) {
	var value string
	err := engine.QueryRow(ctx, on, "SHOW VARIABLES LIKE 'wsrep_on'", nil, new(string), &value)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return value == "ON", err
}

// whyReadOnly judges the values of variables. MariaDB 12 has values besides OFF and ON, which also mean
// read-only.
func whyReadOnly(v map[string]string) string {
	var why []string
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only", "tx_read_only", "transaction_read_only"} {
		if value := cmp.Or(v[name], "OFF"); value != "OFF" && value != "0" {
			why = append(why, name+" = "+value)
		}
	}
	if ready := v["wsrep_ready"]; ready == "OFF" {
		why = append(why, "this node of Galera is not ready (wsrep_ready = OFF)")
	}
	return strings.Join(why, ", ")
}
