package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// idleReceiver is how long the API keeps its blocks of a queue from which nobody claims.
const idleReceiver = time.Minute

// claimAhead limits the payloads of jobs that are read and not claimed yet, of each queue, in bytes.
const claimAhead = 32 << 20

// pulls holds the queues that jobs are claimed from, and the claimed jobs.
type pulls struct {
	logDone bool // at the level info
	queues  *queue.Client
	admin   *admin.Client
	signer  *signer
	log     *slog.Logger
	idle    time.Duration // idleReceiver, except in tests

	mu      sync.Mutex
	sources map[string]*source
	given   map[secret]*given
	nodes   map[string]*source // worker names under which jobs were claimed here
	reports reports
	claims  int            // claims in progress
	drained chan struct{}  // closed when nothing is claimed and nothing will be
	closed  sync.WaitGroup // receivers that are closing, and outcomes that nobody waits for

	giving, writing         context.Context // end when no more jobs are handed out, and when nothing more is written
	stopGiving, stopWriting context.CancelFunc
}

// A source hands out the jobs of a queue.
type source struct {
	queue    string
	ready    chan struct{} // closed when there is a receiver or an error
	receiver *queue.Receiver
	err      error
	users    int // claims in progress, plus claimed jobs
	idle     *time.Timer
}

// A given is a claimed job.
type given struct {
	token string
	key   secret
	job   *queue.Delivery
	from  *source
	lease time.Duration
	until instant.Instant // end of its lease; a heartbeat moves it
	timer *time.Timer
}

func newPulls(db *dialect.DB, queues *queue.Client, ops *admin.Client, log *slog.Logger) *pulls {
	p := &pulls{
		queues: queues, admin: ops, signer: &signer{db: db}, log: log, idle: idleReceiver,
		sources: map[string]*source{}, given: map[secret]*given{}, nodes: map[string]*source{},
		drained: make(chan struct{}),
	}
	p.giving, p.stopGiving = context.WithCancel(context.Background())
	p.writing, p.stopWriting = context.WithCancel(context.Background())
	return p
}

// stopping is the answer to a claim that comes too late.
func stopping() error {
	return problem(http.StatusServiceUnavailable, "the daemon is stopping, and gives no jobs out any more; claim from another one")
}

// A claimOf says what to claim.
type claimOf struct {
	limit int
	kinds []string // none: all
	lease time.Duration
	wait  time.Duration
	room  queue.Room
}

// claim claims jobs of a queue. It returns none if the wait is over or the daemon stops.
func (p *pulls) claim(ctx context.Context, name string, of claimOf) (node string, list []*given, err error) {
	if err := p.signer.ready(ctx); err != nil {
		return "", nil, err
	}
	s, err := p.enter(ctx, name)
	if err != nil {
		return "", nil, err
	}
	defer p.leave(s, 1, true)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.giving, cancel)()
	jobs, err := s.receiver.ReceiveWithin(waiting, of.limit, of.wait, of.kinds, of.room)
	switch {
	case errors.Is(err, queue.ErrNoRoom):
		return "", nil, problem(http.StatusServiceUnavailable, "other answers use all the memory, so that no jobs were given out; claim again in a moment")
	case ctx.Err() != nil: // nobody receives the answer
		p.giveBack(s, jobs)
		return "", nil, problem(http.StatusServiceUnavailable, "it was broken off, and nothing is given out by it")
	case err != nil && !errors.Is(err, queue.ErrClosed) && waiting.Err() == nil:
		return "", nil, err
	}
	list, err = p.giveOut(s, jobs, of.lease)
	return daemonOf(s.receiver.Node()), list, err
}

// resume gives jobs to claims that had no room for them.
func (p *pulls) resume() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.sources))
	p.mu.Unlock()
	for _, s := range all {
		select {
		case <-s.ready:
			if s.err == nil {
				s.receiver.Resume()
			}
		default: // nobody waits there yet
		}
	}
}

// unload drops the payloads of claimed jobs, which only the answer needs.
func (p *pulls) unload(list []*given) {
	if len(list) == 0 {
		return
	}
	jobs := make([]*queue.Delivery, len(list))
	for i, g := range list {
		jobs[i] = g.job
	}
	list[0].from.receiver.Unload(jobs)
}

// enter returns a queue's source. It stays open until each user has called leave. The first user opens
// it.
func (p *pulls) enter(ctx context.Context, name string) (*source, error) {
	p.mu.Lock()
	if p.giving.Err() != nil {
		p.mu.Unlock()
		return nil, stopping()
	}
	s := p.sources[name]
	if s == nil {
		s = &source{queue: name, ready: make(chan struct{})}
		p.sources[name] = s
		p.closed.Go(func() { p.open(s) }) // in the background: others may wait for it after the first has left
	}
	s.users++
	p.claims++
	if s.idle != nil {
		s.idle.Stop()
	}
	p.mu.Unlock()
	select {
	case <-s.ready:
	case <-ctx.Done():
		p.leave(s, 1, true)
		return nil, ctx.Err()
	}
	if s.err != nil {
		p.leave(s, 1, true)
		return nil, s.err
	}
	return s, nil
}

// open makes a source ready, or records why it cannot; the next user then tries again.
func (p *pulls) open(s *source) {
	ctx, cancel := context.WithTimeout(p.giving, longestWait)
	defer cancel()
	if s.receiver, s.err = p.receiver(ctx, s.queue); s.err != nil {
		if p.giving.Err() != nil {
			s.err = stopping()
		}
		p.mu.Lock()
		if p.sources[s.queue] == s {
			delete(p.sources, s.queue)
		}
		p.mu.Unlock()
	}
	close(s.ready)
}

// receiver joins the workers of a queue. A claim does not create the queue.
func (p *pulls) receiver(ctx context.Context, name string) (*queue.Receiver, error) {
	q, err := p.admin.Queue(ctx, name)
	if err != nil {
		return nil, err
	}
	if q.State == "deleted" {
		return nil, fmt.Errorf("%w: %q", queue.ErrDeleted, name)
	}
	// No grace: close is called only after the claimed jobs have ended.
	opt := queue.WorkerOptions{Queues: []string{name}, Grace: -1, Isolated: true, Logger: p.log, ReadAhead: claimAhead}
	if p.logDone {
		opt.LogDone = map[string]slog.Level{name: slog.LevelInfo}
	}
	return p.queues.Receiver(ctx, opt)
}

// leave ends the use of a source. A source that is unused for a while is closed.
func (p *pulls) leave(s *source, n int, claim bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if claim {
		p.claims--
	}
	p.left(s, n)
}

// left is leave; the caller holds mu.
func (p *pulls) left(s *source, n int) {
	s.users -= n
	p.noteDrained()
	if s.users > 0 || p.sources[s.queue] != s {
		return
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	s.idle = time.AfterFunc(p.idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if s.users == 0 && p.sources[s.queue] == s {
			p.end(s)
		}
	})
}

// end hands over the blocks of a source none of whose jobs are claimed. The caller holds mu.
func (p *pulls) end(s *source) {
	delete(p.sources, s.queue)
	p.closed.Go(func() {
		if <-s.ready; s.err != nil {
			return
		}
		if err := s.receiver.Close(); err != nil {
			p.log.Warn("claims: a queue's blocks could not be handed over", "queue", s.queue, "err", err)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for node, of := range p.nodes { // the database knows that it has left
			if of == s {
				delete(p.nodes, node)
			}
		}
	})
}

// giveOut records claimed jobs and their leases. After close it records nothing: these jobs go back with
// their receiver.
func (p *pulls) giveOut(s *source, jobs []*queue.Delivery, lease time.Duration) ([]*given, error) {
	list := make([]*given, len(jobs))
	for i, d := range jobs {
		claim := d.Claim()
		g := &given{job: d, from: s, lease: lease}
		g.token, g.key = p.signer.write(&claim)
		list[i] = g
		p.mu.Lock()
		if p.writing.Err() != nil {
			p.mu.Unlock()
			return nil, stopping()
		}
		p.given[g.key], p.nodes[claim.Node] = g, s
		s.users++
		g.until = instant.Now().Add(lease)
		g.timer = time.AfterFunc(lease, func() { p.expire(g) })
		p.mu.Unlock()
	}
	return list, nil
}

// giveBack returns the jobs of a claimer that is gone, uncounted.
func (p *pulls) giveBack(s *source, jobs []*queue.Delivery) {
	if len(jobs) == 0 {
		return
	}
	outcomes := make([]queue.Outcome, len(jobs))
	for i, d := range jobs {
		outcomes[i] = queue.Outcome{Delivery: d, Err: queue.Snooze(0)}
	}
	p.settleLater(s, outcomes)
}

// settleLater writes outcomes that nobody waits for, and then leaves the source.
func (p *pulls) settleLater(s *source, outcomes []queue.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writing.Err() != nil {
		return // they go back with the receiver
	}
	s.users++
	p.closed.Go(func() {
		defer p.leave(s, 1, false)
		for _, err := range s.receiver.Settle(p.writing, outcomes) {
			if err != nil && !errors.Is(err, queue.ErrLost) && p.writing.Err() == nil {
				p.log.Warn("claims: a job's outcome could not be recorded; the job will be done again", "queue", s.queue, "err", err)
			}
		}
	})
}

// expire fails a job whose lease has expired without a heartbeat.
func (p *pulls) expire(g *given) {
	p.mu.Lock()
	if p.given[g.key] != g {
		p.mu.Unlock()
		return
	}
	if left := g.until.Sub(instant.Now()); left > 0 { // a heartbeat came at the last moment
		g.timer.Reset(left)
		p.mu.Unlock()
		return
	}
	g.from.users++ // until it is written
	p.take(g)
	p.mu.Unlock()
	defer p.leave(g.from, 1, false)
	p.settleLater(g.from, []queue.Outcome{{
		Delivery: g.job,
		Err:      fmt.Errorf("the claim's lease has ended: no heartbeat came for %v", g.lease),
	}})
}

// take forgets a claimed job. The caller holds mu.
func (p *pulls) take(g *given) {
	g.timer.Stop()
	delete(p.given, g.key)
	p.left(g.from, 1)
}

// noteDrained closes drained when no job is claimed any more. The caller holds mu.
func (p *pulls) noteDrained() {
	if p.giving.Err() == nil || len(p.given) > 0 || p.claims > 0 {
		return
	}
	select {
	case <-p.drained:
	default:
		close(p.drained)
	}
}

// drain stops handing out jobs and waits until all claimed jobs have ended, or ctx has.
func (p *pulls) drain(ctx context.Context) {
	p.mu.Lock()
	p.stopGiving()
	p.noteDrained()
	p.mu.Unlock()
	select {
	case <-p.drained:
	case <-ctx.Done():
	}
}

// close returns jobs that are still claimed, uncounted, and hands over all blocks.
func (p *pulls) close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p.drain(ctx)
	p.mu.Lock()
	if n := len(p.given); n > 0 {
		p.log.Warn("claims: the daemon stops; jobs that are given out go back, to be done again", "jobs", n)
	}
	for _, g := range p.given {
		g.timer.Stop()
	}
	clear(p.given)
	for _, s := range p.sources {
		if s.idle != nil {
			s.idle.Stop()
		}
		p.end(s)
	}
	p.stopWriting()
	p.mu.Unlock()
	p.closed.Wait()
}

// Drain stops the API from handing out jobs: waiting claims get none. It returns when all claimed jobs
// have been completed, failed or released, or when ctx ends. Call it while requests are still answered,
// and Close afterwards.
func (a *API) Drain(ctx context.Context) { a.pulls.drain(ctx) }

// Close returns the jobs that are still claimed, to be done again, and hands over the API's blocks.
// Claims after it are refused.
func (a *API) Close() { a.pulls.close() }
