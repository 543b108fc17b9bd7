package pace

import (
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
)

// Stops: the rules for work that may be the reason why its process is stopped: it restarts a service,
// and the process is part of that. Such work is handed back, as nobody's fault, and would stop the next process. So
// each piece of work counts the processes in a row that were stopped within [Soon] after they had begun it. From the
// third one on it pauses before it begins again, each time for twice as long:
//
//   - If a process is stopped during the pause, the work is not the reason, and its count begins anew. So it does
//     when the work has gone on for longer than Soon before a stop.
//   - If none is, and the next one is stopped soon after the work has begun again, the count goes on. At [Most]
//     the work fails, if nothing else had begun so soon before that stop.
//
// Restarts at a regular interval clear the work: an interval that ends within Soon of the end of the first pause ends
// during the second one. Pauses vary, so that work that was stopped together parts. The reasons:
// docs/adr/0036-a-run-that-stops-its-daemon.md.
const (
	// Soon is how long after the work's begin a stop counts, and how long a pause lasts before a stop ends it: the
	// same stop may reach several processes.
	Soon = time.Minute

	// Suspicious is the number of stops in a row after which work pauses before it begins again.
	Suspicious = 3

	firstPause = 2 * Soon
	longest    = 8 // the longest pause is so many times the first

	// Most is the number of stops in a row after which work fails that was the only one to have begun so late.
	Most = 5

	// MostAny is the number of stops in a row after which work fails that never was the only one.
	MostAny = 20
)

// A Verdict is what becomes of work that is handed back.
type Verdict struct {
	Fails bool
	Pause time.Duration // before it begins again
	Why   string        // for people
}

// Judge decides what becomes of work that is handed back because its process, a daemon or a worker, was stopped
// so soon after it had begun the work, for the n-th time in a row. alone says that nothing else that it had begun
// within Soon is handed back. random is in [0, 1).
func Judge(process string, n int, alone bool, after time.Duration, random float64) Verdict {
	if n >= Most && alone || n >= MostAny {
		return Verdict{Fails: true, Why: fmt.Sprintf("it seems to stop its %s: %d %ss in a row were stopped within %s after they had begun it, "+
			"and none while it paused; not begun again", process, n, process, plain.FormatDuration(Soon))}
	}
	v := Verdict{
		Pause: PauseAfter(n, random),
		Why:   fmt.Sprintf("handed back: the %s was stopped %s after it had begun", process, inSeconds(after)),
	}
	if v.Pause > 0 {
		v.Why += fmt.Sprintf(", as %d were before; it begins again after %s, or when a %s is stopped without it",
			n-1, plain.FormatDuration(v.Pause), process)
	}
	return v
}

// inSeconds formats a duration for people, in whole seconds.
func inSeconds(d time.Duration) string {
	return plain.FormatDuration(max(time.Second, d.Round(time.Second)))
}

// PauseAfter returns how long work pauses after so many stops in a row. random is in [0, 1).
func PauseAfter(n int, random float64) time.Duration {
	if n < Suspicious {
		return 0
	}
	pause := firstPause * time.Duration(min(1<<min(n-Suspicious, 10), longest))
	return (pause + time.Duration(random*float64(pause)/2)).Round(time.Second)
}
