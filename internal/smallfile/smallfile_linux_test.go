package smallfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What is read ends: a pipe that nobody writes, one whose writer does not close it, a device, a long file. Pipes of commands are read.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pipe := func(name string) string {
		path := filepath.Join(dir, name)
		must(syscall.Mkfifo(path, 0o600))
		return path
	}
	file := func(name string, size int) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, []byte(strings.Repeat("a", size)), 0o600))
		return path
	}
	open := func(path, text string) string { // with a writer that does not end
		w, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0) // as a reader, too, so that it does not wait for one
		must(err)
		t.Cleanup(func() { w.Close() })
		_, err = w.WriteString(text)
		must(err)
		return path
	}
	written := pipe("written")
	go func() {
		if err := os.WriteFile(written, []byte("aaa"), 0o600); err != nil { // once somebody reads it
			t.Error(err)
		}
	}()
	long := patience
	for _, c := range []struct {
		name, path, want, err string
		patience              time.Duration
	}{
		{"file", file("file", 5), "aaaaa", "", long},
		{"longest", file("longest", 2048), strings.Repeat("a", 2048), "", long},
		{"empty", file("empty", 0), "", "", long},
		{"null", "/dev/null", "", "", long},
		{"of the kernel", "/proc/sys/kernel/ostype", "Linux\n", "", long},
		{"too long", file("long", 2049), "", "it has more than 2 KiB", long},
		{"device", "/dev/zero", "", "it has more than 2 KiB", long},
		{"none", filepath.Join(dir, "none"), "", "no such file", long},
		{"folder", dir, "", "is a directory", long},
		{"pipe without a writer", pipe("unwritten"), "", "put the text into a file", 50 * time.Millisecond},
		{"pipe without an end", open(pipe("open"), "aaa"), "", "put the text into a file", 50 * time.Millisecond},
		{"pipe without bounds", open(pipe("much"), strings.Repeat("a", 4096)), "", "it has more than 2 KiB", long},
		{"pipe", written, "aaa", "", long},
	} {
		patience = c.patience
		data, err := Read(c.path, 2048)
		if string(data) != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v", c.name, data, err)
		}
		if unfit := strings.Contains(c.err, "more than") || strings.Contains(c.err, "put"); unfit != errors.Is(err, ErrUnfit) {
			t.Errorf("%s: it is unfit: %v", c.name, !unfit)
		}
	}
	patience = long
}
