package block

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type block struct {
	spot  Spot
	ready Ready[int]
}

func (b *block) Spot() *Spot { return &b.spot }

func (b *block) first() (Place, bool) {
	for p := 1; p <= Priorities; p++ {
		if at, ok := b.ready.First(p); ok {
			return at, true
		}
	}
	return Place{}, false
}

// Whatever comes into which block, and whatever leaves it unstarted: what begins is the most
// urgent job of all, of these the oldest, and of several as old in one block the one that came
// first.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type job struct {
			Place
			id, block int
		}
		var model []job
		var heap Heap[*block]
		blocks := make([]*block, 2)
		for i := range blocks {
			blocks[i] = &block{}
		}
		list := func(b *block) {
			if at, ok := b.first(); ok {
				heap.Set(b, at)
			}
		}
		next := 0
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				next++
				j := job{
					Place{rapid.IntRange(1, 2).Draw(t, "priority"), rapid.Int64Range(0, 2).Draw(t, "order")},
					next, rapid.IntRange(0, 1).Draw(t, "block"),
				}
				model = append(model, j)
				blocks[j.block].ready.Put(j.Place, j.id)
				list(blocks[j.block])
			},
			"remove": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				at := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				j := model[at]
				model = slices.Delete(model, at, at+1)
				if !blocks[j.block].ready.Remove(j.Priority, j.id) || blocks[j.block].ready.Remove(j.Priority, j.id) {
					t.Fatalf("job %d is not removed once", j.id)
				}
			},
			"begin": func(t *rapid.T) {
				for len(heap) > 0 { // what was first may have gone since
					b := heap[0]
					at, ok := b.first()
					if ok && !b.spot.First.Before(at) {
						break
					}
					if heap.Drop(); ok {
						heap.Set(b, at)
					}
				}
				if len(heap) == 0 {
					if len(model) > 0 {
						t.Fatalf("nothing begins of %v", model)
					}
					return
				}
				b := heap[0]
				id := b.ready.Take(b.spot.First.Priority)
				at := slices.IndexFunc(model, func(j job) bool { return j.id == id })
				if at < 0 {
					t.Fatalf("job %d begins, which is not there", id)
				}
				for _, j := range model {
					if j.Before(model[at].Place) || j.Place == model[at].Place && j.block == model[at].block && j.id < id {
						t.Fatalf("%v begins before %v", model[at], j)
					}
				}
				model = slices.Delete(model, at, at+1)
				if at, ok := b.first(); ok {
					heap.Set(b, at)
				} else {
					heap.Drop()
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for i, b := range blocks {
					var all, want []int
					n += b.ready.Len()
					for id := range b.ready.All() {
						all = append(all, id)
					}
					var here []job
					for _, j := range model {
						if j.block == i {
							here = append(here, j)
						}
					}
					slices.SortStableFunc(here, func(a, b job) int { return cmp.Or(a.Priority-b.Priority, cmp.Compare(a.Order, b.Order)) })
					for _, j := range here {
						want = append(want, j.id)
					}
					if !slices.Equal(all, want) {
						t.Fatalf("block %d has %v, not %v", i, all, want)
					}
				}
				if n != len(model) {
					t.Fatalf("there are %d jobs, not %d", n, len(model))
				}
			},
		})
	})
}
