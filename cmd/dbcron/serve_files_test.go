package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/sqlrun"
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
