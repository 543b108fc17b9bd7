package mysql

import (
	"errors"
	"regexp"

	"github.com/go-sql-driver/mysql"

	"github.com/dbcron/dbcron/internal/pattern"
)

// What Vitess's gate says where a server of MySQL's own would not be asked: with the number of an unknown error, or of an interrupted
// statement. The texts are those of version 24.

var (
	gateDown = pattern.Lazy(`no healthy tablet|primary is not serving|primary is serving but|operation not allowed in state|` +
		`being resharded|code = Unavailable|connection refused|tx engine can't accept`)
	gateSyntax = pattern.Lazy(`syntax error at position`)
	gateLacks  = pattern.Lazy(`VT09005`)
	gateEnded  = pattern.Lazy(`transaction \d+: ended at [^(]*\(exceeded timeout`)
	gateLate   = pattern.Lazy(`code = (Canceled|DeadlineExceeded) desc = `)
)

// gated returns a check for errors with a number whose message matches.
func gated(number uint16, message func() *regexp.Regexp) func(error) bool {
	return func(err error) bool {
		var e *mysql.MySQLError
		return errors.As(err, &e) && e.Number == number && message().MatchString(e.Message)
	}
}

var (
	// noPrimary reports that the gate has no server that takes writes, or has lost the way to it: it may have done what it was asked for.
	noPrimary = gated(1105, gateDown)

	// misread reports a statement that the gate's own parser does not take.
	misread = gated(1105, gateSyntax)

	// lacking reports that a view cannot be dropped because there is none: the gate knows no IF EXISTS.
	lacking = gated(1046, gateLacks)

	// endedTx reports that a transaction was ended, and so rolled back, because it took too long. One that is not found, or has ended for
	// another reason, may have been committed.
	endedTx = gated(1317, gateEnded)

	// cutShort reports that the tablet had no time left for a statement: it was not answered within 30 s, or a connection was not made ready
	// within one. Then nothing has begun; but the tablet also forgets what a statement has done that ends while it is killed.
	cutShort = func(err error) bool { return gated(1317, gateLate)(err) || gated(3024, gateLate)(err) }
)

// unanswered reports a lost answer in the words of what stands between us and the server. No server sends the numbers 2000 to 2999, which
// belong to the client's library: gates, routers and proxies are clients of the server, and pass on what their library tells them. ProxySQL
// has numbers of its own from 9001 on, for servers that it has not reached in time. The statement may have been executed.
func unanswered(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (2000 <= e.Number && e.Number <= 2999 || e.Number == 9001)
}
