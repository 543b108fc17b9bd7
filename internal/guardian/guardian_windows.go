package guardian

import (
	"errors"
	"os"

	"github.com/dbcron/dbcron/internal/instant"
)

// A Process is a command under guard. There are none on Windows.
type Process struct{}

// Start returns an error: Windows has neither sessions nor process groups.
func Start(Command, instant.Instant) (*Process, error) {
	return nil, errors.New("guardian: running commands is not supported on Windows")
}

// Extend does nothing.
func (p *Process) Extend(instant.Instant) {}

// Pass does nothing.
func (p *Process) Pass(os.Signal) {}

// Stop does nothing.
func (p *Process) Stop() {}

// Kill does nothing.
func (p *Process) Kill() {}

// Survivors returns nothing.
func (p *Process) Survivors() []int { return nil }

// Output returns nothing.
func (p *Process) Output() (text string, snapshots int) { return "", 0 }

// Done returns nil.
func (p *Process) Done() <-chan struct{} { return nil }

// Wait returns an empty result.
func (p *Process) Wait() Result { return Result{} }

// Dismiss does nothing.
func Dismiss() {}

// LookPath returns an error, and the exit code for it.
func LookPath(name string, _ []string) (path string, code int, err error) {
	return "", 126, errors.New(name + ": running commands is not supported on Windows")
}
