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
		{Feature: sqlrun.Functions, Why: "Vitess has no stored procedures"},
	}, nil
}

func behindGate(ctx context.Context, on sqlrun.Execer) (bool, error) {
	var version string
	err := engine.QueryRow(ctx, on, "SELECT VERSION()", nil, &version)
	return isGate(version), err
}

func isGate(version string) bool { return strings.Contains(version, "Vitess") }

// gateFinding says what differs behind a gate; without one there is none.
func gateFinding(ctx context.Context, on sqlrun.Execer) ([]sqlrun.Finding, error) {
	is, err := behindGate(ctx, on)
	if err != nil || !is {
		return nil, err
	}
	var version, mode string
	if err := engine.QueryRow(ctx, on, "SELECT @@version_comment, @@transaction_mode", nil, &version, &mode); err != nil {
		return nil, err
	}
	return []sqlrun.Finding{{
		Subject: "gate", OK: true,
		Detail: fmt.Sprintf("Vitess (%s): session locks are refused, elections rest on their leases alone, and transactions end after its limit; %s",
			version, overKeyspaces(mode)),
	}}, nil
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
