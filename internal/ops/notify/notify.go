// Package notify tells people when schedules and queues are in trouble and when they recover: by mail, by
// webhook, and by a command.
//
// When something goes wrong with a schedule, the same transaction records it in the table notice: see
// scheduler/notice.go. One daemon at a time reads that table, and looks for what only time reveals: late
// schedules, queues that lag behind, recoveries. In one transaction it turns everything pending into
// messages, which are jobs of the queue dbcron.notify, and marks it as told. So nothing is lost or told
// twice, whichever daemon dies when. Any daemon sends the jobs, at least once; all copies of a message have
// the same id.
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
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// Queue is the daemons' own queue of messages.
const Queue = "dbcron.notify"

const (
	jobKind = "notify"

	glanceEvery = 5 * time.Second  // between checks for something to tell
	lookEvery   = 15 * time.Second // between looks for what only time reveals, over all daemons
)

// Options configures a Notifier.
type Options struct {
	// Targets are notified of everything without targets of its own: mailto:, http: and https: URLs,
	// and command:LINE.
	Targets []string

	Every    time.Duration // minimum interval of messages to a target; default: 1m
	Limit    int           // messages to a target in an hour; default: 20
	QueueAge time.Duration // a queue is in trouble when its oldest job has waited for so long; default: 10m

	Mail   Mail
	Link   string      // URL of the dashboard, for links in messages; "": there are none
	Secret string      // signs webhooks as Standard Webhooks defines; "": they are not signed
	Hosts  *push.Hosts // allowed hosts of webhooks; nil: the whole internet

	Env []string // of commands
	Dir string   // working directory of commands

	Node     string
	Version  string
	Doorbell string
	Logger   *slog.Logger

	gather time.Duration // how long the first notice waits for more; default: 5s; negative: not at all
}

// A Notifier is a daemon's part in notifying people.
type Notifier struct {
	db     *dialect.DB
	opt    Options
	queues *queue.Client
	admin  *admin.Client
	log    *slog.Logger
}

// New returns a Notifier, or an error about its options. It does not access the database.
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
	queues, err := queue.New(db, queue.Options{Node: opt.Node, Logger: opt.Logger, Doorbell: opt.Doorbell, Blocks: 1})
	if err != nil {
		return nil, err
	}
	ops, err := admin.New(db, admin.Options{})
	if err != nil {
		return nil, err
	}
	return &Notifier{db: db, opt: opt, queues: queues, admin: ops, log: opt.Logger}, nil
}

// CheckTargets parses Options.Targets. Only whoever starts a daemon may name commands: tables do not
// contain them, and messages name them by a hash.
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

// Run sends notifications until ctx ends.
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

// Once sends the notifications that are pending now.
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

// round does what is due, and reports whether the queue of messages exists.
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

// send does the queue's jobs until ctx ends.
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
	// For about a day, since a mail server may be down.
	policy := queue.RetryPolicy{MaxAttempts: 150, Delay: 10 * time.Second, MaxDelay: 10 * time.Minute}
	return w, w.HandleWith(jobKind, policy, n.handle)
}

// commandOf returns the daemon's command line that a message refers to.
func (n *Notifier) commandOf(target string) (line string, ok bool) {
	i := slices.IndexFunc(n.opt.Targets, func(own string) bool {
		return strings.HasPrefix(own, commandPrefix) && stored(own) == target
	})
	if i < 0 {
		return "", false
	}
	return strings.TrimPrefix(n.opt.Targets[i], commandPrefix), true
}
