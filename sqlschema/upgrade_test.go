package sqlschema_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/sqlschema"
)

// next is the same database as the next version of the program sees it: see dbtest.NextVersion.
func next(db *dbtest.DB) *dbtest.DB {
	later := *db
	later.DB = dbtest.NextVersion(db.DB)
	return &later
}

// An upgrade to the next version and the way back keep the rows. The program of the version before, which is this
// one, tells the tables from its own.
func TestAnUpgradeAndTheWayBack(t *testing.T) {
	eachEmpty(t, func(t *testing.T, db *dbtest.DB) {
		migrate(t, db)
		later, latest := next(db), sqlschema.Latest(db.Dialect)
		if err := sqlschema.Check(t.Context(), later.DB); !errors.Is(err, sqlschema.ErrOutdated) {
			t.Errorf("before the upgrade: %v", err)
		}
		for _, insert := range []string{
			`INSERT INTO {prefix}schedule (name, spec, command, due_at, next_exec) VALUES ('backup', '@daily', 'true', {now}, {now})`,
			`INSERT INTO {prefix}run (schedule, due_at, attempt, state, started_at, finished_at, exec_by, exit_code, error)
				VALUES ('backup', {now}, 1, 'failed', {now}, {now}, 'host:1:x', 3, 'exit code 3')`,
			`INSERT INTO {prefix}queue (queue_id, name) VALUES (9, 'mail')`,
			`INSERT INTO {prefix}job_dead (queue_id, id, divided, kind, attempt, error) VALUES (9, 5, 3, 'welcome', 2, 'no such host')`,
		} {
			db.Do(t, insert, nil)
		}
		look := func() (all []string) {
			for _, query := range []string{
				`SELECT name, spec, command, state, lane, {us due_at} FROM {prefix}schedule`,
				`SELECT schedule, state, exit_code, error FROM {prefix}run`, `SELECT queue_id, name FROM {prefix}queue`,
				`SELECT queue_id, id, divided, kind, attempt, error FROM {prefix}job_dead`,
			} {
				rows := db.List(t, query, nil)
				if len(rows) != 1 {
					t.Errorf("%s: %q", query, rows)
				}
				all = append(all, rows...)
			}
			return all
		}
		before, was := look(), schema(t, db)
		migrate(t, later)
		if got := look(); !slices.Equal(got, before) {
			t.Errorf("after the upgrade there is %q, want %q", got, before)
		}
		if got := db.List(t, `SELECT made_up FROM {prefix}schedule`, nil); !slices.Equal(got, []string{"backup"}) {
			t.Errorf("the new column has %q", got)
		}
		for name, err := range map[string]error{
			"Check": sqlschema.Check(t.Context(), db.DB), "Migrate": sqlschema.Migrate(t.Context(), db.DB),
			"To": sqlschema.To(t.Context(), db.DB, latest-1),
		} {
			if !errors.Is(err, sqlschema.ErrNewer) {
				t.Errorf("%s of the program before: %v", name, err)
			}
		}
		status, err := sqlschema.Status(t.Context(), later.DB)
		if want := (sqlschema.Migration{Version: latest + 1, Name: "made_up", Applied: true}); err != nil || status[len(status)-1] != want {
			t.Errorf("status %v, %v", status, err)
		}

		later.Do(t, `INSERT INTO {prefix}made_up (name) VALUES ('one'), ('two')`, nil)
		losses, err := sqlschema.Losses(t.Context(), later.DB, latest)
		if want := []string{"{dbcron_made_up [] 2}", "{dbcron_queue [made_up] 1}", "{dbcron_schedule [made_up] 1}"}; err != nil ||
			fmt.Sprint(losses) != fmt.Sprint(want) {
			t.Errorf("the way back loses %v, %v; want %s", losses, err, want)
		}
		if err := sqlschema.To(t.Context(), later.DB, latest); err != nil {
			t.Fatal(err)
		}
		if got := look(); !slices.Equal(got, before) {
			t.Errorf("after the way back there is %q, want %q", got, before)
		}
		same(t, schema(t, db), was)
		if err := sqlschema.Check(t.Context(), db.DB); err != nil {
			t.Error(err)
		}
	})
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
