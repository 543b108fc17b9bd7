package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
)

// idleReceiver is how long the blocks of a queue are kept that nobody claims from.
const idleReceiver = time.Minute

// pulls are the queues that jobs are claimed from, and what has been given out.
type pulls struct {
	logDone bool // at the level info
	queues  *queue.Client
	log     *slog.Logger
	idle    time.Duration // idleReceiver, but in tests

	mu      sync.Mutex
	sources map[string]*source
	given   map[secret]*given
	nodes   map[string]*source // the names under which jobs were given out here
	claims  int                // under way
	drained chan struct{}      // closed when nothing is given out, nor will be
	closed  sync.WaitGroup     // receivers that end, and outcomes that nobody waits for

	giving, writing         context.Context // end when nothing is given out any more, and when nothing is written
	stopGiving, stopWriting context.CancelFunc
}

// A source gives out the jobs of a queue.
type source struct {
	queue    string
	ready    chan struct{} // closed when there is a receiver, or an error
	receiver *queue.Receiver
	err      error
	users    int // claims under way, and jobs that were given out
	idle     *time.Timer
}

// A given is a job that was given out.
type given struct {
	token string
	key   secret
	job   *queue.Delivery
	from  *source
	lease time.Duration
	until instant.Instant // a heartbeat moves it
	timer *time.Timer
}

func newPulls(queues *queue.Client, log *slog.Logger) *pulls {
	p := &pulls{
		queues: queues, log: log, idle: idleReceiver, sources: map[string]*source{}, given: map[secret]*given{}, nodes: map[string]*source{},
		drained: make(chan struct{}),
	}
	p.giving, p.stopGiving = context.WithCancel(context.Background())
	p.writing, p.stopWriting = context.WithCancel(context.Background())
	return p
}

// stopping is what a claim gets that comes too late.
func stopping() error {
	return problem(http.StatusServiceUnavailable, "the daemon is stopping, and gives no jobs out any more; claim from another one")
}

// claim gets jobs of a queue. It returns none if the wait is over, and when the daemon stops
// meanwhile.
func (p *pulls) claim(ctx context.Context, name string, limit int, lease, wait time.Duration) (node string, list []*given, err error) {
	s, err := p.enter(ctx, name)
	if err != nil {
		return "", nil, err
	}
	defer p.leave(s, 1, true)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.giving, cancel)()
	jobs, err := s.receiver.Receive(waiting, limit, wait)
	switch {
	case ctx.Err() != nil: // nobody hears the answer
		p.giveBack(s, jobs)
		return "", nil, problem(http.StatusServiceUnavailable, "it was broken off, and nothing is given out by it")
	case err != nil && !errors.Is(err, queue.ErrClosed) && waiting.Err() == nil:
		return "", nil, err
	}
	list, err = p.giveOut(s, jobs, lease)
	return daemonOf(s.receiver.Node()), list, err
}

// enter returns a queue's source, which stays until it is left as often. The first who
// comes opens it.
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
		p.closed.Go(func() { p.open(s) }) // for all who come meanwhile: the first may leave
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

// open makes a source ready, or notes why it cannot be: then the next who comes tries again.
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

// receiver takes part in a queue's work. A queue is not made by a claim.
func (p *pulls) receiver(ctx context.Context, name string) (*queue.Receiver, error) {
	q, err := p.queues.Queue(ctx, name)
	if err != nil {
		return nil, err
	}
	if q.State == "deleted" {
		return nil, fmt.Errorf("%w: %q", queue.ErrDeleted, name)
	}
	// Without a grace: before it is closed it is waited for what was given out.
	return p.queues.Receiver(ctx, queue.WorkerOptions{
		Queues: []string{name}, Grace: -1, Isolated: true,
		Logger: p.log, LogDone: queue.LogsDone(p.logDone, name),
	})
}

// leave ends the use of a source. One that nobody uses for a while is closed.
func (p *pulls) leave(s *source, n int, claim bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if claim {
		p.claims--
	}
	p.left(s, n)
}

// left is leave with mu held.
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

// end hands the blocks of a source over, of which nothing is given out. mu is held.
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

// giveOut notes what is given out, and until when. When all has been given back nothing is any
// more: these jobs, too, go back with their receiver.
func (p *pulls) giveOut(s *source, jobs []*queue.Delivery, lease time.Duration) ([]*given, error) {
	list := make([]*given, len(jobs))
	for i, d := range jobs {
		claim := d.Claim()
		g := &given{key: newSecret(), job: d, from: s, lease: lease}
		g.token = writeToken(g.key, &claim)
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

// giveBack gives back what was for one who is gone, as if it had never been given out.
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

// settleLater writes outcomes that nobody waits for. The source is left when they are
// written.
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
				p.log.Warn("claims: what has become of a job could not be written; it is done again", "queue", s.queue, "err", err)
			}
		}
	})
}

// expire fails a job of which nothing was heard in time.
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

// take forgets that a job is given out. mu is held.
func (p *pulls) take(g *given) {
	g.timer.Stop()
	delete(p.given, g.key)
	p.left(g.from, 1)
}

// noteDrained notes that nothing is given out any more. mu is held.
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

// drain gives nothing out any more, and waits until all that was given out has ended, or
// ctx does.
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

// close gives back what is given out yet, uncounted, and hands all blocks over.
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

// Drain has the API give no more jobs out: claims that wait are answered with none. It
// returns when all that were given out have been completed, failed or released, or when ctx
// ends. Call it before requests are not answered any more, and Close afterwards.
func (a *API) Drain(ctx context.Context) { a.pulls.drain(ctx) }

// Close gives the jobs back that are given out yet, to be done again, and hands over what
// the API has. It answers no claims any more.
func (a *API) Close() { a.pulls.close() }
