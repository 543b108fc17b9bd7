package dbtest

import (
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Unanswered returns how gates, routers, proxies and poolers say that they have no answer of the server, each with what says so. The
// statement may have been executed. There is nothing of the kind for SQLite.
func Unanswered(d *sqlrun.Dialect) map[string]error {
	switch d.Name {
	case "mysql":
		said := func(number uint16, text string) error { return &mysql.MySQLError{Number: number, Message: text} }
		return map[string]error{
			"Vitess 24, its server's process is killed": said(2013, "target: app.0.primary: vttablet: Lost connection to MySQL server during query (errno 2013) (sqlstate HY000)"),
			"Vitess 24, its tablet is gone":             said(1105, "target: app.0.primary: vttablet: rpc error: code = Unavailable desc = error reading from server: EOF"),
			"ProxySQL, MySQL Router":                    said(2013, "Lost connection to MySQL server during query"),
			"ProxySQL, from its pool":                   said(2006, "MySQL server has gone away"),
			"ProxySQL, no server in time":               said(9001, "Max connect timeout reached while reaching hostgroup 10 after 10000ms"),
			"MySQL Router, MaxScale":                    said(2003, "Can't connect to remote MySQL server on '10.0.0.1:3306' (111)"),
			"MaxScale":                                  said(1927, "Lost connection to backend server: connection closed by peer"),
			"any client's library":                      said(2055, "Lost connection to MySQL server at 'reading initial communication packet', system error: 104"),
		}
	case "postgres":
		said := func(code, text string) error { return &pgconn.PgError{Severity: "FATAL", Code: code, Message: text} }
		return map[string]error{
			"PgBouncer":                      said("08P01", "server conn crashed?"),
			"PgBouncer, no server in time":   said("08P01", "query_wait_timeout"),
			"Odyssey":                        said("08006", "odyssey: c1: remote server read/write error s2"),
			"pgcat":                          said("58000", "error receiving data from server: SocketError"),
			"pgcat, no server in time":       said("58000", "could not get connection from the pool - AllServersDown"),
			"Supavisor":                      said("XX000", "(EDBHANDLEREXITED) connection to database closed. Check logs for more information"),
			"a server that is being stopped": said("57P01", "terminating connection due to administrator command"),
		}
	}
	return nil
}
