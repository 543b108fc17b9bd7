package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dbcron/dbcron/internal/sqlrun"
)

// MaxSlots is the maximum size of a pool.
const MaxSlots = 1000

// A Pool is a semaphore shared by all processes: N slots under one name, each
// with at most one holder. It is safe for concurrent use.
type Pool struct {
	l     *Locker
	name  string
	size  int
	ready atomic.Bool // the pool was seen with this size
}

// Pool returns the pool called name. With a size above 0, the first use creates
// the pool if there is none, and returns ErrPool if it has another size. With
// size 0, the pool must exist. Pools and locks share their names: a name cannot
// be both.
func (l *Locker) Pool(name string, size int) (*Pool, error) {
	if err := l.check(context.Background(), name); err != nil {
		return nil, err
	}
	if size < 0 || size > MaxSlots {
		return nil, fmt.Errorf("%w: pool %s of %d slots; from 1 to %d can be had", ErrInvalid, name, size, MaxSlots)
	}
	return &Pool{l: l, name: name, size: size}, nil
}

// TryAcquire takes a slot if one is free. If not, it returns a *HeldError.
func (p *Pool) TryAcquire(ctx context.Context) (*Lease, error) {
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	return p.l.try(ctx, p, outOfTurn)
}

// Acquire takes a slot, and waits for one as Locker.Acquire does. Pools always
// poll, even where the database can notify.
func (p *Pool) Acquire(ctx context.Context) (*Lease, error) {
	if err := p.prepare(ctx); err != nil {
		return nil, err
	}
	return p.l.acquire(ctx, p)
}

// Do takes a slot, runs f, and releases the slot. See Locker.Do.
func (p *Pool) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	if err := p.prepare(ctx); err != nil {
		return err
	}
	return p.l.do(ctx, p, f)
}

// prepare creates the pool if there is none, and checks its size, once.
func (p *Pool) prepare(ctx context.Context) error {
	if err := p.l.check(ctx, p.name); err != nil || p.ready.Load() {
		return err
	}
	size, err := p.Size(ctx)
	if errors.Is(err, ErrNotFound) && p.size > 0 {
		if err = p.resize(ctx, p.size, true); err == nil {
			size, err = p.Size(ctx) // another may have been quicker, with another size
		}
	}
	if err == nil && p.size > 0 && p.size != size {
		err = fmt.Errorf("%w: %s has %d slots, not %d: resize it, or ask for as many", ErrPool, p.name, size, p.size)
	}
	p.ready.Store(err == nil)
	return err
}

// Size returns the number of slots. It returns ErrNotFound if there is no such
// pool, and ErrPool if the name belongs to a lock.
func (p *Pool) Size(ctx context.Context) (int, error) {
	rows, err := p.l.peek(ctx, p.name)
	if err != nil {
		return 0, err
	}
	if len(rows) == 0 {
		return 0, fmt.Errorf("%w: pool %s", ErrNotFound, p.name)
	}
	if rows[0].State != Head {
		return 0, isLock(p.name)
	}
	return len(slots(rows, func(i Info) bool { return i.State != Closed })), nil
}

func isLock(name string) error {
	return fmt.Errorf("%w: %s is a lock, not a pool; use another name, or purge it when it is not needed any more", ErrPool, name)
}

// Resize changes the number of slots, and creates the pool if there is none.
// There are never more holders than slots: if more slots are held than would
// remain, Resize returns ErrInUse and changes nothing. Programs that still ask
// for the old size are refused.
func (p *Pool) Resize(ctx context.Context, size int) error {
	if size < 1 || size > MaxSlots {
		return fmt.Errorf("%w: pool %s of %d slots; from 1 to %d can be had", ErrInvalid, p.name, size, MaxSlots)
	}
	return p.resize(ctx, size, false)
}

// resize creates the pool and sets its size. With makeOnly it leaves the size of
// an existing pool alone.
func (p *Pool) resize(ctx context.Context, size int, makeOnly bool) error {
	err := p.l.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		if err := createRows(ctx, tx, sqlrun.Args{"name": p.name, "slot": 0, "state": "POOL"}); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, pool, sqlrun.Args{"name": p.name})
		if err != nil {
			return err
		}
		if n == 0 {
			return isLock(p.name)
		}
		// From here on no other transaction can change the set of slots.
		for {
			rows, err := sqlrun.Select(ctx, tx, peek, sqlrun.Args{"name": p.name}, scanInfo)
			if err != nil {
				return err
			}
			opened := slots(rows, func(i Info) bool { return i.State != Closed })
			if makeOnly && len(opened) > 0 || len(opened) == size {
				return nil
			}
			if len(opened) < size {
				err = p.grow(ctx, tx, rows, size-len(opened))
			} else {
				err = p.shrink(ctx, tx, rows, len(opened)-size)
			}
			if err != nil {
				return err
			}
		}
	})
	p.l.ring(p.name)
	return err
}

func (p *Pool) grow(ctx context.Context, tx *sqlrun.Session, rows []Info, n int) error {
	closed := slots(rows, func(i Info) bool { return i.State == Closed })
	if len(closed) > 0 {
		_, err := tx.Exec(ctx, open, sqlrun.Args{"name": p.name, "slots": closed[:min(n, len(closed))]})
		return err
	}
	first := rows[len(rows)-1].Slot + 1
	fresh := make([]sqlrun.Args, n)
	for i := range fresh {
		fresh[i] = sqlrun.Args{"name": p.name, "slot": first + i, "state": "FREE"}
	}
	return createRows(ctx, tx, fresh...)
}

// shrink closes up to n free slots, the last ones first. A slot that is taken
// meanwhile stays open, and the next round looks again.
func (p *Pool) shrink(ctx context.Context, tx *sqlrun.Session, rows []Info, n int) error {
	unused := slots(rows, func(i Info) bool { return i.State != Closed && heldBy(&i) == nil })
	if len(unused) < n {
		held := slots(rows, func(i Info) bool { return heldBy(&i) != nil })
		return fmt.Errorf("%w: %d slots of %s are held", ErrInUse, len(held), p.name)
	}
	slices.Reverse(unused)
	_, err := tx.Exec(ctx, closeSlots, sqlrun.Args{"name": p.name, "slots": unused[:n]})
	return err
}

// slots returns the numbers of the wanted slots, in order.
func slots(rows []Info, wanted func(Info) bool) []int64 {
	var found []int64
	for _, i := range rows {
		if i.Slot > 0 && wanted(i) {
			found = append(found, int64(i.Slot))
		}
	}
	return found
}

func (p *Pool) key() string { return p.name }

// grant marks a slot, and then selects it by its mark where the UPDATE cannot
// return it.
func (p *Pool) grant(ctx context.Context, args sqlrun.Args, _ bool) (slot int, fence int64, found bool, err error) {
	read := takeSlot
	if p.l.db.Dialect.Returning == nil {
		n, err := p.l.db.Exec(ctx, takeSlot, args)
		if err != nil || n == 0 {
			return 0, 0, false, err
		}
		read = slotOf
	}
	err = p.l.db.Get(ctx, read, args, &slot, &fence)
	if noRows(err) {
		return 0, 0, false, nil
	}
	return slot, fence, err == nil, err
}

// holder reports the pool as full only if it sees no free slot: grant may have
// skipped one whose row another contender had locked for a moment.
func (p *Pool) holder(ctx context.Context) (*HeldError, error) {
	rows, err := p.l.look(ctx, p.name)
	if err != nil {
		return nil, err
	}
	var first *HeldError
	held := 0
	for i := range rows {
		if rows[i].Slot == 0 || rows[i].State == Closed {
			continue
		}
		h := heldBy(&rows[i])
		if h == nil {
			return nil, nil //nolint:nilnil // a slot is free
		}
		held++
		if first == nil || h.Left < first.Left {
			first = h
		}
	}
	if first == nil {
		return nil, fmt.Errorf("%w: pool %s", ErrNotFound, p.name)
	}
	first.Slots = held
	return first, nil
}
