package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/ops/crontab"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/manifest"
	"github.com/dbcron/dbcron/internal/smallfile"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

// A scheduleFile is a file whose schedules are imported, with the name of their source. By default that is the
// file's full path, so daemons on several hosts with the same file at the same path import one set of schedules.
type scheduleFile struct {
	kind   string // crontab or file: prefix of the source
	path   string
	source string
	zone   string // of a crontab without CRON_TZ; local: this host's
	system *bool  // whether a crontab names users; nil: detect
	given  []scheduler.Schedule
	lines  []int // of a crontab: where each of them stands

	host     bool     // the zone is this host's
	warnings []string // of what is good, and may be meant otherwise

	digest         string      // of the last content read, valid or not
	problem        error       // why that could not be imported
	refused        bool        // it is valid, and was not imported: it may be later
	read, changing os.FileInfo // its state then, and at the last check
	gone           bool        // at the last check

	of   *crontabs // the folder or pattern by which it was found; nil: it was named
	away bool      // from there, at the last check
}

// systemFlag adds the flag that marks a crontab as a system crontab.
func systemFlag(flags *pflag.FlagSet) {
	flags.Bool("system", false, "the crontab is a system crontab, with a column for the user (default: found out)")
}

// saidSystem returns nil if the flag is not set.
func saidSystem(flags *pflag.FlagSet) *bool {
	if !flags.Changed("system") {
		return nil
	}
	system, _ := flags.GetBool("system") // the flag exists and is a bool
	return &system
}

// load reads the schedules of the file, or returns everything wrong with it.
func (f *scheduleFile) load(stdin io.Reader) (err error) {
	defer func() { f.problem = err }()
	if err := f.nameSource(); err != nil { // also of a file that cannot be read, whose schedules stay
		return err
	}
	var data []byte
	f.read = f.stamp() // before reading: a later change is found at the next check
	if f.path == "-" {
		data, err = readAll(stdin)
	} else {
		data, err = smallfile.Read(f.path, mostOfFile)
	}
	if err != nil {
		return err
	}
	if f.zone == "local" {
		name, unnamed := hostZone()
		if name == "" {
			return usagef("--time-zone local: dbcron knows no name of this host's zone (%s); give one such as Europe/Berlin", unnamed)
		}
		f.zone, f.host = name, true
	}
	f.digest = health.Digest(data, f.zone)
	read := f.readYAML
	if f.kind == "crontab" {
		read = f.readCrontab
	}
	given, err := read(data)
	if err == nil {
		err = scheduler.CheckImport(f.source, given)
	}
	if err == nil {
		f.given = given
	}
	return err
}

const (
	mostOfFile = 16 << 20 // bytes of a file of schedules
	mostOfText = 64 << 10 // bytes of a file with a secret, a URL, the name of a time zone
)

func readAll(stdin io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(stdin, mostOfFile+1))
	if err == nil && len(data) > mostOfFile {
		err = usagef("standard input: it has more than %d MiB, so it is no file of schedules", mostOfFile>>20)
	}
	return data, err
}

func (f *scheduleFile) nameSource() error {
	if f.source != "" {
		return nil
	}
	if f.path == "-" {
		return usagef("schedules from standard input need --source NAME, by which they are known when they are given again")
	}
	whole, err := filepath.Abs(f.path)
	f.source = f.kind + ":" + whole
	return err
}

func (f *scheduleFile) readYAML(data []byte) ([]scheduler.Schedule, error) {
	given, err := manifest.Parse(f.path, data)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return given, nil
}

func (f *scheduleFile) readCrontab(data []byte) ([]scheduler.Schedule, error) {
	if _, err := cronspec.New("@daily", f.zone, ""); err != nil {
		return nil, usagef("--time-zone: %v", err)
	}
	entries, err := f.parseCrontab(data)
	if err != nil {
		return nil, usagef("%w", err)
	}
	f.warnings = crontab.Warnings(f.path, data, len(entries) > 0 && entries[0].User != "")
	given := make([]scheduler.Schedule, len(entries))
	f.lines = make([]int, len(entries))
	var wrong []error
	for i, e := range entries {
		f.lines[i] = e.Line
		given[i] = scheduler.Schedule{
			Name: cmp.Or(e.Name, lineName(f.source, e)), Key: e.Key,
			Spec: e.Spec, Zone: cmp.Or(e.Zone, f.zone), User: e.User, Command: e.Command, Stdin: e.Stdin,
			Description: e.Description, Env: map[string]string{},
		}
		for _, pair := range e.Env {
			name, value, _ := strings.Cut(pair, "=")
			given[i].Env[name] = value
			if name == "MAILTO" {
				to, comment := withoutComment(value)
				if given[i].Notify, err = mailTo(to); err != nil {
					wrong = append(wrong, fmt.Errorf("%s:%d: MAILTO above it: %w", f.path, e.Line, err))
				}
				if warning := fmt.Sprintf("%s: MAILTO=%s: %q is read as a comment, though cron has none there; put it on a line of its own",
					f.path, value, comment); comment != "" && !slices.Contains(f.warnings, warning) {
					f.warnings = append(f.warnings, warning)
				}
			}
		}
		for _, o := range e.Options {
			if err := setOption(&given[i], o); err != nil { // which checkOption allows
				wrong = append(wrong, fmt.Errorf("%s:%d: %w", f.path, o.Line, err))
			}
		}
	}
	if len(wrong) > 0 {
		return nil, usagef("%w", errors.Join(wrong...))
	}
	if f.zone == "" {
		f.warnings = append(f.warnings, f.zoneWarning(entries)...)
	}
	f.warnings = append(f.warnings, f.lackedUsers(entries)...)
	return given, nil
}

// lackedUsers tells of users of a system crontab whom this host does not have.
func (f *scheduleFile) lackedUsers(entries []crontab.Entry) (all []string) {
	lines, names := map[string][]int{}, []string{}
	for _, e := range entries {
		if e.User == "" {
			continue
		}
		if lines[e.User] == nil {
			names = append(names, e.User)
		}
		lines[e.User] = append(lines[e.User], e.Line)
	}
	for _, name := range names {
		if _, err := user.Lookup(name); errors.As(err, new(user.UnknownUserError)) {
			all = append(all, fmt.Sprintf("%s: this host has no user %s, so that runs fail here; make it, or give the lines a tag of hosts that have it (# dbcron: tag=NAME): %s",
				f.path, name, linesText(lines[name])))
		}
	}
	return all
}

// zoneWarning says which lines without CRON_TZ have another zone than they would have for cron: UTC, and not this host's.
func (f *scheduleFile) zoneWarning(entries []crontab.Entry) []string {
	var lines []int
	for _, e := range entries {
		if e.Zone == "" && depends(e.Spec) {
			lines = append(lines, e.Line)
		}
	}
	host, unnamed := hostZone()
	if len(lines) == 0 || isUTC(host) {
		return nil
	}
	is := host
	if host == "" {
		is, host = "another one, of which dbcron knows no name ("+unnamed+")", "ZONE"
	}
	return []string{fmt.Sprintf("%s: unlike cron, lines without CRON_TZ are read as UTC, though this host's zone is %s; "+
		"write CRON_TZ=%s above, or give --time-zone %[3]s, or --time-zone UTC if that is meant: %s", f.path, is, host, linesText(lines))}
}

func isUTC(zone string) bool {
	return slices.Contains([]string{"UTC", "UCT", "Zulu", "GMT", "Universal"}, strings.TrimPrefix(zone, "Etc/"))
}

// depends reports whether the zone matters for a spec: more than its minute is fixed.
func depends(spec string) bool {
	fields := strings.Fields(spec)
	if len(fields) == 5 {
		return slices.ContainsFunc(fields[1:], func(field string) bool { return field != "*" })
	}
	return !slices.Contains([]string{"@every", crontab.Reboot, "@hourly"}, strings.ToLower(fields[0]))
}

// withoutComment cuts what looks like a comment off a setting. No address has a #.
func withoutComment(value string) (rest, comment string) {
	for i := range len(value) {
		if value[i] == '#' && (i == 0 || strings.ContainsRune(" \t", rune(value[i-1]))) {
			return value[:i], value[i:]
		}
	}
	return value, ""
}

// mailTo converts a crontab's MAILTO to notification targets: comma-separated addresses, where one without @ is a
// user of the mail server's host. An empty one means nobody, as in cron.
func mailTo(value string) (string, error) {
	var targets []string
	for _, address := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
		targets = append(targets, "mailto:"+strings.TrimPrefix(address, "mailto:"))
	}
	if len(targets) == 0 {
		return scheduler.NotifyNobody, nil
	}
	text := strings.Join(targets, " ")
	_, err := scheduler.Targets(text)
	return text, err
}

// checkOption returns what is wrong with an option by itself.
func checkOption(o crontab.Option) error {
	s := schedule{Name: "x", Spec: "@daily", Command: "true"}
	if err := setOption(&s, o); err != nil {
		return err
	}
	for _, p := range s.Problems() {
		if p.Field == strings.ReplaceAll(o.Name, "-", "_") {
			return fmt.Errorf("%s: %s", o.Name, p.Text)
		}
	}
	return nil
}

// setOption applies an option of a crontab line, which is a setting of the schedule.
func setOption(s *schedule, o crontab.Option) error {
	var names []string
	for i := range settings {
		set := &settings[i]
		if !inCrontab(set) {
			continue
		}
		if names = append(names, set.Flag()); set.Flag() != strings.ReplaceAll(o.Name, "_", "-") {
			continue
		}
		if err := set.Set(s, o.Value); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
		return nil
	}
	return fmt.Errorf("the option %q is not known; use %s", o.Name, strings.Join(names, ", "))
}

// inCrontab reports whether a crontab line may have a setting as an option. Its zone comes from CRON_TZ, and it
// enqueues no jobs.
func inCrontab(s *scheduler.Setting) bool { return s.Name != "time_zone" && s.Has("commands") }

// parseCrontab parses the file in the format given by a flag, or else indicated by its path. It refuses a file
// whose format is ambiguous.
func (f *scheduleFile) parseCrontab(data []byte) ([]crontab.Entry, error) {
	whole, err := filepath.Abs(f.path)
	if err != nil {
		return nil, err
	}
	switch {
	case f.system != nil && *f.system, f.system == nil && crontab.IsSystem(whole):
		return crontab.ParseSystem(f.path, data, checkOption)
	case crontab.IsSystem(whole):
		return nil, fmt.Errorf("%s:1: this is a system crontab, with a column for the user; leave --system=false out", f.path)
	}
	entries, err := crontab.Parse(f.path, data, checkOption)
	if err == nil && f.system == nil {
		err = crontab.Doubt(f.path, entries)
	}
	return entries, err
}

// importInto makes the schedules of the file's source equal to those loaded.
func (f *scheduleFile) importInto(ctx context.Context, db *dialect.DB, opt scheduler.ImportOptions) (scheduler.Changes, error) {
	changes, err := scheduler.Import(ctx, db, f.source, f.given, opt)
	if errors.Is(err, scheduler.ErrExists) {
		err = fmt.Errorf("%w; give one of the two another name, delete the other, or take it over (schedule apply or import --adopt; if this file was moved: --source, or --schedules-source of serve, keeps what it was known by)", err)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f.path, err)
	}
	return changes, err
}

// hostZone returns the name of this host's time zone, by which cron would read its lines. Go calls the zone "Local", which means nothing on
// another host. If the zone has no name that dbcron knows, the name is "", and unnamed says where it comes from.
func hostZone() (name, unnamed string) {
	if zone, set := os.LookupEnv("TZ"); set {
		if name = zoneNamed(strings.TrimPrefix(zone, ":")); name == "" {
			unnamed = "TZ=" + zone
		}
		return name, unnamed
	}
	const file = "/etc/localtime"
	if link, err := filepath.EvalSymlinks(file); err == nil && link != file {
		if name = zoneNamed(link); name == "" {
			unnamed = file + " is " + link
		}
		return name, unnamed
	}
	copied, err := smallfile.Read(file, mostOfText)
	if err != nil {
		return "UTC", "" // which C libraries assume
	}
	text := bytes.TrimSpace(copied)
	if footer := string(text[bytes.LastIndexByte(text, '\n')+1:]); isUTC(strings.TrimSuffix(footer, "0")) {
		return "UTC", ""
	}
	// A host may say in words whose copy it is, and may have changed only one of the two.
	if words, err := smallfile.Read("/etc/timezone", mostOfText); err == nil {
		name = zoneNamed(strings.TrimSpace(string(words)))
		original, err := smallfile.Read(filepath.Join("/usr/share/zoneinfo", name), mostOfText)
		if name != "" && err == nil && bytes.Equal(original, copied) {
			return name, ""
		}
	}
	return "", file + " is a copy"
}

// zoneNamed returns a zone's name as dbcron knows it, from a name or the path of its file. It returns "" for others, such as CET-1CEST.
func zoneNamed(zone string) string {
	if _, below, ok := strings.Cut(zone, "/zoneinfo/"); ok {
		zone = strings.TrimPrefix(below, "posix/")
	}
	if zone == "" || isUTC(strings.TrimSuffix(zone, "0")) {
		return "UTC"
	}
	if _, err := cronspec.New("@daily", zone, ""); err != nil || filepath.IsAbs(zone) {
		return ""
	}
	return zone
}
