package pace

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Ticks come at the interval, one for all that passed during the body, until the context or the loop ends.
func TestTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began, n := time.Now(), 0 //nolint:forbidigo // virtual
		for range Ticks(ctx, time.Minute) {
			switch n++; n {
			case 2:
				time.Sleep(5 * time.Minute / 2) //nolint:forbidigo // virtual
			case 4:
				cancel()
			}
		}
		if took := time.Since(began); n != 4 || took != 5*time.Minute {
			t.Errorf("%d ticks in %v, want 4 in 5m", n, took)
		}
		for range Ticks(t.Context(), time.Minute) {
			n++
			break
		}
		if n != 5 {
			t.Errorf("%d ticks after the loop has ended, want 5", n)
		}
	})
}

// Sleep says which ended first: the time or the context.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		began := time.Now() //nolint:forbidigo // virtual
		if !Sleep(ctx, time.Minute) || Sleep(ctx, time.Minute) || time.Since(began) != 90*time.Second {
			t.Errorf("it took %v, want a minute, and half of one", time.Since(began))
		}
	})
}
