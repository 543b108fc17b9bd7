package mysql

import (
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A server for each fault would be expensive: the test judges values of variables instead.
func TestMySQLFindings(t *testing.T) {
	good := map[string]string{
		"version": "8.0.36", "read_only": "OFF", "super_read_only": "OFF", "innodb_read_only": "OFF",
		"log_bin": "ON", "binlog_format": "ROW", "sql_mode": "STRICT_TRANS_TABLES,NO_ZERO_DATE",
		"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "transaction_isolation": "REPEATABLE-READ",
	}
	for _, c := range []struct{ name, value, bad, detail string }{
		{"version", "8.0.36", "", ""},
		{"version", "9.4.0", "", ""},
		{"version", "10.6.0-MariaDB", "", ""},
		{"version", "10.11.6-MariaDB-0+deb12u1-log", "", ""},
		{"version", "11.8.2-MariaDB", "", ""},
		{"version", "5.7.44-log", "version", "MySQL 5.7.44"},
		{"version", "10.5.29-MariaDB", "version", "MariaDB 10.5.29"},
		{"version", "5.5.5-MariaDB", "version", "MariaDB 5.5.5"},
		{"version", "8.0.11-TiDB-v8.5.0", "version", "TiDB 8.0.11-TiDB-v8.5.0"},
		{"version", "", "version", "MySQL"},
		{"binlog_format", "STATEMENT", "binlog", "binlog_format = STATEMENT"},
		{"binlog_format", "MIXED", "", ""},
		{"sql_mode", "", "sql_mode", ""},
		{"sql_mode", "ANSI_QUOTES,NO_ZERO_DATE", "sql_mode", "ANSI_QUOTES"},
		{"sql_mode", "STRICT_ALL_TABLES", "", ""},
		{"sql_mode", "STRICT_ALL_TABLES,ORACLE", "SQL dialect", "ORACLE"},
		{"sql_safe_updates", "ON", "safe updates", "sql_safe_updates = ON"},
		{"character_set_client", "latin1", "charset", "latin1"},
		{"character_set_connection", "utf8mb3", "charset", "utf8mb3"},
		{"read_only", "ON", "writable", "read_only = ON"},
		{"read_only", "1", "writable", "read_only = 1"},
		{"read_only", "NO_LOCK_NO_ADMIN", "writable", "read_only = NO_LOCK_NO_ADMIN"},
		{"super_read_only", "ON", "writable", "super_read_only = ON"},
		{"innodb_read_only", "ON", "writable", "innodb_read_only = ON"},
		{"read_only", "0", "", ""},
		{"autocommit", "OFF", "autocommit", "autocommit = OFF"},
	} {
		v := maps.Clone(good)
		v[c.name] = c.value
		bad := ""
		for _, f := range findings(v) {
			if f.OK {
				continue
			}
			bad += f.Subject
			if !strings.Contains(f.Detail, c.detail) || f.Advice == "" {
				t.Errorf("%s = %q: got %+v, want %q in the detail", c.name, c.value, f, c.detail)
			}
		}
		if bad != c.bad {
			t.Errorf("%s = %q: refused for %q, want %q", c.name, c.value, bad, c.bad)
		}
	}
	without := maps.Clone(good)
	for _, name := range []string{"log_bin", "super_read_only", "innodb_read_only"} { // not every version has these
		delete(without, name)
	}
	without["binlog_format"] = "STATEMENT"
	for _, f := range findings(without) {
		if !f.OK {
			t.Errorf("without a binlog: %+v", f)
		}
	}
}

// A gate is known by its version, and what it does with transactions over keyspaces by its mode.
func TestGate(t *testing.T) {
	for version, want := range map[string]bool{"8.4.6-Vitess": true, "9.7.4-Vitess": true, "8.0.36": false, "10.11.6-MariaDB": false, "": false} {
		if isGate(version) != want {
			t.Errorf("%q is not told apart", version)
		}
	}
	for mode, fine := range map[string]bool{"STRICT_TRANS_TABLES,NO_ZERO_DATE": true, "": true, "ANSI,NO_BACKSLASH_ESCAPES": false, "no_backslash_escapes": false} {
		if got := escapes(mode); got.OK != fine || !strings.Contains(got.Detail, mode) {
			t.Errorf("%s: %+v", mode, got)
		}
	}
	for mode, want := range map[string]string{"SINGLE": "refuses", "multi": "in two parts", "TWOPC": "in two phases"} {
		if got := overKeyspaces(mode); !strings.Contains(got, want) || !strings.Contains(got, mode) {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

func TestMySQLURLs(t *testing.T) {
	for _, c := range []struct {
		url  string
		want mysql.Config
		err  string
	}{
		{
			url:  "mysql://me:p%40s%2Fs@db.example:3307/app",
			want: mysql.Config{User: "me", Passwd: "p@s/s", Net: "tcp", Addr: "db.example:3307", DBName: "app"},
		},
		{url: "mysql://me@db.example/app", want: mysql.Config{User: "me", Net: "tcp", Addr: "db.example:3306", DBName: "app"}},
		{url: "mariadb://[::1]/app", want: mysql.Config{Net: "tcp", Addr: "[::1]:3306", DBName: "app"}},
		{url: "mysql:///app", want: mysql.Config{Net: "tcp", Addr: "127.0.0.1:3306", DBName: "app"}},
		{url: "mysql:///app?socket=/run/my%20sql.sock", want: mysql.Config{Net: "unix", Addr: "/run/my sql.sock", DBName: "app"}},
		{url: "mysql://h/app?tls=skip-verify&", want: mysql.Config{Net: "tcp", Addr: "h:3306", DBName: "app", TLSConfig: "skip-verify"}},
		{url: "mysql://h/app?tls=true", want: mysql.Config{Net: "tcp", Addr: "h:3306", DBName: "app", TLSConfig: "true"}},
		{url: "mysql://h/app?parseTime=true&clientFoundRows=false", want: mysql.Config{Net: "tcp", Addr: "h:3306", DBName: "app"}},
		{url: "mysql://h", err: "names no database"},
		{url: "mysql://h/", err: "names no database"},
		{url: "mysql://h/app?tls=nonsense", err: "nonsense"},
		{url: "mysql://h/app?sslMode=disable", err: `parameter "sslMode" is unknown`},
		{url: "mysql://h/app?password=hunter2", err: `parameter "password" is unknown`},
		{url: "mysql://h/app?strict=true", err: `parameter "strict" is unknown`},
		{url: "mysql://h/app?a+b=1", err: `parameter "a+b" is unknown`},
		{url: "mysql://h/app?parseTime=maybe", err: "maybe"},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		got, err := config(u, sqlrun.Options{ApplicationName: "test"})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: got %v, want %q", c.url, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got.User != c.want.User || got.Passwd != c.want.Passwd || got.Net != c.want.Net || got.Addr != c.want.Addr ||
			got.DBName != c.want.DBName || got.TLSConfig != c.want.TLSConfig {
			t.Errorf("%s: got %+v", c.url, got)
		}
		if !got.ClientFoundRows || !got.InterpolateParams || got.ParseTime || got.MultiStatements {
			t.Errorf("%s: the URL has changed what the SQL relies on: %+v", c.url, got)
		}
		if c.want.TLSConfig == "true" && got.TLS.ServerName != u.Hostname() {
			t.Errorf("%s: the certificate must be of %q", c.url, got.TLS.ServerName)
		}
	}
}
