package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/dialect/engines"
	"github.com/dbcron/dbcron/internal/ops/logs"
	"github.com/dbcron/dbcron/internal/ops/shop"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/sqlschema"
)

func (p *program) demo() *cobra.Command {
	var listen string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show the dashboard of a made-up shop at work, until Ctrl-C",
		Long: `Show dbcron at work, to look at: a shop whose schedules run every few seconds,
whose queues have jobs that succeed, fail and die, and whose locks change hands.

All of it is in this one process, and in a SQLite database of its own in a temporary
folder, which is removed at the end. Nothing else is read or written, whatever
--url and the environment say. The jobs and commands only wait and print.`,
		Example: `  dbcron demo
  dbcron demo --listen 127.0.0.1:9000`,
		RunE: func(c *cobra.Command, _ []string) error {
			return p.runDemo(c.Context(), listen, c.Flags().Changed("listen"))
		},
	}
	c.Flags().StringVar(&listen, "listen", usualListen, "`address` of the dashboard; if the usual one is taken, a free one")
	return c
}

// runDemo serves a database of its own, in which the demo shop runs.
func (p *program) runDemo(ctx context.Context, listen string, chosen bool) (err error) {
	folder, err := os.MkdirTemp("", "dbcron-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	opt := dialect.Options{ApplicationName: "dbcron demo"}
	db, err := engines.Open(ctx, "sqlite:"+filepath.Join(folder, "demo.db"), opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := sqlschema.Migrate(ctx, db); err != nil {
		return err
	}
	f, options, err := p.demoFlags(ctx, listen, chosen)
	if err != nil {
		return err
	}
	s, err := shop.New(ctx, db, options.Logger)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(p.out, "The dashboard of the demo: http://%s/\nCtrl-C ends it, and removes its database.\n",
		f.http.listen); err != nil {
		return err
	}
	living, stop := context.WithCancel(ctx)
	closed := s.Live(living)
	err = p.serveOn(ctx, db, f, nil, options)
	stop()
	err = errors.Join(err, <-closed)
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return nil
	}
	return err
}

// demoFlags returns the daemon's flags for the demo, and the scheduler options that follow. It only logs
// errors; the dashboard shows everything else.
func (p *program) demoFlags(ctx context.Context, listen string, chosen bool) (f serveFlags, options scheduler.Options, err error) {
	f.register(&cobra.Command{})
	f.noMigrate, f.node, f.options.Grace = true, "demo", -1
	f.http.chosen = true
	if f.http.listen, err = freeAddress(ctx, listen, chosen); err != nil {
		return f, options, err
	}
	if err := f.checkServices(false); err != nil {
		return f, options, err
	}
	_, options, err = p.checkedOptions(&f)
	options.Logger = slog.New(failures{logs.Lines(p.err, slog.LevelInfo)})
	return f, options, err
}

// freeAddress returns the address that was asked for. If none was and the default is taken, it returns another
// address of this host.
func freeAddress(ctx context.Context, listen string, chosen bool) (string, error) {
	at, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil && !chosen {
		at, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", err
	}
	return at.Addr().String(), at.Close()
}

// failures is a handler that only logs errors.
type failures struct{ slog.Handler }

// Enabled reports whether a level is at least an error.
func (failures) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
