package dialect_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/sqlschema"
)

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"postgres://me:secret@h:5432/db?sslmode=disable": "postgres://me:…@h:5432/db?sslmode=disable",
		"postgres://me@h/db":                             "postgres://me@h/db",
		"postgres://h:5432/db":                           "postgres://h:5432/db",
		"postgres://me:secret@a:1,b:2/db":                "postgres://me:…@a:1,b:2/db",
		"mysql://me:se%40cr%2Fet@h/db":                   "mysql://me:…@h/db",
		"mysql://:secret@h/db":                           "mysql://:…@h/db",
		"postgres://h/db?user=me&password=secret&x=1":    "postgres://h/db?user=me&password=…&x=1",
		"postgres://h/db?PASSWORD=secret":                "postgres://h/db?PASSWORD=…",
		"postgres://h/db?sslpassword=secret":             "postgres://h/db?sslpassword=…",
		"postgres://h/db?pass%77ord=secret":              "postgres://h/db?pass%77ord=…",
		"postgres://h/db?password=se cret":               "postgres://h/db?password=…",
		"postgres://me:secret@h/db?password=secret":      "postgres://me:…@h/db?password=…",
		"sqlite:/home/me@work/a:b.db":                    "sqlite:/home/me@work/a:b.db",
		"sqlite:/srv/100%.db":                            "sqlite:/srv/100%.db",
		"dbcron.db":                                      "dbcron.db",
		"":                                               "",

		// Passwords that should have been escaped:
		"postgres://me:sec@ret@h/db":       "postgres://me:…@h/db",
		"postgres://me:sec/secret@h/db":    "postgres://…",
		"postgres://me:12/secret@h/db":     "postgres://me:…@h/db",
		"postgres://me:12?secret@h/db":     "postgres://me:…@h/db",
		"postgres://me:12#secret@h/db":     "postgres://me:…@h/db",
		"postgres://me:secret%zz@h/db":     "postgres://…",
		"postgres://me:secret":             "postgres://…",
		"postgres://u@h:1/?password=s@ret": "postgres://u@h:…@ret",

		// Other tools' forms:
		"me:secret@tcp(127.0.0.1:3306)/db":       "me:…@tcp(127.0.0.1:3306)/db",
		"host=h user=me password=secret dbname=": "host=h user=me password=…",
		"host=h password = 'sec ret'":            "host=h password =…",
	} {
		if got := dialect.Redact(raw); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", raw, got, want)
		}
	}
}

// No part of a password remains, wherever it stands in a URL.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{"", "a", "@", "/", ":", "%", "%40", "?", "#", "&", "a@b:c/d?e#f", "://", " ", "\x00", "é", ",", "sqlite:"} {
		f.Add(s, "me", "db.example")
	}
	f.Fuzz(func(t *testing.T, inside, user, host string) {
		const mark = "HUNTER"
		if strings.Contains(user+host, mark) || strings.ContainsAny(host, "@") {
			return
		}
		password := mark + inside + mark
		for _, scheme := range []string{"postgres", "postgresql", "mysql", "mariadb"} {
			u := url.URL{Scheme: scheme, User: url.UserPassword(user, password), Host: host, Path: "/app"}
			v := url.URL{
				Scheme: scheme, User: url.User(user), Host: host, Path: "/app",
				RawQuery: url.Values{"password": {password}, "z": {"1"}}.Encode(),
			}
			unescaped := scheme + "://" + url.User(user).String() + ":" + password + "@" + host + "/app"
			for _, raw := range []string{u.String(), v.String(), unescaped} {
				if got := dialect.Redact(raw); strings.Contains(got, mark) {
					t.Errorf("%q became %q", raw, got)
				}
			}
		}
	})
}

// refusal opens a database that must be refused, and returns the error's text.
func refusal(t *testing.T, rawURL string, opt dialect.Options) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	db, err := engines.Open(ctx, rawURL, opt)
	if err == nil {
		t.Errorf("%s was opened", rawURL)
		return errors.Join(db.Close(), errors.New("was opened"))
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error tells the password: %v", err)
	}
	return err
}

func TestOpenRefusesURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"":                               "unknown kind",
		"dbcron.db":                      "sqlite:file.db",
		"oracle://me:hunter2@h/x":        `unknown kind "oracle"`,
		"me:hunter2@tcp(h:3306)/x":       "unknown kind",
		"postgres://me:hunt/hunter2@h/x": "%2F for /",
		"postgres://me:12#hunter2@h/x":   "%23 for #",
		"postgres://me:hunter2%@h/x":     "%25 for %",
		"postgres://h/x?password=hunter2&connect_timeout=soon": "connect_timeout",
		"postgres://me:hunter2@h/x?sslmode=perhaps":            "sslmode",
		"mysql://me:hunter2@h":                                 "names no database",
		"mysql://me:hunter2@h/x?parse=1&Q=1":                   "parameter",
		"sqlite:":                                              "names no file",
		"sqlite::memory:":                                      "belongs to one connection",
		"sqlite:x.db?mode=ro":                                  "parameters after a file's name",
		"sqlite:issue#7.db":                                    "%23 for #",
		"sqlite:no/such/folder/x.db":                           "the folder of the database file",
	} {
		err := refusal(t, raw, dialect.Options{})
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", raw, err, want)
		}
		if engines.Unavailable(err) {
			t.Errorf("%s: to try again would not help: %v", raw, err)
		}
	}
}

func TestOpenRefusesNames(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "x.db")
	for _, name := range []string{`a"b`, "a'b", "a b", "Upper", "ä_", "9a", "a;", "a.b", "a-b", strings.Repeat("a", 25)} {
		if err := refusal(t, file, dialect.Options{Prefix: name}); !strings.Contains(err.Error(), "table prefix") {
			t.Errorf("prefix %q: %v", name, err)
		}
		// Nothing listens there: names are checked first.
		if err := refusal(t, "postgres://127.0.0.1:1/x", dialect.Options{Schema: name}); !strings.Contains(err.Error(), "schema") {
			t.Errorf("schema %q: %v", name, err)
		}
	}
	if err := refusal(t, file, dialect.Options{Schema: "ops"}); !strings.Contains(err.Error(), "this engine has none") {
		t.Errorf("a schema for SQLite: %v", err)
	}
	for prefix, want := range map[string]string{"": "dbcron_", "_x9_": "_x9_", strings.Repeat("a", 24): strings.Repeat("a", 24)} {
		if db := dbtest.Open(t, file, dialect.Options{Prefix: prefix}); db.Prefix() != want {
			t.Errorf("prefix %q became %q", prefix, db.Prefix())
		}
	}
}

func TestSQLiteFiles(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for raw, file := range map[string]string{
		"sqlite:a.db":                              "a.db",
		"sqlite:./a b.db":                          "a b.db",
		"sqlite:a%20c.db":                          "a c.db",
		"sqlite:" + filepath.Join(dir, "d.db"):     "d.db",
		"sqlite://" + filepath.Join(dir, "e.db"):   "e.db",
		"sqlite://f.db":                            "f.db",
		"sqlite:g%3F%23%25.db":                     "g?#%.db",
		"sqlite:me@work:1.db":                      "me@work:1.db",
		"sqlite:" + filepath.Join(dir, "ü & +.db"): "ü & +.db",
	} {
		db := dbtest.Open(t, raw, dialect.Options{})
		db.Do(t, `CREATE TABLE x (id INTEGER)`, nil)
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestSQLiteFilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("This is not a database. ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"sqlite:" + dir:            "is a folder",
		"sqlite:" + text:           "file is not a database",
		"sqlite:" + text + "/x.db": "is not a folder",
	} {
		if err := refusal(t, raw, dialect.Options{}); !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want %q in it", raw, err, want)
		}
	}
}

// Permission bits do not stop root from writing, so the connection is read-only instead.
func TestSQLiteThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	dbtest.Open(t, "sqlite:"+file, dialect.Options{}).Do(t, `CREATE TABLE x (id INTEGER)`, nil)
	pool, err := sql.Open("sqlite", "file:"+file+"?mode=ro&_pragma=busy_timeout(1000)")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	unfit(t, pool, "writable", "check the rights")
	if os.Geteuid() == 0 {
		return
	}
	if err := os.Chmod(file, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := refusal(t, "sqlite:"+file, dialect.Options{}); !strings.Contains(err.Error(), "readonly") {
		t.Errorf("got %v, want it to say readonly", err)
	}
}

// unfit wraps a pool that must be refused because of subject.
func unfit(t *testing.T, pool *sql.DB, subject, advice string) {
	t.Helper()
	db, err := engines.Wrap(t.Context(), pool, dialect.Options{})
	if !errors.Is(err, dialect.ErrUnfit) || db != nil {
		t.Fatalf("got %v, %v; want ErrUnfit", db, err)
	}
	if !strings.Contains(err.Error(), subject+": ") || !strings.Contains(err.Error(), advice) {
		t.Errorf("got %v, want it to say %s, and %s", err, subject, advice)
	}
}

func TestTheServerIsDown(t *testing.T) {
	silent := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	closing := listen(t, func(c net.Conn) { // like a proxy without a server behind it
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) //nolint:forbidigo // the net package's way to say how long
		_, _ = c.Read(make([]byte, 1000))
	})
	for _, scheme := range []string{"postgres", "mysql"} {
		for name, address := range map[string]string{
			"nothing listens": "127.0.0.1:1", "no such host": "no-such-host.invalid",
			"accepts, and says nothing": silent, "accepts, and closes": closing,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := engines.Open(ctx, scheme+"://me:hunter2@"+address+"/x", dialect.Options{})
			cancel()
			if err == nil || !engines.Unavailable(err) {
				t.Errorf("%s, %s: got %v, want it to be unavailable", scheme, name, err)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), scheme+"://me:…@"+address)) {
				t.Errorf("%s, %s: the error must name the server and not the password: %v", scheme, name, err)
			}
		}
	}
}

// listen serves each connection to the address with f.
func listen(t *testing.T, f func(net.Conn)) (address string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestTheWrongPassword(t *testing.T) {
	dbtest.SkipGated(t, "the one of the tests asks for none")
	dbtest.Network.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(u.User.Username(), "hunter2")
		err = refusal(t, u.String(), dialect.Options{})
		if !strings.Contains(err.Error(), u.User.Username()) || engines.Unavailable(err) {
			t.Errorf("got %v, want a refused user, and no second try", err)
		}
		if db.Dialect.Schema { // the engine whose URLs may name several hosts
			u.Host = "127.0.0.1:1," + u.Host
			if err := refusal(t, u.String(), dialect.Options{}); engines.Unavailable(err) {
				t.Errorf("got %v, want no second try", err)
			}
		}
	})
}

func TestNoSuchDatabase(t *testing.T) {
	dbtest.Network.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.Path = "/no_such_database"
		err = refusal(t, u.String(), dialect.Options{})
		if !strings.Contains(err.Error(), "no_such_database") || engines.Unavailable(err) {
			t.Errorf("got %v, want it to name the database", err)
		}
	})
}

func TestPostgresURLs(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		with := func(change func(u *url.URL, q url.Values)) string {
			v, q := *u, u.Query()
			change(&v, q)
			v.RawQuery = q.Encode()
			return v.String()
		}
		for name, raw := range map[string]string{
			"several hosts": with(func(u *url.URL, q url.Values) {
				u.Host = "127.0.0.1:1," + u.Host
				q.Set("target_session_attrs", "read-write")
			}),
			"host as a parameter":    with(func(u *url.URL, q url.Values) { q.Set("host", u.Hostname()); q.Set("port", u.Port()); u.Host = "" }),
			"the other name":         with(func(u *url.URL, _ url.Values) { u.Scheme = "postgresql" }),
			"a name of its own":      with(func(_ *url.URL, q url.Values) { q.Set("application_name", "mine") }),
			"without prepared plans": with(func(_ *url.URL, q url.Values) { q.Set("default_query_exec_mode", "exec") }),
			"simple protocol":        with(func(_ *url.URL, q url.Values) { q.Set("default_query_exec_mode", "simple_protocol") }),
		} {
			other := dbtest.Open(t, raw, dialect.Options{})
			var database, application string
			other.Scan(t, `SELECT current_database(), current_setting('application_name')`, nil, &database, &application)
			want := "dbcron"
			if strings.Contains(raw, "mine") {
				want = "mine"
			}
			if database != strings.TrimPrefix(u.Path, "/") || application != want {
				t.Errorf("%s: connected to %s as %s", name, database, application)
			}
		}
		err = refusal(t, with(func(u *url.URL, q url.Values) { q.Set("host", "/no/such/socket"); u.Host = "" }), dialect.Options{})
		if !strings.Contains(err.Error(), "/no/such/socket") || !engines.Unavailable(err) {
			t.Errorf("a socket: got %v", err)
		}
		err = refusal(t, with(func(_ *url.URL, q url.Values) { q.Set("options", "-cdefault_transaction_read_only=on") }), dialect.Options{})
		if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), "target_session_attrs=read-write") {
			t.Errorf("read-only: got %v, want the advice", err)
		}
	})
}

func TestADatabaseInLatin1(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		u, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		name := u.Path[1:] + "_latin1"
		db.Do(t, `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'`, nil)
		defer db.Do(t, `DROP DATABASE `+name+` WITH (FORCE)`, nil)
		u.Path = "/" + name
		err = refusal(t, u.String(), dialect.Options{})
		if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), "ENCODING 'UTF8'") {
			t.Errorf("got %v, want the advice", err)
		}
	})
}

// Tables need a schema. If the search_path has none, the error comes before any change.
func TestASearchPathWithoutASchema(t *testing.T) {
	dbtest.One(t, postgres.Dialect, func(t *testing.T, db *dbtest.DB) {
		refused := func(rawURL, path string) {
			t.Helper()
			err := refusal(t, rawURL, dialect.Options{})
			if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), "search_path is "+path) ||
				!strings.Contains(err.Error(), "CREATE SCHEMA") {
				t.Errorf("got %v, want what the search_path %s lacks, and the advice", err, path)
			}
		}
		refused(db.URL+"&search_path=nowhere", "nowhere")
		refused(db.URL+"&search_path=", `""`)
		db.Do(t, `DROP SCHEMA public`, nil)
		refused(db.URL, `"$user", public`)
		own := dbtest.Open(t, db.URL, dialect.Options{Schema: "own"}) // Migrate creates it
		if err := sqlschema.Migrate(t.Context(), own.DB); err != nil {
			t.Error(err)
		}
		db.Do(t, `CREATE SCHEMA elsewhere`, nil)
		if err := sqlschema.Migrate(t.Context(), dbtest.Open(t, db.URL+"&search_path=nowhere,elsewhere", dialect.Options{}).DB); err != nil {
			t.Error(err)
		}
		if got := db.List(t, `SELECT schemaname FROM pg_tables WHERE tablename = 'dbcron_migration' ORDER BY 1`,
			nil); !slices.Equal(got, []string{"elsewhere", "own"}) {
			t.Errorf("tables are in %v", got)
		}
	})
}

func TestMySQLServersRefuse(t *testing.T) {
	dbtest.SkipGated(t, "it takes any charset, and ignores lock_wait_timeout")
	dbtest.One(t, mysql.Dialect, func(t *testing.T, db *dbtest.DB) {
		err := refusal(t, db.URL+"?no_such_variable=1", dialect.Options{})
		if !strings.Contains(err.Error(), "no_such_variable") || engines.Unavailable(err) {
			t.Errorf("an unknown parameter: got %v", err)
		}
		err = refusal(t, db.URL+"?charset=latin1", dialect.Options{})
		if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), "charset=utf8mb4") {
			t.Errorf("latin1: got %v, want the advice", err)
		}
		other := dbtest.Open(t, db.URL+"?lock_wait_timeout=7&sql_mode=''&time_zone='%2B05:00'", dialect.Options{})
		got := other.List(t, `SELECT @@lock_wait_timeout, @@time_zone, @@sql_mode LIKE '%STRICT_TRANS%'`, nil)[0]
		if got != "7 +00:00 1" {
			t.Errorf("the session has %s; want what the SQL relies on, and the URL's variable", got)
		}
		err = refusal(t, strings.Replace(db.URL, "mysql://", "mariadb://", 1)+"?socket=/no/such/socket", dialect.Options{})
		if !strings.Contains(err.Error(), "/no/such/socket") || !engines.Unavailable(err) {
			t.Errorf("a socket: got %v", err)
		}
	})
}
