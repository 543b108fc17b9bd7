package main

import (
	"os"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/stall"
)

// A guarded is a command that must not outlive a lease.
type guarded struct {
	guardian.Command
	ttl        time.Duration        // approximate time that a renewal adds
	left       func() time.Duration // remaining time of the lease, without a renewal
	stop, kill <-chan struct{}      // the command gets SIGTERM, or SIGKILL
	pass       <-chan os.Signal     // the command gets them, too
	stall      *stall.Stall         // ends the command if it makes no progress; may be nil
	stalled    bool                 // it has ended the command
	survive    func(pids []int)     // told once if processes of it cannot be killed: it is not over then, and run waits for them
}

// run runs the command until it ends, its lease ends, or it is stopped.
func (g *guarded) run() (guardian.Result, error) {
	// In this order, here and below: a process that is suspended between the two gets a deadline that is
	// too early, never too late.
	now := instant.Now()
	deadline := now.Add(g.left())
	process, err := guardian.Start(g.Command, deadline)
	if g.stall != nil {
		g.stall.Begin()
		defer g.stall.Finish(g.kill)
	}
	if err != nil {
		return guardian.Result{}, err
	}
	every := min(g.ttl/50, time.Second) // soon after a renewal
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-process.Done():
			r := process.Wait()
			g.stalled = g.stalled && r.Cause != guardian.Exited // it may have ended just then
			return r, nil
		case <-tick.C:
			now := instant.Now()
			// Only after a renewal: the guardian takes the time from an extension to its deadline as the length of
			// the lease, and divides it.
			if next := now.Add(g.left()); next.Sub(deadline) > g.ttl/100 {
				deadline = next
				process.Extend(deadline)
			}
			g.look(process, now, every)
			if pids := process.Survivors(); len(pids) > 0 && g.survive != nil {
				g.survive(pids)
				g.survive = nil
			}
		case sig := <-g.pass:
			process.Pass(sig)
		case <-g.stop:
			g.stop = nil
			process.Stop()
		case <-g.kill:
			g.kill = nil
			process.Kill()
		}
	}
}

// look stops a command that makes no progress.
func (g *guarded) look(process *guardian.Process, now instant.Instant, every time.Duration) {
	if g.stall == nil || g.stalled || g.stop == nil {
		return
	}
	_, snapshots := process.Output()
	if g.stall.Over(now, every, snapshots) {
		g.stalled = true
		process.Stop()
	}
}

// fileOf returns a stream that the command can use directly, or nil.
func fileOf(stream any) *os.File {
	file, _ := direct(stream).(*os.File)
	return file
}

// checkStall validates --stall.
func checkStall(limit time.Duration, given bool) error {
	if given && limit < stall.Shortest {
		return usagef("--stall %v: use 1s or more", limit)
	}
	return nil
}
