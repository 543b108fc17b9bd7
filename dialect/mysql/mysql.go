// Package mysql is the engine for MySQL and MariaDB, with go-sql-driver/mysql as its only driver.
package mysql

import (
	"cmp"
	"context"
	"crypto/sha1"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dbcron/dbcron/internal/engine"
	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/internal/sqlconn"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Dialect is the engine of MySQL from 8.0 on and MariaDB from 10.6 on: the SQL that both accept.
var Dialect = &sqlrun.Dialect{
	Name:    "mysql",
	Goose:   "mysql",
	Title:   "MySQL, MariaDB",
	Schemes: []string{"mysql", "mariadb"},
	Example: "mysql://user:password@host/database",
	Probe:   "SELECT 1 FROM (SELECT CONNECTION_ID()) AS v",

	Placeholder: func(int) string { return "?" },
	Now:         "UTC_TIMESTAMP(6)",
	Add:         func(t, us string) string { return "TIMESTAMPADD(MICROSECOND, " + us + ", " + t + ")" },
	FromMicros: func(us string) string {
		return "TIMESTAMPADD(MICROSECOND, " + us + ", TIMESTAMP'1970-01-01 00:00:00')"
	},
	ToMicros: func(t string) string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + t + ")" },
	BigInt:   "SIGNED",

	JSONBytes: func(column string) string { return "OCTET_LENGTH(" + column + ")" },

	SkipLocked:  "FOR UPDATE SKIP LOCKED",
	Locked:      "FOR UPDATE",
	LockedNow:   "FOR UPDATE NOWAIT",
	ShareLocked: "LOCK IN SHARE MODE",
	Current:     "LOCK IN SHARE MODE",
	// Not INSERT IGNORE, which would also hide a value that does not fit.
	AddDuplicate: func(_, _ string, columns []string) string {
		sums := make([]string, len(columns))
		for i, c := range columns {
			sums[i] = c + " = " + c + " + VALUES(" + c + ")"
		}
		return "ON DUPLICATE KEY UPDATE " + strings.Join(sums, ", ")
	},
	CountsIgnored:   true, // because of clientFoundRows, which says how many rows an UPDATE has found
	IgnoreDuplicate: func(column string) string { return "ON DUPLICATE KEY UPDATE " + column + " = " + column },
	Records: func(rows string, columns []sqlrun.Column) string {
		types := map[string]string{"int": "BIGINT", "text": "LONGTEXT CHARACTER SET utf8mb4"}
		// A derived table, since MySQL cannot lock a table function (error 3569), and a query's locking
		// clause does not apply to its derived tables.
		return "(SELECT * FROM JSON_TABLE(" + rows + ", '$[*]' COLUMNS (" +
			engine.Listed(columns, func(c sqlrun.Column) string { return c.Name + " " + types[c.Kind] + " PATH '$." + c.Name + "'" }) +
			")) AS listed) AS record"
	},
	// In this order and with this index, because the optimizer would scan a small table.
	JoinByKey: func(table string) string { return "STRAIGHT_JOIN " + table + " FORCE INDEX (PRIMARY)" },
	Ranges:    true,
	// The storage engine does not hand deleted rows to the server, which alone knows a range's end.
	PassesEnds: true,
	In:         func(column sqlrun.Column, list string) string { return column.Name + " IN (" + list + ")" },
	Only: func(columnAndCount string) string {
		column, count, _ := strings.Cut(columnAndCount, " ")
		return "ORDER BY " + column + " LIMIT " + count
	},
	UpdateFrom: func(table string, key []string, set, condition, pick string) string {
		// Not IN, whose outer scan waits for rows that pick skips. In this order and with this
		// index, because the optimizer would scan a small table.
		return "UPDATE (" + pick + ") AS picked STRAIGHT_JOIN " + table + " FORCE INDEX (PRIMARY) ON " +
			engine.SameKey(table, key) + " SET " + set +
			engine.Also(" WHERE ", condition)
	},
	LocksReads: true,
	DeleteFrom: func(table string, key []string, pick string) string {
		return "DELETE " + table + " FROM (" + pick + ") AS picked STRAIGHT_JOIN " + table + " FORCE INDEX (PRIMARY) ON " +
			engine.SameKey(table, key)
	},

	// The connection remembers the value, and the answer carries it.
	Next: func(column string) string { return column + " = LAST_INSERT_ID(" + column + " + 1)" },

	Isolation: sql.LevelReadCommitted,
	Isolated:  true, // set by session; asking for it would cost one more round trip

	Duplicate: numbered(1062),
	Missing:   numbered(1146),
	Unknown:   lacking,
	Denied:    numbered(1044, 1142, 1143, 1227, 1370, 1419),
	Retryable: func(err error) bool {
		return numbered(1205, 1213, 1020, 3101)(err) || commitConflict(err) || endedTx(err)
	},
	Unavailable: func(err error) bool {
		return sqlrun.ConnectionError(err) || errors.Is(err, mysql.ErrInvalidConn) || full(err) || numbered(1053, 1927, 3032, 3169, 4031)(err) ||
			readOnly(err) || halfCommitted(err) || noPrimary(err) || cutShort(err) || unanswered(err)
	},
	Full:        full,
	Outdated:    numbered(1020), // MariaDB with innodb_snapshot_isolation
	NoSpace:     noSpace,
	LockTimeout: numbered(1205, 3572),
	Briefly:     briefly,
	ReadOnly:    readOnly,
	Refused: func(err error) bool {
		var e *mysql.MySQLError
		return errors.As(err, &e) && !temporary(err)
	},

	Temporary: temporary,

	SyntaxError: func(err error) bool { return numbered(1064)(err) || misread(err) },

	Restore: []string{
		"SET SESSION sql_mode = '" + sqlMode + "', time_zone = '+00:00', sql_safe_updates = 0, sql_select_limit = DEFAULT, max_join_size = DEFAULT," +
			" innodb_lock_wait_timeout = 5",
		"SET NAMES utf8mb4",
	},

	Connector: connector,
	IdleLife:  idleSeconds * time.Second * 3 / 5, // MySQL closes connections that are idle for longer: see idleLimit
	Check:     check,
	Strain:    strain,

	WhyReadOnly: askReadOnly,
	Holdings:    holdings,
	MaxPacket:   "SELECT @@max_allowed_packet",
	Lacks:       without,
	Exclusive:   exclusive,
	Session:     locks,

	Home:       home,
	AtHome:     atHome,
	TableLocks: tableLocks,
	Routines:   true,
	Delimiter:  true,
}

// temporary lists errors of the server, the connection, timeouts and other transactions: locks, limits
// on connections, a shutdown, lack of space, memory or threads, the network, statements that were
// interrupted or took too long, and a read-only server, one that is not the primary, or one whose
// group or cluster prevents a commit.
func temporary(err error) bool {
	return temporaries(err) || noSpace(err) || noPrimary(err) || unanswered(err)
}

var temporaries = numbered(1205, 1213, 1020, 3572, 1180, 3101, 3032, 3169,
	1040, 1047, 1053, 1203, 1226,
	1021, 1037, 1038, 1041, 1114, 1135,
	1158, 1159, 1160, 1161, 1927, 4031,
	1317, 1969, 3024,
	1290, 1792, 1836, 3100)

// full reports that the server lets nobody in before somebody leaves. 1226 is about each limit of an account: those on statements
// refuse one statement, and leave the connection as it was.
func full(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1040 || e.Number == 1203 || e.Number == 1226 && strings.Contains(e.Message, "_connections"))
}

// noSpace goes by the system's words as well: errors of files have several numbers, such as 3, 1026 and 1030.
func noSpace(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && (e.Number == 1021 || e.Number == 1114 || strings.Contains(e.Message, "No space left on device"))
}

func numbered(numbers ...uint16) func(error) bool {
	return func(err error) bool {
		var e *mysql.MySQLError
		return errors.As(err, &e) && slices.Contains(numbers, e.Number)
	}
}

const sqlMode = "STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"

func connector(u *url.URL, opt sqlrun.Options) (driver.Connector, error) {
	cfg, err := config(u, opt)
	if err != nil {
		return nil, err
	}
	base, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sqlconn.Intercept(base, func(ctx context.Context, c driver.Conn) (sqlconn.Around, error) { return session(ctx, c, base) }), nil
}

func config(u *url.URL, opt sqlrun.Options) (*mysql.Config, error) {
	socket, parameters, err := parameters(u.RawQuery)
	if err != nil {
		return nil, err
	}
	address := "tcp(" + net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306")) + ")"
	if socket != "" {
		address = "unix(" + socket + ")"
	}
	// With the address, because the driver takes from it the name to verify in the server's
	// certificate.
	cfg, err := mysql.ParseDSN(address + "/?" + parameters)
	if err != nil {
		return nil, err
	}
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	if cfg.DBName == "" {
		return nil, errors.New("the URL names no database: mysql://user:password@host:3306/database")
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	// The SQL relies on this: matched rows are counted, not changed ones; a statement takes one
	// round trip; the driver never parses instants.
	cfg.ClientFoundRows, cfg.InterpolateParams = true, true
	cfg.ParseTime, cfg.MultiStatements = false, false
	cfg.Logger = &mysql.NopLogger{} // what it would print is returned as errors, too
	cfg.Timeout = cmp.Or(cfg.Timeout, 10*time.Second)
	cfg.ConnectionAttributes = cmp.Or(cfg.ConnectionAttributes, "program_name:"+opt.ApplicationName)
	if cfg.Params == nil {
		cfg.Params = map[string]string{}
	}
	cfg.Params["time_zone"] = "'+00:00'"
	cfg.Params["sql_mode"] = "'" + sqlMode + "'"
	cfg.Params["autocommit"] = "1"       // the server's default may be 0
	cfg.Params["sql_safe_updates"] = "0" // may be 1, which refuses statements depending on their plans
	// A statement whose client is gone must not wait for a lock, get it, and hold it: the ghost
	// of a cancelled claim.
	cfg.Params["innodb_lock_wait_timeout"] = "5"
	return cfg, nil
}

var variable = pattern.Lazy(`^[a-z][a-z0-9_]*$`)

// parameters removes the socket, which is ours, from a URL's parameters. The driver sends parameters
// that it does not know as SET name = value. So any server variable is a parameter, and the server
// refuses unknown ones. But SET password would change it, and strict makes the driver panic.
func parameters(rawQuery string) (socket, rest string, err error) {
	var kept []string
	for pair := range strings.SplitSeq(rawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case pair == "":
			continue
		case name == "socket":
			if socket, err = url.PathUnescape(value); err != nil {
				return "", "", fmt.Errorf("parameter socket: %w", err)
			}
			continue
		case slices.Contains(driverParameters, name):
		case name == "password" || name == "strict" || !variable().MatchString(name):
			return "", "", fmt.Errorf("parameter %q is unknown: use those of go-sql-driver/mysql, socket, or a variable of the server", name)
		}
		kept = append(kept, pair)
	}
	return socket, strings.Join(kept, "&"), nil
}

// driverParameters are parameters of the driver whose names are not those of variables.
var driverParameters = []string{
	"allowAllFiles", "allowCleartextPasswords", "allowFallbackToPlaintext", "allowNativePasswords", "checkConnLiveness",
	"clientFoundRows", "columnsWithAlias", "connectionAttributes", "interpolateParams", "maxAllowedPacket",
	"multiStatements", "parseTime", "readTimeout", "rejectReadOnly", "serverPubKey", "timeTruncate", "writeTimeout",
}

// session sets what a DSN cannot: no variable for the isolation level exists in both MySQL and
// MariaDB. It also makes sure that a cancelled statement ends in the server; the driver alone only
// closes its end of the connection.
func session(ctx context.Context, c driver.Conn, base driver.Connector) (sqlconn.Around, error) {
	if err := sqlconn.Exec(ctx, c, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return nil, err
	}
	limit, err := newIdleLimit(ctx, c)
	if err != nil {
		return nil, err
	}
	id, err := sqlconn.Int(ctx, c, "SELECT CONNECTION_ID()")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, op string, call func() error) error {
		if err := limit.before(ctx, c, op); err != nil {
			return err
		}
		err := call()
		if err != nil && ctx.Err() != nil {
			kill(base, id)
		}
		switch {
		case readOnly(err):
			err = fmt.Errorf("%w: %w", driver.ErrBadConn, err)
		case halfCommitted(err), unanswered(err):
			err = fmt.Errorf("%w: %w", sqlconn.ErrCut, err)
		}
		return err
	}, nil
}

// briefly changes the session's limit, which is a whole number of seconds.
func briefly(ctx context.Context, c driver.Conn) (restore func() error, err error) {
	was, err := sqlconn.Int(ctx, c, "SELECT @@innodb_lock_wait_timeout")
	if err != nil {
		return nil, err
	}
	set := func(ctx context.Context, seconds int64) error {
		return sqlconn.Exec(ctx, c, "SET SESSION innodb_lock_wait_timeout = "+strconv.FormatInt(seconds, 10))
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return set(ctx, was)
	}, set(ctx, int64(sqlconn.BriefWait/time.Second))
}

// kill ends a connection in the server, within a second. It is a courtesy: innodb_lock_wait_timeout
// ends what it does not reach.
func kill(base driver.Connector, id int64) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := base.Connect(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	_ = sqlconn.Exec(ctx, c, "KILL "+strconv.FormatInt(id, 10))
}

func check(ctx context.Context, db *sqlrun.DB) ([]sqlrun.Finding, error) {
	v, err := variables(ctx, db.Pool())
	if err != nil {
		return nil, err
	}
	if v["wsrep_ready"], err = galeraReady(ctx, db.Pool()); err != nil {
		return nil, err
	}
	gate, err := gateFindings(ctx, db.Pool(), v)
	return append(findings(v), gate...), err
}

// findings judges the variables that variables has read.
func findings(v map[string]string) []sqlrun.Finding {
	major, minor := engine.Version(v["version"])
	modern := major >= 8
	product := "MySQL"
	if strings.Contains(v["version"], "MariaDB") {
		product, modern = "MariaDB", major > 10 || major == 10 && minor >= 6
	}
	advice := "use MySQL 8.0 or MariaDB 10.6, or later"
	if strings.Contains(v["version"], "TiDB") { // version() of TiDB names the MySQL that it imitates
		product, modern = "TiDB", false
		advice = "TiDB is refused: share locks, on which the order of jobs rests, are an error there, lock nothing or lock as writers do, by two variables of a session, " +
			"and it has no JSON_TABLE; " +
			"use MySQL 8.0 or MariaDB 10.6, or later"
	}
	strict := strings.Contains(v["sql_mode"], "STRICT_TRANS_TABLES") || strings.Contains(v["sql_mode"], "STRICT_ALL_TABLES")
	oracle := slices.Contains(strings.Split(v["sql_mode"], ","), "ORACLE")
	return []sqlrun.Finding{
		{
			Subject: "version", OK: modern, Detail: product + " " + v["version"],
			Advice: advice,
		},
		sqlrun.Writable(whyReadOnly(v), "connect to the primary, not to a replica, and set nothing read-only; "+
			"a node of a cluster takes writes when it is in contact with most of the others"),
		{
			Subject: "binlog", OK: v["log_bin"] != "ON" || v["binlog_format"] != "STATEMENT",
			Detail: fmt.Sprintf("log_bin = %s, binlog_format = %s", v["log_bin"], v["binlog_format"]),
			Advice: "set binlog_format = ROW: with STATEMENT every write at READ COMMITTED fails (error 1665)",
		},
		{
			Subject: "sql_mode", OK: strict, Detail: "sql_mode = " + v["sql_mode"],
			Advice: "add STRICT_TRANS_TABLES to this pool's sql_mode: values that do not fit must be refused, not cut",
		},
		{
			Subject: "SQL dialect", OK: !oracle, Detail: "sql_mode = " + v["sql_mode"],
			Advice: "take ORACLE out of this pool's sql_mode, in which the server parses another language",
		},
		{
			Subject: "safe updates", OK: v["sql_safe_updates"] != "ON", Detail: "sql_safe_updates = " + cmp.Or(v["sql_safe_updates"], "OFF"),
			Advice: "add sql_safe_updates=0 to this pool's DSN: it refuses statements by how they are planned (error 1175)",
		},
		{
			Subject: "charset", OK: v["character_set_client"] == "utf8mb4" && v["character_set_connection"] == "utf8mb4",
			Detail: fmt.Sprintf("character_set_client = %s, character_set_connection = %s",
				v["character_set_client"], v["character_set_connection"]),
			Advice: "add charset=utf8mb4 to this pool's DSN",
		},
		{
			Subject: "autocommit", OK: v["autocommit"] != "OFF", Detail: "autocommit = " + v["autocommit"],
			Advice: "add autocommit=1 to this pool's DSN: without it no statement is committed by itself, and no transaction can be begun (error 1568)",
		},
		{
			Subject: "isolation", OK: true,
			Detail: fmt.Sprintf("session default %q; dbcron's transactions ask for READ-COMMITTED themselves",
				cmp.Or(v["transaction_isolation"], v["tx_isolation"])),
		},
	}
}

// variables uses SHOW, because @@name fails for a variable that this version does not have.
func variables(ctx context.Context, pool *sql.DB) (map[string]string, error) {
	rows, err := pool.QueryContext(ctx, `SHOW VARIABLES WHERE Variable_name IN ('version', 'read_only', 'super_read_only',
		'innodb_read_only', 'log_bin', 'binlog_format', 'sql_mode', 'character_set_client', 'character_set_connection',
		'autocommit', 'sql_safe_updates', 'tx_isolation', 'transaction_isolation', 'tx_read_only', 'transaction_read_only')`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		found[name] = value
	}
	return found, rows.Err()
}

func exclusive(ctx context.Context, db *sqlrun.DB, name, _ string) (func(), error) {
	own := *locks
	own.Refuse = func(context.Context, *sql.Conn) error { return nil } // Galera: run migrations on one node
	// A gate ends a connection with a lock that has been idle for as long as a transaction may take.
	own.Keep = func(ctx context.Context, c *sql.Conn, name string) {
		_ = c.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?)", name).Scan(new(sql.NullInt64)) // nobody could be told that it is lost
	}
	return own.Take(ctx, db.Pool(), db.Home(), name)
}

// lockKey hashes a name, because GET_LOCK takes 64 characters and its case rules vary. The hash
// includes the database, because the locks are the server's. It is computed here, since MySQL 9.7 has
// no SHA1; earlier versions of dbcron had the server compute the same name, so they and this one
// exclude each other.
func lockKey(home, name string) string {
	sum := sha1.Sum([]byte(home + "/" + strconv.FormatUint(uint64(engine.LockKey(name)), 16)))
	return "dbcron:" + hex.EncodeToString(sum[:])
}

var locks = &sqlrun.SessionLocks{
	Key:    lockKey,
	Refuse: noSession,
	Try: func(ctx context.Context, c *sql.Conn, name string) (bool, error) {
		return engine.QueryBool(ctx, c, "SELECT GET_LOCK(?, 0)", name)
	},
	Held: func(ctx context.Context, c *sql.Conn, name string) (bool, error) {
		return engine.QueryBool(ctx, c, "SELECT @@global.read_only = 0 AND IS_USED_LOCK(?) = CONNECTION_ID()", name)
	},
	Free: func(ctx context.Context, c *sql.Conn, name string) (bool, error) {
		return engine.QueryBool(ctx, c, "SELECT RELEASE_LOCK(?)", name)
	},
}

// noSession refuses replicas, and nodes of a Galera cluster, which do not share such locks.
func noSession(ctx context.Context, c *sql.Conn) error {
	var readOnly bool
	if err := c.QueryRowContext(ctx, "SELECT @@global.read_only").Scan(&readOnly); err != nil {
		return err
	}
	if readOnly {
		return fmt.Errorf("%w: the server is read-only, and its primary does not know its locks; connect to the primary", sqlrun.ErrNoSessions)
	}
	is, err := isGalera(ctx, c)
	if is {
		err = fmt.Errorf("%w: the nodes of a Galera cluster do not know each other's", sqlrun.ErrNoSessions)
	}
	return err
}
