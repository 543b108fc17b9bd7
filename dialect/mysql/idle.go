package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/internal/sqlconn"
)

// idleSeconds limits the idle time of a short transaction: see [sqlrun.DB.ShortTx].
const idleSeconds = 5

// An idleLimit makes the server end short transactions that are idle, and no others. It switches the
// limit when a transaction of the other kind begins. Transactions of one kind follow each other, so
// this costs next to nothing.
//
// MariaDB has a setting for idle transactions. MySQL only has wait_timeout, which ends idle
// connections in and outside of transactions. The pool closes its idle connections earlier, and
// reconnects if it was too late. But a session lock would end with its connection, so the limit is
// off while the connection may hold one: then it is what MySQL begins with, as a number, since not all that speak its protocol know
// DEFAULT.
type idleLimit struct {
	variable string
	off      string // the variable's value if there is no limit
	on       bool
}

func newIdleLimit(ctx context.Context, c driver.Conn) (*idleLimit, error) {
	l := &idleLimit{variable: "idle_transaction_timeout", off: "DEFAULT"}
	err := l.set(ctx, c, true)
	if numbered(1193)(err) { // MySQL does not know it
		*l, err = idleLimit{variable: "wait_timeout", off: "28800"}, nil
	}
	return l, err
}

// before is called before each statement.
func (l *idleLimit) before(ctx context.Context, c driver.Conn, op string) error {
	switch {
	case begins(op) && l.on != sqlconn.IsShort(ctx):
		return l.set(ctx, c, !l.on)
	case l.on && l.variable == "wait_timeout" && strings.Contains(op, "GET_LOCK"):
		return l.set(ctx, c, false)
	}
	return nil
}

func (l *idleLimit) set(ctx context.Context, c driver.Conn, on bool) error {
	value := l.off
	if on {
		value = fmt.Sprint(idleSeconds)
	}
	err := sqlconn.Exec(ctx, c, "SET SESSION "+l.variable+" = "+value)
	if err == nil {
		l.on = on
	}
	return err
}

// begins reports whether a statement begins a transaction, or may.
func begins(op string) bool {
	op = strings.TrimLeft(op, " \t\r\n")
	for _, word := range []string{"begin", "start", "set autocommit"} {
		if len(op) >= len(word) && strings.EqualFold(op[:len(word)], word) {
			return true
		}
	}
	return false
}
