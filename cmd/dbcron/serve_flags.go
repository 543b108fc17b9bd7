package main

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/internal/address"
	"github.com/dbcron/dbcron/scheduler"
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
	passDatabase               bool
	audit                      keptAudit

	options scheduler.Options
	http    httpFlags
	push    pushFlags
	notify  notifyFlags
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
	flags.BoolVar(&f.passDatabase, "pass-database", false, "have dbcron in commands use this daemon's database, for instance dbcron lock run")
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
	if f.passDatabase {
		env, err := p.passedDatabase()
		if err != nil {
			return nil, options, err
		}
		options.Env = append(options.Env, env...)
	}
	if err := options.Check(); err != nil {
		return nil, options, usagef("%v", err)
	}
	return log, options, nil
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
