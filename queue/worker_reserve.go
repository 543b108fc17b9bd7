package queue

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/sqlconn"
)

// reserve takes connections for this worker, unless it uses the whole pool as it is. release
// gives them back. It refuses a pool that is too small.
//
// On engines with one writer, a handler that writes in a transaction blocks all other writers,
// whatever connections they have. So a pool of one, which is usual there, is as good as any.
func (k *core) reserve() (release func(), err error) {
	most := k.c.db.MaxConns()
	if most > 0 && most < smallestPool {
		if k.db.Dialect.SkipLocked == "" {
			return func() {}, nil
		}
		return nil, invalid("pool", "it has %d connections at the most, and a worker needs %d: one for its lease, one to read and write jobs, "+
			"and one for handlers; raise dialect.Options.MaxConns or the pool's own maximum", most, smallestPool)
	}
	pool := k.c.db.Pool()
	reserves.Lock()
	defer reserves.Unlock()
	r := reserves.of[pool]
	if r == nil {
		borrow := func() *sql.DB { return sqlconn.Borrow(pool, 1, k.db.Dialect.Briefly) }
		r = &reserve{lease: borrow(), work: borrow(), ears: make(chan struct{}, listeners(most))}
		reserves.of[pool] = r
	}
	r.use(1, k.opt.Connections, most)
	k.own = r
	k.db, k.leases = k.c.db.Over(r.work).Brief(), k.c.db.Over(r.lease).Brief()
	return sync.OnceFunc(func() { r.leave(pool, k.opt.Connections, most, k.log) }), nil
}

// onOwn makes a client use the worker's connections in a context: see dbOf.
func (k *core) onOwn(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownDB{}, k.db)
}

// fill opens all connections that the worker may have, before handlers take them. Those that
// are unavailable now are opened when needed.
func (k *core) fill(ctx context.Context) error {
	if k.own == nil {
		return nil
	}
	k.own.filling.Lock()
	defer k.own.filling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, db := range []*dialect.DB{k.leases, k.db} {
		if err := sqlconn.Fill(ctx, db.Pool()); err != nil {
			return fmt.Errorf("connections of the worker's own: %w", err)
		}
	}
	return nil
}
