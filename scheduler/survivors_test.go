package scheduler

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dbcron/dbcron/dialect/dbtest"
	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/instant"
)

// An immortal is work that cannot be killed until it ends by itself. Which of its processes are left changes meanwhile.
type immortal struct {
	done chan struct{}
	end  guardian.Result

	mu    sync.Mutex
	pids  []int
	shown int
}

func (m *immortal) Extend(instant.Instant) {}
func (m *immortal) Stop()                  {}
func (m *immortal) Kill()                  {}
func (m *immortal) Done() <-chan struct{}  { return m.done }

func (m *immortal) Output() (text string, snapshot int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return "", m.shown
}

func (m *immortal) Survivors() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pids
}

func (m *immortal) left(pids ...int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pids, m.shown = pids, m.shown+1
}

func (m *immortal) Wait() guardian.Result {
	select {
	case <-m.done:
		return m.end
	default:
		return guardian.Result{Cause: m.end.Cause, ExitCode: -1, Survivors: m.Survivors(), Err: fmt.Errorf("%w: 7", guardian.ErrSurvivors)}
	}
}

// Processes that survive SIGKILL keep their run open, whyever they were to end; the run names those that are left, and
// its outcome is that of the end that came. TestSetuidChildren of package faults has such processes.
func TestSurvivorsKeepTheirRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		stop  stop
		end   guardian.Result
		says  string
		state string
		why   string
	}{
		{"timeout", stop{timedOut, "it took longer than 1s"}, guardian.Result{Cause: guardian.Stopped, ExitCode: -1}, "it took longer than 1s", "timeout", "it took longer than 1s"},
		{"cancelled", stop{cancelled, "by hand"}, guardian.Result{Cause: guardian.Stopped, ExitCode: 137}, "by hand", "cancelled", "by hand"},
		{"left behind", stop{}, guardian.Result{Cause: guardian.Exited, LeftBehind: true}, "its command has ended", "ok", leftBehind},
		{"deadline", stop{}, guardian.Result{Cause: guardian.Deadline, ExitCode: -1}, "its lease could not be renewed in time", "lost", "killed: the lease could not be renewed in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			s := daemon(t, &dbtest.DB{}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			e := newExecution(run{id: 1, what: &Schedule{Kind: "shell"}})
			work := &immortal{done: make(chan struct{}), end: c.end}
			work.left(7, 8)
			e.activity, e.stopped = work, c.stop
			results := make(chan guardian.Result)
			go func() { results <- s.outlast(e, work, work.Wait()) }()
			says := func(want string) {
				t.Helper()
				eventually(t, want, func() bool {
					_, wrong, ok := e.news()
					return ok && wrong == want
				})
			}
			says(c.says + "; it runs on, since SIGKILL does not end processes 7, 8")
			work.left(8)
			says(c.says + "; it runs on, since SIGKILL does not end process 8")
			close(work.done)
			if o := outcomeOf(e, <-results); o.state != c.state || o.why != c.why || o.none {
				t.Errorf("got %+v", o)
			}
			if !strings.Contains(log.String(), "processes 7, 8") {
				t.Errorf("the log does not name them: %s", log.String())
			}
		})
	}
	for _, c := range []struct {
		name string
		stop stop
		none bool // its lease ends the run: nobody may begin beside it before that
	}{{"daemon stopped", stop{cause: drained}, true}, {"lease lost", stop{cause: abandoned}, true}, {"timeout, then stopped", stop{cause: timedOut, why: "late"}, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := daemon(t, &dbtest.DB{}, Options{})
			e := newExecution(run{id: 1, what: &Schedule{Kind: "shell"}})
			work := &immortal{done: make(chan struct{}), end: guardian.Result{Cause: guardian.Stopped}}
			work.left(7)
			e.activity, e.stopped = work, c.stop
			time.AfterFunc(time.Millisecond, e.end)
			o := outcomeOf(e, s.outlast(e, work, work.Wait()))
			if o.none != c.none || !c.none && !strings.Contains(o.why, "could not be killed, and run on: 7") {
				t.Errorf("got %+v", o)
			}
		})
	}
}
