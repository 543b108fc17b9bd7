package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/queue"
)

// pushFlags configure how a daemon pushes jobs to endpoints.
type pushFlags struct {
	to      []string
	standby bool

	hosts   *push.Hosts // parsed to
	metrics *httpapi.Metrics
}

func (f *pushFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVar(&f.to, "push-to", nil,
		"`host` or network that jobs may be sent to, such as worker, *.example.org:8443, 10.1.0.0/16, or public: all of the internet; may be repeated (default: public)")
	flags.BoolVar(&f.standby, "standby", false, "send jobs only while no other daemon does that has --standby, too")
}

// check parses the flags.
func (f *pushFlags) check() (err error) {
	if f.hosts, err = push.ParseHosts(f.to); err != nil {
		return usagef("--push-to: %v", err)
	}
	return nil
}

// hosts returns the hosts that jobs may be sent to, or nil if this daemon sends none and does not know them.
func (f *serveFlags) hosts() *push.Hosts {
	if f.does(partPush) {
		return f.push.hosts
	}
	return nil
}

// newPush returns the dispatcher, or nil if the daemon sends no jobs.
func (f *serveFlags) newPush(db *dialect.DB, log *slog.Logger) (*push.Dispatcher, error) {
	if f.once || !f.does(partPush) {
		return nil, nil //nolint:nilnil // none, which is no error
	}
	grace := f.options.Grace
	if grace <= 0 {
		grace = -1 // none; 0 would mean the default
	}
	lease := max(f.options.Lease, time.Second)
	if f.options.Lease == usualRunLease { // a run may wait longer than a queue's jobs
		lease = queue.DefaultLease
	}
	opt := push.Options{
		Node: f.node, Doorbell: doorbellAt(f.doorbell), Lease: lease, Grace: grace,
		Hosts: f.push.hosts, Version: version, Logger: log, Standby: f.push.standby, LogDone: f.logDone,
	}
	if f.push.metrics != nil {
		opt.Observe, opt.LeaseLost = f.push.metrics.Sent, f.push.metrics.LeaseLost
	}
	return push.New(db, opt)
}

// startPush sends jobs until ctx ends. stop waits for running requests.
func startPush(ctx context.Context, d *push.Dispatcher, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := d.Run(ctx); err != nil {
			log.Error("push: jobs are not sent", "err", err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
