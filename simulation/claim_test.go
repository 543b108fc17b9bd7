package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// claimWork is a queue whose jobs are claimed over HTTP: programs call the handlers of the daemons' APIs, which
// come and go.
type claimWork struct {
	errands
	left    []int
	offices []*office // by number; nil: there is none
	tries   map[string]*tries
	lease   time.Duration // of a claim
	wait    time.Duration // of a request for the first job
}

// An office is a daemon's API. Its process may have died.
type office struct {
	p     *Process
	api   http.Handler
	calls sync.WaitGroup
}

// tries are the requests to complete a job.
type tries struct {
	sent int
	last given
	done time.Time // when an answer first said that it is done
}

// given is a claim that a claimer has got, and about which it has told nobody anything.
type given struct {
	by    *Process // the daemon; nil: there is none
	asked time.Time
}

const claimQueue = "claimed"

func (c *claimWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "jobs are claimed", "nobody answers",
		"a claim is completed at another daemon", "a claim fails", "a claim is given back", "a claim is abandoned", "a claim is extended",
		"a claim does not count any more", "a job is claimed again", "a key goes on", "a claim's lease ends before its job",
	}
}

func (c *claimWork) Begin(w *World) error {
	c.lease = time.Duration(w.Knob("claim.lease", 5, 5, 1, 20)) * time.Second
	c.wait = time.Duration(w.Knob("claim.wait.ms", 2000, 0, 10_000)) * time.Millisecond
	if err := c.begin(w, c.lease+35*time.Second); err != nil {
		return err
	}
	c.tries = map[string]*tries{}
	a, err := admin.New(w.Operator, admin.Options{})
	if err != nil {
		return err
	}
	if _, err := a.Edit(w.Free(), claimQueue, func(q *admin.Queue) {
		q.MaxAttempts, q.MaxCrashes, q.RetryDelay, q.RetryMaxDelay, q.KeyRetry = 30_000, 30_000, 100*time.Millisecond, time.Second, "hold"
	}); err != nil {
		return err
	}
	if err := a.Resize(w.Free(), claimQueue, w.Knob("blocks", 1, 4, 16)); err != nil {
		return err
	}
	producers, jobs := w.Knob("producers", 1, 2), w.Knob("jobs", 10, 40, 100)
	for i := range producers {
		c.left = append(c.left, jobs/producers)
		w.StartOnce(fmt.Sprint("producer-", i), func(p *Process) error { return c.produce(p, i) })
	}
	c.offices = make([]*office, w.Knob("daemons", 1, 2, 3))
	for i := range c.offices {
		w.Start(fmt.Sprint("worker-daemon-", i), func(p *Process) error { return c.serve(p, i) })
	}
	for i := range w.Knob("claimers", 1, 2, 4) {
		w.Start(fmt.Sprint("claimer-", i), c.claim)
	}
	return nil
}

func (c *claimWork) produce(p *Process, me int) error {
	db, err := p.Open(2)
	if err != nil {
		return err
	}
	client, err := queue.New(db, queue.Options{Logger: p.Log, Doorbell: p.doorbell()})
	if err != nil {
		return err
	}
	return each(p, &c.left[me], func(n int) {
		j := &errand{name: fmt.Sprintf("job%d.%d", me, n), who: p.who()}
		if d := p.w.Dice("job", me, n); d.once(2) {
			j.key = fmt.Sprintf("key%d.%d", me, d.IntN(3))
		}
		p.Act(func() {
			c.add(j)
			c.tries[j.name] = &tries{}
		})
		e, err := client.Enqueue(p.ctx, queue.Job{Queue: claimQueue, Kind: plainKind, Key: j.key, Payload: payload(j.name)})
		p.w.mu.Lock()
		j.fate, j.id = fateOf(err), e.ID
		if p.isDead() {
			j.fate = unknown
		}
		p.w.mu.Unlock()
		p.Note("enqueues %s: %v", j.name, err)
	})
}

// serve is a daemon's process.
func (c *claimWork) serve(p *Process, me int) error {
	db, err := p.Open(6)
	if err != nil {
		return err
	}
	api, err := httpapi.New(db, httpapi.Options{Node: p.Name, Logger: p.Log, Doorbell: p.doorbell(), Stopping: p.ctx.Done()})
	if err != nil {
		return err
	}
	o := &office{p: p, api: api}
	p.Act(func() { c.offices[me] = o })
	<-p.ctx.Done()
	p.w.mu.Lock()
	if c.offices[me] == o {
		c.offices[me] = nil
	}
	p.w.mu.Unlock()
	o.calls.Wait()
	api.Close()
	return p.ctx.Err()
}

// call sends a request to a daemon, and reads its answer. It returns the status; 0: there is no answer, and the
// daemon may have done it or not.
func (c *claimWork) call(p *Process, at int, path string, body, answer any) (status int) {
	way := func() time.Duration { return p.Dice.about(time.Duration(p.w.trip) * time.Microsecond) }
	text, err := json.Marshal(body)
	if err != nil || p.Sleep(p.ctx, way()) != nil {
		return 0
	}
	p.w.mu.Lock()
	o := c.offices[at]
	if o != nil {
		o.calls.Add(1)
		defer o.calls.Done()
	}
	p.w.mu.Unlock()
	ctx, cancel := context.WithTimeout(p.ctx, 20*time.Second)
	defer cancel()
	if o == nil || o.p.awake(ctx, nil) != nil {
		p.Act(func() { p.w.Reached("nobody answers") })
		return 0
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1"+path, bytes.NewReader(text))
	r.Header.Set("Content-Type", "application/json")
	r.Host, r.RemoteAddr = "127.0.0.1", "127.0.0.1:1" // no token is needed then
	w := httptest.NewRecorder()
	o.api.ServeHTTP(w, r)
	if o.p.awake(ctx, nil) != nil || p.Sleep(ctx, way()) != nil {
		return 0
	}
	p.Note("%s at %s: %d %.200s", path, o.p.who(), w.Code, w.Body)
	if w.Code == http.StatusBadRequest || w.Code == http.StatusUnprocessableEntity {
		p.w.Violate("refused", nil, "%s: %d %.200s", path, w.Code, w.Body)
	}
	if w.Code == http.StatusOK && json.Unmarshal(w.Body.Bytes(), answer) != nil {
		return 0
	}
	return w.Code
}

// claim is a program that claims jobs, and does them.
func (c *claimWork) claim(p *Process) error {
	for p.ctx.Err() == nil {
		at := p.Dice.IntN(len(c.offices))
		var by *Process
		p.Act(func() {
			if o := c.offices[at]; o != nil {
				by = o.p
			}
		})
		var got struct{ Jobs []wire.Claim }
		asked := time.Now() //nolint:forbidigo // virtual
		c.call(p, at, "/queues/"+claimQueue+"/claim", map[string]any{"max": 1 + p.Dice.IntN(3), "lease": wire.DurationOf(c.lease), "wait": wire.DurationOf(c.wait)}, &got)
		for i := range got.Jobs {
			c.begins(p, &got.Jobs[i], given{by, asked})
		}
		if len(got.Jobs) > 0 {
			c.do(p, at, got.Jobs)
		}
		if err := p.Sleep(p.ctx, p.Dice.about(100*time.Millisecond)); err != nil {
			return err
		}
	}
	return p.ctx.Err()
}

// begins checks a job that was given out.
func (c *claimWork) begins(p *Process, g *wire.Claim, now given) {
	name := strings.Trim(string(g.Payload), `"`)
	p.Act(func() {
		c.stirs()
		p.w.Reached("jobs are claimed")
		j, tried := c.byName[name], c.tries[name]
		if j == nil {
			p.w.violate("phantom", []string{name}, "%s was given out, which nobody has enqueued", name)
			return
		}
		if j.begins++; j.begins > 1 {
			p.w.Reached("a job is claimed again")
		}
		// A clock that is set forward ends leases early.
		if was := tried.last; was.by != nil && time.Since(was.asked) < c.lease && was.by.sound(was.asked) && !p.w.steppedLocked() {
			p.w.violate("given twice", j.words(), "%s was given out again, before %v, for which it had been claimed, were over", name, c.lease)
		}
		tried.last = now
		switch late := now.asked.Sub(tried.done); {
		case tried.done.IsZero() || late < 0:
		case late < 2*time.Second: // another daemon had read it before, and looks each second whether it is still there
			p.w.Reached("a job is given out that another daemon has just completed")
		default:
			p.w.violate("doubled", j.words(), "%s was given out after an answer had said that it is done", name)
		}
		for _, o := range c.list {
			switch {
			case o == j:
				return
			case j.key == "" || o.key != j.key || o.who != j.who || o.fate != confirmed:
			case c.tries[o.name].sent == 0:
				p.w.violate("order", append(o.words(), j.words()...), "%s was given out, and nobody has tried to complete %s of the same key", name, o.name)
			default:
				p.w.Reached("a key goes on")
			}
		}
	})
}

// do does claimed jobs, and says what became of them.
func (c *claimWork) do(p *Process, at int, jobs []wire.Claim) {
	p.Act(func() { c.running++ })
	defer func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		c.running--
		c.stirs()
	}()
	tokens := make([]map[string]string, len(jobs))
	for i := range jobs {
		tokens[i] = map[string]string{"token": jobs[i].Token}
	}
	body := map[string]any{"claims": tokens}
	tell := func() {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		for i := range jobs {
			if t := c.tries[strings.Trim(string(jobs[i].Payload), `"`)]; t != nil {
				t.last = given{}
			}
		}
	}
	said := func(what, path string, at int) {
		var answer wire.SettledClaims
		if status := c.call(p, at, path, body, &answer); status == http.StatusOK && answer.Done > 0 {
			p.Act(func() { p.w.Reached(what) })
		}
	}
	took := p.Dice.about(500 * time.Millisecond)
	if took > c.lease {
		p.Act(func() { p.w.Reached("a claim's lease ends before its job") })
	}
	_ = p.Sleep(p.ctx, took)
	switch p.Dice.IntN(12) {
	case 0:
		p.Act(func() { p.w.Reached("a claim is abandoned") })
		return
	case 1:
		tell()
		failed := make([]map[string]string, len(tokens))
		for i := range tokens {
			failed[i] = map[string]string{"token": jobs[i].Token, "error": "it rains"}
		}
		body = map[string]any{"claims": failed}
		said("a claim fails", "/claims/fail", at)
		return
	case 2:
		tell()
		said("a claim is given back", "/claims/release", at)
		return
	case 3:
		said("a claim is extended", "/claims/heartbeat", at)
		_ = p.Sleep(p.ctx, 3*time.Second)
	}
	c.complete(p, at, jobs, body)
}

// complete completes claims, at any daemon.
func (c *claimWork) complete(p *Process, from int, jobs []wire.Claim, body any) {
	p.Act(func() {
		for i := range jobs {
			if t := c.tries[strings.Trim(string(jobs[i].Payload), `"`)]; t != nil {
				t.sent++
				t.last = given{}
			}
		}
	})
	var answer wire.SettledClaims
	at := p.Dice.IntN(len(c.offices))
	status := c.call(p, at, "/claims/complete", body, &answer)
	p.Act(func() {
		if status == http.StatusConflict || len(answer.Lost) > 0 {
			p.w.Reached("a claim does not count any more")
		}
		if status != http.StatusOK {
			return
		}
		if at != from {
			p.w.Reached("a claim is completed at another daemon")
		}
		lost := map[string]bool{}
		for _, token := range answer.Lost {
			lost[token] = true
		}
		for i := range jobs {
			t := c.tries[strings.Trim(string(jobs[i].Payload), `"`)]
			if t == nil || lost[jobs[i].Token] {
				continue
			}
			p.w.Done("done")
			if t.done.IsZero() {
				t.done = time.Now() //nolint:forbidigo // virtual
			}
		}
	})
}

func (c *claimWork) Left(w *World) string { return c.leftOf(w) }

// Check looks for jobs that have gone although nobody has completed them.
func (c *claimWork) Check(w *World) error {
	dead := 0
	if err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT COUNT(*) FROM dbcron_job_dead`).Scan(&dead); err != nil {
		return err
	}
	if dead > 0 {
		w.Violate("buried", nil, "%d jobs are dead", dead)
	}
	for _, j := range c.list {
		switch t := c.tries[j.name]; {
		case j.fate == confirmed && t.sent == 0:
			w.Violate("lost", j.words(), "%s was enqueued, and nobody has tried to complete it", j.name)
		case j.fate == refused && j.begins > 0:
			w.Violate("phantom", j.words(), "%s was not enqueued, and was given out", j.name)
		}
	}
	return nil
}
