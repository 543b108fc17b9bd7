package dialect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A server on which instants are not what the statements take them for is refused when a program opens it, with what was
// seen.
//
// The class: constants and functions that statements rest on, and that a server may know otherwise. Each is
// read back here.
func TestAServerWithOtherInstantsIsRefused(t *testing.T) {
	dbtest.EachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		micros, add := db.Dialect.ToMicros, db.Dialect.Add
		far := func(instant, otherwise string) func(string) string {
			return func(at string) string {
				return "(CASE WHEN " + micros(at) + " = " + instant + " THEN " + otherwise + " ELSE " + micros(at) + " END)"
			}
		}
		for want, change := range map[string]func(*sqlrun.Dialect){
			"9999-12-31 23:59:59 comes back as 1816-03-30 05:56:08": func(d *sqlrun.Dialect) {
				d.ToMicros = far("253402300799000000", "-4852116232000000")
			},
			"2100-02-28 23:59:59.999 comes back as 2100-03-01 00:00:00, 1000 µs off": func(d *sqlrun.Dialect) {
				d.ToMicros = far("4107542399999000", "4107542400000000")
			},
			"1970-01-01 00:00:00 comes back as 1970-01-01 01:00:00": func(d *sqlrun.Dialect) { d.ToMicros = far("0", "3600000000") },
			"a day later is 24h0m1s later": func(d *sqlrun.Dialect) {
				d.Add = func(at, us string) string { return add(add(at, us), "1000000") }
			},
			"the server's clock is not between": func(d *sqlrun.Dialect) { d.Now = d.FromMicros("5000000000000000") },
		} {
			d := *db.Dialect
			change(&d)
			own, err := sqlrun.Open(t.Context(), []*sqlrun.Dialect{&d}, db.URL, sqlrun.Options{})
			if err == nil {
				_ = own.Close()
			}
			if !errors.Is(err, dialect.ErrUnfit) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	})
}
