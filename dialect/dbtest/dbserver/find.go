package dbserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binaries holds the absolute paths of the two programs that an engine needs.
type binaries struct {
	Server string
	SetUp  string // makes the data folder
}

// findPostgres takes both programs from the first folder that has both, since
// their versions must be the same.
func findPostgres(folders []string) (binaries, error) {
	for _, dir := range folders {
		b := binaries{Server: program(dir, "postgres"), SetUp: program(dir, "initdb")}
		if b.Server != "" && b.SetUp != "" {
			return b, nil
		}
	}
	return binaries{}, fmt.Errorf("%w: found no folder with the programs postgres and initdb: "+
		"on Debian, apt-get install postgresql; or set DBCRON_TEST_POSTGRES to the URL of a server", ErrMissing)
}

func findMariaDB(folders []string) (binaries, error) {
	var b binaries
	for _, dir := range folders {
		b.Server = cmp.Or(b.Server, program(dir, "mariadbd"))
		b.SetUp = cmp.Or(b.SetUp, program(dir, "mariadb-install-db"))
	}
	if b.Server == "" || b.SetUp == "" {
		return binaries{}, fmt.Errorf("%w: did not find the programs mariadbd and mariadb-install-db: "+
			"on Debian, apt-get install mariadb-server-core mariadb-client-core; "+
			"or set DBCRON_TEST_MARIADB to the URL of a server", ErrMissing)
	}
	return b, nil
}

// findMySQL skips MariaDB, which is installed as mysqld, too.
func findMySQL(folders []string) (binaries, error) {
	for _, dir := range folders {
		if path := program(dir, "mysqld"); path != "" && !strings.Contains(version(path), "MariaDB") {
			return binaries{Server: path, SetUp: path}, nil
		}
	}
	return binaries{}, fmt.Errorf("%w: did not find a program mysqld that is MySQL's and not MariaDB's: "+
		"on Debian, as root, run tools/test-deps; or set DBCRON_TEST_MYSQL to the URL of a server", ErrMissing)
}

// version returns the version that a server's program prints.
func version(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, "--no-defaults", "--version").Output()
	if len(out) == 0 { // PostgreSQL does not know the first
		out, _ = exec.CommandContext(ctx, path, "--version").Output()
	}
	return strings.TrimSpace(string(out))
}

// postgresFolders returns where to look for PostgreSQL, best first. Debian
// does not put its programs into PATH.
func postgresFolders() []string {
	var versions []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql*/bin",
		"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
	} {
		found, _ := filepath.Glob(pattern) // fails on a bad pattern only
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(number(b), number(a)) })
		versions = append(versions, found...)
	}
	return append(pathFolders(), versions...)
}

// asideFolder is where tools/test-deps puts a MySQL that cannot be installed beside MariaDB.
const asideFolder = "/var/cache/dbcron-tests/mysql/bin"

func mysqlFolders() []string { return append(mariadbFolders(), asideFolder) }

func mariadbFolders() []string {
	return append(
		pathFolders(), "/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec",
		"/usr/local/mysql/bin", "/usr/local/mysql/scripts", "/opt/homebrew/bin",
	)
}

func pathFolders() []string { return filepath.SplitList(os.Getenv("PATH")) }

// program returns the absolute name of a program in dir, or "".
func program(dir, name string) string {
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	if path, err = exec.LookPath(path); err != nil {
		return ""
	}
	return path
}

// number returns the first number in a path: 15 for /usr/lib/postgresql/15/bin.
func number(path string) int {
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	n := 0
	if runs := strings.FieldsFunc(path, notDigit); len(runs) > 0 {
		n, _ = strconv.Atoi(runs[0])
	}
	return n
}
