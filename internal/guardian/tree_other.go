//go:build unix && !linux

package guardian

import (
	"os"
	"syscall"
)

const subreaper = false

func becomeSubreaper() {}

func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func program() (string, error) { return os.Executable() }

// family finds nothing: here, only the process group is known.
func family(int) []relative { return nil }
