package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/ops/notify"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

// noticeWork is schedules that fail for a while and recover, and daemons that make messages of it. The messages
// are not sent: their queue is paused, and Check reads them there.
type noticeWork struct {
	scheduleWork
	trouble map[string]bool // schedules that fail now
}

func (n *noticeWork) Claims() []string {
	return []string{
		"kill", "restart", "stop", "lose", "mute", "slow", "hangup", "written, and the answer lost", "a failure is told", "a recovery is told",
		"a schedule fails", "a schedule recovers", "several are told together",
		"a trouble that is over is told",
	}
}

func (n *noticeWork) Begin(w *World) error {
	n.given, n.trouble = map[string]*simSchedule{}, map[string]bool{}
	n.lease = time.Duration(w.Knob("lease", 3, 6)) * time.Second
	ends := w.server.now().Add(time.Duration(w.minutes*float64(time.Minute)) + 20*time.Second)
	for i := range w.Knob("schedules", 1, 3, 6) {
		d := w.Dice("schedule", i)
		every := time.Duration(oneOf(d, 2, 3, 5)) * time.Second
		one := &simSchedule{every: every, Schedule: scheduler.Schedule{
			Name: fmt.Sprint("schedule", i), Spec: "@every " + every.String(), Kind: "func", Command: fmt.Sprint("schedule", i),
			Policy: scheduler.Policy{
				Overlap: "queue", MaxAttempts: oneOf(d, 1, 2), RetryDelay: time.Second, RetryMaxDelay: time.Second, KeepRuns: -1, Ends: ends,
			},
		}}
		if err := scheduler.Put(w.Free(), w.Operator, one.Schedule); err != nil {
			return err
		}
		n.given[one.Name] = one
		n.order = append(n.order, one.Name)
	}
	a, err := admin.New(w.Operator, admin.Options{})
	if err != nil {
		return err
	}
	if _, err := a.Edit(w.Free(), notify.Queue, func(*admin.Queue) {}); err != nil {
		return err
	}
	if err := a.Pause(w.Free(), notify.Queue, "messages are read here"); err != nil {
		return err
	}
	for i := range w.Knob("daemons", 1, 2, 3) {
		w.Start(fmt.Sprint("daemon-", i), n.serve)
	}
	w.StartOnce("weather", n.change)
	return nil
}

// change has schedules fail and recover; at the end all of them are well.
func (n *noticeWork) change(p *Process) error {
	for !p.w.Over() {
		if err := p.Sleep(p.ctx, p.Dice.about(5*time.Second)); err != nil {
			return err
		}
		name := n.order[p.Dice.IntN(len(n.order))]
		p.Act(func() { n.trouble[name] = !n.trouble[name] })
	}
	p.Act(func() { clear(n.trouble) })
	return nil
}

// serve is a daemon's process.
func (n *noticeWork) serve(p *Process) error {
	db, err := p.Open(10)
	if err != nil {
		return err
	}
	daemon, err := scheduler.New(db, scheduler.Options{
		Node: p.Name, Lease: n.lease, Poll: 500 * time.Millisecond, MaxCrashes: 100, Kinds: []string{scheduler.Functions}, Grace: -1, Logger: p.Log,
	})
	if err != nil {
		return err
	}
	for _, name := range n.order {
		err := daemon.Handle(name, func(ctx context.Context, run *scheduler.Running) error {
			if err := p.awake(context.Background(), nil); err != nil {
				return err
			}
			p.Note("begins run %d of %s : attempt %d", run.ID, name, run.Attempt)
			if err := p.Sleep(ctx, p.Dice.about(100*time.Millisecond)); err != nil {
				return err
			}
			p.w.mu.Lock()
			defer p.w.mu.Unlock()
			if n.trouble[name] {
				return errors.New("it rains")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	notifier, err := notify.New(db, notify.Options{
		Targets: []string{"mailto:ops@example.org"}, Every: time.Second, Limit: 100_000, QueueAge: time.Hour, Node: p.Name, Logger: p.Log,
	})
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() { defer close(over); notifier.Run(p.ctx) }()
	err = daemon.Run(p.ctx)
	<-over
	return err
}

// Left says what has not ended, and what has not been told.
func (n *noticeWork) Left(w *World) string {
	left := n.scheduleWork.Left(w)
	if left == "" && w.Over() {
		told, err := n.told(w)
		if err != nil {
			return err.Error()
		}
		for _, name := range n.order {
			var last string // it may have ended in trouble
			var failed int
			err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT COALESCE((SELECT state FROM dbcron_run WHERE schedule = ?
				ORDER BY due_at DESC, attempt DESC LIMIT 1), ''),
				(SELECT COUNT(*) FROM dbcron_run AS r WHERE schedule = ? AND state IN ('failed', 'timeout', 'missed')
					AND NOT EXISTS (SELECT 1 FROM dbcron_run AS n WHERE n.schedule = r.schedule AND n.due_at = r.due_at AND n.attempt > r.attempt))`, name, name).Scan(&last, &failed)
			if err != nil {
				return err.Error()
			}
			switch t := told[name]; {
			case failed > 0 && len(t) == 0:
				left += " the failure of " + name + " was not told;"
			case last == "ok" && len(t) > 0 && t[len(t)-1].failed:
				left += " the recovery of " + name + " was not told;"
			}
		}
	}
	return left
}

// A telling is that a schedule is in trouble, or is well again.
type telling struct {
	failed  bool
	problem string
	begun   int64
	id      int64
}

// told reads the messages, by schedule, in order.
func (n *noticeWork) told(w *World) (map[string][]telling, error) {
	all := map[string][]telling{}
	err := eachRow(w, `SELECT id, payload FROM dbcron_job WHERE id > 0 AND queue_id = (SELECT queue_id FROM dbcron_queue WHERE name = '`+notify.Queue+`') ORDER BY id`,
		func(scan func(...any) error) error {
			var id int64
			var text []byte
			var m notify.Message
			if err := scan(&id, &text); err != nil {
				return err
			}
			if err := json.Unmarshal(text, &m); err != nil {
				return err
			}
			if len(m.Troubles)+len(m.Recovered) > 1 {
				w.count("several are told together")
			}
			for i, list := range [][]notify.Trouble{m.Recovered, m.Troubles} {
				for j := range list {
					t := &list[j]
					if t.Subject != "schedule" {
						continue
					}
					all[t.Name] = append(all[t.Name], telling{i == 1, t.Problem, t.Begun, id})
					if i == 1 && t.Well != 0 { // it was over before it was told: one message says both
						w.count("a trouble that is over is told")
						all[t.Name] = append(all[t.Name], telling{false, t.Problem, t.Begun, id})
					}
				}
			}
			return nil
		})
	return all, err
}

// Check compares what was told with the history: each beginning of a trouble is told once at the most, each end
// only after its beginning, and what is told last is so.
func (n *noticeWork) Check(w *World) error {
	told, err := n.told(w)
	if err != nil {
		return err
	}
	for _, name := range n.order {
		one := n.given[name]
		runs, err := scheduler.History(w.Free(), w.Operator, name, 1_000_000)
		if err != nil {
			return err
		}
		slices.Reverse(runs)
		var failed, recovered int
		well := true
		for i, r := range runs {
			if i+1 < len(runs) && runs[i+1].Due.Equal(r.Due) {
				continue // another attempt followed, and says how the slot ended
			}
			switch r.State {
			case "failed", "timeout", "missed":
				failed++
				well = false
			case "ok":
				if !well {
					recovered++
				}
				well = true
			}
		}
		troubles, ends := 0, 0
		var text strings.Builder
		for _, t := range told[name] {
			fmt.Fprintf(&text, " %v %s (%d)", map[bool]string{true: "in trouble:", false: "well again:"}[t.failed], t.problem, t.id)
			if t.failed {
				troubles++
			} else {
				ends++
			}
			if ends > troubles {
				w.Violate("notice", about(one), "%s: a recovery was told without a trouble:%s", name, text.String())
			}
		}
		w.mu.Lock()
		w.done["failures"] += failed
		w.done["told"] += len(told[name])
		for situation, n := range map[string]int{"a failure is told": troubles, "a recovery is told": ends, "a schedule fails": failed, "a schedule recovers": recovered} {
			if n > 0 {
				w.reached[situation] += n
			}
		}
		w.mu.Unlock()
		switch {
		case troubles > failed || ends > recovered:
			w.Violate("notice", about(one), "%s has failed %d times and recovered %d times; told was:%s", name, failed, recovered, text.String())
		case failed > 0 && troubles == 0:
			w.Violate("notice", about(one), "%s has failed %d times, and nothing was told:%s", name, failed, n.rows(w, name, runs))
		case well && troubles > 0 && told[name][len(told[name])-1].failed:
			w.Violate("notice", about(one), "%s is well, and the last thing that was told is a trouble:%s%s", name, text.String(), n.rows(w, name, runs))
		}
	}
	return nil
}

// rows is what the tables say of a schedule's notice, and of its newest and its failed runs.
func (n *noticeWork) rows(w *World, name string, runs []scheduler.Run) string {
	var text string
	err := w.Operator.Pool().QueryRowContext(w.Free(), `SELECT problem || ' of run ' || run_id || ', due ' || COALESCE(due_at, '-') || ', ' || times
		|| ' times, last ' || last_at || ', to tell ' || COALESCE(tell_at, '-') || ', told ' || COALESCE(told_at, '-') || ', well ' || COALESCE(well_at, '-')
		FROM dbcron_notice WHERE subject = 'schedule' AND name = ?`, name).Scan(&text)
	if err != nil {
		text = err.Error()
	}
	text = "\n    its notice: " + text
	for i, r := range runs {
		if i < len(runs)-5 && r.State == "ok" {
			continue
		}
		text += fmt.Sprintf("\n    run %d, due %s, %s, ended %s", r.ID, r.Due.Format(time.TimeOnly), r.State, r.Finished.Format("15:04:05.000"))
	}
	return text
}
