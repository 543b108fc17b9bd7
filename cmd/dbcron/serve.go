package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

type serveFlags struct {
	crontab, source, zone string
	check                 bool
	noMigrate             bool
	node, logs            string

	options scheduler.Options
}

func (p *program) serve() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run what is due, until SIGTERM",
		Long: `Run what is due. Any number of daemons may share a database: each slot runs
once, on one of them.

With --crontab the file is imported first, and again at SIGHUP: its schedules
become those of the file, and others stay as they are. Without it the table's
schedules run.

The first SIGTERM or SIGINT lets running commands end (--grace), then stops them
and hands their runs to other daemons; the second stops them at once.

Whoever can write to the table of schedules can run commands with the rights of
this daemon: see docs/grants.md.`,
		RunE: func(c *cobra.Command, _ []string) error { return p.runServe(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.crontab, "crontab", "", "file in the format of crontab(5) to import")
	flags.StringVar(&f.source, "source", "", "what the crontab's schedules are known by (default: its whole path)")
	flags.StringVar(&f.zone, "tz", "", "time zone of the crontab where it has no CRON_TZ (default: UTC)")
	flags.BoolVar(&f.check, "check", false, "only check the crontab, and exit")
	flags.BoolVar(&f.noMigrate, "no-migrate", false, "leave the tables as they are; fail if they are not up to date")
	flags.StringVar(&f.node, "node", "", "name of this daemon in the history (default: host name and process id)")
	flags.StringVar(&f.logs, "log-format", "auto", "text, json, or auto: text on a terminal")
	flags.DurationVar(&f.options.Lease, "lease", 30*time.Second, "how long a dead daemon's run waits for another one")
	flags.DurationVar(&f.options.Poll, "poll", time.Second, "the longest that a change of the tables may go unseen")
	flags.IntVar(&f.options.MaxRuns, "max-runs", 64, "how many commands run at a time")
	flags.DurationVar(&f.options.Grace, "grace", 30*time.Second, "how long running commands may go on after SIGTERM")
	return c
}

func (p *program) runServe(ctx context.Context, f serveFlags) (err error) {
	if f.check && f.crontab == "" {
		return usagef("--check needs --crontab")
	}
	if f.options.Lease <= 0 || f.options.Poll <= 0 || f.options.MaxRuns <= 0 {
		return usagef("--lease, --poll and --max-runs must be more than 0")
	}
	var given []scheduler.Schedule
	if f.crontab != "" {
		if given, err = readCrontab(&f); err != nil {
			return err
		}
	}
	if f.check {
		_, err = fmt.Fprintf(p.out, "%s: %d schedules, all good\n", f.crontab, len(given))
		return err
	}
	log, err := newLogger(p.err, f.logs)
	if err != nil {
		return err
	}
	options := p.schedulerOptions(f, log)
	if err := options.Check(); err != nil {
		return usagef("%v", err)
	}
	db, err := p.open(ctx)
	if err == nil {
		err = errors.Join(p.serveOn(ctx, db, f, given, options), db.Close())
	}
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		log.Info("stopped")
		return nil
	}
	return err
}

func (p *program) serveOn(ctx context.Context, db *dialect.DB, f serveFlags, given []scheduler.Schedule, options scheduler.Options) error {
	log := options.Logger
	if !f.noMigrate {
		if err := sqlschema.Migrate(ctx, db); err != nil {
			return err
		}
	}
	if f.crontab != "" {
		if err := importCrontab(ctx, db, &f, given, log); err != nil {
			return err
		}
	}
	s, err := scheduler.New(db, options)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	var obeying sync.WaitGroup
	defer obeying.Wait()
	defer close(ended)
	obeying.Go(func() { p.obey(ctx, s, db, f, log, ended) })
	log.Info("serving", "database", db.Dialect.Name, "node", s.Owner(), "version", version)
	return s.Run(ctx)
}

// obey follows signals until the daemon has ended.
func (p *program) obey(ctx context.Context, s *scheduler.Scheduler, db *dialect.DB, f serveFlags, log *slog.Logger, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-p.signals.again:
			log.Warn("stopping at once")
			s.Abort()
			<-ended
			return
		case <-p.signals.reload:
			if f.crontab == "" {
				log.Info("SIGHUP: there is no --crontab to import again")
				continue
			}
			given, err := readCrontab(&f)
			if err == nil {
				err = importCrontab(ctx, db, &f, given, log)
			}
			if err != nil && ctx.Err() == nil {
				log.Error("the crontab was not imported; the schedules stay as they were", "err", err)
			}
		}
	}
}

func importCrontab(ctx context.Context, db *dialect.DB, f *serveFlags, given []scheduler.Schedule, log *slog.Logger) error {
	changes, err := scheduler.Import(ctx, db, f.source, given)
	if errors.Is(err, scheduler.ErrExists) {
		return fmt.Errorf("%s: %w; give one of the two another name, or delete the other (if this file was moved: --source keeps what it was known by)",
			f.crontab, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.crontab, err)
	}
	log.Info("crontab "+f.crontab, "schedules", changes.String())
	if len(given) == 0 && len(changes.Removed) > 0 {
		log.Warn("the crontab is empty: all its schedules were removed", "removed", len(changes.Removed))
	}
	if zone := hostZone(); f.zone == "" && zone != "UTC" && zone != "Etc/UTC" && len(given) > 0 {
		log.Info("times without CRON_TZ are read as UTC, the same on every host; --tz or CRON_TZ names another zone", "this host's", zone)
	}
	return nil
}

// schedulerOptions gives commands what cron gives them: a short environment, and
// the home folder to start in. The daemon's own environment holds the database's
// password, and does not reach them.
func (p *program) schedulerOptions(f serveFlags, log *slog.Logger) scheduler.Options {
	o := f.options
	o.Logger, o.Node = log, f.node
	if o.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "host"
		}
		o.Node = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if o.Grace <= 0 {
		o.Grace = -1 // none, where 0 would be the default
	}
	// As cron does: the user's own, also where the environment has neither.
	home, name := p.getenv("HOME"), p.getenv("LOGNAME")
	if self, err := user.Current(); err == nil {
		home, name = cmp.Or(home, self.HomeDir), cmp.Or(name, self.Username)
	}
	if info, err := os.Stat(home); err != nil || !info.IsDir() || !filepath.IsAbs(home) {
		home = "/"
	}
	o.Dir = home
	o.Env = []string{"HOME=" + home, "PATH=/usr/local/bin:/usr/bin:/bin", "SHELL=/bin/sh", "LOGNAME=" + name, "USER=" + name}
	return o
}
