package admin

import (
	"context"
	"database/sql"
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

// Next is what is next in a queue, and what of it is held.
type Next struct {
	Looked int  // how many jobs were looked at
	More   bool // there may be more

	Held   int       // of these: how many wait for jobs before them or for limits
	First  int64     // the oldest that is held
	Hold   Hold      // by what
	Oldest time.Time // since when the oldest waits that is not held; zero: none was found
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
	nextBlocks = 64   // so many blocks of a queue are looked at
	nextRows   = 4000 // and so many jobs of a priority in all of them
	placeRows  = 1000 // and so many of a priority in the block of one job
)

// nextJob is a job as these statements list it.
type nextJob struct {
	id                int64
	priority          int
	kind, key, tenant string
}

// Next looks at the jobs that are next in each block of a queue: up to 4000 of each priority, in 64 blocks, so that what it reads is
// bounded however many there are.
func (c *Client) Next(ctx context.Context, queue string) (n Next, err error) {
	q, err := c.read(ctx, cmpName(queue))
	if err != nil {
		return n, err
	}
	blocks, err := c.blocks(ctx, q.ID)
	if err != nil || len(blocks) == 0 {
		return n, err
	}
	n.More = len(blocks) > nextBlocks
	blocks = blocks[:min(len(blocks), nextBlocks)]
	each := nextRows / len(blocks)
	parts := make([][]nextJob, len(blocks))
	var all []nextJob
	for i := range blocks {
		var more bool
		if parts[i], more, err = c.nextOf(ctx, q.ID, &blocks[i], each); err != nil {
			return n, err
		}
		all, n.More = append(all, parts[i]...), n.More || more
	}
	limits, err := c.limitsOn(ctx, q, all)
	if err != nil {
		return n, err
	}
	oldest := int64(0)
	for i, part := range parts {
		ahead, err := c.aheadOf(ctx, q.ID, &blocks[i], part)
		if err != nil {
			return n, err
		}
		for k := range part {
			j := &part[k]
			holds := append(ahead.of(j), limits.of(j)...)
			switch n.Looked++; {
			case len(holds) == 0 && (oldest == 0 || j.id < oldest):
				oldest, n.Oldest = j.id, store.TimeOf(j.id)
			case len(holds) > 0:
				if n.Held++; n.First == 0 || j.id < n.First {
					n.First, n.Hold = j.id, holds[0]
				}
			}
		}
	}
	return n, nil
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
	part, more, err := c.nextOf(ctx, q.ID, &rows[at], placeRows)
	if err != nil {
		return p, err
	}
	is := nextJob{i.ID, i.Priority, i.Kind, i.Key, i.Tenant}
	before := slices.DeleteFunc(part, func(j nextJob) bool { return !j.before(&is) })
	p.Before, p.More = len(before), more && len(before) == len(part)
	ahead, err := c.aheadOf(ctx, q.ID, &rows[at], append(before, is))
	if err != nil {
		return p, err
	}
	limits, err := c.limitsOn(ctx, q, []nextJob{is})
	p.Holds = append(ahead.of(&is), limits.of(&is)...)
	return p, err
}

// before reports whether a job comes before another of its block, of another key.
func (j *nextJob) before(other *nextJob) bool {
	return j.priority < other.priority || j.priority == other.priority && j.id < other.id
}

// nextOf lists what is next in a block.
func (c *Client) nextOf(ctx context.Context, queue int, b *store.BlockRow, limit int) (all []nextJob, more bool, err error) {
	args := sqlrun.Args{"queue": queue, "divided": b.Divided, "limit": limit}
	for _, p := range store.Priorities {
		args["after"+p] = int64(0)
	}
	found := map[int]int{}
	for _, stmt := range []*sqlrun.Stmt{store.NextReady, store.NextDue} {
		rows, err := sqlrun.Select(ctx, &c.db.Session, stmt, args, func(rows *sql.Rows) (j nextJob, err error) {
			return j, rows.Scan(&j.id, &j.priority, &j.kind, &j.key, &j.tenant)
		})
		if err != nil {
			return nil, false, err
		}
		clear(found)
		for _, j := range rows {
			found[j.priority]++
			more = more || found[j.priority] >= limit
		}
		all = append(all, rows...)
	}
	return all, more, nil
}

// An ahead is what may be before jobs of a block.
type ahead struct {
	fifo    bool
	holders map[string][]Hold // by key; of a FIFO block: ""
	first   map[string]int64  // the first of each key among those that are next
}

func (c *Client) aheadOf(ctx context.Context, queue int, b *store.BlockRow, part []nextJob) (a ahead, err error) {
	a = ahead{fifo: b.FIFO, holders: map[string][]Hold{}, first: map[string]int64{}}
	for i := range part {
		if key, ok := a.keyOf(&part[i]); ok && (a.first[key] == 0 || part[i].id < a.first[key]) {
			a.first[key] = part[i].id
		}
	}
	if len(a.first) == 0 {
		return a, nil
	}
	stmt, args := store.HoldersOfKeys, sqlrun.Args{"queue": queue, "divided": b.Divided}
	if a.fifo {
		stmt = store.HolderInLine
	} else {
		keys := make([]string, 0, len(a.first))
		for key := range a.first {
			keys = append(keys, key)
		}
		args["keys"] = keys
	}
	_, err = sqlrun.Select(ctx, &c.db.Session, stmt, args, func(rows *sql.Rows) (h Hold, err error) {
		var key string
		err = rows.Scan(&h.State, &h.Job, &key)
		h.Line = a.fifo
		a.holders[key] = append(a.holders[key], h)
		return h, err
	})
	return a, err
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
	permits    int
}

// hold returns the hold of those that are at the limit, if it is reached.
func (u *limitUse) hold() []Hold {
	h := Hold{Limit: Limit(u.Limit), Permits: u.permits}
	if u.Running > 0 && u.permits >= u.Running {
		return []Hold{h}
	}
	if u.Rate > 0 {
		if got, _, wait := u.Draw(u.now, u.drawn, 1); got == 0 {
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
	args := sqlrun.Args{"queue": q.ID, "names": names}
	_, err = sqlrun.Select(ctx, &c.db.Session, store.LimitUse, args, func(rows *sql.Rows) (u limitUse, err error) {
		var per string
		if err = rows.Scan(&u.Kind, &u.Tenant, &u.Running, &u.Rate, &per, &u.Burst, &u.now, &u.drawn, &u.permits); err == nil {
			u.Queue = q.Name
			err = u.Parse(per)
		}
		if u.Tenant == "" {
			l.byKind[u.Kind] = &u
		} else {
			l.tenants[u.Tenant] = &u
		}
		return u, err
	})
	if err != nil || len(l.tenants) == 0 {
		return l, err
	}
	_, err = sqlrun.Select(ctx, &c.db.Session, store.TenantUse, args, func(rows *sql.Rows) (none struct{}, err error) {
		var name string
		var drawn int64
		var permits int
		if err = rows.Scan(&name, &drawn, &permits); err == nil && l.used[name] != nil {
			l.used[name].drawn, l.used[name].permits = max(l.used[name].drawn, drawn), max(l.used[name].permits, permits)
		}
		return none, err
	})
	return l, err
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

// workersOf lists the live workers of a queue.
func (c *Client) workersOf(ctx context.Context, queue int) ([]NextWorker, error) {
	return sqlrun.Select(ctx, &c.db.Session, store.ListWorkers, sqlrun.Args{"queues": store.IDList([]int{queue})}, func(rows *sql.Rows) (w NextWorker, err error) {
		var id, busy int
		var inTime, drained bool
		var by string
		var kinds sql.NullString
		err = rows.Scan(&id, &w.Node, &busy, &inTime, &drained, &by, &kinds)
		if w.Kinds, w.All = store.Kinds(kinds.String); drained {
			w.Drained = by
		}
		w.All = !w.All
		return w, err
	})
}
