package queue

import (
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/block"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Reading ahead of a flood in fair queues: see queue/internal/block/look.go.

// aheadSteps returns the steps that look at which tenants have jobs ahead, and that read some of them.
func (f *flusher) aheadSteps(t *trip) (steps []*sqlrun.Step) {
	t.found.Sights, t.picked = nil, nil
	if l := t.plan.Look; l != nil {
		steps = append(steps, &sqlrun.Step{Stmt: store.LookAhead, Args: sqlrun.Args{
			"queue": t.b.q.id, "divided": t.b.divided, "limit": l.Limit,
			"after1": l.After[1], "after2": l.After[2], "after3": l.After[3], "after4": l.After[4],
		}, Scan: func(row *sqlrun.Row) error {
			t.found.Sights = append(t.found.Sights, block.Sight{
				Priority: int(row.Int(0)), Tenant: string(row.Bytes(1)), First: row.Int(2), Last: row.Int(3), Rows: int(row.Int(4)),
				FirstMark: row.Int(5), LastMark: row.Int(6),
			})
			return nil
		}})
	}
	if p := t.plan.Pick; p != nil {
		r := f.reader(store.FetchTenants, t.b, p.Limit, &t.plan.Room)
		steps = append(steps, &sqlrun.Step{Stmt: store.FetchTenants, Args: sqlrun.Args{
			"queue": t.b.q.id, "divided": t.b.divided, "priority": p.Priority, "after": p.After, "upto": p.Upto,
			"tenants": p.Tenants, "limit": p.Limit,
		}, Scan: func(row *sqlrun.Row) error {
			t.picked = append(t.picked, r.ready(row))
			return nil
		}})
	}
	return steps
}
