package admin

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// contents returns the sizes of some jobs' payloads, and the payloads that do not exceed a
// limit. Jobs that have moved meanwhile are missing.
var contents = map[State]*sqlrun.Stmt{
	StateReady:   store.ContentReady,
	StateDelayed: store.ContentDelayed,
	StateRunning: store.ContentRunning,
	StateDead:    store.ContentDead,
	StateDone:    store.ContentDone,
}

// A standAt is the part of a state's jobs in which a listed job is: its block and, for ready
// jobs, its priority.
type standAt struct{ block, priority int }

func standOf(i *Job) standAt {
	if i.State == StateReady {
		return standAt{i.Block, i.stored}
	}
	return standAt{i.Block, 0}
}

// withPayloads calls f for each of some jobs of one state, which were listed without payloads,
// until f returns false. It loads payloads up to a limit, a few at a time; room returns how
// many bytes f can use. It skips jobs that have moved.
func (c *Client) withPayloads(ctx context.Context, q *store.Queue, jobs []Job, longest int, room func() int, f func(*Job) bool) error {
	weight := func(i *Job) int {
		if i.PayloadBytes > longest {
			return 0
		}
		return i.PayloadBytes
	}
	for len(jobs) > 0 {
		part := jobs[:min(len(jobs), store.Chunk)]
		jobs = jobs[len(part):]
		part, err := c.content(ctx, q, part, -1)
		for err == nil && len(part) > 0 {
			n := store.PartOf(part, min(room(), sqlrun.MaxBytes), weight)
			var some []Job
			some, err = c.below(ctx, q, part[:n], longest)
			for i := range some {
				if err == nil && !f(&some[i]) {
					return nil
				}
			}
			part = part[n:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// below adds payloads up to a limit to those of some jobs that do not exceed it, whose lengths are known. The others stay as they are.
func (c *Client) below(ctx context.Context, q *store.Queue, jobs []Job, longest int) ([]Job, error) {
	exceeds := func(i Job) bool { return i.PayloadBytes > longest }
	light := slices.DeleteFunc(slices.Clone(jobs), exceeds)
	if len(light) == 0 {
		return jobs, nil
	}
	read, err := c.content(ctx, q, light, longest)
	if len(light) == len(jobs) {
		return read, err
	}
	all := slices.Concat(read, slices.DeleteFunc(slices.Clone(jobs), func(i Job) bool { return !exceeds(i) }))
	sortJobs(all)
	return all, err
}

func sortJobs(jobs []Job) {
	slices.SortFunc(jobs, func(a, b Job) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Block, b.Block)) })
}

// content returns those of some jobs of a state that still exist, with payloads up to a limit.
func (c *Client) content(ctx context.Context, q *store.Queue, jobs []Job, longest int) (here []Job, err error) {
	places := map[standAt]map[int64]*Job{}
	for i := range jobs {
		s := standOf(&jobs[i])
		if places[s] == nil {
			places[s] = map[int64]*Job{}
		}
		places[s][jobs[i].ID] = &jobs[i]
	}
	var steps []*sqlrun.Step
	for s, of := range places {
		args := store.JobArgs(q.ID, s.block, s.priority, slices.Collect(maps.Keys(of)))
		args["longest"] = int64(longest)
		steps = append(steps, &sqlrun.Step{Stmt: contents[jobs[0].State], Args: args, Scan: func(row *sqlrun.Row) error {
			i := *of[row.Int(0)]
			i.PayloadBytes, i.Binary = int(row.Int(1)), row.Int(4) == 1
			if i.Payload = bytes.Clone(row.Bytes(2)); i.Binary {
				i.Payload = bytes.Clone(row.Bytes(3))
			}
			here = append(here, i)
			return nil
		}})
	}
	err = c.db.Pipeline(ctx, steps...)
	sortJobs(here)
	return here, err
}

// matching returns the listed jobs whose payloads meet a condition.
func (c *Client) matching(ctx context.Context, q *store.Queue, where *where, jobs []Job) (all []Job, err error) {
	if where == nil {
		return jobs, nil
	}
	err = c.withPayloads(ctx, q, jobs, math.MaxInt, func() int { return sqlrun.MaxBytes }, func(i *Job) bool {
		if where.holds(i) {
			i.Payload = nil
			all = append(all, *i)
		}
		return true
	})
	return all, err
}
