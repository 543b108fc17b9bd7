//go:build unix

package dbserver

import (
	"bytes"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// An account is the user that a server runs as.
type account struct{ uid, gid int }

// runAs returns the first of the named users that exists, for root, because
// the servers refuse to run as root. For others it returns nil.
func runAs(names []string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return nil, err
		}
		return &account{uid, gid}, nil
	}
	return nil, fmt.Errorf("found none of the users %s, and the server refuses to run as root", strings.Join(names, ", "))
}

func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// serverProcess returns the attributes of a process that runs as user and that
// gets the signal when the keeper dies, where the system can do that.
func serverProcess(user *account, whenKeeperDies syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if user != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(user.uid), Gid: uint32(user.gid)}
	}
	dieWithKeeper(attr, whenKeeperDies)
	return attr
}

// crash kills a process, its group and its children at once. A PostgreSQL
// backend is not in the group, and one that outlives its parent could still
// commit. Where there is no /proc, the backends are left to end by themselves.
func crash(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP) // no new children while we look
	for _, child := range children(pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

func children(parent int) []int {
	var found []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // fails on a bad pattern only
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// "pid (name) state ppid …", and the name may hold anything.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 2 || string(fields[1]) != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			found = append(found, pid)
		}
	}
	return found
}
