package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/smallfile"
	"github.com/dbcron/dbcron/scheduler"
)

const (
	fileEvery  = 5 * time.Second // between two checks for changed files
	othersWhen = 12              // checks between two looks at the files' content, and at other daemons' files
	maxFiles   = 1000
)

// watchedFiles are the files of a daemon, which reads them again when they change, as crond does. They are used by
// one goroutine only.
type watchedFiles struct {
	files []*scheduleFile
	tabs  []*crontabs // of whose folders files may come and go
	db    *dialect.DB
	log   *slog.Logger
	node  string

	looks  int
	broken map[string]string // by path of a folder: why it cannot be read
	left   []string          // sources of files that have gone, of which the tables may have a record
	others map[string]string // by source: daemons with a different file
}

// stamp returns a file's state, without reading it; nil: unknown.
func (f *scheduleFile) stamp() os.FileInfo {
	info, err := os.Stat(f.path)
	if err != nil {
		return nil
	}
	return info
}

func sameStamp(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// stable reports whether the file has changed since it was read, or is gone, and has not changed between two
// checks: a file that is being written is not read half-way.
func (f *scheduleFile) stable() bool {
	now, gone := f.stamp(), f.gone
	f.gone = now == nil
	if now == nil || sameStamp(now, f.read) {
		f.changing = nil
		return gone && f.gone && f.read != nil // once: reading it fails and resets what was read
	}
	stable := sameStamp(now, f.changing)
	f.changing = now
	return stable
}

// differs reports whether the file has other content than was read, though its size and time are the same.
func (f *scheduleFile) differs() bool {
	if now := f.stamp(); now == nil || !sameStamp(now, f.read) {
		return false // see stable
	}
	data, err := smallfile.Read(f.path, mostOfFile)
	return err == nil && health.Digest(data, f.zone) != f.digest
}

// relist adds files that have come to folders, and leaves out those that have gone, and were gone at the check before: whoever saves a
// file may remove the old one first. It reports whether any was left out.
func (w *watchedFiles) relist() (left bool) {
	broken := map[string]string{}
	is := map[string]bool{}
	for _, c := range w.tabs {
		if _, _, err := c.list(); err != nil {
			broken[c.path] = err.Error()
			if w.broken[c.path] != broken[c.path] {
				w.log.Warn("a folder of crontabs cannot be read; its schedules stay as they were", "path", c.path, "err", err)
			}
			for _, f := range w.files {
				is[f.path] = is[f.path] || f.of == c
			}
		}
	}
	w.broken = broken
	now, _, err := listAll(slices.DeleteFunc(slices.Clone(w.tabs), func(c *crontabs) bool { return broken[c.path] != "" }))
	if err != nil { // it broke meanwhile
		return false
	}
	for _, f := range now {
		is[f.path] = true
		if !slices.ContainsFunc(w.files, func(it *scheduleFile) bool { return it.path == f.path && it.kind == f.kind }) {
			w.files = append(w.files, f)
		}
	}
	w.files = slices.DeleteFunc(w.files, func(f *scheduleFile) bool {
		if f.of == nil || is[f.path] {
			f.away = false
			return false
		}
		gone := f.away
		f.away = true
		if left = left || gone; gone {
			w.log.Info("a crontab is gone", "path", f.path)
			w.left = append(w.left, f.source)
		}
		return gone
	})
	return left
}

// removeGone removes the schedules of files that have gone from their folders, and that no live daemon has. It reads a file again whose
// schedules another daemon has removed so, because this one seemed dead.
func (w *watchedFiles) removeGone(ctx context.Context) {
	for len(w.left) > 0 {
		if err := health.ForgetFile(ctx, w.db, w.left[0], w.node); err != nil {
			break // it is tried again
		}
		w.left = w.left[1:]
	}
	removed, err := removeGone(ctx, w.db, w.tabs, w.files, w.node, false)
	for source, changes := range removed {
		w.log.Info("the schedules of a crontab that is gone were removed", "source", source, "removed", len(changes.Removed))
	}
	for _, c := range w.tabs {
		if err != nil || !c.several() {
			continue
		}
		var there []string
		there, err = health.SourcesBelow(ctx, w.db, c.before())
		for _, f := range w.files {
			if err == nil && f.of == c && len(f.given) > 0 && f.problem == nil && !slices.Contains(there, f.source) {
				f.problem = f.importLogged(ctx, w.db, w.log)
			}
		}
	}
	if err != nil && ctx.Err() == nil {
		w.log.Warn("schedules of crontabs that are gone may be left", "err", err)
	}
}

// look imports the files again if one has changed, and occasionally compares them with other daemons'.
func (w *watchedFiles) look(ctx context.Context) {
	changed := false
	if w.relist() {
		w.removeGone(ctx)
	}
	for _, f := range w.files {
		changed = f.stable() || changed
	}
	if changed {
		w.log.Info("a file has changed, or is gone; it is read again")
		w.reload(ctx)
		return
	}
	if w.looks++; w.looks%othersWhen != 0 {
		return
	}
	w.removeGone(ctx)
	for _, f := range w.files {
		changed = f.differs() || f.refused || changed
	}
	if changed {
		w.log.Info("a file has changed in place, or could not be imported; it is read again")
		w.reload(ctx)
		return
	}
	w.lookAtOthers(ctx)
}

// reload imports the files again, each by itself.
func (w *watchedFiles) reload(ctx context.Context) {
	if len(w.files)+len(w.tabs) == 0 {
		w.log.Info("SIGHUP: there is no --crontab and no --schedules to import again")
		return
	}
	_ = loadAll(w.files) // each has its own problem
	importAll(ctx, w.db, w.files, w.log)
	w.note(ctx)
}

// importAll imports those files that could be read, each by itself, and notes and logs what is wrong with the others. A schedule may have
// moved from one file to another, which can take its name only when the first one has given it up.
func importAll(ctx context.Context, db *dialect.DB, files []*scheduleFile, log *slog.Logger) {
	for _, f := range files {
		f.refused = f.problem == nil
	}
	for moved := true; moved; {
		moved = false
		for _, f := range files {
			if !f.refused {
				continue
			}
			f.problem = f.importLogged(ctx, db, log)
			f.refused = f.problem != nil
			moved = moved || !f.refused
		}
	}
	for _, f := range files {
		if f.problem != nil && ctx.Err() == nil {
			log.Error("not imported; its schedules stay as they were", "path", f.path, "err", f.problem)
		}
	}
}

// anyGood reports whether one of the files is good, or there is none.
func anyGood(files []*scheduleFile) bool {
	return len(files) == 0 || slices.ContainsFunc(files, func(f *scheduleFile) bool { return f.problem == nil })
}

// problemsOf returns what is wrong with any of the files.
func problemsOf(files []*scheduleFile) error {
	var all []error
	for _, f := range files {
		all = append(all, f.problem)
	}
	return errors.Join(all...)
}

// note records for doctor and other daemons how the files were read.
func (w *watchedFiles) note(ctx context.Context) {
	for _, f := range w.files {
		err := health.NoteFile(ctx, w.db, health.File{Source: f.source, Node: w.node, Digest: f.digest, Problem: errorText(f.problem)})
		if err != nil && ctx.Err() == nil {
			w.log.Warn("other daemons cannot be told of a file", "file", f.path, "err", err)
		}
	}
	w.removeGone(ctx)
	w.lookAtOthers(ctx)
}

// lookAtOthers warns of daemons with a different file under the same source: whoever imports last deletes the
// others' schedules. A file that was just changed is one that the others have not read yet.
func (w *watchedFiles) lookAtOthers(ctx context.Context) {
	if len(w.files) == 0 {
		return
	}
	all, err := health.ListFiles(ctx, w.db, maxFiles)
	if err != nil {
		if ctx.Err() == nil {
			w.log.Warn("other daemons' files cannot be looked at", "err", err)
		}
		return
	}
	for _, f := range w.files {
		var nodes []string
		own := slices.IndexFunc(all, func(it health.File) bool { return it.Source == f.source && it.Node == w.node })
		for i := range all {
			if other := &all[i]; own >= 0 && other.Source == f.source && other.Differs(&all[own]) {
				nodes = append(nodes, other.Node)
			}
		}
		text := strings.Join(nodes, ", ")
		if text != "" && text != w.others[f.source] {
			w.log.Warn("other daemons have another file, or time zone, under the same source, and each import undoes the others'; make both the same, or give each a --source of its own",
				"source", f.source, "daemons", text)
		}
		w.others[f.source] = text
	}
}

// forget deletes the records of note.
func (w *watchedFiles) forget(ctx context.Context) {
	if len(w.files) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := health.ForgetFiles(ctx, w.db, w.node); err != nil {
		w.log.Warn("what other daemons were told of files stays for a day", "err", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// files returns the files named by flags.
func (f *serveFlags) files() (files []*scheduleFile, warnings []string, err error) {
	if slices.Contains(f.crontabs, "-") || f.schedules == "-" {
		return nil, nil, usagef("serve reads its files again at SIGHUP, so they cannot be standard input; use dbcron schedule apply -f -")
	}
	if f.tabs, files, warnings, err = findCrontabs(f.crontabs, f.source, f.zone, f.system); err != nil {
		return nil, nil, err
	}
	if f.schedules != "" {
		files = append(files, &scheduleFile{kind: "file", path: f.schedules, source: f.schedulesSource})
	}
	if f.check && len(f.tabs) == 0 && len(files) == 0 {
		return nil, nil, usagef("--check needs --crontab or --schedules")
	}
	return files, warnings, nil
}

// loadAll reads the files, and returns everything wrong with any of them, which each has as its problem as well.
func loadAll(files []*scheduleFile) error { return loadEach(files, nil) }

func loadEach(files []*scheduleFile, stdin io.Reader) error {
	in := map[string]string{}
	for _, file := range files {
		if err := file.load(stdin); err != nil {
			continue
		}
		var twice []error
		for _, s := range file.given {
			if other, ok := in[s.Name]; ok {
				twice = append(twice, usagef("%s: the schedule %s is in %s too; give one of the two another name", file.path, s.Name, other))
			}
		}
		if file.problem = errors.Join(twice...); file.problem != nil {
			continue
		}
		for _, s := range file.given {
			in[s.Name] = file.path
		}
	}
	return problemsOf(files)
}

// importLogged makes the schedules of the file's source equal to those loaded, deleting others.
func (f *scheduleFile) importLogged(ctx context.Context, db *dialect.DB, log *slog.Logger) error {
	changes, err := f.importInto(ctx, db, scheduler.ImportOptions{})
	if err != nil {
		return err
	}
	log.Info(f.title()+" was imported", "path", f.path, "added", len(changes.Added), "changed", len(changes.Changed),
		"removed", len(changes.Removed), "unchanged", changes.Unchanged)
	for _, w := range f.warnings {
		log.Warn("the "+f.title()+" may mean something else than it says", "what", w)
	}
	if len(f.given) == 0 && len(changes.Removed) > 0 {
		log.Warn("the "+f.title()+" is empty: all its schedules were removed", "removed", len(changes.Removed))
	}
	if f.host {
		log.Info("lines without CRON_TZ are read in this host's zone", "crontab", f.path, "time_zone", f.zone)
	}
	if other := f.otherUser(); other != "" {
		log.Warn("only a daemon that runs as root can run commands as another user; here the runs of such lines fail",
			"crontab", f.path, "user", other)
	}
	return nil
}

// otherUser returns a user in the file as whom this process cannot run commands.
func (f *scheduleFile) otherUser() string {
	self, err := user.Current()
	if f.kind != "crontab" || err != nil || self.Uid == "0" {
		return ""
	}
	for _, s := range f.given {
		if s.User != "" && s.User != self.Username && s.User != self.Uid {
			return s.User
		}
	}
	return ""
}

func (f *scheduleFile) title() string {
	if f.kind == "crontab" {
		return "crontab"
	}
	return "schedules"
}
