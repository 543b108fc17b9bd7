package admin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A Tenant is a tenant that has jobs ready in a queue.
type Tenant struct {
	Name   string    // empty: that of the jobs that name none
	Ready  int       // of the jobs that were looked at
	Oldest time.Time // when the oldest of these was enqueued
	Weight int       // its share
}

// Tenants are whose jobs are ready in a queue.
type Tenants struct {
	Tenants []Tenant // those with the most jobs first
	Looked  int      // how many jobs were looked at
	More    bool     // there may be more
}

// tenantRows is how many jobs of a priority are looked at, in all blocks.
const tenantRows = 20_000

// Tenants says whose jobs are ready in a queue, and returns the tenants with the most, up to limit. It looks at the jobs that are
// next in each block: up to 20,000 of each priority in 64 blocks, so that what it reads is bounded however many there are.
// Delayed jobs that are due are not among them.
func (c *Client) Tenants(ctx context.Context, queue string, limit int) (t Tenants, err error) {
	q, blocks, more, err := c.someBlocks(ctx, queue)
	if err != nil || len(blocks) == 0 {
		return t, err
	}
	t.More = more
	each := tenantRows / len(blocks)
	found := map[string]*Tenant{}
	var steps []*sqlrun.Step
	for i := range blocks {
		rows := map[int64]int{}
		args := sqlrun.Args{"queue": q.ID, "divided": blocks[i].Divided, "limit": each}
		for _, p := range store.Priorities {
			args["after"+p] = 0
		}
		steps = append(steps, &sqlrun.Step{Stmt: store.LookAhead, Args: args, Scan: func(row *sqlrun.Row) error {
			name, first, n := string(row.Bytes(1)), store.TimeOf(row.Int(2)), int(row.Int(4))
			rows[row.Int(0)] += n
			t.Looked, t.More = t.Looked+n, t.More || rows[row.Int(0)] >= each
			if found[name] == nil {
				found[name] = &Tenant{Name: name, Oldest: first, Weight: 1}
			}
			is := found[name]
			if is.Ready += n; first.Before(is.Oldest) {
				is.Oldest = first
			}
			return nil
		}})
	}
	if err := c.db.Pipeline(ctx, steps...); err != nil {
		return Tenants{}, err
	}
	shares, err := store.ReadShares(ctx, &c.db.Session, []int{q.ID})
	for name, weight := range shares[q.ID] {
		if found[name] != nil {
			found[name].Weight = weight
		}
	}
	most := slices.SortedFunc(maps.Values(found), func(a, b *Tenant) int {
		return cmp.Or(b.Ready-a.Ready, strings.Compare(a.Name, b.Name))
	})
	for _, one := range most[:min(len(most), limit)] {
		t.Tenants = append(t.Tenants, *one)
	}
	return t, err
}

// Flooding returns the tenant that has most of the jobs that were looked at, nine of ten or more, while others wait, too;
// nil: nobody has.
func (t *Tenants) Flooding() *Tenant {
	if len(t.Tenants) < 2 || t.Tenants[0].Ready*10 < t.Looked*9 {
		return nil
	}
	return &t.Tenants[0]
}
