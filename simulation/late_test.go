package simulation

import "time"

// tooLate is how long after the end of a lease what it was for must have been taken over, by a process that is well
// while nothing disturbs the world: daemons and workers look every few seconds.
const tooLate = 10 * time.Second

// noticeLate looks for leases that have ended and that nobody has taken over, although somebody could, and notes the
// longest time: of blocks with ready jobs, and of runs.
func (w *World) noticeLate() {
	var block, run float64 // seconds since the lease that ended first
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT
		(SELECT COALESCE(MAX(unixepoch(sim_now(), 'subsec') - unixepoch(n.expire_at, 'subsec')), 0) FROM dbcron_queue_block AS b
			JOIN dbcron_node AS n ON n.name = b.lock_by
			WHERE b.state = 'LEASED' AND n.expire_at < sim_now()
				AND NOT EXISTS (SELECT 1 FROM dbcron_queue_worker AS w WHERE w.queue_id = b.queue_id AND w.busy = 2) -- a mover is left all blocks
				AND EXISTS (SELECT 1 FROM dbcron_job AS j WHERE j.queue_id = b.queue_id AND j.divided = b.divided AND j.id > 0)),
		(SELECT COALESCE(MAX(unixepoch(sim_now(), 'subsec') - unixepoch(next_exec, 'subsec')), 0) FROM dbcron_run
			WHERE state = 'running' AND next_exec < sim_now())`).Scan(&block, &run)
	if err != nil {
		w.Violate("check", nil, "%v", err)
		return
	}
	for _, one := range []struct {
		what string
		late float64
		by   []string
	}{{"block", block, []string{"worker-", "go-"}}, {"run", run, []string{"daemon-"}}} {
		late := time.Duration(one.late * float64(time.Second))
		if late == 0 || w.Quiet() < late || w.Stepped() {
			continue
		}
		for _, prefix := range one.by {
			if !w.Healthy(prefix, late) {
				continue
			}
			w.mu.Lock()
			w.late = max(w.late, late)
			w.mu.Unlock()
			if late > tooLate {
				w.Violate("late takeover", nil, "the lease of a %s ended %v ago, %s is well, and nobody has taken it over", one.what, late.Round(time.Second), prefix)
			}
		}
	}
}
