package admin

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Hold is what keeps a job from beginning that no worker could begin: the job that is before it, or a limit.
type Hold struct {
	State State // of the job before it: running, delayed or ready
	Job   int64 // its id; 0: it is held by Limit
	Line  bool  // the job is before it in the line of a FIFO queue, and not as one of its key

	Limit   Limit     // at which the job is
	Permits int       // that workers have of Limit.Running
	Until   time.Time // when the rate of Limit lets a job begin; zero: Limit.Running is reached
}

// Next is what is next in a queue, and what of it is held: by a job before it that runs or waits for its retry, or by a limit. What only
// waits for its turn is not.
type Next struct {
	Looked int  // how many jobs were looked at
	More   bool // there may be more

	Held   int       // how many of these are held
	First  time.Time // since when the one waits that is held and has waited for longest
	Hold   Hold      // by what
	Oldest time.Time // since when the one waits that a worker could begin and has waited for longest; zero: there is none
	Job    int64     // that one
	Kind   string    // of that
}

// A Place is where a waiting job stands.
type Place struct {
	Holds  []Hold // what holds it
	Before int    // of its block: jobs that come before it; at the most a thousand of each priority are counted
	More   bool   // there are more before it
	Block  Block
	Older  bool // its block waits until older blocks are empty

	Workers []NextWorker
}

// A NextWorker is a live worker of a queue.
type NextWorker struct {
	Node    string
	Drained string // by whom; empty: it is not drained
	Kinds   []string
	All     bool // it does all kinds
}

const (
	someBlocks = 64   // so many blocks of a queue are looked at
	nextRows   = 2000 // and so many jobs of a priority in all of them
	placeRows  = 1000 // and so many of a priority in the block of one job
	namesRows  = 1000 // so many keys or tenants are asked about by a statement: SQLite takes 32,766 arguments
)

// someBlocks returns a queue's first blocks, and whether it has more.
func (c *Client) someBlocks(ctx context.Context, queue string) (q *store.Queue, blocks []store.BlockRow, more bool, err error) {
	if q, err = c.read(ctx, cmpName(queue)); err != nil {
		return nil, nil, false, err
	}
	blocks, err = c.blocks(ctx, q.ID)
	return q, blocks[:min(len(blocks), someBlocks)], len(blocks) > someBlocks, err
}

// nextJob is a job as these statements list it.
type nextJob struct {
	id                int64
	priority          int
	kind, key, tenant string
	since             time.Time // when it was enqueued, or due
}

// Next looks at the jobs that are next in each block of a queue: up to 2000 of each priority, in 64 blocks, so that what it reads is
// bounded however many there are.
func (c *Client) Next(ctx context.Context, queue string) (n Next, err error) {
	q, blocks, many, err := c.someBlocks(ctx, queue)
	if err != nil || len(blocks) == 0 {
		return n, err
	}
	parts, more, err := c.nextOf(ctx, blocks, nextRows/len(blocks))
	if err != nil {
		return n, err
	}
	n.More = many || more
	limits, err := c.limitsOn(ctx, q, slices.Concat(parts...))
	if err != nil {
		return n, err
	}
	all, err := c.aheadOf(ctx, blocks, parts)
	for i, part := range parts {
		for k := range part {
			n.add(&part[k], append(all[i].of(&part[k]), limits.of(&part[k])...))
		}
	}
	return n, err
}

// add counts a job that some holds hold.
func (n *Next) add(j *nextJob, holds []Hold) {
	n.Looked++
	switch {
	case len(holds) == 0:
		if n.Oldest.IsZero() || j.since.Before(n.Oldest) {
			n.Oldest, n.Job, n.Kind = j.since, j.id, j.kind
		}
	case len(holds) == 1 && holds[0].State == StateReady: // that one waits for its turn, and this one for it
	default:
		if n.Held++; n.Held == 1 || j.since.Before(n.First) {
			n.First, n.Hold = j.since, holds[0]
		}
	}
}

// PlaceOf returns where a job stands that is ready or delayed. Like [Client.Next], it reads a bounded number of rows.
func (c *Client) PlaceOf(ctx context.Context, i *Job) (p Place, err error) {
	q, err := c.read(ctx, i.Queue)
	if err != nil {
		return p, err
	}
	if p.Workers, err = c.workersOf(ctx, q.ID); err != nil {
		return p, err
	}
	all, err := c.Blocks(ctx, q.Name)
	if err != nil {
		return p, err
	}
	for _, b := range all {
		if b.Number == i.Block {
			p.Block = b
		}
	}
	p.Older = q.Ordered && slices.ContainsFunc(all, func(b Block) bool { return b.Generation < p.Block.Generation })
	rows, err := c.blocks(ctx, q.ID)
	at := slices.IndexFunc(rows, func(b store.BlockRow) bool { return b.Divided == i.Block })
	if err != nil || at < 0 { // it has moved meanwhile
		return p, err
	}
	parts, more, err := c.nextOf(ctx, rows[at:at+1], placeRows)
	if err != nil {
		return p, err
	}
	is := nextJob{id: i.ID, priority: i.Priority, kind: i.Kind, key: i.Key, tenant: i.Tenant}
	before := slices.DeleteFunc(slices.Clone(parts[0]), func(j nextJob) bool { return !j.before(&is) })
	p.Before, p.More = len(before), more && len(before) == len(parts[0])
	ahead, err := c.aheadOf(ctx, rows[at:at+1], [][]nextJob{append(parts[0], is)})
	if err != nil {
		return p, err
	}
	limits, err := c.limitsOn(ctx, q, []nextJob{is})
	p.Holds = append(ahead[0].of(&is), limits.of(&is)...)
	return p, err
}

// before reports whether a job comes before another of its block, of another key.
func (j *nextJob) before(other *nextJob) bool {
	return j.priority < other.priority || j.priority == other.priority && j.id < other.id
}

// nextOf lists what is next in some blocks of a queue, up to a limit of each priority of each.
func (c *Client) nextOf(ctx context.Context, blocks []store.BlockRow, limit int) (parts [][]nextJob, more bool, err error) {
	var steps []*sqlrun.Step
	parts = make([][]nextJob, len(blocks))
	for i := range blocks {
		args := sqlrun.Args{"queue": blocks[i].Queue, "divided": blocks[i].Divided, "limit": limit}
		for _, p := range store.Priorities {
			args["after"+p] = int64(0)
		}
		for _, stmt := range []*sqlrun.Stmt{store.NextReady, store.NextDue} {
			found := map[int]int{}
			steps = append(steps, &sqlrun.Step{Stmt: stmt, Args: args, Scan: func(row *sqlrun.Row) error {
				j := nextJob{
					id: row.Int(0), priority: int(row.Int(1)), kind: string(row.Bytes(2)), key: string(row.Bytes(3)), tenant: string(row.Bytes(4)),
				}
				if j.since = store.TimeOf(j.id); stmt == store.NextDue {
					j.since = time.UnixMicro(row.Int(5)).UTC()
					found[0]++
				}
				found[j.priority]++
				more = more || found[j.priority] >= limit || found[0] >= limit
				parts[i] = append(parts[i], j)
				return nil
			}})
		}
	}
	return parts, more, c.db.Pipeline(ctx, steps...)
}

// An ahead is what may be before jobs of a block.
type ahead struct {
	fifo    bool
	holders map[string][]Hold // by key; of a FIFO block: ""
	first   map[string]int64  // the first of each key among those that are next
}

// aheadOf returns what is ahead of some jobs of each of some blocks.
func (c *Client) aheadOf(ctx context.Context, blocks []store.BlockRow, parts [][]nextJob) (all []ahead, err error) {
	var steps []*sqlrun.Step
	all = make([]ahead, len(blocks))
	for i := range blocks {
		all[i] = ahead{fifo: blocks[i].FIFO, holders: map[string][]Hold{}, first: map[string]int64{}}
		a := &all[i]
		for k := range parts[i] {
			j := &parts[i][k]
			if key, ok := a.keyOf(j); ok && (a.first[key] == 0 || j.id < a.first[key]) {
				a.first[key] = j.id
			}
		}
		if len(a.first) == 0 {
			continue
		}
		stmt := store.HoldersOfKeys
		if a.fifo {
			stmt = store.HolderInLine
		}
		for keys := range slices.Chunk(slices.Sorted(maps.Keys(a.first)), namesRows) {
			args := sqlrun.Args{"queue": blocks[i].Queue, "divided": blocks[i].Divided, "keys": keys}
			steps = append(steps, &sqlrun.Step{Stmt: stmt, Args: args, Scan: func(row *sqlrun.Row) error {
				key := string(row.Bytes(2))
				a.holders[key] = append(a.holders[key], Hold{State: State(row.Bytes(0)), Job: row.Int(1), Line: a.fifo})
				return nil
			}})
		}
	}
	return all, c.db.Pipeline(ctx, steps...)
}

// keyOf returns by what a job is ordered, if it is.
func (a *ahead) keyOf(j *nextJob) (key string, ok bool) {
	if a.fifo {
		return "", true
	}
	return j.key, j.key != ""
}

// of returns which job a job has to wait for, if it has.
func (a *ahead) of(j *nextJob) []Hold {
	key, ok := a.keyOf(j)
	if !ok {
		return nil
	}
	for _, h := range a.holders[key] {
		if h.Job != j.id {
			return []Hold{h}
		}
	}
	if first := a.first[key]; first < j.id && len(a.holders[key]) == 0 {
		return []Hold{{State: StateReady, Job: first, Line: a.fifo}}
	}
	return nil
}

// limitUse is a limit with what is used of it.
type limitUse struct {
	store.Limit
	now, drawn int64
	ahead      int
	permits    int
}

// hold returns the hold of those that are at the limit, if it is reached.
func (u *limitUse) hold() []Hold {
	h := Hold{Limit: Limit(u.Limit), Permits: u.permits}
	if u.Wrong != "" || u.Running > 0 && u.permits >= u.Running {
		return []Hold{h}
	}
	if u.Rate > 0 {
		if got, _, wait := u.Draw(u.now, u.Owed(u.now, u.drawn, u.ahead), 1, 1); got == 0 {
			h.Until = time.UnixMicro(u.now + wait).UTC()
			return []Hold{h}
		}
	}
	return nil
}

// limitsOn are the limits that jobs of a queue may be at.
type limitsOn struct {
	byKind  map[string]*limitUse // "": that of the queue
	tenants map[string]*limitUse // "*": of each tenant
	used    map[string]*limitUse // what tenants use
}

func (c *Client) limitsOn(ctx context.Context, q *store.Queue, jobs []nextJob) (l limitsOn, err error) {
	l = limitsOn{map[string]*limitUse{}, map[string]*limitUse{}, map[string]*limitUse{}}
	names := []string{"", store.EachTenant}
	for i := range jobs {
		if name := jobs[i].tenant; name != "" && l.used[name] == nil {
			l.used[name] = &limitUse{}
			names = append(names, name)
		}
	}
	for part := range slices.Chunk(names, namesRows) {
		if err = c.addLimits(ctx, q, &l, part); err != nil {
			return l, err
		}
	}
	if len(l.tenants) == 0 {
		return l, nil
	}
	for part := range slices.Chunk(names, namesRows) {
		if err = c.addUse(ctx, q, &l, part); err != nil {
			return l, err
		}
	}
	return l, nil
}

// addLimits adds the limits of a queue, its kinds, and some tenants.
func (c *Client) addLimits(ctx context.Context, q *store.Queue, l *limitsOn, names []string) error {
	args := sqlrun.Args{"queue": q.ID, "names": names}
	_, err := sqlrun.Select(ctx, &c.db.Session, store.LimitUse, args, func(rows *sql.Rows) (u limitUse, err error) {
		reading := u.Reading()
		err = rows.Scan(append(reading.Places(), &u.now, &u.drawn, &u.ahead, &u.permits)...)
		u.Queue = q.Name
		reading.Done()
		if u.Tenant == "" {
			l.byKind[u.Kind] = &u
		} else {
			l.tenants[u.Tenant] = &u
		}
		return u, err
	})
	return err
}

// addUse adds what some tenants use of their limits.
func (c *Client) addUse(ctx context.Context, q *store.Queue, l *limitsOn, names []string) error {
	args := sqlrun.Args{"queue": q.ID, "names": names}
	_, err := sqlrun.Select(ctx, &c.db.Session, store.TenantUse, args, func(rows *sql.Rows) (none struct{}, err error) {
		var name string
		var drawn int64
		var ahead, permits int
		if err = rows.Scan(&name, &drawn, &ahead, &permits); err == nil && l.used[name] != nil {
			u := l.used[name]
			u.drawn, u.ahead, u.permits = max(u.drawn, drawn), max(u.ahead, ahead), max(u.permits, permits)
		}
		return none, err
	})
	return err
}

// of returns the limits that a job is at.
func (l *limitsOn) of(j *nextJob) (all []Hold) {
	for _, kind := range slices.Compact([]string{"", j.kind}) {
		if u := l.byKind[kind]; u != nil {
			all = append(all, u.hold()...)
		}
	}
	u := l.tenants[j.tenant]
	if u == nil {
		u = l.tenants[store.EachTenant]
	}
	if j.tenant == "" || j.tenant == store.EachTenant || u == nil {
		return all
	}
	of := *u
	of.Tenant, of.drawn, of.permits = j.tenant, l.used[j.tenant].drawn, l.used[j.tenant].permits
	return append(all, of.hold()...)
}

// workersOf lists the live workers of a queue. Workers among themselves also count one whose lease has ended, until somebody says so:
// where nobody else is, nobody does.
func (c *Client) workersOf(ctx context.Context, queue int) (live []NextWorker, err error) {
	_, err = sqlrun.Select(ctx, &c.db.Session, store.ListWorkers, sqlrun.Args{"queues": store.IDList([]int{queue})}, func(rows *sql.Rows) (w NextWorker, err error) {
		var id, busy int
		var inTime, drained bool
		var by string
		var kinds sql.NullString
		err = rows.Scan(&id, &w.Node, &busy, &inTime, &drained, &by, &kinds)
		if w.Kinds, w.All = store.Kinds(kinds.String); drained {
			w.Drained = cmp.Or(by, "somebody")
		}
		if w.All = !w.All; inTime {
			live = append(live, w)
		}
		return w, err
	})
	return live, err
}
