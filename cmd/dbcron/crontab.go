package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/crontab"
)

// crontabSource is how the schedules of a file know it: by its whole path, so
// that daemons on several hosts that have the same file at the same place
// import one set of schedules.
func crontabSource(file string) (string, error) {
	whole, err := filepath.Abs(file)
	return "crontab:" + whole, err
}

// readCrontab returns a file's schedules, or all that is wrong with it.
func readCrontab(file, zone string) ([]scheduler.Schedule, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	entries, err := crontab.Parse(file, data)
	if err != nil {
		return nil, fmt.Errorf("%w%w", errSilent{errUsage}, err)
	}
	source, err := crontabSource(file)
	if err != nil {
		return nil, err
	}
	given := make([]scheduler.Schedule, len(entries))
	for i, e := range entries {
		given[i] = scheduler.Schedule{
			Name: cmp.Or(e.Name, lineName(source, e)), Key: e.Key,
			Spec: e.Spec, Zone: cmp.Or(e.Zone, zone), Command: e.Command, Stdin: e.Stdin, Env: map[string]string{},
		}
		for _, pair := range e.Env {
			name, value, _ := strings.Cut(pair, "=")
			given[i].Env[name] = value
		}
		// The parser has checked the rest, but does not know the zone from outside.
		if _, err := given[i].Slots(); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, e.Line, err)
		}
	}
	return given, nil
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
	return cmp.Or(word, "line") + "-" + hex.EncodeToString(sum[:4])
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
