package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/scheduler"
)

// After an edit, nobody is warned of the daemons that have not read it yet, but of those that go on with another file.
func TestOthersReadAnEditLater(t *testing.T) {
	dbtest.Memory.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"one:1:a", "two:2:b"} {
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'live', {now + 86400000000})`, sqlrun.Args{"name": name})
		}
		read := func(node, digest string) {
			t.Helper()
			dbtest.Must(t, health.NoteFile(t.Context(), db.DB, health.File{Source: "tab", Node: node, Digest: digest}))
		}
		var log bytes.Buffer
		w := &watchedFiles{
			files: []*scheduleFile{{source: "tab"}}, db: db.DB, log: slog.New(slog.NewTextHandler(&log, nil)), node: "one:1:a", others: map[string]string{},
		}
		warned := func() bool {
			t.Helper()
			log.Reset()
			w.lookAtOthers(t.Context())
			found, files, err := health.OfFiles(t.Context(), db.DB)
			if err != nil || files != 1 {
				t.Fatalf("%d files, %v", files, err)
			}
			is := strings.Contains(log.String(), `daemons=two:2:b`)
			if is != (len(found) == 1) {
				t.Errorf("the log warns: %v; doctor finds %v", is, found)
			}
			return is
		}
		read("one:1:a", "old")
		read("two:2:b", "old")
		db.Advance(t, time.Hour)
		read("one:1:a", "new")
		db.Advance(t, 11*time.Second)
		if warned() {
			t.Error("the other had no time to read the edit")
		}
		read("two:2:b", "new")
		db.Advance(t, time.Hour)
		if warned() {
			t.Error("both have the edit")
		}
		read("two:2:b", "third")
		db.Advance(t, time.Minute)
		if !warned() {
			t.Error("they differ for a minute")
		}
	})
}

// The schedules of a file that is gone from a folder go with the last live daemon that has it. One that seemed dead, and is not, imports
// its files again.
func TestGoneFilesOfSeveralDaemons(t *testing.T) {
	dbtest.Memory.EachClock(t, func(t *testing.T, db *dbtest.DB) {
		var log bytes.Buffer
		daemon := func(name string) (*watchedFiles, string) {
			folder := t.TempDir()
			db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES (:name, 'live', {now + 86400000000})`, sqlrun.Args{"name": name})
			tabs, files, _, err := findCrontabs([]string{folder}, "web", "", nil)
			dbtest.Must(t, err)
			return &watchedFiles{
				files: files, tabs: tabs, db: db.DB, log: slog.New(slog.NewTextHandler(&log, nil)), node: name, others: map[string]string{},
			}, folder
		}
		write := func(folder, name string) {
			t.Helper()
			dbtest.Must(t, os.WriteFile(filepath.Join(folder, name), []byte("# name: "+name+"\n@daily true\n"), 0o600))
		}
		is := func(when string, want ...string) {
			t.Helper()
			all, err := scheduler.List(t.Context(), db.DB, "", 10)
			var names []string
			for _, s := range all {
				names = append(names, s.Name)
			}
			if err != nil || strings.Join(names, " ") != strings.Join(want, " ") {
				t.Errorf("%s: %v, %v, want %v\n%s", when, names, err, want, log.String())
			}
		}
		looks := func(w *watchedFiles) { // enough for each to be a file that stands still
			w.look(t.Context())
			w.look(t.Context())
			w.look(t.Context())
		}
		one, ones := daemon("one:1:a")
		two, twos := daemon("two:2:b")
		write(ones, "both")
		write(twos, "both")
		write(twos, "two")
		looks(one)
		looks(two)
		is("both have read theirs", "both", "two")
		one.removeGone(t.Context())
		is("the other has the file that is not here", "both", "two")
		dbtest.Must(t, os.Remove(filepath.Join(ones, "both")))
		looks(one)
		is("the other still has it", "both", "two")
		dbtest.Must(t, os.Remove(filepath.Join(twos, "both")))
		two.look(t.Context())
		is("it is away for a moment", "both", "two")
		two.look(t.Context())
		is("nobody has it", "two")

		db.Do(t, `UPDATE {prefix}node SET expire_at = {now} WHERE name = 'two:2:b'`, nil)
		one.removeGone(t.Context())
		is("the one that has it is dead")
		two.removeGone(t.Context())
		is("it is not", "two")
		dbtest.Must(t, os.Rename(twos, twos+".away"))
		looks(two)
		is("the folder is gone as a whole", "two")
	})
}
