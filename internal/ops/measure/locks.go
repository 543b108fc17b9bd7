package measure

import (
	"context"
	"fmt"
	"time"
)

// lockName returns the name of a caller's own lock.
func lockName(caller int) string { return fmt.Sprint("bench-", caller) }

// roundTrip reads a row by its key.
func roundTrip(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	if err := b.pair(ctx, 0); err != nil {
		return nil, err
	}
	from := loadNow()
	took, all, err := calls(ctx, 1, span, func(ctx context.Context, _ int) error {
		_, err := b.locks.Get(ctx, lockName(0))
		return err
	})
	if err != nil {
		return nil, err
	}
	f := called("read", "rows", 1, took, all, from.since())
	b.read, f.Bound = f.P50, "the round trip"
	return []Figure{f}, nil
}

// pair takes and releases a lock.
func (b *bed) pair(ctx context.Context, caller int) error {
	lease, err := b.locks.TryAcquire(ctx, lockName(caller))
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

func lockAlone(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	return b.pairs(ctx, 1, span)
}

func lockTogether(ctx context.Context, b *bed, span time.Duration) ([]Figure, error) {
	return b.pairs(ctx, 16, span)
}

// pairs has each caller take and release its own lock, which takes two commits.
func (b *bed) pairs(ctx context.Context, callers int, span time.Duration) ([]Figure, error) {
	from := loadNow()
	took, all, err := calls(ctx, callers, span, b.pair)
	if err != nil {
		return nil, err
	}
	f := called("lock", "pairs", callers, took, all, from.since())
	if f.Bound = b.bound(f.Host, 2); callers == 1 {
		f.Bound = b.boundAlone(&f, 2)
	}
	return []Figure{f}, nil
}
