//go:build unix

package guardian

import (
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dbcron/dbcron/internal/instant"
)

// An order goes from the caller to the guardian, as gob, which unlike JSON can carry arguments that are
// not UTF-8. Each order is complete, so orders that were not sent in time can be skipped. The first of each
// command has a spec.
type order struct {
	Spec       *spec
	Deadline   instant.Instant
	Stop, Kill bool
	Passed     [len(passable)]int // how often each was passed on
}

// passable are the signals that have no meaning but the command's.
var passable = [...]syscall.Signal{syscall.SIGUSR1, syscall.SIGUSR2}

type spec struct {
	Name                  string
	Argv, Env             []string
	Dir, Input            string
	Home                  bool
	User                  string
	Credential            *syscall.Credential // User's; nil: the guardian's own
	Grace, Linger         time.Duration
	MaxOutput             int
	Echo                  bool // reports have what is written
	OwnIn, OwnOut, OwnErr bool // the guardian's 0, 1, 2 are the command's
}

// own reports whether the command has files of the caller's.
func (s *spec) own() bool { return s.OwnIn || s.OwnOut || s.OwnErr }

// A report goes from the guardian to the caller. It has one of the five: Pid when the command has
// started, Output and Echo while it runs, Stuck when it cannot be killed, Result at the end.
type report struct {
	Pid     int // of the command, and of its process group
	Output  string
	Echo    []byte // what the command has written since the last one
	Omitted int64  // bytes behind that
	Stuck   *Result
	Result  *Result
	Err     string // of the result: gob carries no errors
	Rests   bool   // with the result: the guardian waits for another command
}

// A relative is one of the command's processes. A dead one waits for its parent to notice.
type relative struct {
	pid, group int
	dead       bool
}

// survivorsOf returns those of the command's processes that live, in order. Where they cannot be found, the group stands for them.
func survivorsOf(found []relative, group int) []int {
	if !subreaper {
		return []int{group}
	}
	var pids []int
	for _, r := range found {
		if !r.dead {
			pids = append(pids, r.pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// signalTree sends the signals to the command's process group and, where they can be found, to processes
// that have left the group. It returns the latter, and those of the group that it found.
func signalTree(guardian, group int, signals ...syscall.Signal) []relative {
	for _, sig := range signals {
		signalGroup(guardian, group, sig)
	}
	found := family(guardian)
	for _, r := range found {
		for _, sig := range signals {
			if r.group != group {
				_ = unix.Kill(r.pid, sig)
			}
		}
	}
	return found
}

// signalGroup signals the process group, unless its number now belongs to others: the command's leader
// stays in the guardian's session for life.
func signalGroup(guardian, group int, sig syscall.Signal) {
	if group <= 1 {
		return
	}
	if sid, err := unix.Getsid(group); err == nil && sid != guardian {
		return
	}
	_ = unix.Kill(-group, sig)
}
