package queue

import (
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// Reading ahead of the handlers: see queue/internal/block.

// defaultReadAhead is the default of ReadAhead.
const defaultReadAhead = 64 << 20

// The statements that read payloads, by table.
var loadStatements = map[table]*sqlrun.Stmt{tableReady: store.LoadReady, tableDelayed: store.LoadDelayed, tableRunning: store.LoadRunning}

// A payload is a payload that was read for a bare job.
type payload struct {
	text   []byte
	binary bool
	saved  *Progress
}

// loadSteps returns the steps that read the payloads of bare jobs.
func (f *flusher) loadSteps(t *trip) (steps []*sqlrun.Step) {
	t.loaded = map[int64]payload{}
	for _, part := range byTable(deliveriesOf(t.plan.Loads)) {
		args := store.JobArgs(t.b.q.id, t.b.divided, part[0].Priority, idsOf(part))
		args["node"] = t.node
		stmt := loadStatements[part[0].state.From]
		rows := store.NewReader(stmt)
		steps = append(steps, &sqlrun.Step{Stmt: stmt, Args: args, Scan: func(row *sqlrun.Row) error {
			j := rows.Read(row)
			t.loaded[j.ID] = payload{text: j.Payload, binary: j.Binary, saved: progressOf(j)}
			return nil
		}})
	}
	return steps
}

// recordLoads gives jobs the payloads that were read. mu is held.
func (t *trip) recordLoads() {
	if t.plan.Loads == nil {
		return
	}
	t.found.Loaded = map[int64]bool{}
	for _, j := range t.plan.Loads {
		if p, there := t.loaded[j.ID]; there && t.b.CanLoad(j) {
			d := deliveryOf(j)
			d.Payload, d.Binary, d.saved = p.text, p.binary, p.saved
			j.Size, t.found.Loaded[j.ID] = d.bytes(), true
		}
	}
}
