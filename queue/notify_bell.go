package queue

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/queue/internal/bell"
	"github.com/dbcron/dbcron/queue/internal/block"
)

// bells tell workers which blocks have new jobs: workers of this process at once, those of others
// by a notification where the engine has them, or else by their doorbells (see worker_bell.go).
// A lost bell costs time, not jobs: workers also poll.
//
// Notifications are sent apart from the inserts, since PostgreSQL commits only one transaction at a
// time that has a notification. While one is under way, news gathers for the next. The statement
// that sends them reads whether the queue has a worker, after the jobs were committed: a worker
// that it does not see has yet to register, and looks for jobs after that. Where it has seen none,
// news waits for attentionAge before the next one asks again. Where it has seen one, the next ones
// notify without asking, which is quicker, for bell.Age.
type bells struct {
	client *Client
	hub    *bell.Hub // shared by all users of the database in this process

	mu      sync.Mutex
	workers map[listener]bool
	pending map[int]map[int]bool // blocks by queue
	late    map[int]int64        // by queue, the first id of those that were committed late
	telling bool
	flow    flow
	staffed map[int]staffing // by queue
	roused  chan struct{}    // news came of a queue that is not known to have no worker

	proof  instant.Instant // when something was last heard, or a ping sent
	ears   chan struct{}   // holds the token of the worker that listens
	others bell.Ringer
}

// A staffing is whether a queue had a worker, and when that was asked.
type staffing struct {
	at   instant.Instant
	some bool
}

// A listener is a worker as the bells see it.
type listener interface {
	ringRows(rows []jobRow)       // these were committed by this client
	ringFrom(queue int, id int64) // jobs were committed late, from an id on
	heard(payload string)         // another process says so
	notified(at instant.Instant)  // the database notifies
	relistened()                  // what was told while nobody listened is lost
}

// While jobs are few, others are notified at once. The more jobs arrive in a second, the longer the
// next notification waits, and it covers everything that came meanwhile: workers are busy then, and
// each notification costs the database more than it gains.
const (
	onePace  = time.Millisecond
	maxPace  = 5 * time.Millisecond
	unhasty  = 1500 // notifications wait from this rate on, in jobs a second; each multiple adds a pace
	flowSpan = 50 * time.Millisecond
)

// A flow measures the rate of jobs per second.
type flow struct {
	jobs int // since the last measurement
	at   instant.Instant
	rate float64
}

// measure adds the jobs since the last time, weighted by the elapsed share of flowSpan.
func (f *flow) measure(at instant.Instant) {
	took := max(at.Sub(f.at), time.Microsecond).Seconds()
	weight := 1 - math.Exp(-took/flowSpan.Seconds())
	f.rate += weight * (float64(f.jobs)/took - f.rate)
	f.jobs, f.at = 0, at
}

// pace returns how long the next notification waits.
func (f *flow) pace() time.Duration {
	return time.Duration(min(max(0, f.rate/unhasty-1)*float64(onePace), float64(maxPace)))
}

func (b *bells) init(c *Client) {
	b.client, b.hub, b.workers, b.pending = c, bell.Of(c.db), map[listener]bool{}, map[int]map[int]bool{}
	b.late, b.staffed, b.roused = map[int]int64{}, map[int]staffing{}, make(chan struct{}, 1)
	b.ears = make(chan struct{}, 1)
}

// channel is the notification channel of this database and prefix.
func (b *bells) channel() string { return bell.Channel(b.client.db) }

func (b *bells) add(w listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.workers[w] = true
}

func (b *bells) remove(w listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, w)
}

// ring reports that jobs were committed.
func (b *bells) ring(rows []jobRow) {
	b.mu.Lock()
	defer b.mu.Unlock()
	late := lateFrom(rows)
	for w := range b.workers {
		w.ringRows(rows)
		for queue, id := range late {
			w.ringFrom(queue, id)
		}
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
			if !b.quiet(r.queue) {
				signal(b.roused)
			}
		}
		b.pending[r.queue][r.divided] = true
	}
	for queue, id := range late {
		b.late[queue] = block.Least(b.late[queue], id)
	}
	if !b.telling {
		b.telling = true
		go b.tellOthers()
	}
}

// flush waits until everything rung so far has been sent, or was found to have no hearer.
func (b *bells) flush(ctx context.Context) error {
	for {
		b.mu.Lock()
		telling := b.telling
		clear(b.staffed)
		b.mu.Unlock()
		if !telling {
			return nil
		}
		signal(b.roused)
		if !pace.Sleep(ctx, onePace) {
			return ctx.Err()
		}
	}
}

func (b *bells) tellOthers() {
	for {
		b.mu.Lock()
		at := instant.Now()
		asks := b.asks(at)
		payloads := b.payloads()
		b.flow.measure(at)
		wait := b.flow.pace()
		b.telling = len(payloads) > 0 || len(b.pending) > 0
		telling := b.telling
		b.mu.Unlock()
		switch {
		case !telling:
			return
		case len(payloads) == 0:
			select {
			case <-b.roused:
			case <-time.After(asks.Sub(at)):
			}
			continue
		}
		if err := b.tell(context.Background(), at, payloads); err != nil {
			b.client.opt.Logger.Debug("notifying workers of new jobs failed; they will poll", "err", err)
		}
		if wait > 0 {
			<-time.After(wait)
		}
	}
}

// quiet reports whether a queue is known to have no worker. mu is held.
func (b *bells) quiet(queue int) bool {
	is, known := b.staffed[queue]
	return known && !is.some
}

// asks forgets what was asked too long ago, and returns when news of a quiet queue can be told next. mu is held.
func (b *bells) asks(at instant.Instant) instant.Instant {
	next := at.Add(attentionAge)
	for queue, is := range b.staffed {
		again := is.at.Add(attentionAge)
		if is.some {
			again = is.at.Add(bell.Age)
		}
		switch {
		case again <= at:
			delete(b.staffed, queue)
		case !is.some && b.pending[queue] != nil:
			next = min(next, again)
		}
	}
	return next
}

// tell tells the workers of other processes of new jobs, and notes which queues have none.
func (b *bells) tell(ctx context.Context, at instant.Instant, payloads map[int]string) error {
	b.mu.Lock()
	known := true
	for queue := range payloads {
		known = known && b.staffed[queue].some
	}
	b.mu.Unlock()
	if known || b.rings() {
		return b.send(ctx, payloads)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	told, err := bell.NotifyWorkers(ctx, b.client.dbOf(ctx), payloads)
	b.mu.Lock()
	defer b.mu.Unlock()
	for queue := range payloads {
		if err == nil {
			b.staffed[queue] = staffing{at, slices.Contains(told, queue)}
		}
	}
	return err
}

// rings reports whether other processes are told by their doorbells.
func (b *bells) rings() bool {
	return b.client.opt.Doorbell != "" && b.client.db.Dialect.Notify == nil
}

// send tells other processes, by queue; queue 0 stands for all.
func (b *bells) send(ctx context.Context, payloads map[int]string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	db := b.client.dbOf(ctx)
	if b.rings() {
		return b.others.Ring(ctx, db, payloads)
	}
	return bell.Notify(ctx, db, payloads)
}

// announce tells other workers that some queues may have blocks to share; none means all queues.
func (b *bells) announce(ctx context.Context, queues ...int) {
	payload := bell.Share
	if len(queues) <= 100 {
		for _, id := range queues {
			payload += fmt.Sprintf(";%d", id) // workers of 0.1 ignore it until their next poll
		}
	}
	b.say(ctx, payload)
}

// hearAgain is the silence after which a process rings itself: a dead connection is silent, too.
// Anything heard counts for heardFor.
const (
	hearAgain = 10 * time.Second
	heardFor  = 3 * hearAgain
)

// relisten has the worker look into all queues and groups: what was told while nobody listened is
// lost.
func (b *bells) relisten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.workers {
		w.relistened()
	}
}

// prove sends the listening process a ping if it has heard nothing for a while.
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

// ping sends a message to the listener of this process.
func (b *bells) ping(ctx context.Context) { b.say(ctx, bell.Ping) }

func (b *bells) say(ctx context.Context, payload string) {
	if b.client.db.Dialect.Notify == nil && !b.rings() {
		return
	}
	_ = b.send(ctx, map[int]string{0: payload}) // if it is lost, others find out by polling
}

// payloads takes the pending news: the blocks of each queue that is not quiet. mu is held.
func (b *bells) payloads() map[int]string {
	all, size := map[int]string{}, 0
	for queue, blocks := range b.pending {
		if size > 6000 {
			break // PostgreSQL allows 8000 bytes; the rest is sent next
		}
		if b.quiet(queue) {
			continue
		}
		delete(b.pending, queue)
		all[queue] = bell.Blocks(queue, blocks)
		if id := b.late[queue]; id != 0 {
			delete(b.late, queue)
			all[queue] += bell.From(queue, id)
		}
		size += len(all[queue])
	}
	return all
}

// notified passes a notification on to the workers of this process.
func (b *bells) notified(payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proof = instant.Now()
	for w := range b.workers {
		w.notified(b.proof)
		w.heard(payload)
	}
}

// told makes the client act on a message: it ends groups itself, and passes the rest to its
// workers.
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
