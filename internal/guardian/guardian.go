// Package guardian runs commands that must not outlive a lease, whatever
// happens to the process that started them.
//
// Start does not run the command itself. It runs this program a second time,
// as a guardian in a session of its own, and the guardian runs the command in
// a process group of its own. A pipe leads from the caller to the guardian.
// The guardian ends the command, and all that the command has started, when
//
//   - the pipe ends, because the caller has died;
//   - the deadline, which the caller keeps extending, is reached;
//   - the caller asks for it.
//
// So a caller that is killed or stopped leaves no orphan, and no command runs
// on past its deadline, as long as the guardian itself is scheduled. When the
// whole host is suspended nothing can act; a fence in the data is the only
// protection there.
//
// # The second start
//
// A program that imports this package needs to do nothing for it. An init
// function checks whether argv[0] is "dbcron-guardian"; if so, the program
// is a guardian and never reaches main. The package has few dependencies, so
// that this happens before most other packages are initialized. Everything about
// the command (arguments, environment, input) goes through the pipe: ps shows
// only a guardian's name, and its environment is empty.
//
// A guardian whose command has ended by itself, and left nothing behind, waits five seconds for
// another one (on Linux, and unless the command had the caller's own files): starting a guardian
// takes ten times as long as starting a small command. It guards one at a time, so that every process
// that it inherits belongs to that command. Dismiss ends those that wait.
//
// # Ending a command
//
// The command gets SIGTERM, and SIGKILL after its grace. If the deadline ends
// it, SIGTERM comes early enough for SIGKILL to precede the deadline: a grace
// before it, but never more than a third of the time that the last extension
// gave. With 30 seconds per extension and a grace of 20, SIGTERM comes after 20
// seconds without an extension. A later extension does not take back a SIGTERM.
//
// When a command ends by itself, processes that it has left in the background get
// one second to end, and are then killed. With a longer Linger they get that time, and until
// then they are ended as the command would be: when the pipe ends, by the deadline, or because
// the caller asks for it. On Linux this includes processes that moved to a session of their own;
// elsewhere only the process group is found. A service that must keep running has to be started
// by the init system, not as a child of the command.
//
// Only root can kill another user's processes: a command behind sudo or another setuid program may
// survive SIGKILL, and so may one that waits for a broken disk. It is not over then. Done stays open, the
// guardian goes on trying, and Survivors names the processes. Whatever is held for the command has to
// be held until Done. If the caller dies, its guardian gives up on survivors after five seconds.
//
// # Output
//
// The guardian keeps the head and the tail of the output, and sends it with the
// result. While the command runs, it sends new output once per second. It never
// waits for the caller to read: a caller that is stopped misses some snapshots,
// but neither a deadline nor the result.
package guardian

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

var (
	// ErrPast means that the deadline had passed before the command was
	// started. It has not run.
	ErrPast = errors.New("guardian: the deadline has passed")

	// ErrLost means that the guardian died before the command's end was
	// known. The command was killed.
	ErrLost = errors.New("guardian: the guardian died")

	// ErrSurvivors means that SIGKILL has not ended all of the command's processes, and that the
	// command is therefore not over. Usually they belong to another user, as behind sudo.
	ErrSurvivors = errors.New("guardian: processes could not be killed, and run on")
)

// A Command says what to run. Only Argv is required.
type Command struct {
	Name  string        // shown by ps beside dbcron-guardian
	Argv  []string      // Argv[0] is looked up in Env's PATH if it has no slash
	Env   []string      // the whole environment: nothing is inherited
	Dir   string        // default: the caller's; see User and Home
	Home  bool          // Dir is a home: where it cannot be entered, the command starts in /, as cron's do
	Input string        // standard input; default: none
	Grace time.Duration // from SIGTERM to SIGKILL; default: 10s, negative: none

	// Linger is how long what the command leaves in the background may run on; default: 1s,
	// negative: as long as it likes. The command is done when that has ended, too.
	Linger time.Duration

	// User runs the command: a name or a uid of the passwd database, which is
	// /etc/passwd alone in a program built without cgo. Only root can name
	// another user; the caller's own name changes nothing, and is the default.
	//
	// The command has that user's groups and no others, and does not start if
	// the user cannot enter Dir, unless that is a Home. It is not a login: HOME and the like are for
	// Env to set, and the limits and the umask are the caller's (as they were up to five seconds
	// ago: see above), and so is a Dir that is not set.
	User string

	// MaxOutput is the number of bytes of output to keep, half of them from
	// the start and half from the end; default: 64 KiB.
	MaxOutput int

	// Line is called with each line of output as it comes, beside what is kept: without its end, in pieces of 8 KiB
	// if it is longer, and not if it is empty. One goroutine calls it, and no more once Done is closed. While it blocks, the command goes
	// on, and what no longer fits into 256 KiB is left out, of which a line tells. Default: none.
	Line func(line string)

	// Stdin, Stdout and Stderr replace the pipes, if set. The command has no controlling
	// terminal even so: Ctrl-C reaches the caller only.
	Stdin, Stdout, Stderr *os.File
}

// A Cause says why a command ended.
type Cause string

// The causes of an end.
const (
	Exited     Cause = "exited"      // by itself, or by a signal from elsewhere
	Deadline   Cause = "deadline"    // not extended in time
	Stopped    Cause = "stopped"     // Stop, or SIGTERM to the guardian
	Killed     Cause = "killed"      // Kill
	Lost       Cause = "lost"        // the guardian died: see ErrLost
	NotStarted Cause = "not started" // see Result.Err

	orphaned Cause = "orphaned" // the caller died, so nobody sees this
)

// A Result is the result of a command.
type Result struct {
	Cause Cause

	// ExitCode is what a shell would report: the command's own code, 128+n after
	// signal n, 127 for a command that is not found, 126 for one that cannot be
	// run; -1 if there is none.
	ExitCode int
	Signal   syscall.Signal // that ended the command; 0: none

	// Output is stdout and stderr as they arrived, in valid UTF-8 without NUL. If
	// Omitted bytes are left out of the middle, a line says so.
	Output  string
	Omitted int64

	Took       time.Duration // from the command's start to its own end
	LeftBehind bool          // the command ended by itself, but others had to be killed
	Survivors  []int         // processes that SIGKILL did not end in 5s: the command is not over

	// Err is set if the command did not start or the guardian was lost. It is
	// ErrSurvivors while there are survivors, and nil if the command ran and is gone.
	Err error
}

const (
	argv0     = "dbcron-guardian"
	killLead  = 200 * time.Millisecond // SIGKILL comes this long before the deadline
	linger    = time.Second            // for what the command leaves behind, unless it has another time
	forever   = 100 * 365 * 24 * time.Hour
	giveUp    = 5 * time.Second // after SIGKILL
	longSleep = time.Second     // timers do not run while suspended: recheck the clock
	newsEvery = time.Second     // interval of snapshots

	defaultOutput = 64 << 10
)

// ownFiles reports whether the command has files that its guardian must have from the start.
func (c Command) ownFiles() bool { return c.Stdin != nil || c.Stdout != nil || c.Stderr != nil }

// withDefaults returns c with its zero values filled in, or an error.
func (c Command) withDefaults() (Command, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return c, errors.New("guardian: no command")
	}
	for _, s := range append(append([]string{c.Dir, c.User}, c.Argv...), c.Env...) {
		if strings.ContainsRune(s, 0) {
			return c, errors.New("guardian: NUL in the arguments, the environment, the directory or the user")
		}
	}
	if c.Input != "" && c.Stdin != nil {
		return c, errors.New("guardian: both Input and Stdin are set")
	}
	c.Name = strings.Map(printable, c.Name)
	c.Grace = max(0, cmp.Or(c.Grace, 10*time.Second))
	if c.Linger = cmp.Or(c.Linger, linger); c.Linger < 0 {
		c.Linger = forever
	}
	if c.MaxOutput <= 0 {
		c.MaxOutput = defaultOutput
	}
	return c, nil
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func lostError(how fmt.Stringer) error { return fmt.Errorf("%w: %v", ErrLost, how) }
