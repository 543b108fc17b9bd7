package notify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/scheduler"
)

// sendWithin is the timeout of one attempt to send a message.
const sendWithin = time.Minute

// handle sends the message in a job.
func (n *Notifier) handle(ctx context.Context, d *queue.Delivery) error {
	var m Message
	if err := d.Decode(&m); err != nil {
		return err
	}
	if err := n.read(ctx, &m); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	err := n.dereference(ctx, &m)
	if err == nil {
		err = n.deliver(ctx, &m, Queue+"."+strconv.FormatInt(d.ID, 10))
	}
	if err != nil {
		n.log.Warn("a notification was not sent; it will be tried again", "target", Shown(m.Target), "attempt", d.Attempt, "err", err)
	}
	return err
}

// Test sends a message to a target at once, without the queue.
func (n *Notifier) Test(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, sendWithin)
	defer cancel()
	now, err := scheduler.Clock(ctx, n.db)
	if err != nil {
		return err
	}
	m := Message{Target: stored(target), At: now.UnixMicro(), Test: true}
	return n.deliver(ctx, &m, Queue+".test."+strconv.FormatInt(now.UnixMicro(), 10))
}

// deliver sends a message. Recipients recognize a duplicate by its id.
func (n *Notifier) deliver(ctx context.Context, m *Message, id string) error {
	switch {
	case strings.HasPrefix(m.Target, "mailto:"):
		return n.opt.Mail.send(ctx, m, id)
	case strings.HasPrefix(m.Target, commandPrefix):
		return n.command(ctx, m, id)
	case strings.HasPrefix(m.Target, "http:"), strings.HasPrefix(m.Target, "https:"):
		return n.webhook(ctx, m, id)
	}
	return queue.Bury(fmt.Errorf("%q is no target", Shown(m.Target)))
}

// Shown returns a target in a form that people may see: the path and the query of a URL are often secret.
func Shown(target string) string {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok {
		return target
	}
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		if host = rest[:end]; len(rest) > end+1 {
			host += "/…"
		}
	}
	return scheme + "://" + host
}

var errElsewhere = errors.New("this daemon has no such command (serve --notify command:…); give all daemons the same targets")
