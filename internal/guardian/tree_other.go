//go:build unix && !linux

package guardian

import (
	"os"
	"syscall"
)

const subreaper = false

// reusable is false: only on Linux can a guardian tell that nothing of its command is left, and change what ps shows.
const reusable = false

func setTitle(string) {}

func becomeSubreaper() {}

func commandAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func program() (string, error) { return os.Executable() }

// family finds nothing: here, only the process group is known.
func family(int) []relative { return nil }
