package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

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
they change and at SIGHUP. Their schedules become those of the files, and others stay as they are.
Each file is imported by itself: the schedules of one that is wrong stay as they were. If all
are wrong at the start, the daemon ends.
Without them the table's schedules run. Of a folder, the names count that Debian's cron reads:
letters, digits, - and _. Files may come to it, and go, meanwhile; a pattern, in quotes,
is watched likewise.

` + aboutSystem + `

With --tag only schedules that have one of these tags run here; default is the tag
of those that were given none.

With --once what is due is run, and what follows from it at once; then the exit code
is 0, whatever came of it, or 2 if a file is wrong. What is due later, such as another attempt, is left to
the next call: for host cron and timers.

The first SIGTERM or SIGINT lets running commands end (--grace), then stops them
and hands their runs to other daemons; the second stops them at once.

Each flag can be set in a file (--config) and in the environment as well: dbcron config.

The targets of --notify get a message when schedules and queues fail, and when they are well
again; a schedule may name others (--notify of schedule add, MAILTO in a crontab).
dbcron help notifications has more.

Jobs of queues that have an endpoint (dbcron endpoint) are sent there: to the internet,
unless --push-to says where else they may go. dbcron help push has more. All daemons share
them; of those with --standby one sends, and another takes over within a second.

With --only a daemon does a part of this: schedules, push or api; it may be repeated.

The HTTP API is at --listen, below /api: dbcron help http. At / of the same address is the
dashboard, for a browser: dbcron help dashboard. If the usual address is taken, the daemon goes
on without; one that was named has to be free. Without a token (dbcron token) they answer
this host alone.

Whoever can write to the table of schedules can run commands with the rights of
this daemon: see dbcron help grants.`,
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

func (p *program) runServe(ctx context.Context, f serveFlags) (err error) {
	if err := f.checkServices(f.once); err != nil {
		return err
	}
	files, warnings, err := f.files()
	if err != nil {
		return err
	}
	if err := loadAll(files); err != nil && (f.check || !anyGood(files)) {
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

func (p *program) serveOn(ctx context.Context, db *dialect.DB, f serveFlags, files []*scheduleFile, options scheduler.Options) error {
	log := options.Logger
	if err := setUp(ctx, db, &f, files, log); err != nil {
		return err
	}
	if f.http.admin != "" {
		metrics, err := p.newMetrics(db, f.http.schedules)
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
		obeying.Go(func() { p.noteProblems(trying, db, s.Node(), f.http.server, log) })
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
		return errors.Join(s.RunOnce(ctx), notifier.Once(ctx), problemsOf(files))
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
	importAll(ctx, db, files, log)
	if !anyGood(files) {
		return problemsOf(files)
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
