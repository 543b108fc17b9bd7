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

// A file that is wrong harms no other: of a folder, and of several --crontab, when they are read and read again. A schedule may move from
// one file to another, whichever is read first.
//
// The class: what is wrong with one of several things of other people is that thing's alone. Looked at: files that are not crontabs,
// cannot be read, have a name twice, or are refused by the tables; folders that cannot be read; what is removed with a file that is gone.
func TestOneBadFileHarmsNoOther(t *testing.T) {
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		folder, second := t.TempDir(), t.TempDir()
		write := func(folder, name string, lines ...string) {
			t.Helper()
			dbtest.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		}
		named := func(name string) string { return "# name: " + name + "\n@daily true" }
		write(folder, "README", "Put crontabs here.")
		write(folder, "good", named("one"))
		write(folder, "zlast", named("two"))
		db.Do(t, `INSERT INTO {prefix}node (name, state, expire_at) VALUES ('one:1:a', 'live', {now + 86400000000})`, nil)
		tabs, files, _, err := findCrontabs([]string{folder, second}, "", "", nil)
		dbtest.Must(t, err)
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		if err := loadAll(files); err == nil || !anyGood(files) {
			t.Fatalf("%v, good: %v", err, anyGood(files))
		}
		dbtest.Must(t, setUp(t.Context(), db.DB, &serveFlags{}, files, logger))
		w := &watchedFiles{files: files, tabs: tabs, db: db.DB, log: logger, node: "one:1:a", others: map[string]string{}}
		w.note(t.Context())
		is := func(when, schedules string, bad ...string) {
			t.Helper()
			for range 3 {
				w.look(t.Context())
			}
			w.reload(t.Context())
			all, err := scheduler.List(t.Context(), db.DB, "", 10)
			var got []string
			for _, s := range all {
				got = append(got, s.Name+"@"+filepath.Base(s.Source))
			}
			if err != nil || strings.Join(got, " ") != schedules {
				t.Errorf("%s: %v, %v, want %s\n%s", when, got, err, schedules, log.String())
			}
			found, _, err := health.OfFiles(t.Context(), db.DB)
			got = nil
			for _, p := range found {
				got = append(got, filepath.Base(p.Name))
			}
			if err != nil || strings.Join(got, " ") != strings.Join(bad, " ") {
				t.Errorf("%s: doctor names %v, %v, want %v", when, got, err, bad)
			}
			for _, name := range bad {
				if !strings.Contains(log.String(), "path="+filepath.Join(folder, name)) {
					t.Errorf("%s: the log does not name %s: %s", when, name, log.String())
				}
			}
			log.Reset()
		}
		is("at the start", "one@good two@zlast", "README")
		write(folder, "good", named("one"), named("three"))
		write(folder, "zlast", "61 * * * * true")
		is("one changes, one breaks", "one@good three@good two@zlast", "README", "zlast")
		write(folder, "zlast", named("two"), named("three"))
		is("a name is there twice", "one@good three@good two@zlast", "README", "zlast")
		dbtest.Must(t, os.Remove(filepath.Join(folder, "README")))
		write(folder, "good", named("one"), named("two"))
		write(folder, "zlast", named("three"))
		is("both give a name to the other", "one@good three@good two@zlast", "good", "zlast")
		write(folder, "good", named("one"))
		is("one gives its name", "one@good three@zlast")
		write(folder, "good", named("one"), named("three"))
		write(folder, "zlast", named("two"))
		is("the first one takes a name that the second gives up", "one@good three@good two@zlast")
		dbtest.Must(t, os.RemoveAll(second))
		write(folder, "new", named("four"))
		is("a folder is away", "four@new one@good three@good two@zlast")
	})
}

// A file of schedules without end is read up to a bound, and refused.
func TestAFileWithoutEnd(t *testing.T) {
	f := &scheduleFile{kind: "crontab", path: "/dev/zero"}
	if err := f.load(nil); err == nil || !strings.Contains(err.Error(), "/dev/zero: it has more than 16 MiB") {
		t.Error(err)
	}
}
