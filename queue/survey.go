package queue

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/share"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// What workers read in order to share blocks is read for many queues by one statement, and for
// all workers of a client at once: the number of statements depends on neither.

// maxSurveyed is the approximate number of queues per statement.
const maxSurveyed = 500

// maxLooked is the maximum number of blocks per statement that looks for jobs in them.
const maxLooked = 2000

// A view is what the tables say about some queues: their workers, then the holders of their
// blocks, and then the checked out jobs. Workers share it, and do not change it.
type view struct {
	workers map[int][]share.Worker
	blocks  map[int][]store.BlockRow
	running map[int][]runningRow
	failed  error // why the checked out jobs are unknown
}

// A membership shows whether the participating processes are the same as before.
type membership struct {
	live, late, drained int
	newest              int64
	at                  instant.Instant // when it was read
}

// same reports whether nobody has come or gone since another one was read.
func (b *membership) same(o *membership) bool {
	return b.live == o.live && b.late == o.late && b.drained == o.drained && b.newest == o.newest
}

// A commons has the questions that the workers of a client ask together.
type commons struct {
	views       *gatherer[int, *view]
	rosters     *gatherer[int, map[int][]share.Worker]
	memberships *gatherer[struct{}, membership]
	looks       *gatherer[lookRow, map[store.BlockID]bool]
	renews      *gatherer[renewal, map[renewal]bool]
	sets        share.KindSets
}

func (s *commons) init(c *Client) {
	s.views = newGatherer(c.readView)
	s.rosters = newGatherer(c.readWorkers)
	s.memberships = newGatherer(func(ctx context.Context, _ []struct{}) (membership, error) { return c.readMembership(ctx) })
	s.looks = newGatherer(c.lookAbove)
	s.renews = newGatherer(c.renewAll)
}

func (c *Client) readView(ctx context.Context, queues []int) (*view, error) {
	s := &view{running: map[int][]runningRow{}}
	var err error
	if s.workers, err = c.readWorkers(ctx, queues); err != nil {
		return nil, err
	}
	if s.blocks, err = c.readBlocks(ctx, queues); err != nil {
		return nil, err
	}
	for part := range slices.Chunk(queues, maxSurveyed) {
		running, err := c.readRunning(ctx, part, runningPage)
		if err != nil {
			s.failed = err
			return s, nil
		}
		for _, r := range running {
			s.running[r.queue] = append(s.running[r.queue], r)
		}
	}
	return s, nil
}

// readWorkers returns the workers of some queues.
func (c *Client) readWorkers(ctx context.Context, queues []int) (map[int][]share.Worker, error) {
	found := map[int][]share.Worker{}
	for part := range slices.Chunk(queues, maxSurveyed) {
		_, err := sqlrun.Select(ctx, &c.dbOf(ctx).Session, store.ListWorkers, sqlrun.Args{"queues": store.IDList(part)},
			func(rows *sql.Rows) (none struct{}, err error) {
				var r share.Worker
				var queue int
				var kinds sql.NullString
				err = rows.Scan(&queue, &r.Node, &r.Busy, &r.InTime, &r.Drained, &r.By, &kinds)
				r.Says, r.Kinds = kinds.String, c.commons.sets.Read(kinds.String)
				found[queue] = append(found[queue], r)
				return none, err
			})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// readBlocks returns the blocks of some queues.
func (c *Client) readBlocks(ctx context.Context, queues []int) (map[int][]store.BlockRow, error) {
	found := map[int][]store.BlockRow{}
	for part := range slices.Chunk(queues, maxSurveyed) {
		rows, err := store.Blocks(ctx, &c.dbOf(ctx).Session, part...)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[r.Queue] = append(found[r.Queue], r)
		}
	}
	return found, nil
}

// runningPage is how many rows a statement reads of them. Some engines refuse results of more than 10,000.
const runningPage = 5000

// readRunning returns the checked out jobs of some queues, in the order of their keys.
func (c *Client) readRunning(ctx context.Context, queues []int, limit int) (all []runningRow, err error) {
	queues = slices.Sorted(slices.Values(queues))
	for last := (runningRow{queue: -1}); ; {
		args := sqlrun.Args{"queues": store.IDList(queues), "queue": last.queue, "divided": last.divided, "after": last.id, "limit": limit}
		rows, err := sqlrun.Select(ctx, &c.dbOf(ctx).Session, store.RunningJobs, args, func(rows *sql.Rows) (r runningRow, err error) {
			var key sql.NullString
			err = rows.Scan(&r.queue, &r.divided, &r.id, &r.kind, &key, &r.state, &r.crashes, &r.losses, &r.charged,
				&r.lockBy, &r.live, &r.inTime, &r.left)
			r.key = key.String
			return r, err
		})
		if all = append(all, rows...); err != nil || len(rows) < limit {
			return all, err
		}
		last = rows[len(rows)-1]
		passed, _ := slices.BinarySearch(queues, last.queue)
		queues = queues[passed:]
	}
}

// readMembership reads the present membership, and the time.
func (c *Client) readMembership(ctx context.Context) (b membership, err error) {
	b.at = instant.Now()
	var us int64
	if err = c.dbOf(ctx).Get(ctx, store.Pulse, nil, &us, &b.live, &b.late, &b.drained, &b.newest); err == nil {
		c.clock.note(b.at, instant.Now(), us)
	}
	return b, err
}

// settingsOf reads the settings of some queues, whose names are given, and their limits. If one
// cannot be read, since it was written by hand, it reads each separately.
func (c *Client) settingsOf(ctx context.Context, names map[int]string) (
	sets map[int]*store.Queue, limits map[int][]store.LimitRow, failed error,
) {
	sets, limits = map[int]*store.Queue{}, map[int][]store.LimitRow{}
	for part := range slices.Chunk(slices.Sorted(maps.Keys(names)), maxSurveyed) {
		err := c.someSettings(ctx, part, names, sets, limits)
		if err == nil || ctx.Err() != nil || c.db.Dialect.Unavailable(err) {
			failed = errors.Join(failed, err)
			continue
		}
		for i := range part {
			failed = errors.Join(failed, c.someSettings(ctx, part[i:i+1], names, sets, limits))
		}
	}
	return sets, limits, failed
}

func (c *Client) someSettings(ctx context.Context, part []int, names map[int]string,
	sets map[int]*store.Queue, limits map[int][]store.LimitRow,
) error {
	at, on := instant.Now(), &c.dbOf(ctx).Session
	found, err := store.SelectQueues(ctx, on, store.GetQueues, sqlrun.Args{"queues": store.IDList(part)})
	if err != nil {
		return err
	}
	shares, err := sharesOf(ctx, on, found)
	if err != nil {
		return err
	}
	for _, q := range found {
		if q.At, q.Shares = at, shares[q.ID]; q.Blocks > 0 {
			c.remember(q)
			sets[q.ID] = q
		}
	}
	of := map[int]string{}
	for _, id := range part {
		of[id] = names[id]
	}
	bounds, err := limitsByQueue(ctx, on, of)
	maps.Copy(limits, bounds)
	return err
}

// sharesOf reads the shares of the tenants of those queues that are fair.
func sharesOf(ctx context.Context, on *sqlrun.Session, queues []*store.Queue) (map[int]map[string]int, error) {
	var fair []int
	for _, q := range queues {
		if q.Fair {
			fair = append(fair, q.ID)
		}
	}
	if len(fair) == 0 {
		return nil, nil
	}
	return store.ReadShares(ctx, on, fair)
}

// limitsByQueue reads the limits of some queues, whose names are given. The result has each
// queue, even without limits.
func limitsByQueue(ctx context.Context, on *sqlrun.Session, names map[int]string) (map[int][]store.LimitRow, error) {
	rows, err := store.ReadLimits(ctx, on, names)
	if err != nil {
		return nil, err
	}
	limits := map[int][]store.LimitRow{}
	for id := range names {
		limits[id] = nil
	}
	for i := range rows {
		limits[rows[i].QueueID] = append(limits[rows[i].QueueID], rows[i])
	}
	return limits, nil
}

// renewAll renews the leases of several workers, and returns whether they continue. A worker whose row
// another transaction holds is not in the answer.
func (c *Client) renewAll(ctx context.Context, all []renewal) (map[renewal]bool, error) {
	goes, byLease := map[renewal]bool{}, map[time.Duration][]string{}
	for _, r := range all {
		byLease[r.lease] = append(byLease[r.lease], r.node)
	}
	for lease, names := range byLease {
		slices.Sort(names)
		n, err := c.renewSome(ctx, lease, names)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			one := n
			if int(n) < len(names) && len(names) > 1 { // a lease has expired, or its row is locked
				if one, err = c.renewSome(ctx, lease, []string{name}); err != nil {
					return nil, err
				}
			}
			if one == 0 {
				err := c.dbOf(ctx).Get(ctx, store.NodeLives, sqlrun.Args{"node": name}, new(string))
				if err == nil {
					continue // the others have been renewed
				}
				if !errors.Is(err, sql.ErrNoRows) {
					return nil, err
				}
			}
			goes[renewal{name, lease}] = one > 0
		}
	}
	return goes, nil
}

// A renewal is a lease to be renewed.
type renewal struct {
	node  string
	lease time.Duration
}

// errNodeHeld means that a lease could not be renewed although it has not ended.
var errNodeHeld = errors.New("another transaction holds this worker's row of dbcron_node")

func (c *Client) renewSome(ctx context.Context, lease time.Duration, names []string) (int64, error) {
	return c.dbOf(ctx).Exec(ctx, store.Heartbeat, sqlrun.Args{"nodes": names, "lease": lease.Microseconds()})
}

// A lookRow is a block, and the ids above which to look in it, by priority.
type lookRow struct {
	at    store.BlockID
	after block.Cursor
}

// lookAbove returns the blocks that have jobs above some ids. Workers of a client that move
// jobs to each other may ask about the same block; the answer is then about either.
func (c *Client) lookAbove(ctx context.Context, rows []lookRow) (map[store.BlockID]bool, error) {
	there, db := map[store.BlockID]bool{}, c.dbOf(ctx)
	for part := range slices.Chunk(rows, maxLooked) {
		if db.Dialect.SkipLocked == "" { // deleted rows cost readers nothing, so this is cheap
			queues := map[int]bool{}
			var ids []int
			for _, row := range part {
				if !queues[row.at.Queue] {
					queues[row.at.Queue] = true
					ids = append(ids, row.at.Queue)
				}
			}
			some, err := sqlrun.Select(ctx, &db.Session, store.LookForAny, sqlrun.Args{"queues": store.IDList(ids)}, store.ScanID)
			if err != nil {
				return nil, err
			}
			if len(some) == 0 {
				continue
			}
		}
		args := make([]sqlrun.Args, len(part))
		for i, row := range part {
			args[i] = sqlrun.Args{
				"queue": row.at.Queue, "block": row.at.Divided,
				"after1": row.after[1], "after2": row.after[2], "after3": row.after[3], "after4": row.after[4],
			}
		}
		// In a pipeline, so that its plans are cached.
		err := db.Pipeline(ctx, &sqlrun.Step{
			Stmt: store.LookFor, Args: sqlrun.Args{"rows": args},
			Scan: func(row *sqlrun.Row) error {
				there[store.BlockID{Queue: int(row.Int(0)), Divided: int(row.Int(1))}] = true
				return nil
			},
		})
		if err != nil {
			return nil, err
		}
	}
	return there, nil
}

// A runningRow is a job that some worker has checked out.
type runningRow struct {
	queue, divided     int
	id                 int64
	kind               string
	key, state, lockBy string
	charged            string // whose losses count in crashes: see runner_return.go
	crashes, losses    int
	live, inTime, left bool
}
