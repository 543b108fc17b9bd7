package engines_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	mysqldialect "github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/dialect/postgres"
)

// The words of servers for a full disk, which are temporary errors, and words that are near.
func TestNoSpace(t *testing.T) {
	for _, c := range []struct {
		err  error
		full bool
	}{
		{&pgconn.PgError{Code: "53100", Message: "could not extend file"}, true},
		{&pgconn.PgError{Code: "53200", Message: "out of memory"}, false},
		{&mysql.MySQLError{Number: 1021, Message: "Disk full"}, true},
		{&mysql.MySQLError{Number: 1114, Message: "The table 'x' is full"}, true},
		{&mysql.MySQLError{Number: 3, Message: "Error writing file 'x' (Errcode: 28 \"No space left on device\")"}, true},
		{&mysql.MySQLError{Number: 1026, Message: "Error writing file 'x' (errno: 28 - No space left on device)"}, true},
		{&mysql.MySQLError{Number: 1226, Message: "max_user_connections"}, false},
		{errors.New("No space left on device"), false},
	} {
		err := fmt.Errorf("wrapped: %w", c.err)
		var pg *pgconn.PgError
		d := mysqldialect.Dialect
		if errors.As(err, &pg) {
			d = postgres.Dialect
		}
		if d.NoSpace(err) != c.full || c.full && !d.Temporary(err) {
			t.Errorf("%v: no space %v, temporary %v", c.err, d.NoSpace(err), d.Temporary(err))
		}
	}
}
