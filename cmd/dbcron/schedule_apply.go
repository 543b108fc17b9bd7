package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/crontab"
	"github.com/dbcron/dbcron/internal/ops/manifest"
	"github.com/dbcron/dbcron/internal/ops/table"
	"github.com/dbcron/dbcron/scheduler"
)

// Flags of apply and import.
type importFlags struct {
	path, source, zone string
	crontabs           []string
	prune, dryRun      bool
	adopt              bool
	output             string
}

func (f *importFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.source, "source", "", "source of the file's schedules (default: its whole path)")
	flags.BoolVar(&f.prune, "prune", false, "remove schedules of the same source that the file does not have any more")
	flags.BoolVar(&f.adopt, "adopt", false, "take over schedules of these names that come from another file or were made by hand")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only print what would change")
	outputFlag(c, &f.output)
}

const aboutSources = `Schedules are known by their source, which is the file's whole path unless --source
names another, and by their key in it. One that is there already is changed where it
differs, and keeps its next slot unless its times changed. Without --prune, schedules
of the source that the file does not have any more are left alone. All of it
happens, or nothing.

A name that another source has is refused, unless --adopt takes it over: for schedules
that move from a crontab to a YAML file, say. They keep their history and their next slot.
Take them out of the old file, too: a daemon that goes on importing that is refused.`

func (p *program) scheduleApply() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "apply -f FILE.yaml",
		Short: "Apply a YAML file of schedules",
		Long: `Apply a YAML file of schedules: see examples/schedules. The file - is standard
input, and needs --source.

` + aboutSources,
		Example: `  dbcron schedule apply -f shop.yaml --dry-run
  dbcron schedule apply -f shop.yaml --prune`,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.path == "" {
				return usagef("%s needs -f FILE.yaml", c.CommandPath())
			}
			return p.importFiles(c.Context(), []*scheduleFile{{kind: "file", path: f.path, source: f.source}}, nil, &f)
		},
	}
	c.Flags().StringVarP(&f.path, "file", "f", "", "the `file`")
	f.register(c)
	return c
}

const aboutSystem = `A system crontab has a column for the user, whom the command runs as if the daemon is
root. /etc/crontab and the files of /etc/cron.d are read so, and others with --system.
A file that may be either, since a command begins with root, or each with what may be a
user and a command, is refused unless --system or --system=false says which it is.`

func (p *program) scheduleImport() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import --crontab FILE",
		Short: "Import a crontab, once",
		Long: `Import a crontab(5), as dbcron serve --crontab does at its start, but once
and without a daemon. The file - is standard input, and needs --source. Of several, each
is imported by itself, and none if one is wrong.

` + aboutSystem + `

` + aboutSources,
		Example: `  dbcron schedule import --crontab /etc/dbcron/crontab --dry-run
  crontab -l | dbcron schedule import --crontab - --source my-crontab --time-zone Europe/Berlin`,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(f.crontabs) == 0 || slices.Contains(f.crontabs, "") {
				return usagef("%s needs --crontab FILE", c.CommandPath())
			}
			tabs, files, warnings, err := findCrontabs(f.crontabs, f.source, f.zone, saidSystem(c.Flags()))
			if err != nil {
				return err
			}
			for _, text := range warnings {
				p.warn("warning: " + harmless(text))
			}
			return p.importFiles(c.Context(), files, tabs, &f)
		},
	}
	c.Flags().StringArrayVar(&f.crontabs, "crontab", nil,
		"the `file`, in the format of crontab(5), a folder of such files, or a pattern; may be repeated")
	systemFlag(c.Flags())
	c.Flags().StringVar(&f.zone, "time-zone", "", "time `zone` of lines that no CRON_TZ stands above; local is this host's (default: UTC)")
	f.register(c)
	return c
}

// importFiles imports files, all of which must be valid, one after the other. With --prune, it also removes the schedules of files that
// are in none of the folders any more.
func (p *program) importFiles(ctx context.Context, files []*scheduleFile, tabs []*crontabs, f *importFlags) error {
	if err := loadEach(files, p.in); err != nil {
		return err
	}
	for _, file := range files {
		if file.host {
			p.warn("lines without CRON_TZ are read in this host's zone, " + file.zone)
		}
		for _, w := range file.warnings {
			p.warn("warning: " + harmless(w))
		}
	}
	return p.with(ctx, func(db *dialect.DB) error {
		var all scheduler.Changes
		done := func(source string, changes scheduler.Changes) {
			if n := len(changes.Added) + len(changes.Changed) + len(changes.Removed); n > 0 && !f.dryRun {
				_ = p.did(ctx, nil, "schedule.import", source, n, changes.String())
			}
			all.Added, all.Changed = append(all.Added, changes.Added...), append(all.Changed, changes.Changed...)
			all.Removed, all.Adopted = append(all.Removed, changes.Removed...), append(all.Adopted, changes.Adopted...)
			all.Unchanged += changes.Unchanged
		}
		var given []scheduler.Schedule
		for _, file := range files {
			changes, err := file.importInto(ctx, db, scheduler.ImportOptions{Keep: !f.prune, DryRun: f.dryRun, Adopt: f.adopt})
			if err != nil {
				return err
			}
			done(file.source, changes)
			given = append(given, file.given...)
		}
		gone, err := removeGone(ctx, db, tabs, files, "", f.dryRun || !f.prune)
		for _, source := range slices.Sorted(maps.Keys(gone)) {
			if f.prune {
				done(source, gone[source])
			} else {
				p.warn(fmt.Sprintf("%s left alone from %s, which is gone: --prune removes them",
					counted(len(gone[source].Removed), "schedule is", "schedules are"), oneLine(source, 300)))
			}
		}
		if err != nil {
			return err
		}
		if err := p.tellChanges(all, f); err != nil {
			return err
		}
		for _, file := range files {
			if err := p.tellLeft(ctx, db, file, f); err != nil {
				return err
			}
		}
		return p.warnOfMissing(given, func(name string) (bool, error) {
			_, err := scheduler.Get(ctx, db, name)
			if errors.Is(err, scheduler.ErrNotFound) {
				return true, nil
			}
			return false, err
		})
	})
}

func (p *program) tellChanges(c scheduler.Changes, f *importFlags) error {
	if f.output != "table" {
		return table.Encode(p.out, struct {
			Added     []string `json:"added"`
			Changed   []string `json:"changed"`
			Removed   []string `json:"removed"`
			Adopted   []string `json:"adopted"`
			Unchanged int      `json:"unchanged"`
			DryRun    bool     `json:"dry_run"`
		}{
			append([]string{}, c.Added...), append([]string{}, c.Changed...), append([]string{}, c.Removed...),
			append([]string{}, c.Adopted...), c.Unchanged, f.dryRun,
		})
	}
	for _, part := range []struct {
		verb  string
		names []string
	}{{"adopted", c.Adopted}, {"added", c.Added}, {"changed", c.Changed}, {"removed", c.Removed}} {
		for _, name := range part.names {
			if _, err := fmt.Fprintf(p.out, "%-8s %s\n", part.verb, oneLine(name, 200)); err != nil {
				return err
			}
		}
	}
	text := c.String()
	if f.dryRun {
		text += " (dry run: nothing was changed)"
	}
	_, err := fmt.Fprintln(p.out, text)
	return err
}

// tellLeft lists schedules that --prune would delete: somebody who has removed one from a file may think that it
// is gone.
func (p *program) tellLeft(ctx context.Context, db *dialect.DB, file *scheduleFile, f *importFlags) error {
	if f.prune {
		return nil
	}
	changes, err := scheduler.Import(ctx, db, file.source, file.given, scheduler.ImportOptions{DryRun: true, Adopt: f.adopt})
	if err != nil || len(changes.Removed) == 0 {
		return err
	}
	fmt.Fprintf(p.err, "dbcron: %s from %s left alone that the file does not have any more: --prune removes them\n",
		counted(len(changes.Removed), "schedule is", "schedules are"), oneLine(file.source, 300))
	return nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

type exportFlags struct {
	source, output string
	bySource       bool
	skip           bool
}

func (p *program) scheduleExport() *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use:   "export [NAME…]",
		Short: "Print schedules as a file: YAML, or a crontab",
		Long: `Print schedules as a file that apply or import reads back to the same: all, those of
a source (--source '' are those that were made by hand), or those that are named.

A crontab cannot express all: schedules with more than a time, a zone, a shell
command, its input and its variables are refused, or left out with --skip. Lines
have their names in comments above them; but those of a crontab that had none, and
are exported by its --source, have none again, so that it can be imported there.`,
		Example: `  dbcron schedule export > schedules.yaml
  dbcron schedule export -o crontab --source crontab:/etc/dbcron/crontab`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if f.output != "yaml" && f.output != "crontab" {
				return usagef("output %q is not known: use yaml or crontab", f.output)
			}
			if f.skip && f.output != "crontab" {
				return usagef("--skip is for crontabs: YAML can express all")
			}
			f.bySource = c.Flags().Changed("source")
			return p.with(c.Context(), func(db *dialect.DB) error { return p.exportSchedules(c.Context(), db, args, &f) })
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.source, "source", "", "only schedules of this source; '' for those made by hand")
	flags.StringVarP(&f.output, "output", "o", "yaml", "yaml or crontab")
	flags.BoolVar(&f.skip, "skip", false, "leave out what a crontab cannot express")
	return c
}

func (p *program) exportSchedules(ctx context.Context, db *dialect.DB, names []string, f *exportFlags) error {
	found, err := f.find(ctx, db, names)
	if err != nil {
		return err
	}
	var text []byte
	if f.output == "yaml" {
		for i := range found {
			plainer(&found[i])
		}
		text, err = manifest.Format(found)
	} else {
		text, err = p.toCrontab(found, f)
	}
	if err != nil {
		return usagef("%w", err)
	}
	_, err = p.out.Write(text)
	return err
}

// find returns the schedules in the order in which they were created, which for those of a file is the file's.
func (f *exportFlags) find(ctx context.Context, db *dialect.DB, names []string) (found []scheduler.Schedule, err error) {
	if len(names) > 0 {
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			s, err := scheduler.Get(ctx, db, name)
			if err == nil && f.bySource && s.Source != f.source {
				err = fmt.Errorf("%w from %s: %s", scheduler.ErrNotFound, f.source, name)
			}
			if err != nil {
				return nil, err
			}
			found = append(found, s)
		}
	} else {
		err = eachSchedule(ctx, db, func(s *scheduler.Schedule) {
			if !f.bySource || s.Source == f.source {
				found = append(found, *s)
			}
		})
	}
	slices.SortFunc(found, func(a, b scheduler.Schedule) int { return int(a.ID - b.ID) })
	return found, err
}

// plainer removes defaults from a schedule, since the file need not contain them.
func plainer(s *scheduler.Schedule) {
	for i := range settings {
		set := &settings[i]
		if set.Ordinary(s) {
			_ = set.Set(s, "") // an empty text is always valid
		}
	}
}

// toCrontab formats a crontab, or says for each schedule why it cannot be in one.
func (p *program) toCrontab(found []scheduler.Schedule, f *exportFlags) ([]byte, error) {
	var kept []scheduler.Schedule
	var errs []error
	for _, s := range found {
		err := notForCrontab(&s)
		switch {
		case err == nil:
			kept = append(kept, s)
		case f.skip:
			fmt.Fprintln(p.err, "dbcron: left out: "+harmless(err.Error()))
		default:
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("a crontab cannot express %s; leave out what it cannot express (--skip), or use -o yaml:\n%w",
			counted(len(errs), "schedule", "schedules"), errors.Join(errs...))
	}
	return formatCrontab(kept, f)
}

// notForCrontab returns what a crontab cannot express about a schedule.
func notForCrontab(s *scheduler.Schedule) error {
	var extra []string
	if s.Kind != "shell" {
		extra = append(extra, "kind: "+s.Kind)
	}
	if s.State == "paused" {
		extra = append(extra, "it is paused")
	}
	for i := range settings {
		set := &settings[i]
		if set.Name != "time_zone" && !inCrontab(set) && !set.Ordinary(s) {
			extra = append(extra, set.Name+": "+set.Text(s))
		}
	}
	if len(extra) == 0 {
		if _, err := crontab.Format([]crontab.Entry{entryOf(s, true)}); err != nil {
			title := fmt.Sprintf("entry 1, %.60q: ", s.Name)
			extra = append(extra, strings.TrimPrefix(err.Error(), title))
		}
	}
	if len(extra) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", oneLine(s.Name, 200), strings.Join(extra, "; "))
}

// entryOf returns a schedule as a line. It always names the zone, since the file may be imported with another
// --time-zone.
func entryOf(s *scheduler.Schedule, named bool) crontab.Entry {
	e := crontab.Entry{Spec: s.Spec, Zone: s.Zone, Command: s.Command, Stdin: s.Stdin}
	if named {
		e.Name = s.Name
	}
	for i := range settings {
		set := &settings[i]
		if set.Name == "description" && crontab.Describes(s.Description) {
			e.Description = s.Description
		} else if inCrontab(set) && !set.Ordinary(s) {
			e.Options = append(e.Options, crontab.Option{Name: set.Flag(), Value: set.Text(s)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		e.Env = append(e.Env, name+"="+s.Env[name])
	}
	return e
}

// formatCrontab names lines, except those that get the same name when they are read: naming them would make
// different schedules of them.
func formatCrontab(kept []scheduler.Schedule, f *exportFlags) ([]byte, error) {
	entries := make([]crontab.Entry, len(kept))
	for i := range kept {
		entries[i] = entryOf(&kept[i], !f.bySource || !strings.HasPrefix(kept[i].Key, "line:"))
	}
	for {
		text, err := crontab.Format(entries)
		if err != nil {
			return nil, err
		}
		again, err := crontab.Parse("written", text)
		if err != nil {
			return nil, err
		}
		read := map[string]bool{}
		for _, e := range again {
			read[asRead(cmp.Or(e.Name, lineName(f.source, e)), &e)] = true
		}
		wrong := false
		for i := range entries {
			if e := &entries[i]; e.Name == "" && !read[asRead(kept[i].Name, e)] {
				e.Name, wrong = kept[i].Name, true
			}
		}
		if !wrong {
			return text, nil
		}
	}
}

// asRead distinguishes equal lines in different places.
func asRead(name string, e *crontab.Entry) string {
	return strings.Join(append([]string{name, e.Zone}, slices.Sorted(slices.Values(e.Env))...), "\n")
}
