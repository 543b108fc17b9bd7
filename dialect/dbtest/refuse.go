package dbtest

import (
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/postgres"
	"github.com/dbcron/dbcron/dialect/sqlite"
)

// Refuse makes the database refuse a verb, such as INSERT, on rows of a dbcron table that match a
// rule, such as NEW.kind = 'bad', until allow is called. In a DELETE, the row is called OLD.
func (db *DB) Refuse(t *testing.T, verb, table, rule string) (allow func()) {
	t.Helper()
	db = db.behindGate(t)
	name := "refuse_" + strings.ToLower(verb) + "_" + table
	head := `CREATE TRIGGER ` + name + ` BEFORE ` + verb + ` ON {prefix}` + table
	switch db.Dialect.Name { // a test with its own clock has a copy of the dialect
	case postgres.Dialect.Name:
		db.Do(t, `CREATE FUNCTION `+name+`() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not this one''; END'`, nil)
		db.Do(t, head+` FOR EACH ROW WHEN (`+rule+`) EXECUTE FUNCTION `+name+`()`, nil)
		return func() {
			db.Do(t, `DROP TRIGGER `+name+` ON {prefix}`+table, nil)
			db.Do(t, `DROP FUNCTION `+name, nil)
		}
	case sqlite.Dialect.Name:
		db.Do(t, head+` WHEN `+rule+` BEGIN SELECT RAISE(ABORT, 'not this one'); END`, nil)
	default:
		db.Do(t, head+` FOR EACH ROW IF `+rule+` THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF`, nil)
	}
	return func() { db.Do(t, `DROP TRIGGER `+name, nil) }
}
