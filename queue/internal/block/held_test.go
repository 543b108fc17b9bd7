package block

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A mall is a world whose tenants have limits: as many of their jobs run at a time as they have permits.
type mall struct {
	*world
	permits map[string]int
	running map[string][]ran
	most    int
}

// A ran is a job that runs.
type ran struct {
	x  *tenure
	id int64
}

func newMall(t failer, blocks, batch, most int, fair bool) *mall {
	m := &mall{world: newWorld(t, blocks, batch, 1<<30), permits: map[string]int{}, running: map[string][]ran{}, most: most}
	k := limit.NewKeeper(nil, nil, nil)
	m.host.tenants = k.Queue(1, "q")
	k.SetTenants(m.host.tenants, store.Limit{Running: most}, nil)
	m.share(fair)
	m.terms.Whole = 100 * time.Hour // what was put back is to be found without that
	return m
}

// give gives a tenant permits, and says so if its limiter is open.
func (m *mall) give(name string, n int) {
	m.permits[name] = n
	l := m.host.Tenant(name)
	if l == nil {
		return
	}
	if m.host.opens[l] = len(m.running[name]) < n; m.host.opens[l] {
		for _, x := range m.all {
			x.b.ResumeOf(l)
		}
	}
}

// waits returns the tenants whose jobs wait for their limits.
func (m *mall) waits(names []string) (some []string) {
	for _, name := range names {
		if l := m.host.Tenant(name); slices.ContainsFunc(m.all, func(x *tenure) bool { return x.b.HeldAt(l) > 0 }) {
			some = append(some, name)
		}
	}
	return some
}

// begin begins the next job. It returns false if there is none.
func (m *mall) begin() bool {
	x := m.head()
	if x == nil {
		return false
	}
	j := x.begin()
	if j == nil {
		return true
	}
	name := j.Tenant
	if m.running[name] = append(m.running[name], ran{x, j.ID}); name != "" && len(m.running[name]) > m.permits[name] {
		m.t.Fatalf("%d jobs of %s run with %d permits", len(m.running[name]), name, m.permits[name])
	}
	m.host.opens[m.host.Tenant(name)] = len(m.running[name]) < m.permits[name]
	return true
}

// end ends the job of a tenant that has run longest.
func (m *mall) end(name string) {
	r := m.running[name][0]
	m.running[name] = m.running[name][1:]
	r.x.end(r.id, false)
	m.give(name, m.permits[name])
}

// left returns how many jobs are not done.
func (m *mall) left() (n int) {
	for _, x := range m.all {
		n += len(x.rows) + len(x.drawn)
	}
	return n
}

// checkHeld checks what is always so.
func (m *mall) checkHeld(names []string) {
	for _, x := range m.all {
		x.check()
		n := 0
		for g, w := range x.b.byTenant {
			if n += w.Len(); w.Len() == 0 || w.limiter != g {
				m.t.Fatalf("an empty list is kept")
			}
		}
		if n != x.b.holding {
			m.t.Fatalf("it counts %d that are held, and there are %d", x.b.holding, n)
		}
		// Jobs with keys are not put back, but those behind them are; and what was read at once is put back after the next read:
		// all of the window of late commits, if it is read again.
		if most := x.b.fill() + 8*m.terms.Batch + len(names) + 100; n > most {
			m.t.Fatalf("%d jobs are held, and not %d", n, most)
		}
	}
}

// Of no tenant more jobs begin than its limiter lets pass; all of them do, once each, those of a key in their order, and in
// memory are no more than belong there, whatever opens and closes when.
func TestHeldModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fair := rapid.Bool().Draw(t, "fair")
		m := newMall(t, rapid.IntRange(1, 2).Draw(t, "blocks"), rapid.IntRange(1, 4).Draw(t, "batch"), rapid.IntRange(1, 3).Draw(t, "most"), fair)
		names := []string{""}
		for i := range rapid.SampledFrom([]int{1, 3, 60}).Draw(t, "tenants") {
			names = append(names, fmt.Sprint("t", i))
		}
		enqueue := func(n int) {
			for range n {
				r := row{size: 1, tenant: rapid.SampledFrom(names).Draw(t, "tenant"), priority: rapid.SampledFrom([]int{2, 2, 3}).Draw(t, "priority")}
				if rapid.IntRange(0, 3).Draw(t, "keyed") == 0 {
					r.line, r.priority = "k"+r.tenant, 2
				}
				x := rapid.SampledFrom(m.all).Draw(t, "block")
				if r.tenant == "" {
					r.line = ""
				}
				if rapid.IntRange(0, 5).Draw(t, "drawn") == 0 {
					x.draw(r)
				} else {
					x.enqueueAtOnce(1, r, 0)
				}
			}
		}
		enqueue(rapid.SampledFrom([]int{0, 30, 300}).Draw(t, "first"))
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				enqueue(rapid.IntRange(1, 20).Draw(t, "more"))
			case 1:
				m.serve()
			case 2: // as much as the limits let through
				for range 50 {
					m.serve()
					for m.begin() {
					}
				}
			case 3:
				if some := m.waits(names); len(some) > 0 {
					m.give(rapid.SampledFrom(some).Draw(t, "given"), m.most)
				}
			case 4:
				name := rapid.SampledFrom(names).Draw(t, "taken")
				m.give(name, len(m.running[name]))
			case 5:
				if name := rapid.SampledFrom(names).Draw(t, "ends"); len(m.running[name]) > 0 {
					m.end(name)
				}
			default:
				for range rapid.IntRange(1, 10).Draw(t, "begins") {
					m.begin()
				}
			}
			m.pass(time.Duration(rapid.IntRange(0, 500).Draw(t, "ms")) * time.Millisecond)
			m.checkHeld(names)
		}
		m.pass(5 * time.Minute) // no look back goes that far
		for idle := 0; m.left() > 0; idle++ {
			if idle > 400 {
				t.Fatalf("%d jobs never begin", m.left())
			}
			m.serve()
			for m.begin() {
				idle = 0
			}
			for _, name := range names {
				for len(m.running[name]) > 0 {
					m.end(name)
				}
			}
			for _, name := range m.waits(names) {
				m.give(name, m.most)
			}
			for _, x := range m.all {
				x.look()
			}
			m.pass(100 * time.Millisecond)
			m.checkHeld(names)
		}
	})
}

// The backlogs of tenants that are at their limits keep no others back.
func TestHeldKeepNobodyBack(t *testing.T) {
	for _, fair := range []bool{false, true} {
		m := newMall(t, 1, 10, 1, fair)
		x := m.all[0]
		for i := range 500 {
			x.enqueueAtOnce(10, of(fmt.Sprint("closed", i%50)), 0)
		}
		x.enqueueAtOnce(20, of(""), 0)
		m.pass(10 * time.Second)
		begun := 0
		for range 2000 {
			m.serve()
			for m.begin() {
			}
			for len(m.running[""]) > 0 {
				m.end("")
				begun++
			}
			m.pass(10 * time.Millisecond)
		}
		if begun != 20 {
			t.Errorf("fair: %t: %d of the others have begun", fair, begun)
		}
		if n := x.b.Known(); n > 120*10 {
			t.Errorf("fair: %t: %d jobs are in memory", fair, n)
		}
	}
}

// Jobs of which none is left in memory, since they were put back, wait at their limiters like others.
func TestPutBackJobsWait(t *testing.T) {
	m := newMall(t, 1, 4, 1, false)
	b := m.all[0].b
	k := limit.NewKeeper(nil, nil, nil)
	q := k.Queue(1, "q")
	k.SetTenants(q, store.Limit{Rate: 1, Per: time.Second, Burst: 1}, nil)
	kind, _, _ := k.Set(q, "k", store.Limit{Running: 1})
	tenant := q.Tenant("a")
	b.skipped = map[*limit.Limiter]int64{tenant: 7, kind: 8}
	b.aside = map[*limit.Limiter]*list{kind: {}}
	if open, soon := b.HeldSoon(5); open != 0 || soon != 1 {
		t.Errorf("%d jobs may pass the tenant's limiter, and %d when its rate lets them", open, soon)
	}
	for g, n := range b.Aside() {
		if g != kind || n != 1 {
			t.Errorf("%d jobs wait at %q", n, g.Kind)
		}
	}
}
