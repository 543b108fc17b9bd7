package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/pattern"
	"github.com/dbcron/dbcron/scheduler"
)

// crontabs are what one --crontab names: a file, the files of a folder, or those that a pattern matches. Each file has a source
// of its own.
type crontabs struct {
	path   string
	source string // of the file; of several, each has its name behind it; "": their whole paths
	zone   string
	system *bool

	folder, pattern bool // otherwise a file
}

// cronName matches the names that cron reads in /etc/cron.d. Others are copies of editors and package managers.
var cronName = pattern.Lazy(`^[A-Za-z0-9_-]+$`)

// newCrontabs returns what a path names now: what was a file stays one.
func newCrontabs(path, source, zone string, system *bool) *crontabs {
	c := &crontabs{path: path, source: source, zone: zone, system: system}
	info, err := os.Stat(path)
	c.folder = err == nil && info.IsDir()
	c.pattern = err != nil && strings.ContainsAny(path, "*?[")
	return c
}

// several reports whether files may come and go.
func (c *crontabs) several() bool { return c.folder || c.pattern }

// list returns the paths of the files that are there now, and the names that a folder has, but cron would not read. A folder that is
// not there is an error: it may be back soon, and its files have not been removed.
func (c *crontabs) list() (paths, passed []string, err error) {
	switch {
	case c.folder:
		paths, passed, err = c.inFolder()
	case c.pattern:
		paths, err = c.matched()
	default:
		return []string{c.path}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if len(paths) > maxFiles {
		return nil, nil, usagef("--crontab %s: it is %d files; at most %d can be watched", c.path, len(paths), maxFiles)
	}
	return paths, passed, nil
}

func (c *crontabs) inFolder() (paths, passed []string, err error) {
	entries, err := os.ReadDir(c.path)
	for _, e := range entries {
		path := filepath.Join(c.path, e.Name())
		switch {
		case !isFile(path):
		case c.matches(path):
			paths = append(paths, path)
		case e.Name()[0] != '.':
			passed = append(passed, e.Name())
		}
	}
	return paths, passed, err
}

func (c *crontabs) matched() (paths []string, err error) {
	if _, err := os.Stat(c.fixed()); err != nil {
		return nil, err
	}
	paths, err = filepath.Glob(c.path)
	if err != nil {
		return nil, usagef("--crontab %s: %v", c.path, err)
	}
	return slices.DeleteFunc(paths, func(path string) bool { return !isFile(path) || !c.matches(path) }), nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// fixed returns the folder, or the one before the first part of the pattern that is one.
func (c *crontabs) fixed() string {
	path := c.path
	for c.pattern && strings.ContainsAny(path, "*?[") {
		path = filepath.Dir(path)
	}
	return path
}

// matches reports whether a path is one of the folder's, or the pattern's, whether or not there is such a file. As in a shell, * does
// not stand for a dot at the beginning.
func (c *crontabs) matches(path string) bool {
	name := filepath.Base(path)
	if c.folder {
		return filepath.Dir(path) == filepath.Clean(c.path) && cronName().MatchString(name)
	}
	ok, err := filepath.Match(filepath.Clean(c.path), filepath.Clean(path))
	return ok && err == nil && (name[0] != '.' || filepath.Base(c.path)[0] == '.')
}

// file returns the file at one of the paths of list.
func (c *crontabs) file(path string) *scheduleFile {
	f := &scheduleFile{kind: "crontab", path: path, source: c.source, zone: c.zone, system: c.system}
	if c.several() {
		f.of = c
		if c.source != "" {
			f.source = c.source + "/" + filepath.Base(path)
		}
	}
	return f
}

// owns reports whether a source is that of a file which may have been there.
func (c *crontabs) owns(source string) bool {
	name, ok := strings.CutPrefix(source, c.before())
	if !ok {
		return false
	}
	if c.source != "" && c.pattern { // of whose files the source has no folder
		ok, err := filepath.Match(filepath.Base(c.path), name)
		return ok && err == nil
	}
	return c.matches(filepath.Join(c.fixed(), name))
}

// before returns the text with which the sources of all files begin.
func (c *crontabs) before() string {
	if c.source != "" {
		return c.source + "/"
	}
	whole, err := filepath.Abs(c.fixed())
	if err != nil {
		return "crontab:/"
	}
	return "crontab:" + strings.TrimSuffix(whole, "/") + "/"
}

// findCrontabs returns what the paths of --crontab name, and listAll of it.
func findCrontabs(
	paths []string, source, zone string, system *bool,
) (all []*crontabs, files []*scheduleFile, warnings []string, err error) {
	if len(paths) > 1 && source != "" {
		return nil, nil, nil, usagef("--source is for one --crontab; leave it out, and each is known by its path")
	}
	for _, path := range paths {
		c := newCrontabs(path, source, zone, system)
		if c.pattern && source != "" && c.fixed() != filepath.Dir(path) {
			return nil, nil, nil, usagef("--source is for the files of one folder; leave it out, and each is known by its path")
		}
		all = append(all, c)
	}
	files, warnings, err = listAll(all)
	return all, files, warnings, err
}

// listAll returns the files of all --crontab, each once, and what is to be said about folders.
func listAll(all []*crontabs) (files []*scheduleFile, warnings []string, err error) {
	seen := map[string]bool{}
	for _, c := range all {
		paths, passed, err := c.list()
		if err != nil {
			return nil, nil, err
		}
		if len(paths) == 0 {
			warnings = append(warnings, c.path+": no crontab is there yet")
		}
		if len(passed) > 0 {
			more := ""
			if n := len(passed) - 10; n > 0 {
				passed, more = passed[:10], fmt.Sprintf(" and %d more", n)
			}
			warnings = append(warnings, fmt.Sprintf("%s: not read, as by Debian's cron, because names have letters, digits, - and _ only: %s%s; "+
				"rename what is a crontab, or name it, or a pattern such as %s", c.path, strings.Join(passed, ", "), more, filepath.Join(c.path, "*")))
		}
		for _, path := range paths {
			whole, err := filepath.Abs(path)
			if err != nil {
				return nil, nil, err
			}
			if !seen[whole] {
				seen[whole] = true
				files = append(files, c.file(path))
			}
		}
	}
	return files, warnings, nil
}

// removeGone removes the schedules of files that were in one of the folders, and are in none here, unless a daemon other than node has
// the file. node is "" outside daemons. It returns the changes by source.
func removeGone(
	ctx context.Context, db *dialect.DB, all []*crontabs, files []*scheduleFile, node string, dry bool,
) (map[string]scheduler.Changes, error) {
	removed := map[string]scheduler.Changes{}
	var unread []error
	for _, c := range all {
		if !c.several() {
			continue
		}
		if _, _, err := c.list(); err != nil {
			unread = append(unread, err)
			continue
		}
		sources, err := health.SourcesBelow(ctx, db, c.before())
		if err != nil {
			return removed, err
		}
		for _, source := range sources {
			if !c.owns(source) || slices.ContainsFunc(files, func(f *scheduleFile) bool { return f.source == source }) {
				continue
			}
			// First its own record, and then the others': of daemons that do this at once, the last sees none.
			if node != "" {
				if err := health.ForgetFile(ctx, db, source, node); err != nil {
					return removed, err
				}
			}
			if held, err := health.HasFile(ctx, db, source); err != nil || held {
				if err != nil {
					return removed, err
				}
				continue
			}
			if removed[source], err = scheduler.Import(ctx, db, source, nil, scheduler.ImportOptions{DryRun: dry}); err != nil {
				return removed, err
			}
		}
	}
	return removed, errors.Join(unread...)
}
