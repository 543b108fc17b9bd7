package lock

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrHeld means that others hold the lock, or all slots of the pool.
	// TryAcquire, Acquire and Do return it as a *HeldError, which names the
	// holder, or as an ErrHeldByCaller.
	ErrHeld = errors.New("lock: held")

	// ErrHeldByCaller means that the caller's context derives from a holder of the
	// same lock, so that the caller would wait for itself. It is also an ErrHeld.
	ErrHeldByCaller = fmt.Errorf("%w by the caller itself", ErrHeld)

	// ErrLost means that the lease ended before its holder released it: it was not
	// renewed in time, or somebody released it by force. Another holder may have
	// begun.
	ErrLost = errors.New("lock: lease lost")

	// ErrReleased means that the holder has already released the lease.
	ErrReleased = errors.New("lock: released")

	// ErrStalled is an ErrLost whose cause is a missing call of Progress. See
	// Options.Stall.
	ErrStalled = fmt.Errorf("%w: no progress", ErrLost)

	// ErrMaxHold is an ErrLost whose cause is Options.MaxHold.
	ErrMaxHold = fmt.Errorf("%w: held for too long", ErrLost)

	// ErrInvalid means that a name, an option or a size is not allowed.
	ErrInvalid = errors.New("lock: invalid")

	// ErrNotFound means that there is no such lock.
	ErrNotFound = errors.New("lock: not found")

	// ErrPool means that the name belongs to a pool and not to a lock, or the
	// other way round, or that the pool has another size.
	ErrPool = errors.New("lock: pool")

	// ErrInUse means that more slots of a pool are held than it would keep.
	ErrInUse = errors.New("lock: pool is in use")
)

// A HeldError describes the holder of a lock. It is an ErrHeld.
type HeldError struct {
	Name  string
	By    string        // the holder; of a pool, the one whose lease ends first
	Since time.Time     // by the database's clock, as is Until
	Until time.Time     // unless the holder renews or releases the lock
	Left  time.Duration // from the answer to Until
	Fence int64
	Meta  string
	Slots int // of a pool: its size, all slots being held; of a lock: 0

	session bool
	kept    bool // released, until its minimum hold is over
}

// Error names the holder, since when and until when.
func (e *HeldError) Error() string {
	what := fmt.Sprintf("lock: %s is held", e.Name)
	if e.Slots > 0 {
		what = fmt.Sprintf("lock: all %d slots of %s are held, the first", e.Slots, e.Name)
	}
	if e.By == "" {
		return what
	}
	if e.Until.IsZero() {
		return what + " by " + e.By
	}
	text := fmt.Sprintf("%s by %s since %s, until %s", what, e.By,
		e.Since.UTC().Format(time.RFC3339), e.Until.UTC().Format(time.RFC3339))
	if e.kept {
		return text + ": it has a minimum hold"
	}
	return text + " unless renewed"
}

// Is makes every HeldError an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
