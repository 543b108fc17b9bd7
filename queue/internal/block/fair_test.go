package block

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// newFair returns a worker of a fair queue, which has memory enough.
func newFair(t failer, blocks, batch int) *world {
	w := newWorld(t, blocks, batch, 1<<30)
	w.share(true)
	return w
}

// everywhere is how far a look has seen that has seen all.
var everywhere = Cursor{1 << 62, 1 << 62, 1 << 62, 1 << 62, 1 << 62}

// of is a job of a tenant, of the usual priority.
func of(tenant string) row { return row{tenant: tenant, priority: normal, size: 1} }

// A tenant that comes while another one has flooded the queue has its turn at once.
func TestFloodOfATenant(t *testing.T) {
	w := newFair(t, 1, 40)
	x := w.all[0]
	x.enqueueAtOnce(6000, of("flood"), 0)
	w.run(500)
	x.enqueueAtOnce(5, of("ada"), 0)
	x.enqueueAtOnce(1000, of("flood"), 0)
	x.enqueueAtOnce(5, of("bob"), 0)
	w.pass(time.Second)
	from := len(w.began)
	w.run(200)
	last := map[string]int{}
	for i, j := range w.began[from:] {
		last[j.Tenant] = i
	}
	for _, name := range []string{"ada", "bob"} {
		if last[name] == 0 || last[name] > 40 {
			t.Errorf("the last job of %s began after %d others", name, last[name])
		}
	}
}

// Of tenants whose turns come by the reads nothing is picked, whether the jobs wait for a slot or all begin as soon as they are read.
func TestEqualTenantsAreNotPicked(t *testing.T) {
	for _, tenants := range []int{1, 30, 1000} {
		for _, fast := range []bool{false, true} {
			w := newFair(t, 2, 40)
			for i := range 4000 {
				w.all[i%2].enqueueAtOnce(1, of(fmt.Sprint(i%tenants)), 0)
			}
			for len(w.began) < 3900 {
				if fast {
					w.rush()
				} else {
					w.run(20)
				}
				w.pass(20 * time.Millisecond)
			}
			if w.picks > 4 {
				t.Errorf("of %d tenants, whose jobs begin at once: %v, jobs were picked in %d of %d trips", tenants, fast, w.picks, w.trips)
			}
		}
	}
}

// A job with a key does not begin before one of its key whose transaction was open when others were read, or picked, that
// have later ids.
func TestKeysBehindAFlood(t *testing.T) {
	for name, between := range map[string]func(x *tenure){
		"picked": func(x *tenure) {
			x.enqueueAtOnce(4000, of("flood"), 0)
			x.run(50)
		},
		"read": func(x *tenure) {
			x.enqueueAtOnce(1, row{tenant: "flood", line: "none"}, 0)
			x.run(1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFair(t, 1, 40).all[0]
			between(x)
			x.draw(row{tenant: "ada", line: "k"})
			first := x.drawn[0].id
			x.enqueueAtOnce(1, row{tenant: "ada", line: "other"}, 0)
			x.serve()
			x.pass(300 * time.Millisecond)
			x.serve()
			x.enqueueAtOnce(4000, of("flood"), 0)
			x.serve()
			x.commit()
			x.enqueueAtOnce(1, row{tenant: "ada", line: "k"}, 0)
			second := x.last
			x.enqueueAtOnce(1000, of("flood"), 0)
			for range 30 { // nothing begins, so there is room for picks only
				x.pass(200 * time.Millisecond)
				x.serve()
			}
			x.run(2000)
			var order []int64
			for _, j := range x.began {
				if j.Line == "k" {
					order = append(order, j.ID)
				}
			}
			if !slices.Equal(order, []int64{first, second}) {
				t.Errorf("they began in the order %v, and not %v", order, []int64{first, second})
			}
		})
	}
}

// Behind a job that says that one before it was committed late, perhaps where picks have been already, jobs of other keys and tenants
// are not picked until the reads have come to it; jobs without keys are.
func TestMarkOfAnotherTenant(t *testing.T) {
	const mark = 1<<20 | store.Follower
	for name, seen := range map[string][]Sight{
		"seen":   {{Tenant: "bob", Priority: normal, First: 30, Last: mark, Rows: 2, FirstMark: mark, LastMark: mark}},
		"picked": nil,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBlock(8)
			b.Share(&Turns{})
			job := func(id int64, line, tenant string) *Job {
				return &Job{ID: id, Priority: normal, Order: id, Line: line, Tenant: tenant}
			}
			b.Keyed, b.Reads.Full, b.fair.keyed, b.fair.look, b.fair.sure = true, true, true, 1<<62, everywhere
			b.Reads.Whole, b.Reads.Looked, b.Reads.cursor[normal] = 1, 1, 10
			b.sees(&Look{Limit: lookRows}, append(seen, Sight{Tenant: "ada", Priority: normal, First: 20, Last: mark + 3, Rows: 9}), 1, 0)
			b.tenant(tenancy{"ada", normal}).upto = 20 // the late one may be before that
			at := now(1, modelNow)
			p := b.Plan(at)
			if p.Pick == nil {
				t.Fatal("nothing is picked")
			}
			b.Take(p, &Found{Picked: []*Job{job(mark-1, "a", "ada"), job(mark, "m", "ada"), job(mark+1, "b", "ada"), job(mark+2, "", "ada")}}, at.At, 0)
			for id, is := range map[int64]bool{mark - 1: true, mark: false, mark + 1: false, mark + 2: true} {
				if (b.Seen(id) != nil) != is {
					t.Errorf("whether %d is picked: %v", id-mark, !is)
				}
			}
			b.Pop()
			b.Pop()
			b.Reads.cursor[normal] = mark
			next := b.pick(at)
			if next == nil || next.After != mark && next.After != mark-1 {
				t.Fatalf("when the reads have come to it, what was left is not picked: %+v", next)
			}
			if b.takePicked(next, []*Job{job(mark+1, "b", "ada")}); b.Seen(mark+1) == nil {
				t.Error("it is left once more")
			}
		})
	}
}

// While a job may not be picked yet, since one before it may still be committed, nobody asks for it again and again.
func TestTooYoungToBePicked(t *testing.T) {
	w := newFair(t, 1, 40)
	x := w.all[0]
	x.enqueueAtOnce(1, row{tenant: "ada", line: "k"}, 0)
	x.enqueueAtOnce(4000, of("flood"), 0)
	x.enqueueAtOnce(2, row{tenant: "ada", line: "k"}, 0)
	last, young := w.last, w.at
	for w.at.Sub(young) < Window-50*time.Millisecond {
		w.serve()
		if j := x.begin(); j != nil {
			x.end(j.ID, false)
		}
		w.pass(5 * time.Millisecond)
	}
	if w.trips-len(w.began) > 100 { // each job takes one to delete its row
		t.Errorf("there were %d trips in %v, of %d jobs", w.trips, Window, len(w.began))
	}
	w.run(3000)
	if x.done[last] == 0 {
		t.Error("it has not begun behind 3000 others")
	}
}

// After a worker was lost, the jobs that it may have had are tried by the turns of their tenants.
func TestTrialsByTurns(t *testing.T) {
	w := newFair(t, 1, 40)
	x := w.all[0]
	x.enqueueAtOnce(30, of("flood"), 0)
	x.enqueueAtOnce(1, of("ada"), 0)
	x.b.Suspect, x.b.Since = 40, w.us+time.Second.Microseconds()
	w.serve()
	if n := x.b.Doubted(); n != 31 {
		t.Fatalf("%d jobs wait for their trials", n)
	}
	for n := range 31 {
		if j := x.b.Try(RankOf("")); j.Tenant == "ada" {
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
	w := newFair(t, 4, 50)
	w.turns.Weights = map[string]int{"b": 3}
	for _, x := range w.all {
		for _, name := range []string{"a", "b", "c"} {
			x.enqueueAtOnce(1200, of(name), 0)
		}
	}
	w.pass(time.Second)
	w.run(2500)
	got := map[string]int{}
	for _, j := range w.began[500:] {
		got[j.Tenant]++
	}
	if a, b, c := got["a"], got["b"], got["c"]; a < 340 || a > 460 || c < 340 || c > 460 || b < 1100 || b > 1300 {
		t.Errorf("of 2000 jobs a, b and c had %d, %d and %d, and not 400, 1200 and 400", a, b, c)
	}
}

// A job that counts for three has the turns of three.
func TestTurnsOfCosts(t *testing.T) {
	w := newFair(t, 4, 50)
	for _, x := range w.all {
		x.enqueueAtOnce(1200, of("a"), 0)
		dear := of("b")
		dear.cost = 3
		x.enqueueAtOnce(1200, dear, 0)
	}
	w.pass(time.Second)
	w.run(1500)
	got := map[string]int{}
	for _, j := range w.began[500:] {
		got[j.Tenant]++
	}
	if a, b := got["a"], got["b"]; a < 700 || a > 800 || b < 200 || b > 300 {
		t.Errorf("of 1000 jobs a and b had %d and %d, and not 750 and 250", a, b)
	}
}

// A job that is left to the reads, since one before it may have been committed late, is not picked again and again; one that they
// have come to is passed over.
func TestMarkedIsNotPickedAgain(t *testing.T) {
	for name, read := range map[string]bool{"read": true, "not read": false} {
		b := newBlock(1)
		b.Share(&Turns{})
		marked := func() *Job { return &Job{ID: 1<<20 | store.Follower, Priority: normal, Line: "k", Tenant: "ada"} }
		b.keyQueue("k").Hold(1)
		b.fair.turns.Give("", normal, 1) // so the next one is behind ada's
		b.Add(ready(3, ""))
		if read {
			b.Add(marked())
		}
		b.Keyed, b.Reads.Full, b.fair.keyed, b.fair.look = true, true, true, 1<<62
		b.Reads.Whole, b.Reads.Looked, b.Reads.cursor[normal] = 1, 1, 1<<30
		b.fair.sure = everywhere
		who := tenancy{"ada", normal}
		b.tenant(who).ahead = marked().ID
		b.line(who, b.tenant(who))
		at := now(1, modelNow)
		p := b.Plan(at)
		if p.Pick == nil {
			t.Fatal("nothing is picked")
		}
		b.Take(p, &Found{Picked: []*Job{marked()}}, at.At, 0)
		if b.wantsAhead(at.At) {
			t.Errorf("a job that was %s is picked again at once", name)
		}
	}
}

// A key's jobs that were put back, and are read again in parts, are picked from there on, although picks have passed over them before;
// and not by a pick that was planned before.
func TestPutBackIsPickedInOrder(t *testing.T) {
	b := newBlock(1)
	b.Share(&Turns{})
	job := func(id int64) *Job { return &Job{ID: id, Priority: normal, Order: id, Line: "k", Tenant: "ada"} }
	b.Keyed, b.Reads.Full, b.fair.keyed, b.fair.look = true, true, true, 1<<62
	b.keyQueue("k").SkipFrom(10)
	b.fair.sure = everywhere
	who := tenancy{"ada", normal}
	*b.tenant(who) = tenant{upto: 20, ahead: 30}
	b.line(who, b.tenant(who))
	b.fair.turns.Give("", normal, 1) // so the next one is behind ada's
	b.Add(ready(3, ""))              // it keeps the block from being read
	at := now(1, modelNow)
	p := b.Plan(at)
	if p.Pick == nil || p.Pick.After != 20 {
		t.Fatalf("it picks %+v", p.Pick)
	}
	p.Reads, p.Read = true, Read{Limit: 1}
	got := b.Take(p, &Found{Fresh: []*Job{job(10)}, Got: Fetched{1, Place{normal, 10}}, Picked: []*Job{job(21)}}, at.At, 0)
	if b.Seen(10) == nil || b.Seen(21) != nil || got.Fresh != 1 {
		t.Error("a job is picked ahead of others of its key that were put back")
	}
	b.Pop()
	b.Pop()
	if p = b.Plan(at); p.Pick == nil || p.Pick.After >= 11 {
		t.Errorf("then it picks %+v", p.Pick)
	}
}

// Of several tenants, all jobs are picked that are ahead, beginning with the first of any; and a look that finds later ones of a tenant does
// not have it passed over that earlier ones are there.
func TestPicksAllThatIsAhead(t *testing.T) {
	b := newBlock(100)
	b.Share(&Turns{})
	b.Reads.Full, b.Reads.cursor[normal], b.fair.looked[normal] = true, 5, 40
	b.sees(&Look{Limit: lookRows}, []Sight{{Tenant: "a", Priority: normal, First: 20, Last: 30, Rows: 2}, {Tenant: "b", Priority: normal, First: 10, Last: 15, Rows: 2}, {Tenant: "a", Priority: normal, First: 50, Last: 60, Rows: 2}}, 1, 0)
	b.tenant(tenancy{"b", normal}).upto = 9
	b.tenant(tenancy{"a", normal}).upto = 19
	b.sees(&Look{Limit: lookRows}, []Sight{{Tenant: "a", Priority: normal, First: 70, Last: 80, Rows: 2}, {Tenant: "c", Priority: normal, First: 90, Last: 90, Rows: 1}, {Tenant: "b", Priority: normal, First: 8, Last: 8, Rows: 1}}, 1, 0)
	for name, upto := range map[string]int64{"a": 19, "b": 7, "c": 89} {
		if got := b.fair.tenants[tenancy{name, normal}].upto; got != upto {
			t.Errorf("of %s jobs are picked behind %d, not %d", name, got, upto)
		}
	}
	p := b.pick(now(1<<40, modelNow))
	if p == nil || p.After != 7 || p.Upto != 90 || len(p.Tenants) != 3 {
		t.Fatalf("it picks %+v", p)
	}
	if fresh := b.takePicked(p, []*Job{{ID: 8, Priority: normal, Tenant: "b"}}); fresh != 1 {
		t.Errorf("%d are new", fresh)
	}
}

// However many jobs one tenant has, wherever the reads are: once a look has seen them, the jobs of the others begin as if all had as many.
func TestFairBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newFair(t, rapid.IntRange(1, 3).Draw(t, "blocks"), rapid.SampledFrom([]int{1, 8, 20, 100}).Draw(t, "batch"))
		flood := func(n int) {
			for _, x := range w.all {
				x.enqueueAtOnce(n, of("flood"), 0)
			}
		}
		flood(rapid.SampledFrom([]int{100, 1000, 3000}).Draw(t, "flood"))
		w.run(rapid.SampledFrom([]int{0, 3, 100, 300}).Draw(t, "begin"))
		tenants, each := rapid.IntRange(1, 5).Draw(t, "tenants"), rapid.IntRange(1, 10).Draw(t, "jobs")
		for i := range tenants {
			for range each {
				rapid.SampledFrom(w.all).Draw(t, "block").enqueueAtOnce(1, of(strconv.Itoa(i)), 0)
			}
		}
		flood(200)
		w.pass(time.Second)
		from, small := len(w.began), 0
		w.run((tenants+1)*(each+1) + 1)
		for _, j := range w.began[from:] {
			if j.Tenant != "flood" {
				small++
			}
		}
		if small < tenants*each {
			t.Fatalf("of %d jobs of %d small tenants %d are among the next %d", tenants*each, tenants, small, len(w.began)-from)
		}
	})
}

// Whatever comes: each job begins once, and those of a key in their order.
func TestFairModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newFair(t, rapid.IntRange(1, 3).Draw(t, "blocks"), rapid.SampledFrom([]int{1, 8, 100}).Draw(t, "batch"))
		names := []string{"", "a", "b", "c", "d"}[:rapid.IntRange(1, 5).Draw(t, "tenants")]
		for _, name := range names {
			if rapid.Bool().Draw(t, "heavy") {
				w.turns.Weights = map[string]int{name: 4}
			}
		}
		total := 0
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "tenant")
			at := rapid.IntRange(0, len(w.all)-1).Draw(t, "block")
			n := rapid.SampledFrom([]int{1, 5, 50, 400}).Draw(t, "jobs")
			keys := rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, "keys")
			late := rapid.IntRange(0, 2).Draw(t, "late") == 0
			x := w.all[at]
			for i := range n {
				r := of(name)
				if r.priority = rapid.SampledFrom([]int{2, 2, 2, 3}).Draw(t, "priority"); keys > 0 {
					r.line, r.priority = fmt.Sprint(name, at, "/", i%keys), 2
				}
				if late && i >= n-max(1, keys) { // of a key, those before it are committed
					x.drawn = append(x.drawn, x.newRow(r))
				} else {
					x.enqueueAtOnce(1, r, 0)
				}
			}
			total += n
			if rapid.Bool().Draw(t, "unfair") {
				w.share(!w.all[0].b.Fair())
			}
			w.run(rapid.SampledFrom([]int{0, 3, 100, 2000}).Draw(t, "begin"))
			for _, x := range w.all {
				x.check()
			}
		}
		for _, x := range w.all {
			x.commit()
		}
		w.run(total)
		if len(w.began) != total {
			t.Fatalf("%d jobs began %d times", total, len(w.began))
		}
		for _, x := range w.all {
			x.conclude()
		}
	})
}
