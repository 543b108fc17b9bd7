//go:build unix

package scheduler

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/sqlrun"
)

// locked returns a schedule as a claim reads it.
func locked(t *testing.T, db *dbtest.DB, name string) (c candidate) {
	t.Helper()
	err := db.ShortTx(t.Context(), func(ctx context.Context, tx *sqlrun.Session) (err error) {
		c, err = lock(ctx, tx, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantCurrent fails if a claim reads other settings than the table has now.
func wantCurrent(t *testing.T, db *dbtest.DB, name, after string) {
	t.Helper()
	got, want := locked(t, db, name), stored(t, db, name)
	if got.bad != nil {
		got.Reason = got.bad.Error() // as scanSchedule does
	}
	if !reflect.DeepEqual(got.Schedule, want) {
		t.Errorf("after a change of %s a claim reads\n%+v, want\n%+v", after, got.Schedule, want)
	}
	if good := got.bad == nil && want.check() == nil; got.load() == nil != good {
		t.Errorf("after a change of %s the schedule is valid: %v, want %v", after, !good, good)
	}
}

// A claim sees every change of a setting, whoever makes it, though it keeps what it has read.
func TestSettingsChangeUnderTheCache(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		add(t, db, "a", "@daily")
		add(t, db, "b", "@daily")
		wantCurrent(t, db, "a", "nothing")
		values := map[string]any{
			"kind": "argv", "starts_at": int64(1_700_000_000_000_000), "ends_at": int64(4_000_000_000_000_000),
			"max_attempts": 3, "max_failures": 4, "keep_runs": 5, "job_priority": 1, "job_max_attempts": 7, "job_cost": 8,
			"spec": "@hourly", "time_zone": "Asia/Tokyo", "dst": "wall", "env": `{"A":"b"}`, "headers": `{"A": "b"}`,
			"missed": "skip", "overlap": "allow", "first_run": "now", "retry_past_next": "yes", "repeatable": "no", "notify": "none", "dir": "/tmp",
			"job_unique_until": "begin",
		}
		columns := strings.NewReplacer("COALESCE({us ", "", "}, 0)", "", "\n", "", "\t", "", " ", "").Replace(settingsRead)
		for column := range strings.SplitSeq(columns, ",") {
			value, argument := values[column], ":to"
			switch {
			case value == nil:
				value = "7s" // a text, and a duration
			case strings.HasSuffix(column, "_at"):
				argument = "{time :to}"
			}
			db.Do(t, fmt.Sprintf(`UPDATE {prefix}schedule SET %s = %s WHERE name = 'a'`, column, argument), sqlrun.Args{"to": value})
			wantCurrent(t, db, "a", column)
		}
		wantCurrent(t, db, "b", "another schedule")
		for _, command := range []string{"x" + between + "y", between, "<|", "<", ">", "|>", "<<|", "<|>>", "<|<|>|>", "a'\"\\ä\n時"} {
			db.Do(t, `UPDATE {prefix}schedule SET command = :to WHERE name = 'b'`, sqlrun.Args{"to": command})
			wantCurrent(t, db, "b", fmt.Sprintf("command to %q", command))
		}
		db.Do(t, `UPDATE {prefix}schedule SET env = '[' WHERE name = 'b'`, nil)
		wantCurrent(t, db, "b", "env to no JSON")
	})
}

// The cache forgets when it is full, and keeps nothing that is very long.
func TestSettingsCacheIsBounded(t *testing.T) {
	var k settingsCache
	parts := make([]string, len(settingColumns))
	for i := range parts {
		parts[i] = "0"
	}
	text := func(command string) string {
		parts[2] = command
		return strings.Join(parts, between)
	}
	size := knownLongest / 2
	for i := range 3 * knownBytes / size {
		if s := k.get(text(fmt.Sprintf("%d%*d", i, size, i))); s == nil {
			t.Fatal("settings are not told from their text")
		}
		if k.bytes > knownBytes+knownLongest || len(k.byText) > knownLimit {
			t.Fatalf("%d texts of %d bytes are kept", len(k.byText), k.bytes)
		}
	}
	before := len(k.byText)
	if s := k.get(text(strings.Repeat("x", knownLongest))); s == nil || s.Command == "" || len(k.byText) != before {
		t.Errorf("a long text was kept, or read as %+v", s)
	}
	for _, odd := range []string{"", "0", text("a" + between + "b"), strings.Replace(text("a"), "0"+between, "", 1)} {
		if s := k.get(odd); s != nil {
			t.Errorf("%q is read as %+v", odd, s)
		}
	}
}
