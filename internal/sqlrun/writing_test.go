package sqlrun

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// aWriter is what a DB of its own has on a file.
func aWriter(f *file) *writing { return &writing{own: make(permit, 1), file: f} }

// The writers of a file's DBs write in the order in which they came.
func TestWritersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{permit: make(permit, 1)}
		done := aWriter(f).take(t.Context())
		var order []int
		for i := range 5 {
			go func() {
				defer aWriter(f).take(t.Context())()
				order = append(order, i)
			}()
			synctest.Wait()
		}
		if order != nil {
			t.Errorf("%v wrote beside the first", order)
		}
		done()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("they wrote in the order %v", order)
		}
	})
}

// A writer that stalls delays the others, and its late end takes the permit from nobody.
func TestStalledWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, other := aWriter(nil), aWriter(nil)
		one.file = &file{permit: make(permit, 1)}
		other.file = one.file
		waits := func(w *writing) (done func(), after time.Duration) {
			begun := time.Now() //nolint:forbidigo // a clock that synctest moves
			done = w.take(t.Context())
			return done, time.Since(begun)
		}
		stalled, _ := waits(one)
		fromOther, after := waits(other)
		if after != courtesy {
			t.Errorf("another DB waited %v, want %v", after, courtesy)
		}
		again, after := waits(one)
		if after != patience {
			t.Errorf("another writer of this DB waited %v, want %v", after, patience)
		}
		again()
		fromOther()
		if next, after := waits(other); after != courtesy {
			t.Errorf("while it still writes, the next one waited %v, want %v", after, courtesy)
		} else {
			next()
		}
		stalled()
		for _, w := range []*writing{one, other} {
			done, after := waits(w)
			if after != 0 {
				t.Errorf("after its end, the next one waited %v", after)
			}
			done()
		}
	})
}

// A writer whose context ends waits no longer, and leaves its place to the next.
func TestCancelledWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{permit: make(permit, 1)}
		one, other := aWriter(f), aWriter(f)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := one.take(t.Context())
		var left atomic.Int32
		wrote := false
		for _, w := range []*writing{one, other} {
			go func() {
				defer w.take(ctx)()
				left.Add(1)
			}()
			synctest.Wait()
		}
		go func() {
			defer aWriter(f).take(t.Context())()
			wrote = true
		}()
		synctest.Wait()
		cancel(errors.New("the caller has left"))
		synctest.Wait()
		if left.Load() != 2 || wrote {
			t.Errorf("%d of 2 have left; the next one wrote beside the first: %v", left.Load(), wrote)
		}
		done()
		synctest.Wait()
		if !wrote {
			t.Error("the next one did not get the permit")
		}
	})
}

// A name that DBs use is kept.
func TestFileNamed(t *testing.T) {
	one := fileNamed("/one")
	forget("/one")
	if fileNamed("/one") != one || fileNamed("/other") == one {
		t.Error("a name stands for two files, or two names for one")
	}
}
