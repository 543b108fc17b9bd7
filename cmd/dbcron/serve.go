package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

type serveFlags struct {
	crontabs                   []string
	tabs                       []*crontabs // of these
	source, zone               string
	schedules, schedulesSource string
	system                     *bool // nil: not given
	check, once                bool
	noMigrate                  bool
	node, logs, level          string
	doorbell                   string
	logDone                    bool
	only                       []string
	passEnv                    []string // names, or all
	audit                      keptAudit

	options scheduler.Options
	http    httpFlags
	push    pushFlags
	notify  notifyFlags
}

// Parts of a daemon, as named by --only.
const (
	partSchedules = "schedules"
	partPush      = "push"
	partAPI       = "api"
)

// usualRunLease is the default of --lease.
const usualRunLease = 30 * time.Second

func (p *program) serve() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run what is due, until SIGTERM",
		Long: `Run what is due. Any number of daemons may share a database: each slot runs
once, on one of them.

With --crontab or --schedules, or both, the files are imported first, and again when
they change and at SIGHUP; if one is wrong, all stays as it was. Their schedules become those of the files, and others stay as they are.
Without them the table's schedules run. Of a folder, as /etc/cron.d, cron's names count:
letters, digits, - and _. Files may come to it, and go, meanwhile; a pattern, in quotes,
is watched likewise.

` + aboutSystem + `

With --tag only schedules that have one of these tags run here; default is the tag
of those that were given none.

With --once what is due is run, and what follows from it at once; then the exit code
is 0, whatever came of it. What is due later, such as another attempt, is left to
the next call: for host cron and timers.

The first SIGTERM or SIGINT lets running commands end (--grace), then stops them
and hands their runs to other daemons; the second stops them at once.

Each flag can be set in a file (--config) and in the environment as well: dbcron config.

Whoever --notify names is told when schedules and queues fail, and when they are well
again; a schedule may name others (--notify of schedule add, MAILTO in a crontab).
docs/notifications.md has more.

Jobs of queues that have an endpoint (dbcron endpoint) are sent there: to the internet,
unless --push-to says where else they may go. docs/push.md has more. All daemons share
them; of those with --standby one sends, and another takes over within a second.

With --only a daemon does a part of this: schedules, push or api; it may be repeated.

The HTTP API is at --listen, below /api: docs/http.md. At / of the same address is the
dashboard, for a browser: docs/dashboard.md. If the usual address is taken, the daemon goes
on without; one that was named has to be free. Without a token (dbcron token) they answer
this host alone.

Whoever can write to the table of schedules can run commands with the rights of
this daemon: see docs/grants.md.`,
		Example: `  dbcron serve --schedules /etc/dbcron/schedules.yaml --tag default --tag reports
  dbcron serve --crontab /etc/dbcron/crontab --check
  dbcron serve --config /etc/dbcron/dbcron.yaml
  dbcron serve --once --grace 10m`,
		RunE: func(c *cobra.Command, _ []string) error {
			f.http.chosen = c.Flags().Changed("listen")
			f.http.asked = p.onCommandLine(c, "listen") && f.http.listen != noListen || p.onCommandLine(c, "admin-listen")
			f.system = saidSystem(c.Flags())
			return p.runServe(c.Context(), f)
		},
	}
	f.register(c)
	return c
}

// register adds the flags. Each is also a setting of files and the environment, except those in notSettings.
func (f *serveFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.schedules, "schedules", "", "YAML `file` of schedules to import: see dbcron schedule apply")
	flags.StringVar(&f.schedulesSource, "schedules-source", "", "source of that file's schedules (default: its whole path)")
	flags.StringArrayVar(&f.crontabs, "crontab", nil,
		"`file` in the format of crontab(5) to import, a folder of such files, or a pattern; may be repeated")
	flags.StringVar(&f.source, "source", "",
		"source of the crontab's schedules, if there is one; of a folder's, followed by the file's name (default: its whole path)")
	flags.StringVar(&f.zone, "time-zone", "", "time zone of the crontab where it has no CRON_TZ; local is this host's (default: UTC)")
	systemFlag(flags)
	flags.BoolVar(&f.check, "check", false, "only check the files, and exit")
	flags.BoolVar(&f.once, "once", false, "run what is due, and exit when all of it has ended")
	flags.StringArrayVar(&f.options.Tags, "tag", nil, "run schedules that have this `tag`; may be repeated (default: default)")
	flags.BoolVar(&f.noMigrate, "no-migrate", false, "leave the tables as they are; fail if they are not up to date")
	flags.StringVar(&f.node, "node", "", "name of this host in the history, to which the process id is added (default: the host's name)")
	flags.StringArrayVar(&f.passEnv, "pass-env", nil,
		"`NAME` of a variable of the daemon's environment that commands get, or all; never DBCRON_…; may be repeated")
	flags.BoolVar(&f.options.Echo, "echo", false, "log each line that commands write, as it comes; it may hold secrets")
	flags.StringVar(&f.logs, "log-format", "auto", "text, json, or auto: text on a terminal")
	flags.StringVar(&f.level, "log-level", "info", "log what is of this `level` at least: debug, info, warn or error")
	flags.BoolVar(&f.logDone, "log-done", false, "log each job that this daemon has sent, or given out, when it is done, and how long it took")
	durationVar(flags, &f.options.Lease, "lease", usualRunLease, "how long a dead daemon's run waits for another one")
	durationVar(flags, &f.options.Poll, "poll", time.Second, "longest time until a change of the tables is noticed")
	flags.IntVar(&f.options.MaxRuns, "max-runs", 64, "how many commands run at a time")
	flags.IntVar(&f.options.MaxCrashes, "max-crashes", 3, "attempts at a slot that crash their daemon, after which there are no more")
	graceFlag(flags, &f.options.Grace, "how long running commands may go on after SIGTERM, or forever")
	doorbellFlag(flags, &f.doorbell)
	flags.StringSliceVar(&f.only, "only", nil, "do only this `part`: schedules, push or api; may be repeated (default: all)")
	f.audit.register(flags)
	f.http.register(c)
	f.push.register(c)
	f.notify.register(c)
}

func (p *program) runServe(ctx context.Context, f serveFlags) (err error) {
	if err := f.checkServices(f.once); err != nil {
		return err
	}
	files, warnings, err := f.files()
	if err == nil {
		err = loadAll(files)
	}
	if err != nil {
		return err
	}
	if f.check {
		for _, text := range warnings {
			p.warn("warning: " + harmless(text))
		}
		for _, file := range files {
			for _, w := range file.warnings {
				p.warn("warning: " + harmless(w))
			}
			for _, d := range file.differences() {
				p.warn(harmless(d))
			}
			verdict := "all good"
			if n := len(file.warnings); n > 0 {
				verdict = counted(n, "warning", "warnings")
			}
			if file.host {
				verdict = "in " + file.zone + ", " + verdict
			}
			if _, err := fmt.Fprintf(p.out, "%s: %s, %s\n", file.path, counted(len(file.given), "schedule", "schedules"), verdict); err != nil {
				return err
			}
		}
		for _, text := range f.notify.reach(files)(ctx) { // which is about this host, and no file
			p.warn("warning: notifications cannot be delivered from here: " + harmless(text))
		}
		return nil
	}
	log, options, err := p.checkedOptions(&f)
	if err != nil {
		return err
	}
	for _, text := range warnings {
		log.Warn("not all of a folder is read", "why", text)
	}
	db, err := p.open(ctx)
	if err == nil {
		err = errors.Join(p.serveOn(ctx, db, f, files, options), db.Close())
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		log.Info("stopped")
		if f.once {
			return errors.New("ended by a signal before all was done; the rest is left to the next call")
		}
		return nil
	}
	return err
}

// checkServices validates and parses the settings of the daemon's services.
func (f *serveFlags) checkServices(once bool) error {
	return errors.Join(f.checkParts(), f.http.check(once), f.push.check(), f.notify.check(), f.audit.check())
}

// checkParts validates what the daemon is to do.
func (f *serveFlags) checkParts() error {
	for _, part := range f.only {
		if part != partSchedules && part != partPush && part != partAPI {
			return usagef("--only: %q is not schedules, push or api", part)
		}
	}
	if at := doorbellAt(f.doorbell); at != "" {
		if err := address.CheckDoorbell(at); err != nil {
			return usagef("--doorbell: %v", err)
		}
	}
	switch {
	case slices.ContainsFunc(f.passEnv, func(name string) bool { return strings.HasPrefix(name, "DBCRON_") }):
		return usagef("--pass-env: variables that begin with DBCRON_ are the daemon's, and stay its own")
	case slices.ContainsFunc(f.passEnv, func(name string) bool { return name == "" || strings.ContainsAny(name, "=, ") }):
		return usagef("--pass-env takes the name of one variable, or all; repeat it for more: --pass-env ONE --pass-env OTHER")
	case f.once && len(f.only) > 0:
		return usagef("--once runs what is due, and does nothing else; leave --only out")
	case !f.does(partSchedules) && (len(f.crontabs) > 0 || f.schedules != ""):
		return usagef("--crontab and --schedules are for daemons that run schedules; add --only schedules, or import the file with dbcron schedule apply")
	case !f.does(partAPI) && f.http.chosen && f.http.listen != noListen:
		return usagef("--listen is for daemons that have the API; add --only api, or leave it out")
	case !f.does(partPush) && f.push.standby:
		return usagef("--standby is for daemons that send jobs; add --only push, or leave it out")
	}
	return nil
}

// does reports whether the daemon does a part.
func (f *serveFlags) does(part string) bool { return len(f.only) == 0 || slices.Contains(f.only, part) }

// checkedOptions returns the scheduler's options, if all settings are valid.
func (p *program) checkedOptions(f *serveFlags) (*slog.Logger, scheduler.Options, error) {
	if f.options.Lease <= 0 || f.options.Poll <= 0 || f.options.MaxRuns <= 0 || f.options.MaxCrashes <= 0 {
		return nil, f.options, usagef("--lease, --poll, --max-runs and --max-crashes must be more than 0")
	}
	level, err := readLevel(f.level)
	if err != nil {
		return nil, f.options, err
	}
	log, err := newLogger(p.err, f.logs, level)
	if err != nil {
		return nil, f.options, err
	}
	options := p.schedulerOptions(*f, log)
	if err := options.Check(); err != nil {
		return nil, options, usagef("%v", err)
	}
	return log, options, nil
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

// loadAll reads the files, and returns everything wrong with any of them.
func loadAll(files []*scheduleFile) error { return loadEach(files, nil) }

func loadEach(files []*scheduleFile, stdin io.Reader) error {
	var errs []error
	in := map[string]string{}
	for _, file := range files {
		if err := file.load(stdin); err != nil {
			errs = append(errs, err)
			continue
		}
		for _, s := range file.given {
			if other, ok := in[s.Name]; ok {
				errs = append(errs, usagef("%s: the schedule %s is in %s too; give one of the two another name", file.path, s.Name, other))
			}
			in[s.Name] = file.path
		}
	}
	return errors.Join(errs...)
}

func (p *program) serveOn(ctx context.Context, db *dialect.DB, f serveFlags, files []*scheduleFile, options scheduler.Options) error {
	log := options.Logger
	if err := setUp(ctx, db, &f, files, log); err != nil {
		return err
	}
	if f.http.admin != "" {
		metrics, err := newMetrics(db, f.http.schedules)
		if err != nil {
			return err
		}
		f.http.metrics, options.Ended = metrics, metrics.RunEnded
		f.push.metrics = metrics
	}
	s, err := scheduler.New(db, options)
	if err != nil {
		return err
	}
	dispatcher, err := f.newPush(db, log)
	if err != nil {
		return err
	}
	notifier, err := p.newNotifier(db, &f.notify, f.push.hosts, options, log)
	if err != nil {
		return err
	}
	abort := func() {
		s.Abort()
		if dispatcher != nil {
			dispatcher.Abort()
		}
	}
	ended := make(chan struct{})
	var obeying sync.WaitGroup
	defer obeying.Wait()
	defer close(ended)
	watched := &watchedFiles{files: files, tabs: f.tabs, db: db, log: log, node: s.Node(), others: map[string]string{}}
	watched.note(ctx)
	defer watched.forget(ctx)
	obeying.Go(func() { p.obey(ctx, abort, watched, ended) })
	if !f.once {
		trying, cancel := context.WithCancel(ctx)
		defer cancel()
		reach := f.notify.reach(files) // before a file is read again
		obeying.Go(func() {
			for _, text := range reach(trying) {
				log.Warn("notifications cannot be delivered", "why", text)
			}
		})
		stop, err := p.startHTTP(ctx, db, &f, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	if dispatcher != nil {
		defer startPush(ctx, dispatcher, log)()
	}
	if !f.once {
		defer f.audit.sweep(ctx, db, log)()
		defer startNotifier(ctx, notifier)()
	}
	log.Info("serving", "database", db.Dialect.Name, "node", s.Node(), "version", version)
	if f.once {
		return errors.Join(s.RunOnce(ctx), notifier.Once(ctx))
	}
	if !f.does(partSchedules) {
		<-ctx.Done()
		return nil
	}
	return s.Run(ctx)
}

// setUp creates or checks the tables, and imports the files.
func setUp(ctx context.Context, db *dialect.DB, f *serveFlags, files []*scheduleFile, log *slog.Logger) error {
	tables := sqlschema.Migrate
	if f.noMigrate {
		tables = sqlschema.Check
	}
	waits := sqlschema.OnWait(ctx, func(text string) { log.Warn("waiting for tables", "what", text) })
	if err := tables(waits, db); err != nil {
		return err
	}
	for _, file := range files {
		if err := file.importLogged(ctx, db, log); err != nil {
			return err
		}
	}
	return nil
}

// obey reacts to signals and to changes of the files until the daemon has ended.
func (p *program) obey(ctx context.Context, abort func(), files *watchedFiles, ended <-chan struct{}) {
	look := time.NewTicker(fileEvery)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return
		case <-p.signals.again:
			files.log.Warn("stopping at once")
			abort()
			<-ended
			return
		case <-p.signals.reload:
			files.relist()
			files.reload(ctx)
		case <-look.C:
			if ctx.Err() == nil {
				files.look(ctx)
			}
		}
	}
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

// schedulerOptions gives commands what cron does: a short environment, and the home directory to start in. They do
// not inherit the daemon's environment, which contains the database's password.
func (p *program) schedulerOptions(f serveFlags, log *slog.Logger) scheduler.Options {
	o := f.options
	o.Logger, o.Node, o.Version, o.Doorbell = log, f.node, version, doorbellAt(f.doorbell)
	if o.Grace <= 0 {
		o.Grace = -1 // none; 0 would mean the default
	}
	// The user's own, as in cron, even if the environment has neither, or has those of whoever started the daemon:
	// supervisord and su keep root's HOME.
	home, name := p.getenv("HOME"), p.getenv("LOGNAME")
	if self, err := user.Current(); err == nil {
		if dir, err := os.Open(home); err == nil {
			dir.Close()
		} else {
			home, name = self.HomeDir, self.Username
		}
		home, name = cmp.Or(home, self.HomeDir), cmp.Or(name, self.Username)
	}
	if info, err := os.Stat(home); err != nil || !info.IsDir() || !filepath.IsAbs(home) {
		home = "/"
	}
	o.Dir = home
	o.Env = []string{"HOME=" + home, "PATH=/usr/local/bin:/usr/bin:/bin", "SHELL=/bin/sh", "LOGNAME=" + name, "USER=" + name}
	o.Env = append(o.Env, passedEnv(p.environ, f.passEnv)...)
	return o
}

// passedEnv returns those variables of the daemon's that commands get. Its own settings, among them the database's password, are never
// among them.
func passedEnv(environ, names []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return strings.HasPrefix(name, "DBCRON_") || !slices.Contains(names, name) && !slices.Contains(names, "all")
	})
}
