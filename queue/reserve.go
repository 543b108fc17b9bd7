package queue

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"

	"github.com/dbcron/dbcron/dialect"
)

// Connections reserved for workers. Handlers may hold all others of the pool, in transactions,
// for as long as they like: leases are still renewed, blocks shared, jobs read and written. All
// workers that run on a pool, of whichever client, share them.
//
// Leases have a connection of their own, since reading and writing may wait for locks that
// handlers hold. None of them waits for a lock for longer than a second: see [sqlrun.DB.Brief].

// smallestPool is the smallest usable pool: one connection for leases, one for everything else,
// and one for handlers.
const smallestPool = 3

// A reserve is the connections of a pool's workers.
type reserve struct {
	filling sync.Mutex // held while opening all connections at once
	users   int
	asked   int     // connections for reading and writing, of all workers
	lease   *sql.DB // one connection
	work    *sql.DB // the others
	ears    chan struct{}
}

// reserves has the reserves of all pools on which workers run.
var reserves = struct {
	sync.Mutex
	of map[*sql.DB]*reserve
}{of: map[*sql.DB]*reserve{}}

// leave ends the use of a reserve, and gives its connections back if nobody uses it any more.
func (r *reserve) leave(pool *sql.DB, connections, most int, log *slog.Logger) {
	reserves.Lock()
	defer reserves.Unlock()
	if r.use(-1, -connections, most); r.users == 0 {
		delete(reserves.of, pool)
		if err := errors.Join(r.lease.Close(), r.work.Close()); err != nil {
			log.Debug("giving connections back", "err", err)
		}
	}
}

// spared returns a context in which this client enqueues on connections of the workers, if all others of
// the pool are taken. end is to be called afterwards. Handlers may hold all those others in transactions,
// and wait for jobs that they enqueue beside them: nobody would ever go on. The workers' connections are
// held only for a moment.
func (c *Client) spared(ctx context.Context) (on context.Context, end func()) {
	if ctx.Value(ownDB{}) != nil || !c.db.Full() {
		return ctx, func() {}
	}
	pool, most := c.db.Pool(), c.db.MaxConns()
	reserves.Lock()
	defer reserves.Unlock()
	r := reserves.of[pool]
	if r == nil {
		return ctx, func() {}
	}
	r.use(1, 0, most)
	return context.WithValue(ctx, ownDB{}, c.db.Over(r.work)), func() { r.leave(pool, 0, most, c.opt.Logger) }
}

// listeners returns how many clients may listen for notifications, which takes a connection
// each: the others poll.
func listeners(most int) int {
	switch {
	case most == 0:
		return 1000
	case most <= smallestPool:
		return 0
	}
	return max(1, most/4)
}

// use counts a worker that begins or ends. A worker flushes with so many connections, and
// shares one for the rest with the others. All of them take at most half of the pool.
func (r *reserve) use(workers, connections, most int) {
	r.users += workers
	r.asked += connections
	n := r.asked + 1
	if most > 0 {
		n = min(n, most/2-1)
	}
	r.work.SetMaxOpenConns(max(1, n))
	r.work.SetMaxIdleConns(max(1, n))
}

// ownDB is the context key of the database on a worker's connections.
type ownDB struct{}

// dbOf returns the database for operations in a context: on a worker's connections, if the
// worker is the caller.
func (c *Client) dbOf(ctx context.Context) *dialect.DB {
	if db, ok := ctx.Value(ownDB{}).(*dialect.DB); ok {
		return db
	}
	return c.db
}
