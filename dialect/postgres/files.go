package postgres

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// checkFiles refuses a URL's files that the driver would read without end: it opens each as often as there are hosts, and reads it whole.
func checkFiles(u *url.URL) error {
	home, _ := os.UserHomeDir()
	for _, f := range [][3]string{
		{"passfile", "PGPASSFILE", ".pgpass"},
		{"servicefile", "PGSERVICEFILE", ".pg_service.conf"},
		{"sslrootcert", "PGSSLROOTCERT", ".postgresql/root.crt"},
		{"sslcert", "PGSSLCERT", ".postgresql/postgresql.crt"},
		{"sslkey", "PGSSLKEY", ".postgresql/postgresql.key"},
	} {
		from, path := f[0]+" of the URL", u.Query().Get(f[0])
		if path == "" {
			from, path = f[1], os.Getenv(f[1])
		}
		if path == "" {
			from, path = "the driver's default for "+f[0], filepath.Join(home, f[2])
		}
		info, err := os.Stat(path)
		switch {
		case err != nil, path == os.DevNull: // the driver says so, if it needs it
		case !info.Mode().IsRegular() && !info.IsDir():
			return fmt.Errorf("%s: %s is no file on a disk, and may have no end: put the text into a file", from, path)
		case info.Size() > 1<<20:
			return fmt.Errorf("%s: %s has more than 1 MiB", from, path)
		}
	}
	return nil
}
