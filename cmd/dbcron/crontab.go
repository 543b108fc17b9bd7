package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
	"github.com/dbcron/dbcron/scheduler/crontab"
)

// readCrontab returns the schedules of the file that the flags name, or all that
// is wrong with it. It fills in the source: schedules are known by the file's
// whole path, so that daemons on several hosts that have the same file at the
// same place import one set of schedules.
func readCrontab(f *serveFlags) ([]scheduler.Schedule, error) {
	if _, err := cronspec.New("@daily", f.zone, ""); err != nil {
		return nil, usagef("--tz: %v", err)
	}
	data, err := os.ReadFile(f.crontab)
	if err != nil {
		return nil, err
	}
	entries, err := crontab.Parse(f.crontab, data)
	if err != nil {
		return nil, usagef("%w", err)
	}
	if f.source == "" {
		whole, err := filepath.Abs(f.crontab)
		if err != nil {
			return nil, err
		}
		f.source = "crontab:" + whole
	}
	given := make([]scheduler.Schedule, len(entries))
	for i, e := range entries {
		given[i] = scheduler.Schedule{
			Name: cmp.Or(e.Name, lineName(f.source, e)), Key: e.Key,
			Spec: e.Spec, Zone: cmp.Or(e.Zone, f.zone), Command: e.Command, Stdin: e.Stdin, Env: map[string]string{},
		}
		for _, pair := range e.Env {
			name, value, _ := strings.Cut(pair, "=")
			given[i].Env[name] = value
		}
	}
	return given, scheduler.CheckImport(f.source, given)
}

// lineName names a line that has no name: by the command's first word, and a
// hash that tells it from other lines and other files.
func lineName(source string, e crontab.Entry) string {
	word, _, _ := strings.Cut(strings.TrimSpace(e.Command), " ")
	word = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return -1
	}, path.Base(word))
	if len(word) > 40 {
		word = word[:40]
	}
	sum := sha256.Sum256([]byte(source + "\n" + e.Key))
	return cmp.Or(word, "line") + "-" + hex.EncodeToString(sum[:6])
}

// hostZone finds the name of this host's time zone, or UTC. Go knows the zone
// itself as "Local", which means nothing on another host.
func hostZone() string {
	if zone := strings.TrimPrefix(os.Getenv("TZ"), ":"); zone != "" && !filepath.IsAbs(zone) {
		return zone
	}
	if link, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if _, zone, ok := strings.Cut(link, "/zoneinfo/"); ok {
			return zone
		}
	}
	if text, err := os.ReadFile("/etc/timezone"); err == nil && len(strings.Fields(string(text))) == 1 {
		return strings.TrimSpace(string(text))
	}
	return "UTC"
}
