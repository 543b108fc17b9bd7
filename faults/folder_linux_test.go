package faults

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// A folder of crontabs has a README, as in a ConfigMap that is swapped as a whole. The daemon starts beside it, takes up what changes
// elsewhere, and starts again after it was killed.
func TestAFolderWithABadFile(t *testing.T) {
	t.Parallel()
	binary := build(t)
	dbtest.Memory.Each(t, func(t *testing.T, db *dbtest.DB) {
		dir := t.TempDir()
		begun := filepath.Join(dir, "begun")
		tabs := filepath.Join(dir, "tabs")
		swap := func(version string, files map[string]string) {
			t.Helper()
			next := filepath.Join(dir, version)
			if err := os.Mkdir(next, 0o700); err != nil {
				t.Fatal(err)
			}
			for name, line := range files {
				if err := os.WriteFile(filepath.Join(next, name), []byte(line+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			link := filepath.Join(dir, "link")
			if err := os.Symlink(next, link); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(link, tabs); err != nil {
				t.Fatal(err)
			}
		}
		r := &rig{t: t, db: db, binary: binary, dir: dir, mark: "FAULTS_MARK=" + dir, lease: 5 * time.Second, poll: 200 * time.Millisecond, grace: time.Second}
		runs := func(word string) {
			t.Helper()
			r.eventually(word+" runs", patience, func() bool { return linesOf(t, begun, word) > 0 })
		}
		line := func(word string) string { return "@every 1s echo " + word + " >> " + begun }
		swap("1", map[string]string{"README": "Put crontabs here.", "work": line("first")})
		d := r.serve(binary, "one", "--crontab", tabs, "--poll", "200ms", "--listen", "off")
		runs("first")
		swap("2", map[string]string{"README": "Put crontabs here.", "work": line("second"), "worse": "61 * * * * true"})
		runs("second")
		if err := d.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.done
		swap("3", map[string]string{"README": "Put crontabs here.", "work": line("third"), "worse": "61 * * * * true"})
		d = r.serve(binary, "one", "--crontab", tabs, "--poll", "200ms", "--listen", "off")
		runs("third")
		d.stop()
	})
}
