package dialect_test

import (
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// The server understands each question, and its answer becomes a finding.
func TestStrain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		if db.Dialect.Strain != nil {
			found, err := db.Dialect.Strain(t.Context(), db.DB)
			if err != nil || len(found) == 0 {
				t.Errorf("found %v, %v", found, err)
			}
		}
		found, err := db.Strains(t.Context(), []sqlrun.Strain{
			{Subject: "a", Query: "SELECT 'wrong'", Fine: "fine", Advice: "do"},
			{Subject: "b", Query: "SELECT 'wrong' FROM dbcron_node", Fine: "fine"},
			{Subject: "c", Query: "SELECT 'wrong' FROM dbcron_node"},
		})
		if err != nil || len(found) != 2 || found[0] != (sqlrun.Finding{Subject: "a", Detail: "wrong", Advice: "do"}) ||
			found[1] != (sqlrun.Finding{Subject: "b", OK: true, Detail: "fine"}) {
			t.Errorf("found %+v, %v", found, err)
		}
	})
}
