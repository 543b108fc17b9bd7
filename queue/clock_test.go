package queue

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/dialect/sqlite"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A truth is a database's clock beside this host's instants.
// modelNow is a time at which the model's jobs are a second old.
var modelNow = store.Epoch.Add(time.Hour).UnixMicro()

type truth struct {
	at    instant.Instant
	ahead int64 // µs
	ppm   int64 // by which it goes faster
	from  instant.Instant
}

func (d *truth) us(at instant.Instant) int64 {
	return micros(at) + d.ahead + int64(at.Sub(d.from))/1000*d.ppm/1_000_000
}

// step sets the clock.
func (d *truth) step(by time.Duration) { d.ahead += by.Microseconds() }

// read reads the clock with answers that take the given times each way.
func (d *truth) read(c *clock, there, back time.Duration) {
	before := d.at
	d.at = d.at.Add(there)
	us := d.us(d.at)
	d.at = d.at.Add(back)
	c.note(before, d.at, us)
}

func newTruth(t *rapid.T) *truth {
	at := instant.Instant(time.Hour)
	return &truth{at: at, from: at, ahead: modelNow, ppm: rapid.Int64Range(-400, 400).Draw(t, "ppm")}
}

func drawn(t *rapid.T, what string, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(most/time.Microsecond)).Draw(t, what)) * time.Microsecond
}

// However slow answers are, the database's clock is within the bounds, an id is not behind
// it by more than maxSkew, and no process draws ids of times that have settled. A quick
// answer helps, and slow ones after it do no harm.
func TestClockBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newTruth(t)
		clocks := []*clock{{}, {}}
		for _, c := range clocks {
			d.read(c, drawn(t, "there", 8*time.Second), drawn(t, "back", 8*time.Second))
		}
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) { d.at = d.at.Add(drawn(t, "time", time.Minute)) },
			"read slowly": func(t *rapid.T) {
				d.read(rapid.SampledFrom(clocks).Draw(t, "clock"), drawn(t, "there", 8*time.Second), drawn(t, "back", 8*time.Second))
			},
			"read quickly": func(t *rapid.T) {
				c := rapid.SampledFrom(clocks).Draw(t, "clock")
				d.read(c, drawn(t, "there", 5*time.Millisecond), drawn(t, "back", 5*time.Millisecond))
				if width := c.known(d.at).width(); width > 13*time.Millisecond {
					t.Fatalf("the bounds are %v apart", width)
				}
			},
			"": func(t *rapid.T) {
				us := d.us(d.at)
				for _, c := range clocks {
					known := c.known(d.at)
					if low, high := micros(d.at)+known.low, micros(d.at)+known.high; us < low || us > high || c.steps > 0 {
						t.Fatalf("the clock shows %d, which is not from %d to %d, %d steps", us, low, high, c.steps)
					}
					drawn := micros(d.at) + c.best(d.at)
					if drawn < us-maxSkew.Microseconds() {
						t.Fatalf("an id is %d µs behind", us-drawn)
					}
					for _, other := range clocks {
						if settled := other.closed(d.at); drawn < settled {
							t.Fatalf("an id is drawn %d µs before what has settled", settled-drawn)
						}
					}
				}
			},
		})
	})
}

// When the database's clock is set, a clock that is read again shows it, and the process
// knows that it was set. Until all know, no id is drawn of a time that has settled for
// those who know of a step forward.
func TestClockSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := newTruth(t)
		mine, others := &clock{}, &clock{}
		quick := func(c *clock) { d.read(c, time.Millisecond, time.Millisecond) }
		quick(mine)
		quick(others)
		sign := rapid.SampledFrom([]time.Duration{-1, 1}).Draw(t, "direction")
		for n := range rapid.IntRange(1, 3).Draw(t, "steps") {
			by := sign * (time.Second + drawn(t, "by", time.Minute))
			d.step(by)
			quick(mine)
			if mine.steps != n+1 {
				t.Fatalf("%d steps, and %d noticed", n+1, mine.steps)
			}
			if off := micros(d.at) + mine.best(d.at) - d.us(d.at); max(off, -off) > 5000 {
				t.Fatalf("%d µs off after a step by %v", off, by)
			}
		}
		noticed := d.at
		for d.at.Sub(noticed) < 2*clockAge { // after which everybody has read the clock
			if id, settled := micros(d.at)+others.best(d.at), mine.closed(d.at); id < settled {
				t.Fatalf("others draw ids %d µs before what has settled", settled-id)
			}
			d.at = d.at.Add(drawn(t, "time", time.Second))
		}
		d.at = noticed.Add(2*clockAge + Window + time.Millisecond)
		if lag := d.us(d.at) - mine.closed(d.at); lag > (3 * maxSkew).Microseconds() {
			t.Errorf("what has settled is %d µs behind for ever", lag)
		}
	})
}

// Ids of a process rise, whatever happens to the clock.
func TestTicksRise(t *testing.T) {
	c := &clock{}
	now := instant.Now()
	us := modelNow
	c.note(now.Add(-time.Millisecond), now, us)
	last := int64(0)
	for _, by := range []time.Duration{0, -30 * time.Second, time.Minute, -time.Hour, 0} {
		us += by.Microseconds()
		now = instant.Now()
		c.note(now.Add(-time.Millisecond), now, us)
		for range 3 {
			first, _ := c.take(10)
			if first <= last {
				t.Fatalf("tick %d after %d, the clock set by %v", first, last, by)
			}
			last = first + 9
		}
	}
}

// A slow answer is not believed: the clock is read again at once. Waiting for a connection
// is not part of an answer.
func TestSlowAnswers(t *testing.T) {
	memory(t, func(t *testing.T, db *dbtest.DB) {
		slow := 3 // answers, that take longer than the bounds may be apart
		stalled := db.Broken(t, &dbtest.Fault{Stall: func(op string) {
			if slow > 0 {
				slow--
				<-time.After(4 * clockWidth)
			}
		}})
		c := &clock{}
		must(t, c.sync(t.Context(), &stalled.Session, instant.Now()))
		if slow > 0 {
			t.Errorf("%d answers were not waited for", slow)
		}
		exact := &clock{}
		for range 20 {
			must(t, exact.read(t.Context(), &db.Session))
		}
		at := instant.Now()
		if a, b := c.known(at), exact.known(at); a.high < b.low || b.high < a.low || c.steps+exact.steps > 0 {
			t.Errorf("the clock is from %v, and from %v by another", a, b)
		}
		if width := c.ahead.width(); width >= 4*clockWidth {
			t.Errorf("the bounds are %v apart", width)
		}
	})
}

// Setting the clock back or forward delays nothing: jobs enqueued afterwards are found below
// what was read before, and so are delayed jobs.
func TestSteps(t *testing.T) {
	locks(t, func(t *testing.T, db *dbtest.DB) {
		db.ShiftClock(t)
		for _, by := range []time.Duration{-30 * time.Second, 30 * time.Second} {
			t.Run(by.String(), func(t *testing.T) {
				c := client(t, db, Options{})
				r := &record{}
				w := worker(t, other(t, db), WorkerOptions{})
				w.terms.Whole = time.Hour // it does not come by chance
				handle(t, w, "x", func(_ context.Context, d *Delivery) error {
					r.add("%s", d.Payload)
					return nil
				})
				stop := start(t, w)
				defer stop()
				enqueueMany(t, c, []Job{{Kind: "x", Payload: []byte("1")}, {Kind: "x", Payload: []byte("2"), Delay: time.Millisecond}})
				eventually(t, "those of before are done", func() bool { return r.len() == 2 })
				db.Shift(t, by)
				fresh := other(t, db)
				enqueueMany(t, fresh, []Job{
					{Kind: "x", Payload: []byte("3")},
					{Kind: "x", Payload: []byte("4")},
					{Kind: "x", Payload: []byte("5"), Delay: 100 * time.Millisecond},
				})
				eventually(t, "those of after are done", func() bool { return r.len() == 5 })
			})
		}
	})
}

// Whoever plans by the time after the database's clock was set reads whole blocks, from the first plan on: a look back by the new
// time could begin between two jobs of a key.
func TestAStepIsHeededByTheNextPlan(t *testing.T) {
	dbtest.One(t, sqlite.Dialect, func(t *testing.T, db *dbtest.DB) {
		w := worker(t, client(t, db, Options{}), WorkerOptions{})
		q := &workQueue{h: &w.holder, id: 1, name: "q", set: &store.Queue{}}
		b := newTenure(q)
		q.blocks = map[int]*tenure{0: b}
		w.queues = []*workQueue{q}
		w.mu.Lock()
		defer w.mu.Unlock()
		c, at := &w.c.clock, instant.Now()
		c.note(at, at, 1_900_000_000_000_000)
		w.now(at)
		b.Reads.Whole = at // it was read
		c.note(at, at, 1_900_000_000_000_000+1)
		if w.now(at); b.Reads.Whole != at {
			t.Error("the block is read again, and nobody has set the clock")
		}
		c.note(at, at, 1_900_000_000_000_000-30_000_000)
		if w.now(at); b.Reads.Whole != 0 {
			t.Error("the clock was set, and the next plan does not read the whole block")
		}
	})
}
