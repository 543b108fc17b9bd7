package postgres

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// Files that the driver reads, by a URL or the environment, are refused if reading them may not end.
func TestFilesWithoutEnd(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	long := filepath.Join(dir, "long")
	for _, make := range []func() error{
		func() error { return os.WriteFile(long, nil, 0o600) },
		func() error { return os.Truncate(long, 2<<20) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	connects := func(query string) error {
		u, err := url.Parse("postgres://u:p@127.0.0.1/app?" + query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = connector(u, sqlrun.Options{})
		return err
	}
	refused := func(err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Error(err)
		}
	}
	for _, name := range []string{"passfile", "servicefile", "sslrootcert", "sslcert", "sslkey"} {
		refused(connects(name+"=/dev/tty"), name+" of the URL: /dev/tty is no file on a disk")
		refused(connects(name+"="+long), name+" of the URL: "+long+" has more than 1 MiB")
		variable := "PG" + strings.ToUpper(name)
		t.Setenv(variable, "/dev/tty")
		refused(connects(""), variable+": /dev/tty is no file on a disk")
		t.Setenv(variable, "")
	}
	if err := os.Rename(long, filepath.Join(dir, ".pgpass")); err != nil {
		t.Fatal(err)
	}
	refused(connects(""), "the driver's default for passfile: ")
	for _, query := range []string{"passfile=/dev/null", "passfile=" + filepath.Join(dir, "none")} {
		if err := connects(query); err != nil {
			t.Error(query, err)
		}
	}
}
