package dbserver

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

var mariadb = engine{
	name:  "mariadb",
	users: []string{"mysql", "nobody"},
	ready: "ready for connections",
	zone:  "JST-9",
	quit:  syscall.SIGKILL, // its data are removed next
	setUp: setUpMariaDB,
	args:  mariadbArgs,
	url:   mysqlURL,
}

func mysqlURL(k *keeper) string {
	return (&url.URL{
		Scheme: "mysql", User: url.UserPassword("root", k.password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(k.port)), Path: "/test",
	}).String()
}

func setUpMariaDB(ctx context.Context, k *keeper) error {
	// The accounts that it removes have no password.
	err := writeInitFile(k, fmt.Sprintf("DELETE FROM mysql.global_priv WHERE User IN ('', 'root');\n"+
		"FLUSH PRIVILEGES;\n"+
		"CREATE USER root@'%%' IDENTIFIED BY '%s';\n"+
		"GRANT ALL PRIVILEGES ON *.* TO root@'%%' WITH GRANT OPTION;\n"+
		"CREATE DATABASE IF NOT EXISTS test;\n", k.password))
	if err != nil {
		return err
	}
	return k.run(
		ctx, k.bin.SetUp, "--no-defaults", "--auth-root-authentication-method=normal",
		"--skip-name-resolve", "--skip-test-db", "--innodb-log-file-size=64M",
		"--datadir="+filepath.Join(k.dir, "data"),
	)
}

// writeInitFile writes the statements that the server runs at each start, before it
// listens.
func writeInitFile(k *keeper, statements string) error {
	name := filepath.Join(k.dir, "init.sql")
	if err := os.WriteFile(name, []byte(statements), 0o600); err != nil {
		return err
	}
	if k.user == nil {
		return nil
	}
	return os.Chown(name, k.user.uid, k.user.gid)
}

func mariadbArgs(k *keeper) []string {
	args := []string{
		"--no-defaults", // must be first
		"--datadir=" + filepath.Join(k.dir, "data"),
		"--init-file=" + filepath.Join(k.dir, "init.sql"),
		"--socket=" + filepath.Join(k.dir, "s"), // the path must be short
		"--pid-file=" + filepath.Join(k.dir, "pid"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", k.port),
		"--skip-name-resolve",
		"--max-connections=400",
		"--default-time-zone=+05:45",
		"--innodb-buffer-pool-size=256M",
		"--innodb-log-file-size=64M",
		"--key-buffer-size=1M",
		"--aria-pagecache-buffer-size=8M",
	}
	if !k.durable {
		args = append(args, "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--innodb-flush-method=nosync",
			"--innodb-file-per-table=OFF")
	}
	return args
}
