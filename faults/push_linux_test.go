package faults

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue"
)

// Two daemons push. The test kills one with 500 requests in flight while the other has as many. All
// jobs are done, those of one key in order, and only the requests of the dead one are sent again. A
// queue with a fast endpoint loses nothing meanwhile.
func TestPushOfTheKilled(t *testing.T) {
	t.Parallel()
	first, second := buildAs(t, "first"), buildAs(t, "second")
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		const each = 500
		m := newMailroom(t, db, 5*time.Second)
		release := make(chan struct{})
		held := newAddressee(t, func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		})
		fast := newAddressee(t, nil)
		m.point("held", held.URL, func(e *push.Endpoint) { e.Concurrency = each })
		m.point("fast", fast.URL, func(*push.Endpoint) {})
		ids := m.enqueue(append(slices.Repeat([]queue.Job{{Queue: "held", Kind: "plain"}}, 3*each), keyed("held", 20, 10)...)...)
		one, other := m.send(first, "one"), m.send(second, "other")
		stop := m.stream(1, 5*time.Millisecond, func() queue.Job { return queue.Job{Queue: "fast", Kind: "plain"} })
		defer stop()
		m.until("both have their requests under way", func() bool {
			return held.holds("held", "first") == each && held.holds("held", "second") == each
		})
		m.until("both send jobs of the other queue", func() bool {
			all := fast.got()
			return slices.ContainsFunc(all, func(d delivery) bool { return d.by == "first" }) &&
				slices.ContainsFunc(all, func(d delivery) bool { return d.by == "second" })
		})
		m.until("they have rows of their own", func() bool {
			return len(db.List(t, `SELECT id FROM {prefix}job_running`, nil)) >= 2*each
		})
		killed := instant.Now()
		_ = one.cmd.Process.Kill()
		<-one.done
		m.until("the dead one's connections have ended", func() bool { return held.holds("held", "first") == 0 })
		close(release)
		m.until("jobs of the dead one are sent again", func() bool {
			return slices.ContainsFunc(repeats(held.got()), func(d delivery) bool { return d.by == "second" })
		})
		taken := instant.Now().Sub(killed)
		m.until("all held jobs have come", func() bool { return count(held.got()) == len(ids) })
		quick := stop()
		m.settled()
		other.stop()

		again := m.delivered(held, ids...)
		late := m.delivered(fast, quick.ids()...)
		for _, a := range []*addressee{held, fast} {
			for _, d := range repeats(a.got()) {
				if d.by == "second" && !other.lost() && !by(a.got(), d.id, "first") {
					t.Errorf("queue %s: job %d was sent twice by the one that was not killed", d.queue, d.id)
				}
			}
		}
		if again < each && !other.lost() {
			t.Errorf("%d jobs were sent again, and %d were under way", again, each)
		}
		after := func(d *delivery) bool { return d.at > killed && d.by == "second" }
		t.Logf("%s: %d requests under way, %d jobs sent again, the first after %v; fast queue: %d jobs, %d sent again, longest gap %v after the kill, longest wait of a job %v",
			db.Dialect.Name, 2*each, again, taken.Round(time.Millisecond), len(quick), late, longest(fast.got(), after), quick.longestWait(fast))
	}, (*testing.T).Parallel)
}

// Of two daemons on standby, one pushes. When it is killed, the other takes over, three times in
// turn. No job is lost, and the two never push at the same time.
func TestPushStandby(t *testing.T) {
	t.Parallel()
	programs := map[string]string{"first": buildAs(t, "first"), "second": buildAs(t, "second")}
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		m := newMailroom(t, db, time.Minute)
		a := newAddressee(t, nil)
		m.point("work", a.URL, func(*push.Endpoint) {})
		now := map[string]*daemon{}
		begin := func(version string) {
			now[version] = m.send(programs[version], version, "--standby")
		}
		next := 0
		stop := m.stream(2, 5*time.Millisecond, func() queue.Job {
			next++
			return queue.Job{Queue: "work", Kind: "plain", Key: fmt.Sprintf("key-%d", next%20)}
		})
		defer stop()
		sends := func(after int) (by string) {
			m.until("a job is delivered", func() bool { return a.count() > after })
			return a.got()[after].by
		}
		begin("first")
		sends(0)
		begin("second")
		for range 3 {
			m.until("the one that was begun last has its part", func() bool {
				log := m.daemons[len(m.daemons)-1].log.String()
				return strings.Contains(log, "standing by") || strings.Contains(log, "this daemon is the one that sends")
			})
			m.until("what has waited is done", func() bool {
				n, err := adminOf(m.c).Count(t.Context(), "work", 1000)
				return err == nil && n.Ready+n.Running < 100
			})
			n := a.count()
			leader := sends(n + 200)
			killed := instant.Now()
			_ = now[leader].cmd.Process.Kill()
			<-now[leader].done
			m.until("the other one sends", func() bool {
				got := a.got() // one copy, since more arrive meanwhile
				return got[len(got)-1].by != leader
			})
			got := a.got()
			i := slices.IndexFunc(got[n:], func(d delivery) bool { return d.by != leader })
			t.Logf("%s: the other one sends %v after %s was killed", db.Dialect.Name, got[n+i].at.Sub(killed).Round(time.Millisecond), leader)
			begin(leader)
		}
		sent := stop()
		m.settled()
		again := m.delivered(a, sent.ids()...)
		terms := 0
		for _, d := range m.daemons {
			if !d.ended() {
				d.stop()
			}
			terms += strings.Count(d.log.String(), "this daemon is the one that sends")
		}
		changes := 0
		got := a.got()
		for i := range got[1:] {
			if got[i].by != got[i+1].by {
				changes++
			}
		}
		t.Logf("%s: %d jobs, %d sent again, %d terms, longest gap %v, longest wait of a job %v", db.Dialect.Name, len(sent), again, terms,
			longest(got, func(*delivery) bool { return true }), sent.longestWait(a))
		if changes > terms-1 {
			t.Errorf("the sender changed %d times in %d terms", changes, terms)
		}
	}, (*testing.T).Parallel)
}

// The test kills the server twice while two daemons push. No job is lost, those of one key stay in
// order, and the daemons recover by themselves.
func TestPushDatabaseRestart(t *testing.T) {
	t.Parallel()
	binary := build(t)
	for _, s := range killed() { // SQLite has no server
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			db, server := s.migrated(t)
			m := newMailroom(t, db, 5*time.Second)
			var n atomic.Int64
			a := newAddressee(t, func(_ http.ResponseWriter, r *http.Request) {
				if n.Add(1)%20 == 0 { // some are in flight when the server dies
					_ = wait(r.Context(), 500*time.Millisecond)
				}
			})
			m.point("work", a.URL, func(*push.Endpoint) {})
			m.send(binary, "one")
			m.send(binary, "other")
			next := 0
			stop := m.stream(10, 20*time.Millisecond, func() queue.Job {
				next++
				return queue.Job{Queue: "work", Kind: "plain", Key: []string{"", fmt.Sprintf("key-%d", next%50)}[next%2]}
			})
			defer stop()
			more := func() {
				n := a.count()
				m.until("jobs come", func() bool { return a.count() > n+300 })
			}
			more()
			for range 2 {
				down := instant.Now()
				if err := server.Kill(); err != nil {
					t.Fatal(err)
				}
				before := a.count()
				restart(t, server)
				up := instant.Now()
				m.until("jobs come again", func() bool { return a.count() > before+100 })
				t.Logf("%s: down for %v, jobs come %v after that", db.Dialect.Name, up.Sub(down).Round(time.Millisecond),
					a.got()[before+100].at.Sub(up).Round(time.Millisecond))
				more()
			}
			sent := stop()
			m.settled()
			for _, d := range m.daemons {
				if d.ended() {
					t.Errorf("%s has ended: %s", d.node, d.log.String())
					continue
				}
				d.stop()
			}
			again := m.delivered(a, sent.ids()...)
			t.Logf("%s: %d jobs, %d sent again, longest wait of a job %v", db.Dialect.Name, len(sent), again, sent.longestWait(a))
		})
	}
}

// Queues whose endpoints hang, drip, or answer a gigabyte do not affect others: their jobs end as
// they should, and a queue with a good endpoint proceeds meanwhile.
func TestPushBadEndpoint(t *testing.T) {
	t.Parallel()
	binary := build(t)
	dbtest.Processes.Each(t, func(t *testing.T, db *dbtest.DB) {
		const many, bad = 2000, 48
		m := newMailroom(t, db, time.Minute)
		good, wrong := newAddressee(t, nil), newAddressee(t, misbehave)
		m.point("good", good.URL, func(*push.Endpoint) {})
		ways := []string{"hangs", "drips", "endless"}
		for _, way := range ways {
			m.point(way, wrong.URL+"/"+way, func(e *push.Endpoint) { e.Timeout = time.Second })
		}
		d := m.send(binary, "one")
		measure := func() (rate float64) {
			before := good.count()
			began := instant.Now()
			ids := m.enqueue(slices.Repeat([]queue.Job{{Queue: "good", Kind: "plain"}}, many)...)
			m.until("all jobs of the good endpoint have come", func() bool { return good.count() >= before+many })
			rate = many / good.got()[before+many-1].at.Sub(began).Seconds()
			if again := m.delivered(good, ids...); again > 0 {
				t.Errorf("%d jobs of the good endpoint were sent again", again)
			}
			return rate
		}
		measure() // connections, statements
		alone := measure()
		for _, way := range ways {
			m.enqueue(slices.Repeat([]queue.Job{{Queue: way, Kind: "plain", MaxAttempts: 2}}, bad)...)
		}
		m.until("the others hold requests", func() bool { return wrong.holds("hangs", "devel") == 16 && wrong.holds("drips", "devel") == 16 })
		beside := measure()
		t.Logf("%s: %.0f jobs/s alone, %.0f beside endpoints that misbehave: ratio %.2f", db.Dialect.Name, alone, beside, beside/alone)
		m.until("the others' jobs have ended", func() bool {
			var n int
			m.db.Scan(t, `SELECT (SELECT COUNT(*) FROM {prefix}job WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_delayed WHERE id > 0) + (SELECT COUNT(*) FROM {prefix}job_running)`, nil, &n)
			return n == 0
		})
		ends := db.List(t, `SELECT q.name, COUNT(*), MIN(d.attempt), MAX(d.attempt), SUM(CASE WHEN d.error LIKE 'no whole answer within 1s%' THEN 1 ELSE 0 END)
			FROM {prefix}job_dead AS d JOIN {prefix}queue AS q ON q.queue_id = d.queue_id GROUP BY q.name ORDER BY q.name`, nil)
		// and those of the other one are done
		want := []string{fmt.Sprintf("drips %d 2 2 %d", bad, bad), fmt.Sprintf("hangs %d 2 2 %d", bad, bad)}
		if !slices.Equal(ends, want) {
			t.Errorf("dead are %q, want %q", ends, want)
		}
		if n := count(wrong.got()); n != len(ways)*bad {
			t.Errorf("%d of %d jobs came to the others", n, len(ways)*bad)
		}
		d.stop()
	}, (*testing.T).Parallel)
}

// misbehave answers as the path says until the client leaves.
func misbehave(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/hangs":
		<-r.Context().Done()
	case "/drips":
		for wait(r.Context(), 20*time.Millisecond) == nil {
			_, _ = w.Write([]byte(" "))
			_ = http.NewResponseController(w).Flush()
		}
	case "/endless":
		part := make([]byte, 64<<10)
		for range 1 << 30 / len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
}

// repeats returns the repeated deliveries.
func repeats(all []delivery) []delivery {
	seen := map[int64]bool{}
	return slices.DeleteFunc(all, func(d delivery) bool {
		before := seen[d.id]
		seen[d.id] = true
		return !before
	})
}

// by reports whether sender delivered a job.
func by(all []delivery, id int64, sender string) bool {
	return slices.ContainsFunc(all, func(d delivery) bool { return d.id == id && d.by == sender })
}

// count returns how many different jobs were delivered.
func count(all []delivery) int {
	seen := map[int64]bool{}
	for _, d := range all {
		seen[d.id] = true
	}
	return len(seen)
}
