// Package health finds what is wrong with the work: schedules that are late or have failed, failed runs,
// queues that lag behind or are paused, lost processes. It also checks the database itself. The dashboard and dbcron
// doctor report it.
package health

import (
	"fmt"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
)

const (
	// Most limits the problems of a kind that are listed.
	Most = 10

	// CountTo limits the count of a queue's jobs per state.
	CountTo = 10_000

	// MostQueues limits the queues that are counted.
	MostQueues = 1000

	behindAfter = time.Minute      // age of the oldest ready job of a queue that lags
	lateAfter   = 10 * time.Second // time since a slot was due that no daemon has claimed
	back        = 24 * time.Hour   // age up to which ended runs are considered
	maxNodes    = 1000
	maxFiles    = 1000
	maxListed   = 1000 // problems of a kind that are counted
)

// A Problem is something that is wrong.
type Problem struct {
	Of    Subject
	Name  string // of a schedule, a queue or a process; "": of several
	Run   int64  // the last failed run; 0: none
	Bad   bool   // it is broken, not just noteworthy
	Dead  bool   // it is about a queue's dead letters
	Why   string
	Do    string    // what to do about it, in words and commands
	Act   string    // what a button may do about it: resume, run, retry; "": nothing
	Since time.Time // zero: unknown

	what   string // with %s for the name
	change string // what has to be the same for it to be the same finding

	unclaimed string // the tag of the late schedule that it is about, if no daemon has tried to claim the slot
}

// A Subject is the kind of thing that has a problem.
type Subject string

// The subjects.
const (
	Schedules Subject = "schedules"
	Runs      Subject = "runs"
	Queues    Subject = "queues"
	Endpoints Subject = "endpoints"
	Processes Subject = "processes"
	Files     Subject = "files"
	Rows      Subject = "rows"  // of tables that a person may write
	Clock     Subject = "clock" // the database's
)

// What describes the problem in a few words. It makes invisible characters in the name visible.
func (p *Problem) What() string {
	if p.Name == "" {
		return p.what
	}
	return fmt.Sprintf(p.what, plain.Clean(p.Name))
}

// argument quotes a name for a command line.
func argument(name string) string {
	if name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("-_./:@", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) && name[0] != '-' {
		return name
	}
	return "'" + strings.ReplaceAll(plain.Clean(name), "'", `'\''`) + "'"
}
