// Package notify tells people when schedules and queues are in trouble, and when they are well
// again: by mail, by webhooks, and by a command.
//
// What goes wrong with a schedule is recorded in the table notice by the transaction in which it
// goes wrong: see scheduler/notice.go. A daemon at a time looks there, and at what only time can
// tell: schedules that are late, queues that are behind, recoveries. In one transaction it then
// makes messages of all that is to be told, as jobs of the queue dbcron.notify, and notes that it
// was told. So nothing is lost or told twice, whichever daemon dies when. The jobs are sent by any
// daemon, at least once; a message has one id, however often it is sent.
package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/trouble"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// Queue is the daemons' own queue of messages.
const Queue = "dbcron.notify"

const (
	jobKind = "notify"

	glanceEvery = 5 * time.Second  // between two questions whether there is something to tell
	lookEvery   = 15 * time.Second // between two looks for what only time tells, over all daemons
)

// Options adjusts a Notifier.
type Options struct {
	// Targets are who is told of all that has no targets of its own: mailto:, http: and https:
	// URLs, and command:LINE.
	Targets []string

	Every    time.Duration // between two messages to a target, at least; default: 1m
	Limit    int           // messages to a target in an hour; default: 20
	QueueAge time.Duration // after so long a queue whose oldest job waits is in trouble; default: 10m

	Mail   Mail
	Secret string      // signs webhooks, as Standard Webhooks has it; empty: they are not signed
	Hosts  *push.Hosts // that webhooks may be sent to; nil: all of the internet

	Env []string // of commands
	Dir string   // where commands start

	Node     string
	Version  string
	Doorbell string
	Logger   *slog.Logger

	gather time.Duration // how long what comes first waits for more; default: 5s; negative: not at all
}

// A Notifier is a daemon's part in telling people.
type Notifier struct {
	db     *dialect.DB
	opt    Options
	queues *queue.Client
	log    *slog.Logger
}

// New returns a Notifier, or tells what is wrong with the options. It does not touch the database.
func New(db *dialect.DB, opt Options) (*Notifier, error) {
	opt.Every = cmp.Or(opt.Every, time.Minute)
	opt.Limit = cmp.Or(opt.Limit, 20)
	opt.QueueAge = cmp.Or(opt.QueueAge, 10*time.Minute)
	opt.gather = cmp.Or(opt.gather, 5*time.Second)
	if opt.Logger == nil {
		opt.Logger = slog.Default()
	}
	targets, err := CheckTargets(opt.Targets)
	if err == nil {
		opt.Targets = targets
		opt.Mail, err = opt.Mail.filled()
	}
	if err == nil && opt.Secret != "" {
		if err = push.CheckSecret(opt.Secret); err != nil {
			err = fmt.Errorf("the secret of webhooks: %w", err)
		}
	}
	if err == nil && opt.Hosts == nil {
		opt.Hosts, err = push.ParseHosts(nil)
	}
	if err != nil {
		return nil, err
	}
	queues, err := queue.New(db, queue.Options{Node: cmp.Or(opt.Node, "notify"), Logger: opt.Logger, Doorbell: opt.Doorbell, Blocks: 1})
	if err != nil {
		return nil, err
	}
	return &Notifier{db: db, opt: opt, queues: queues, log: opt.Logger}, nil
}

// CheckTargets reads what Options.Targets may hold. Only whoever starts a daemon may name
// commands: they are in no table, and messages name them by a hash.
func CheckTargets(list []string) (all []string, err error) {
	for _, one := range list {
		if line, ok := strings.CutPrefix(one, commandPrefix); ok {
			if strings.TrimSpace(line) == "" {
				return nil, errors.New("command: names no command; write for example command:/usr/local/bin/tell")
			}
			all = append(all, one)
			continue
		}
		targets, err := scheduler.Targets(one)
		if err != nil {
			return nil, err
		}
		all = append(all, targets...)
	}
	return all, nil
}

// Run looks after notifications until ctx ends.
func (n *Notifier) Run(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	failing := trouble.New(n.log, "looking for what is to be told")
	started := false
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(glanceEvery))))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		jobs, err := n.round(ctx)
		if err == nil && jobs && !started {
			started = true
			sending.Go(func() { n.send(ctx) })
		}
		if ctx.Err() == nil {
			timer.Reset(failing.Wait(err, glanceEvery))
		}
	}
}

// Once tells what there is to tell now, and sends it.
func (n *Notifier) Once(ctx context.Context) error {
	if err := n.look(ctx); err != nil {
		return err
	}
	if err := n.gather(ctx, false); err != nil {
		return err
	}
	there, err := n.glance(ctx)
	if err != nil || !there.queue {
		return err
	}
	w, err := n.worker()
	if err != nil {
		return err
	}
	return w.RunOnce(ctx)
}

// round does what is to be done now, and tells whether there is a queue of messages.
func (n *Notifier) round(ctx context.Context) (jobs bool, err error) {
	there, err := n.glance(ctx)
	if err != nil {
		return false, err
	}
	if there.look {
		mine, err := n.mayLook(ctx)
		if err == nil && mine {
			err = n.look(ctx)
		}
		if err != nil {
			return there.queue, err
		}
	}
	if there.notices {
		if err := n.gather(ctx, true); err != nil {
			return there.queue, err
		}
		if there, err = n.glance(ctx); err != nil {
			return false, err
		}
	}
	return there.queue, nil
}

// send does the jobs of the queue until ctx ends.
func (n *Notifier) send(ctx context.Context) {
	w, err := n.worker()
	if err == nil {
		err = w.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Error("notifications are not sent from here", "err", err)
	}
}

func (n *Notifier) worker() (*queue.Worker, error) {
	w, err := n.queues.Worker(queue.WorkerOptions{
		Queues: []string{Queue}, Concurrency: 4, Connections: 1,
		Logger: n.log, Grace: 20 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	// For a day: a mail server that is down comes back.
	policy := queue.RetryPolicy{MaxAttempts: 150, Delay: 10 * time.Second, MaxDelay: 10 * time.Minute}
	return w, w.HandleWith(jobKind, policy, n.handle)
}

// commandOf is the command line that the daemon names and that a message means.
func (n *Notifier) commandOf(target string) (line string, ok bool) {
	i := slices.IndexFunc(n.opt.Targets, func(own string) bool {
		return strings.HasPrefix(own, commandPrefix) && stored(own) == target
	})
	if i < 0 {
		return "", false
	}
	return strings.TrimPrefix(n.opt.Targets[i], commandPrefix), true
}
