package sqlschema_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/dialect/mysql"
	"github.com/dbcron/dbcron/sqlschema"
)

// The last commit with the migrations that are gone.
const before = "1df94ab"

// The numbers can be told apart for as long as the new ones are below the old ones: with the migration of that
// number renumber.go goes.
func TestNumbersAreNotUsedTwice(t *testing.T) {
	for _, d := range engines.All {
		if latest := sqlschema.Latest(d); latest >= sqlschema.OldLatest {
			t.Errorf("%s has version %d: remove renumber.go", d.Name, latest)
		}
	}
}

// numbered gives a database the rows of old versions.
func numbered(t *testing.T, db *dbtest.DB, version int64) {
	t.Helper()
	db.Do(t, `DELETE FROM {prefix}migration WHERE version_id > 0`, nil)
	for v := range version {
		db.Do(t, fmt.Sprintf(`INSERT INTO {prefix}migration (version_id, is_applied) VALUES (%d, TRUE)`, v+1), nil)
	}
}

// A database at the last old version gets the new number; an older one is left as it is, and its user told what to do.
func TestOldNumbers(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db)
		numbered(t, db, sqlschema.OldLatest)
		db.Do(t, `INSERT INTO {prefix}queue (name) VALUES ('mail')`, nil)
		if err := sqlschema.Check(t.Context(), db.DB); !errors.Is(err, sqlschema.ErrOutdated) {
			t.Errorf("Check: %v", err)
		}
		status, err := sqlschema.Status(t.Context(), db.DB)
		if err != nil || slices.ContainsFunc(status, func(m sqlschema.Migration) bool { return m.Applied }) {
			t.Errorf("Status: %v, %v", status, err)
		}

		db.Do(t, `ALTER TABLE {prefix}job_running DROP COLUMN losses`, nil)
		if err := sqlschema.Migrate(t.Context(), db.DB); !errors.Is(err, sqlschema.ErrTooOld) || !strings.Contains(err.Error(), "losses") {
			t.Errorf("without a column: %v", err)
		}
		if got, err := sqlschema.Version(t.Context(), db.DB); got != sqlschema.OldLatest || err != nil {
			t.Errorf("without a column: version %d, %v", got, err)
		}
		db.Do(t, `ALTER TABLE {prefix}job_running ADD COLUMN losses INTEGER NOT NULL DEFAULT 0`, nil)

		pools := make([]*dbtest.DB, 3)
		for i := range pools {
			pools[i] = with(t, db, dialect.Options{MaxConns: 2})
		}
		together(t, pools)
		if got := versions(t, db); got != all(db.Dialect) || len(db.List(t, `SELECT name FROM {prefix}queue`, nil)) != 1 {
			t.Errorf("versions %s", got)
		}
		migrate(t, next(db))

		if err := sqlschema.To(t.Context(), next(db).DB, sqlschema.Squashed); err != nil {
			t.Fatal(err)
		}
		db.Do(t, `DROP TABLE {prefix}secret`, nil) // which only the last had
		numbered(t, db, sqlschema.OldLatest-1)
		for name, err := range map[string]error{
			"Check": sqlschema.Check(t.Context(), db.DB), "Migrate": sqlschema.Migrate(t.Context(), db.DB),
			"To": sqlschema.To(t.Context(), db.DB, 0),
		} {
			if !errors.Is(err, sqlschema.ErrTooOld) || !strings.Contains(err.Error(), before) {
				t.Errorf("%s of an older one: %v", name, err)
			}
		}
	})
}

// The migrations that are gone make what the ones that stand for them make, but for the order of columns and their comments.
func TestTheSameAsBefore(t *testing.T) {
	dbtest.OnlyLong(t, "it reads what does not change any more from the history")
	if err := exec.CommandContext(t.Context(), "git", "cat-file", "-e", before+"^{tree}").Run(); err != nil {
		t.Skipf("the history is not in this clone: %v", err)
	}
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		byHand(t, db, oldScript(t, db))
		hasPrompt(t, db, true)
		migrate(t, db)
		if got := versions(t, db); got != all(db.Dialect) {
			t.Errorf("versions %s", got)
		}
		other := dbtest.Fresh(t, db.Engine)
		migrate(t, other)
		same(t, schema(t, db), schema(t, other))
		if err := sqlschema.To(t.Context(), db.DB, 0); err != nil {
			t.Error(err)
		}
		if left := tables(t, db); !strings.HasSuffix(left, "migration") || strings.Contains(left, "\n") {
			t.Errorf("on the way down it leaves %s", left)
		}
	})
}

// oldScript returns the statements of the migrations that are gone.
func oldScript(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var begin, script strings.Builder
	if err := sqlschema.SQL(t.Context(), &begin, db.Dialect, dialect.Options{}, 0); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(begin.String(), "-- 00001")
	script.WriteString(strings.TrimPrefix(head, "BEGIN;\n"))
	delimiter := strings.NewReplacer("-- +goose StatementBegin\n", "", "-- +goose StatementEnd\n", "")
	if db.Dialect.Name == mysql.Dialect.Name {
		delimiter = strings.NewReplacer("-- +goose StatementBegin\n", "DELIMITER //\n", "-- +goose StatementEnd\n", "//\nDELIMITER ;\n")
	}
	folder := path.Join("migrations", db.Dialect.Name) + "/"
	for i, name := range strings.Fields(git("ls-tree", "--name-only", before, folder)) {
		text := git("show", before+":./"+name)
		_, up, _ := strings.Cut(text, "-- +goose Up\n")
		up, _, _ = strings.Cut(up, "-- +goose Down")
		up = strings.NewReplacer("{prefix}", db.Prefix(), "{name}", db.Options().Prefix).Replace(delimiter.Replace(up))
		fmt.Fprintf(&script, "%s\nINSERT INTO {prefix}migration (version_id, is_applied) VALUES (%d, TRUE);\n", up, i+1)
	}
	return statements(strings.ReplaceAll(script.String(), "{prefix}", db.Prefix()))
}

// same compares two schemas without the order of columns, and their comments.
func same(t *testing.T, got, want string) {
	t.Helper()
	has, wants := unordered(got), unordered(want)
	for _, line := range has {
		if !slices.Contains(wants, line) {
			t.Errorf("there is %s", line)
		}
	}
	for _, line := range wants {
		if !slices.Contains(has, line) {
			t.Errorf("there is no %s", line)
		}
	}
	if len(has) != len(wants) {
		t.Errorf("there are %d declarations, want %d", len(has), len(wants))
	}
}

var (
	comments    = regexp.MustCompile(` -- [^\n]*| COMMENT[ =]'(?:[^']|'')*'`)
	declaration = regexp.MustCompile(`,\s+`)
	perSession  = regexp.MustCompile(`\b_\w+(')|(_chk_)\d+`) // MySQL: the character set of a text, and the number of a check without a name
)

// unordered lists the declarations of a schema, table by table, without comments.
func unordered(text string) (all []string) {
	text = strings.ReplaceAll(comments.ReplaceAllString(text, ""), `"`, "")
	text = perSession.ReplaceAllString(text, "$1$2")
	for part := range strings.SplitSeq(text, "\n\n") {
		first, rest, _ := strings.Cut(part, "\n")
		for line := range strings.SplitSeq(rest, "\n") {
			for _, d := range declaration.Split(strings.TrimRight(line, ","), -1) {
				if d = strings.Join(strings.Fields(d), " "); d != "" {
					all = append(all, first+" "+d)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}
