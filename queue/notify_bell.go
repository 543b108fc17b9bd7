package queue

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/bell"
)

// bells tell workers which blocks have new jobs: those of this process at once,
// those of others by a notification where there is such a thing, or by their doorbells (see
// notify_doorbell.go). A bell that is not
// heard costs time, not jobs: workers look by themselves, too.
//
// Notifications are sent apart from the inserts, since PostgreSQL lets only one
// transaction at a time commit that has one; and while one is under way, what is to
// be told gathers for the next.
type bells struct {
	client *Client
	hub    *bell.Hub // of those who use the database in this process

	mu      sync.Mutex
	workers map[*Worker]bool
	pending map[int]map[int]bool // blocks by queue
	telling bool
	flow    flow

	proof  instant.Instant // when something was heard last, or was to be
	ears   chan struct{}   // has the place of the worker that listens
	others bell.Ringer
}

// Others are told at once while jobs are few. The more jobs come in a second, the longer the next
// notification waits after the one before, and tells of all that came meanwhile: workers have
// enough to do then, and each notification costs the database more than it gains.
const (
	pace     = time.Millisecond
	maxPace  = 5 * time.Millisecond
	unhasty  = 1500 // so many jobs a second make notifications wait; each as many again, a pace more
	flowSpan = 50 * time.Millisecond
)

// A flow measures how many jobs come in a second.
type flow struct {
	jobs int // since it was measured
	at   instant.Instant
	rate float64
}

// measure takes in the jobs since the last time, with the weight that their time has of flowSpan.
func (f *flow) measure(at instant.Instant) {
	took := max(at.Sub(f.at), time.Microsecond).Seconds()
	weight := 1 - math.Exp(-took/flowSpan.Seconds())
	f.rate += weight * (float64(f.jobs)/took - f.rate)
	f.jobs, f.at = 0, at
}

// pace is how long the next notification waits.
func (f *flow) pace() time.Duration {
	return time.Duration(min(max(0, f.rate/unhasty-1)*float64(pace), float64(maxPace)))
}

func (b *bells) init(c *Client) {
	b.client, b.hub, b.workers, b.pending = c, bell.Of(c.db), map[*Worker]bool{}, map[int]map[int]bool{}
	b.ears = make(chan struct{}, 1)
}

// channel is where the processes of this database and prefix tell each other.
func (b *bells) channel() string { return bell.Channel(b.client.db) }

func (b *bells) add(w *Worker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workers[w] = true
}

func (b *bells) remove(w *Worker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, w)
}

// ring reports that jobs were committed.
func (b *bells) ring(rows []jobRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.workers {
		w.ringRows(rows)
	}
	if b.client.db.Dialect.Notify == nil && !b.rings() {
		return
	}
	b.flow.jobs += len(rows)
	last := -1
	for i := range rows {
		r := &rows[i]
		if i > 0 && r.divided == last && r.queue == rows[i-1].queue {
			continue
		}
		last = r.divided
		if b.pending[r.queue] == nil {
			b.pending[r.queue] = map[int]bool{}
		}
		b.pending[r.queue][r.divided] = true
	}
	if !b.telling {
		b.telling = true
		go b.tellOthers()
	}
}

// flush waits until what was rung has been told.
func (b *bells) flush(ctx context.Context) error {
	for {
		b.mu.Lock()
		telling := b.telling
		b.mu.Unlock()
		if !telling {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pace):
		}
	}
}

func (b *bells) tellOthers() {
	for {
		b.mu.Lock()
		payloads := b.payloads()
		b.flow.measure(instant.Now())
		wait := b.flow.pace()
		b.telling = len(payloads) > 0
		b.mu.Unlock()
		if len(payloads) == 0 {
			return
		}
		if err := b.send(context.Background(), payloads); err != nil {
			b.client.opt.Logger.Debug("notifying workers of new jobs failed; they will poll", "err", err)
		}
		if wait > 0 {
			<-time.After(wait)
		}
	}
}

// rings reports whether others are told by their doorbells.
func (b *bells) rings() bool {
	return b.client.opt.Doorbell != "" && b.client.db.Dialect.Notify == nil
}

// send tells others, by queue; 0 being all of them.
func (b *bells) send(ctx context.Context, payloads map[int]string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	db := b.client.dbOf(ctx)
	if b.rings() {
		return b.others.Ring(ctx, db, payloads)
	}
	return bell.Notify(ctx, db, payloads)
}

// announce tells other workers that there may be something to share in some queues; none: in all.
func (b *bells) announce(ctx context.Context, queues ...int) {
	payload := bell.Share
	if len(queues) <= 100 {
		for _, id := range queues {
			payload += fmt.Sprintf(";%d", id) // which workers of 0.1 leave to their next look
		}
	}
	b.say(ctx, payload)
}

// sharedQueues returns the queues of which a payload tells that there may be something to share.
func sharedQueues(payload string) (queues []int, ok bool) {
	list := strings.Split(payload, ";")
	for _, text := range list[1:] {
		if id, err := strconv.Atoi(text); err == nil {
			queues = append(queues, id)
		}
	}
	return queues, list[0] == bell.Share
}

// hearAgain is how long nothing was heard before a process rings itself: a connection that is dead is
// silent, too. What was heard counts for heardFor.
const (
	hearAgain = 10 * time.Second
	heardFor  = 3 * hearAgain
)

// hearing tells whether bells tell this worker of what others do. mu is held.
func (w *Worker) hearing() bool {
	if w.bell != nil { // others know of it when they have looked
		return since(w.bell.hung) > 2*bell.Age
	}
	return w.db.Dialect.Listen != nil && w.hears != 0 && since(w.hears) < heardFor
}

// relisten has all queues looked after and into: what was told while nobody listened is unheard.
func (b *bells) relisten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.workers {
		w.tellRounds()
		w.lookSoon()
	}
}

// prove has a process that listens hear something, if it has not for a while.
func (b *bells) prove(ctx context.Context) {
	b.mu.Lock()
	at := instant.Now()
	due := b.client.db.Dialect.Listen != nil && len(b.ears) > 0 && at.Sub(b.proof) >= hearAgain
	if due {
		b.proof = at
	}
	b.mu.Unlock()
	if due {
		go b.ping(ctx)
	}
}

// ping has whoever listens here hear something.
func (b *bells) ping(ctx context.Context) { b.say(ctx, bell.Ping) }

func (b *bells) say(ctx context.Context, payload string) {
	if b.client.db.Dialect.Notify == nil && !b.rings() {
		return
	}
	_ = b.send(ctx, map[int]string{0: payload}) // unheard, others look by themselves
}

// payloads takes what is to be told: of each queue its blocks. mu is held.
func (b *bells) payloads() map[int]string {
	all, size := map[int]string{}, 0
	for queue, blocks := range b.pending {
		if size > 6000 {
			break // 8000 bytes are the most; the rest comes next
		}
		delete(b.pending, queue)
		all[queue] = bell.Blocks(queue, blocks)
		size += len(all[queue])
	}
	return all
}

// notified has the workers of this process hear a notification.
func (b *bells) notified(payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proof = instant.Now()
	for w := range b.workers {
		w.mu.Lock()
		w.hears = b.proof
		w.mu.Unlock()
		w.heard(payload)
	}
}

// told has the client do what somebody in this process tells it: it ends groups itself, and has its
// workers do the rest.
func (c *Client) told(payload string) {
	if strings.HasPrefix(payload, bell.Ended) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if ids := bell.GroupIDs(payload); len(ids) > 0 {
			c.tryConclude(ctx, ids...)
		} else if err := c.concludeAny(ctx); err != nil {
			c.opt.Logger.Warn("looking whether groups have ended failed; a worker will", "err", err)
		}
		return
	}
	c.bells.mu.Lock()
	defer c.bells.mu.Unlock()
	for w := range c.bells.workers {
		w.heard(payload)
	}
}

// heard has a worker do what it was told.
func (w *Worker) heard(payload string) {
	queues, shares := sharedQueues(payload)
	switch {
	case payload == bell.Ping:
	case shares:
		w.tellRounds(queues...)
		w.askAgain()
	case strings.HasPrefix(payload, bell.Ended):
		w.heardEnds(bell.GroupIDs(payload))
	default:
		w.heardJobs(payload)
		signal(w.called) // it may not have to wait any more
	}
}

// heardJobs rings the bells of the blocks that a notification is about.
func (w *Worker) heardJobs(payload string) {
	for part := range strings.SplitSeq(payload, ";") {
		id, list, ok := strings.Cut(part, ":")
		queue, err := strconv.Atoi(id)
		if !ok || err != nil {
			continue
		}
		if list == "" {
			w.ringAll(queue)
			continue
		}
		for block := range strings.SplitSeq(list, ",") {
			if divided, err := strconv.Atoi(block); err == nil {
				w.ring(queue, divided)
			}
		}
	}
}
