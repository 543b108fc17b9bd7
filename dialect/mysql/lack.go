package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A gate of Vitess is known by its version. To try out what it lacks would not show: it gives out the locks of GET_LOCK, and takes them
// back when it ends the connection behind, which is idle.

// without tells what a gate lacks.
func without(ctx context.Context, c *sql.Conn, _ map[sqlrun.Feature]string) (lacks []sqlrun.Lack, err error) {
	if is, err := behindGate(ctx, c); err != nil || !is {
		return nil, err
	}
	return []sqlrun.Lack{
		{Feature: sqlrun.Sessions, Why: "Vitess's gate holds such a lock by a connection of its own, which it may end; use a lease"},
		{Feature: sqlrun.Functions, Why: "Vitess's gate does not parse these procedures"}, // 24.0.4: COLLATE, MODIFIES SQL DATA, NO SQL
	}, nil
}

func behindGate(ctx context.Context, on sqlrun.Execer) (bool, error) {
	var version string
	err := engine.QueryRow(ctx, on, "SELECT @@version", nil, &version) // VERSION() is the server's where the URL names a shard
	return isGate(version), err
}

func isGate(version string) bool { return strings.Contains(version, "Vitess") }

// gateFindings says what differs behind a gate; without one there is nothing. SHOW VARIABLES has told of the server's session, which is not
// the program's: it corrects that.
func gateFindings(ctx context.Context, on sqlrun.Execer, v map[string]string) ([]sqlrun.Finding, error) {
	is, err := behindGate(ctx, on)
	if err != nil || !is {
		return nil, err
	}
	var version, mode, sqlMode, isolation string
	var commits, safe bool
	if err := engine.QueryRow(ctx, on, "SELECT @@transaction_mode, @@sql_mode, @@transaction_isolation, @@autocommit, @@sql_safe_updates",
		nil, &mode, &sqlMode, &isolation, &commits, &safe); err != nil {
		return nil, err
	}
	v["sql_mode"], v["transaction_isolation"] = sqlMode, isolation
	v["autocommit"], v["sql_safe_updates"] = onOff(commits), onOff(safe)
	if f := escapes(sqlMode); !f.OK {
		return []sqlrun.Finding{f}, nil // the comment on the version has quotes
	}
	if err := engine.QueryRow(ctx, on, "SELECT @@version_comment", nil, &version); err != nil {
		return nil, err
	}
	return []sqlrun.Finding{
		{
			Subject: "gate", OK: true,
			Detail: fmt.Sprintf("Vitess (%s): session locks are refused, elections rest on their leases alone, and transactions end after its limit; %s",
				version, overKeyspaces(mode)),
		},
		escapes(sqlMode),
	}, nil
}

func onOff(on bool) string {
	if on {
		return "ON"
	}
	return "OFF"
}

// escapes judges whether the server understands the texts that the gate writes into statements, also those of parameters.
func escapes(sqlMode string) sqlrun.Finding {
	return sqlrun.Finding{
		Subject: "escapes", OK: !strings.Contains(strings.ToUpper(sqlMode), "NO_BACKSLASH_ESCAPES"), Detail: "sql_mode = " + sqlMode,
		Advice: "take NO_BACKSLASH_ESCAPES out of this pool's sql_mode: the gate writes a quote in a text with a backslash, and the server would end the text there",
	}
}

// overKeyspaces says what becomes of a transaction that changes dbcron's keyspace and another one, by the gate's transaction_mode.
func overKeyspaces(mode string) string {
	what := "the gate commits a transaction that is also about another keyspace in two parts, of which one can fail"
	switch strings.ToUpper(mode) {
	case "SINGLE":
		what = "the gate refuses a transaction that is also about another keyspace"
	case "TWOPC":
		what = "the gate commits a transaction that is also about another keyspace in two phases"
	}
	return what + " (transaction_mode " + mode + ")"
}
