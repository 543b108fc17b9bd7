//go:build unix

package guardian

import (
	"cmp"
	"encoding/gob"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper is a guardian as its caller has it: the process, and the caller's ends of the two pipes. It guards one
// command at a time, so that whatever it inherits is that command's. Starting one takes ten times what a small command
// takes, so one whose command has ended by itself, and has left nothing, rests for a while and then guards another.
type keeper struct {
	process *os.Process
	orders  *os.File
	reports *os.File
	enc     *gob.Encoder // of orders
	dec     *gob.Decoder // of reports
	dir     string       // where it was started; "": not known
	retire  *time.Timer  // while it rests
}

const (
	restFor   = 5 * time.Second // less than what programs may want to change about themselves, such as their limits
	titleRoom = 64              // for the names of the commands to come
)

// resting are the keepers that wait for a command, the newest last.
var resting struct {
	sync.Mutex
	keepers []*keeper
}

// hire returns a keeper for the command: one that rests, or a new one.
func hire(c Command) (*keeper, error) {
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	if dir != "" && !c.ownFiles() {
		for k := wake(dir); k != nil; k = wake(dir) {
			if k.alive() {
				return k, nil
			}
			_, _ = k.end()
		}
	}
	return launch(c, dir)
}

// wake takes the newest keeper that rests and was started in dir; nil: there is none.
func wake(dir string) *keeper {
	resting.Lock()
	defer resting.Unlock()
	for i, k := range slices.Backward(resting.keepers) {
		if k.dir == dir {
			resting.keepers = slices.Delete(resting.keepers, i, i+1)
			k.retire.Stop()
			return k
		}
	}
	return nil
}

// rest has the keeper wait for another command, for a while.
func (k *keeper) rest() {
	resting.Lock()
	defer resting.Unlock()
	resting.keepers = append(resting.keepers, k)
	k.retire = time.AfterFunc(restFor, func() {
		resting.Lock()
		i := slices.Index(resting.keepers, k)
		if i >= 0 {
			resting.keepers = slices.Delete(resting.keepers, i, i+1)
		}
		resting.Unlock()
		if i >= 0 { // else it was woken just now
			_, _ = k.end()
		}
	})
}

// Dismiss ends the guardians that rest, rather than in the next seconds, and returns when they are gone. Other users of
// this package in the process are not harmed: their next commands have new guardians.
func Dismiss() {
	resting.Lock()
	all := resting.keepers
	resting.keepers = nil
	resting.Unlock()
	for _, k := range all {
		k.retire.Stop()
		k.orders.Close() // all of them at once
	}
	for _, k := range all {
		_, _ = k.end()
	}
}

// alive reports whether the guardian has its end of the pipe. One that dies a moment later is Lost.
func (k *keeper) alive() bool {
	var dead bool
	raw, err := k.reports.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		dead = err != nil || n > 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
	return err == nil && !dead
}

// end closes the pipes, upon which the guardian ends, and reaps it.
func (k *keeper) end() (*os.ProcessState, error) {
	k.reports.Close()
	k.orders.Close()
	// The guardian's work is done: it must not keep anybody waiting.
	timer := time.AfterFunc(time.Second, func() { _ = k.process.Kill() })
	defer timer.Stop()
	return k.process.Wait()
}

// launch starts a guardian.
func launch(c Command, dir string) (*keeper, error) {
	self, err := program()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirOrders.Close()
	reports, theirReports, err := os.Pipe()
	if err != nil {
		orders.Close()
		return nil, err
	}
	defer theirReports.Close()
	title := c.Name
	if reusable {
		title += strings.Repeat(" ", max(0, titleRoom-len(title)))
	}
	process, err := os.StartProcess(self, []string{argv0, title}, &os.ProcAttr{
		Env: []string{}, // nil would pass on the caller's
		Files: []*os.File{
			cmp.Or(c.Stdin, null), cmp.Or(c.Stdout, null), cmp.Or(c.Stderr, null),
			theirOrders, theirReports,
		},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		orders.Close()
		reports.Close()
		return nil, err
	}
	return &keeper{
		process: process, orders: orders, reports: reports,
		enc: gob.NewEncoder(orders), dec: gob.NewDecoder(reports), dir: dir,
	}, nil
}
