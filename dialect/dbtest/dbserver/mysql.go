package dbserver

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
)

var mysqlEngine = engine{
	name:  "mysql",
	users: []string{"mysql", "nobody"},
	ready: "ready for connections",
	zone:  "EST5EDT,M3.2.0,M11.1.0",
	quit:  syscall.SIGKILL, // its data are removed next
	setUp: setUpMySQL,
	args:  mysqlArgs,
	url:   mysqlURL,
}

func setUpMySQL(ctx context.Context, k *keeper) error {
	// The account that it removes has no password.
	err := writeInitFile(k, fmt.Sprintf("CREATE USER IF NOT EXISTS root@'%%' IDENTIFIED BY '%s';\n"+
		"GRANT ALL PRIVILEGES ON *.* TO root@'%%' WITH GRANT OPTION;\n"+
		"DROP USER IF EXISTS root@localhost;\n"+
		"CREATE DATABASE IF NOT EXISTS test;\n", k.password))
	if err != nil {
		return err
	}
	return k.run(
		ctx, k.bin.SetUp, "--no-defaults", "--initialize-insecure",
		"--innodb-flush-method=nosync", "--innodb-redo-log-capacity=64M", "--innodb-doublewrite=OFF",
		"--datadir="+filepath.Join(k.dir, "data"),
	)
}

func mysqlArgs(k *keeper) []string {
	args := []string{
		"--no-defaults", // must be first
		"--datadir=" + filepath.Join(k.dir, "data"),
		"--init-file=" + filepath.Join(k.dir, "init.sql"),
		"--socket=" + filepath.Join(k.dir, "s"), // the path must be short
		"--pid-file=" + filepath.Join(k.dir, "pid"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", k.port),
		"--mysqlx=OFF",            // listens on a port of its own
		"--secure-file-priv=NULL", // the default is a folder that may not be there
		"--skip-name-resolve",
		"--max-connections=400",
		"--default-time-zone=-03:30",
		"--innodb-buffer-pool-size=256M",
		"--innodb-redo-log-capacity=128M",
		"--performance-schema=OFF", // takes 200 MB
	}
	if !k.durable {
		args = append(args, "--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--innodb-flush-method=nosync",
			"--innodb-file-per-table=OFF") // to create and drop a table takes two thirds of the time
	}
	return args
}
