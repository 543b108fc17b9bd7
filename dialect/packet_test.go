package dialect_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// A statement that the server would not take is divided at its rows, or its list of texts, where that means the
// same. Otherwise it is refused before anything is sent. The class: a limit that is checked for each value,
// and not for their sum.
func TestLongStatements(t *testing.T) {
	dbtest.SkipGated(t, "it takes no statement about records alone, of which dbcron has none")
	dbtest.With(func(d *sqlrun.Dialect) bool { return d.MaxPacket != "" }).Each(t, func(t *testing.T, db *dbtest.DB) {
		d, small := *db.Dialect, *db.DB
		d.MaxPacket = "SELECT 65536" // the server takes more
		small.Dialect = &d
		insert := sqlrun.Unlisted(`INSERT INTO {prefix}queue (name, reason) VALUES {values rows: (:name, :text)}`)
		update := sqlrun.Unlisted(`UPDATE {prefix}queue SET reason = '' WHERE name IN (SELECT name FROM {records rows: name text, text text})`)
		list := sqlrun.Unlisted(`SELECT name FROM {records rows: name text, text text}`)
		among := sqlrun.Unlisted(`SELECT name FROM {prefix}queue WHERE name IN (:names)`)
		notAmong := sqlrun.Unlisted(`SELECT name FROM {prefix}queue WHERE name NOT IN (:names)`)
		var rows []sqlrun.Args
		var names, long []string
		for i := range 300 {
			names = append(names, fmt.Sprintf("q%03d", i))
			long = append(long, names[i], names[i]+strings.Repeat("x", 190))
			rows = append(rows, sqlrun.Args{"name": names[i], "text": strings.Repeat(`"'`, 300)})
		}
		args := sqlrun.Args{"rows": rows}
		refused := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, sqlrun.ErrTooLong) || !strings.Contains(err.Error(), "raise max_allowed_packet") {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := small.ExecWhole(t.Context(), insert, args)
		refused("all at once", err)
		if n := len(db.List(t, `SELECT name FROM {prefix}queue`, nil)); n != 0 {
			t.Errorf("%d rows were inserted", n)
		}
		if n, err := small.Exec(t.Context(), insert, args); err != nil || n != 300 {
			t.Errorf("inserted %d, %v", n, err)
		}
		if n, err := small.Exec(t.Context(), update, args); err != nil || n != 300 {
			t.Errorf("changed %d, %v", n, err)
		}
		all, err := sqlrun.Select(t.Context(), &small.Session, list, args, scanName)
		if err != nil || !slices.Equal(all, names) {
			t.Errorf("selected %d, %v", len(all), err)
		}
		all = nil
		err = small.Pipeline(t.Context(), &sqlrun.Step{Stmt: list, Args: args, Scan: func(row *sqlrun.Row) error {
			all = append(all, string(row.Bytes(0)))
			return nil
		}})
		if err != nil || !slices.Equal(all, names) {
			t.Errorf("in a pipeline: %d, %v", len(all), err)
		}
		all, err = sqlrun.Select(t.Context(), &small.Session, among, sqlrun.Args{"names": long}, scanName)
		if slices.Sort(all); err != nil || !slices.Equal(all, names) {
			t.Errorf("by names: %d, %v", len(all), err)
		}
		_, err = sqlrun.Select(t.Context(), &small.Session, notAmong, sqlrun.Args{"names": long}, scanName)
		refused("what is in no part", err)
		_, err = small.Exec(t.Context(), insert, sqlrun.Args{"rows": []sqlrun.Args{{"name": "one", "text": strings.Repeat("x", 70000)}}})
		refused("a single row", err)
	})
}

func scanName(rows *sql.Rows) (name string, err error) {
	err = rows.Scan(&name)
	return name, err
}
