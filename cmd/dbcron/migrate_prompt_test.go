package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
)

// Where the database lacks functions, as Vitess's gate does, migrate up says why the SQL prompt has none, and advises no rights: none helps.
func TestMigrateAdvisesNoRightWhereNoneHelps(t *testing.T) {
	dbtest.Dialects.Each(t, func(t *testing.T, db *dbtest.DB) {
		without := dbtest.Open(t, db.URL, dialect.Options{Prefix: db.Options().Prefix, Without: []dialect.Feature{dialect.Functions}})
		var errs bytes.Buffer
		p := &program{err: &errs}
		if err := p.missPrompt(t.Context(), without.DB); err != nil {
			t.Fatal(err)
		}
		why, _ := without.Lacks(dialect.Functions)
		if text := errs.String(); !strings.Contains(text, "SQL prompt are not made, and nothing else needs them: "+why) || strings.Contains(text, "grant") {
			t.Error(text)
		}
	})
}
