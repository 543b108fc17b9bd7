//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the command a group of its own, so that a terminal's Ctrl-C reaches it once, and
// any signal all its children: go test leaves the programs that it runs alone.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(cmd *exec.Cmd, s os.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, s.(syscall.Signal)) // it may have ended just now
}
