package block

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/queue/internal/limit"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// idle is a host without limits, whose queue is active.
type idle struct{}

func (idle) Active() bool                   { return true }
func (idle) Gate(string) *limit.Limiter     { return nil }
func (idle) Stranger(string) *limit.Limiter { return nil }
func (idle) Opens(*limit.Limiter) bool      { return true }
func (idle) IsOut(int64) bool               { return false }
func (idle) Held(*Job)                      {}
func (idle) Shed(*Job)                      {}
func (idle) Owes()                          {}

// A shop is a table of ready jobs, blocks of a fair queue, and a worker that begins one job at a time.
type shop struct {
	at     instant.Instant
	ids    int64
	rows   map[int64]Job // by id
	blocks []*Block
	of     [][]int64 // the ids of each block's jobs, in their order
	open   []opened  // jobs that are not committed yet
	turns  *Turns
	begun  []Job
	trips  int
	looks  int
}

// An opened is a job that has its id, in a transaction.
type opened struct {
	block int
	job   Job
	since instant.Instant
}

func newShop(blocks, batch int) *shop {
	s := &shop{at: instant.Instant(time.Hour), rows: map[int64]Job{}, turns: &Turns{}}
	terms := &Terms{Batch: batch, Whole: time.Minute, Room: Room{Size: 1 << 30, Readers: 1}}
	for range blocks {
		b := New(idle{}, terms)
		b.Share(s.turns)
		s.blocks, s.of = append(s.blocks, &b), append(s.of, nil)
	}
	return s
}

// us is the time in µs since 1970.
func (s *shop) us() int64 { return 1_790_000_000_000_000 + time.Duration(s.at).Microseconds() }

// now is the time by the clock of the database, which gives ids.
func (s *shop) now() Now {
	return Now{At: s.at, Closed: s.us(), Leased: true}
}

// enqueue draws the ids of jobs, a µs apart.
func (s *shop) enqueue(block int, jobs ...Job) {
	for _, j := range jobs {
		s.at = s.at.Add(time.Microsecond)
		s.ids = store.TickOf(s.us())
		j.ID, j.Order, j.Priority = s.ids, s.ids, max(j.Priority, 2)
		s.open = append(s.open, opened{block, j, s.at})
	}
}

// commit commits the jobs that have been open for so long.
func (s *shop) commit(after time.Duration) {
	s.open = slices.DeleteFunc(s.open, func(o opened) bool {
		if s.at.Sub(o.since) < after {
			return false
		}
		s.rows[o.job.ID] = o.job
		at, _ := slices.BinarySearch(s.of[o.block], o.job.ID)
		s.of[o.block] = slices.Insert(s.of[o.block], at, o.job.ID)
		s.blocks[o.block].Reads.Rouse()
		return true
	})
}

// read returns the rows of a block that a function picks, the most urgent and then the oldest first.
func (s *shop) read(block int, is func(Job) bool) (all []Job) {
	s.of[block] = slices.DeleteFunc(s.of[block], func(id int64) bool {
		_, there := s.rows[id]
		return !there
	})
	for _, id := range s.of[block] {
		if j := s.rows[id]; is(j) {
			all = append(all, j)
		}
	}
	slices.SortStableFunc(all, func(x, y Job) int { return cmp.Compare(x.Priority, y.Priority) })
	return all
}

func some(rows []Job, most int) (all []*Job) {
	for i := range rows[:min(len(rows), most)] {
		j := rows[i]
		all = append(all, &j)
	}
	return all
}

// trip makes a trip of a block.
func (s *shop) trip(block int) {
	s.commit(Window - 50*time.Millisecond)
	b := s.blocks[block]
	p := b.Plan(s.now())
	s.trips++
	for _, j := range p.Acks {
		delete(s.rows, j.ID)
		b.Deleted(j, false, true)
	}
	b.Returned()
	f := &Found{}
	if p.Reads {
		f.Fresh = some(s.read(block, func(j Job) bool { return j.ID > p.Read.After[j.Priority] }), p.Read.Limit)
		if n := len(f.Fresh); n > 0 {
			f.Got = Fetched{Rows: n, Last: f.Fresh[n-1].Place()}
		}
	}
	if p.Look != nil {
		s.looks++
		sights := map[tenancy]*Sight{}
		rows := map[int]int{}
		for _, j := range s.read(block, func(j Job) bool { return j.ID > p.Look.After[j.Priority] }) {
			if rows[j.Priority]++; rows[j.Priority] > p.Look.Limit {
				continue
			}
			of := tenancy{j.Tenant, j.Priority}
			if sights[of] == nil {
				sights[of] = &Sight{Tenant: j.Tenant, Priority: j.Priority, First: j.ID}
			}
			sights[of].Last = j.ID
			sights[of].Rows++
		}
		for _, x := range sights {
			f.Sights = append(f.Sights, *x)
		}
	}
	if k := p.Pick; k != nil {
		f.Picked = some(s.read(block, func(j Job) bool {
			return j.Priority == k.Priority && j.ID > k.After && j.ID <= k.Upto && slices.Contains(k.Tenants, j.Tenant)
		}), k.Limit)
	}
	s.at = s.at.Add(time.Millisecond)
	b.ForgetDeleted()
	b.Sift(p, f)
	b.Take(p, f, s.at, time.Millisecond)
}

// serve makes the trips that blocks want, some of each.
func (s *shop) serve() {
	for i, b := range s.blocks {
		for range 20 {
			if !b.Wants(s.now()) {
				break
			}
			s.trip(i)
		}
	}
}

// begin begins the next job, and ends it. It returns false if there is none.
func (s *shop) begin() bool {
	var best *Block
	var first Place
	for _, b := range s.blocks {
		if h, ok := b.Head(); ok && (best == nil || h.Before(first)) {
			best, first = b, h
		}
	}
	if best == nil {
		return false
	}
	j := best.Pop()
	if j == nil {
		return true
	}
	s.begun = append(s.begun, *j)
	best.Disengage(j)
	j.Phase = PhaseEnded
	best.Acks = append(best.Acks, j)
	if j.Line != "" {
		best.Release(j.Line, j.ID)
	}
	return true
}

// run begins so many jobs, or all.
func (s *shop) run(t interface{ Fatalf(string, ...any) }, most int) {
	for n, idle := 0, 0; n < most; {
		s.serve()
		before := len(s.begun)
		if s.begin() {
			if len(s.begun) > before {
				n++
				idle = 0
			}
			continue
		}
		if len(s.rows)+len(s.open) == 0 {
			return
		}
		if s.at = s.at.Add(100 * time.Millisecond); idle > 600 {
			t.Fatalf("%d jobs never begin", len(s.rows))
		}
		idle++
	}
}

func jobs(tenant string, n int) []Job {
	all := make([]Job, n)
	for i := range all {
		all[i].Tenant = tenant
	}
	return all
}

// A tenant that comes while another one has flooded the queue has its turn at once.
func TestFloodOfATenant(t *testing.T) {
	s := newShop(1, 40)
	s.enqueue(0, jobs("flood", 6000)...)
	s.commit(0)
	s.run(t, 500)
	s.enqueue(0, jobs("ada", 5)...)
	s.enqueue(0, jobs("flood", 1000)...)
	s.enqueue(0, jobs("bob", 5)...)
	s.commit(0)
	s.at = s.at.Add(time.Second)
	from := len(s.begun)
	s.run(t, 200)
	last := map[string]int{}
	for i, j := range s.begun[from:] {
		last[j.Tenant] = i
	}
	for _, name := range []string{"ada", "bob"} {
		if last[name] == 0 || last[name] > 40 {
			t.Errorf("the last job of %s began after %d others", name, last[name])
		}
	}
}

// A job with a key does not begin before one of its key whose transaction was open when others were read, or picked, that
// have later ids.
func TestKeysBehindAFlood(t *testing.T) {
	for name, between := range map[string]func(s *shop){
		"picked": func(s *shop) {
			s.enqueue(0, jobs("flood", 4000)...)
			s.commit(0)
			s.run(t, 50)
		},
		"read": func(s *shop) {
			s.enqueue(0, Job{Tenant: "flood", Line: "none"})
			s.commit(0)
			s.run(t, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(1, 40)
			between(s)
			s.enqueue(0, Job{Tenant: "ada", Line: "k", Kind: "first"})
			first := s.open
			s.open = nil
			s.enqueue(0, Job{Tenant: "ada", Line: "other"})
			s.commit(0)
			s.serve()
			s.at = s.at.Add(300 * time.Millisecond)
			s.serve()
			s.enqueue(0, jobs("flood", 4000)...)
			s.commit(0)
			s.serve()
			s.open = first
			s.commit(0)
			s.enqueue(0, Job{Tenant: "ada", Line: "k", Kind: "second"})
			s.enqueue(0, jobs("flood", 1000)...)
			s.commit(0)
			for range 30 { // nothing begins, so there is room for picks only
				s.at = s.at.Add(200 * time.Millisecond)
				s.serve()
			}
			s.run(t, 2000)
			var order []string
			for _, j := range s.begun {
				if j.Kind != "" {
					order = append(order, j.Kind)
				}
			}
			if fmt.Sprint(order) != "[first second]" {
				t.Errorf("they began in the order %v", order)
			}
		})
	}
}

// While a job may not be picked yet, since one before it may still be committed, nobody asks for it again and again.
func TestTooYoungToBePicked(t *testing.T) {
	s := newShop(1, 40)
	s.enqueue(0, Job{Tenant: "ada", Line: "k"})
	s.enqueue(0, jobs("flood", 4000)...)
	s.enqueue(0, Job{Tenant: "ada", Line: "k"}, Job{Tenant: "ada", Line: "k", Kind: "last"})
	s.commit(0)
	young := s.at
	for s.at.Sub(young) < Window-50*time.Millisecond {
		s.serve()
		s.begin()
		s.at = s.at.Add(5 * time.Millisecond)
	}
	if s.trips-len(s.begun) > 100 { // each job takes one to delete its row
		t.Errorf("there were %d trips in %v, of %d jobs", s.trips, Window, len(s.begun))
	}
	s.run(t, 3000)
	if !slices.ContainsFunc(s.begun, func(j Job) bool { return j.Kind == "last" }) {
		t.Error("it has not begun behind 3000 others")
	}
}

// After a worker was lost, the jobs that it may have had are tried by the turns of their tenants.
func TestTrialsByTurns(t *testing.T) {
	s := newShop(1, 40)
	s.enqueue(0, jobs("flood", 30)...)
	s.enqueue(0, jobs("ada", 1)...)
	s.commit(0)
	b := s.blocks[0]
	b.Suspect, b.Since = 40, s.us()
	s.serve()
	if n := b.Doubted(); n != 31 {
		t.Fatalf("%d jobs wait for their trials", n)
	}
	for n := range 31 {
		if j := b.Try(RankOf("")); j.Tenant == "ada" {
			if n > 1 {
				t.Errorf("it is tried behind %d others", n)
			}
			return
		}
	}
	t.Error("it is not tried")
}

// Tenants that all have more than can be done get what their weights say.
func TestWeights(t *testing.T) {
	s := newShop(4, 50)
	s.turns.Weights = map[string]int{"b": 3}
	for i := range 4 {
		s.enqueue(i, jobs("a", 1200)...)
		s.enqueue(i, jobs("b", 1200)...)
		s.enqueue(i, jobs("c", 1200)...)
	}
	s.commit(0)
	s.at = s.at.Add(time.Second)
	s.run(t, 2500)
	got := map[string]int{}
	for _, j := range s.begun[500:] {
		got[j.Tenant]++
	}
	if a, b, c := got["a"], got["b"], got["c"]; a < 340 || a > 460 || c < 340 || c > 460 || b < 1100 || b > 1300 {
		t.Errorf("of 2000 jobs a, b and c had %d, %d and %d, and not 400, 1200 and 400", a, b, c)
	}
}

// Whatever comes: each job begins once, those of a key in their order, and no tenant waits for more than its turns.
func TestFairModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newShop(rapid.IntRange(1, 3).Draw(t, "blocks"), rapid.SampledFrom([]int{1, 8, 100}).Draw(t, "batch"))
		names := []string{"", "a", "b", "c", "d"}[:rapid.IntRange(1, 5).Draw(t, "tenants")]
		for _, name := range names {
			if rapid.Bool().Draw(t, "heavy") {
				s.turns.Weights = map[string]int{name: 4}
			}
		}
		total := 0
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "tenant")
			block := rapid.IntRange(0, len(s.blocks)-1).Draw(t, "block")
			some := jobs(name, rapid.SampledFrom([]int{1, 5, 50, 400}).Draw(t, "jobs"))
			keys := rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, "keys")
			for i := range some {
				if some[i].Priority = rapid.SampledFrom([]int{2, 2, 2, 3}).Draw(t, "priority"); keys > 0 {
					some[i].Line, some[i].Priority = fmt.Sprint(name, block, "/", i%keys), 2
				}
			}
			for _, o := range s.open {
				if o.block == block && o.job.Tenant == name && o.job.Line != "" { // its Enqueue has returned
					s.commit(0)
					break
				}
			}
			if rapid.IntRange(0, 2).Draw(t, "late") > 0 {
				s.commit(0)
			}
			s.enqueue(block, some...)
			total += len(some)
			if rapid.Bool().Draw(t, "unfair") {
				turns := s.turns
				if s.blocks[0].Fair() {
					turns = nil
				}
				for _, b := range s.blocks {
					b.Share(turns)
				}
			}
			s.run(t, rapid.SampledFrom([]int{0, 3, 100, 2000}).Draw(t, "begin"))
		}
		s.commit(0)
		s.run(t, total)
		if len(s.begun) != total {
			t.Fatalf("%d jobs began %d times", total, len(s.begun))
		}
		once, last := map[int64]bool{}, map[string]int64{}
		for _, j := range s.begun {
			if once[j.ID] {
				t.Fatalf("job %d began twice", j.ID)
			}
			once[j.ID] = true
			if j.Line != "" && j.ID < last[j.Line] {
				t.Fatalf("job %d of %s began after %d", j.ID, j.Line, last[j.Line])
			}
			last[j.Line] = j.ID
		}
		for i, b := range s.blocks {
			s.at = s.at.Add(time.Second)
			s.serve()
			if b.fair.picked != 0 {
				t.Fatalf("block %d counts %d jobs as picked", i, b.fair.picked)
			}
			for of, x := range maps.All(b.fair.tenants) {
				if x.here != 0 {
					t.Fatalf("block %d counts %d jobs of %v", i, x.here, of)
				}
			}
		}
	})
}
