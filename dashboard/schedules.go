package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/httpapi"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
)

type schedulesData struct {
	Schedules   []scheduleRow
	State, From string
	After       string
	More        string // the last name of this page; empty: there is no next page
	Cut         bool   // a list of one state was cut off
}

// A scheduleRow is a schedule of the list, with its newest run.
type scheduleRow struct {
	scheduler.Schedule
	Last *scheduler.Run // nil: none
	Late bool           // its slot should have been claimed
}

// Bad reports whether its newest run ended badly.
func (s *scheduleRow) Bad() bool {
	return s.Last != nil && slices.Contains([]string{"failed", "timeout", "lost"}, s.Last.State)
}

func (d *Dashboard) listSchedules(ctx context.Context, r *request) (*view, error) {
	data := &schedulesData{State: r.query.Get("state")}
	v, found, err := d.findSchedules(ctx, r, data)
	if err != nil {
		return nil, err
	}
	last, err := health.LastRuns(ctx, d.db, found)
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("The last runs", err))
	}
	for i := range found {
		row := scheduleRow{Schedule: found[i], Late: health.IsLate(&found[i], r.now)}
		if run, ok := last[row.Name]; ok {
			row.Last = &run
		}
		data.Schedules = append(data.Schedules, row)
	}
	return v, nil
}

func (d *Dashboard) findSchedules(ctx context.Context, r *request, data *schedulesData) (v *view, all []scheduler.Schedule, err error) {
	after, err := r.optionalName("after")
	if err == nil {
		data.From, err = r.optionalName("from")
	}
	if err != nil {
		return nil, nil, err
	}
	data.After = after
	v = &view{template: "schedules.html", title: "Schedules", section: "schedules", data: data}
	switch data.State {
	case "":
	case "active", "paused", "ended", "failed":
		all, data.Cut, err = scheduler.InStateSome(ctx, d.db, data.State, listed, listedBytes)
		return v, all, err
	default:
		return nil, nil, fmt.Errorf("%w: there is no such state", errBadRequest)
	}
	if data.From != "" && after == "" { // include a schedule of that very name
		one, err := scheduler.Get(ctx, d.db, data.From)
		switch {
		case err == nil:
			all = append(all, one)
		case !errors.Is(err, scheduler.ErrNotFound):
			return nil, nil, err
		}
		after = data.From
	}
	found, more, err := scheduler.ListSome(ctx, d.db, after, listed, listedBytes)
	if more {
		data.More = found[len(found)-1].Name
	}
	return v, append(all, found...), err
}

type scheduleData struct {
	scheduler.Schedule
	Shown    string // its command, without secret parts
	Here     *time.Location
	Slots    []time.Time
	Strip    strip
	Runs     []scheduler.Run
	Lines    map[int64]string // the last line of what each has written
	Why      []string         // why it runs or does not
	Failing  bool             // its last run that counts failed
	Open     int              // number of runs that have not ended
	Settings []setRow
	Edit     *scheduleForm // nil: it comes from a file
}

func (d *Dashboard) showSchedule(ctx context.Context, r *request) (*view, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return nil, err
	}
	runs, err := scheduler.ShortHistory(ctx, d.db, name, stripRuns)
	if err != nil {
		return nil, err
	}
	s, err := scheduler.Get(ctx, d.db, name)
	if err != nil {
		return nil, err
	}
	data := &scheduleData{
		Schedule: s, Shown: plain.Clean(httpapi.ShownCommand(&s)), Here: zoneOf(&s), Slots: s.SlotsAfter(r.now, 5),
		Strip: stripOf(runs), Runs: runs[:min(len(runs), 20)],
		Settings: policyOf(&s),
	}
	for i := range runs {
		data.Open += boolInt(runs[i].Finished.IsZero() && (runs[i].State == "running" || runs[i].State == "waiting" || runs[i].State == "retry"))
	}
	data.Failing = failing(runs)
	if r.hide {
		data.Shown = ""
	}
	if data.Lines, err = health.LastLines(ctx, d.db, data.Runs); err != nil {
		return nil, err
	}
	e, err := health.Explain(ctx, d.db, name, 1, r.hide)
	if err != nil {
		return nil, err
	}
	data.Why = explainSchedule(e)
	if s.Source == "" {
		data.Edit = d.editForm(r, &s)
		if r.failed != nil && r.PostForm.Get("do") == "edit" {
			data.Edit.failed(r.PostForm, r.failed)
		}
	}
	return &view{template: "schedule.html", title: "Schedule " + plain.Clean(name), section: "schedules", data: data}, nil
}

// failing reports whether the last one of some runs, the newest first, that succeeded or failed has failed.
func failing(runs []scheduler.Run) bool {
	for i := range runs {
		switch runs[i].State {
		case "failed", "timeout", "lost":
			return true
		case "ok":
			return false
		}
	}
	return false
}

// zoneOf returns the schedule's time zone.
func zoneOf(s *scheduler.Schedule) *time.Location {
	if plan, err := cronspec.New("@daily", s.Zone, ""); err == nil {
		return plan.Location()
	}
	return time.UTC
}

// Wall formats an instant by the clock of the schedule's zone.
func (s *scheduleData) Wall(t time.Time) string {
	return wallText(t, s.Here)
}

func wallText(t time.Time, zone *time.Location) string {
	return t.In(zone).Format("Mon 2006-01-02 15:04:05 MST")
}

// explainSchedule explains why a schedule runs or does not, and what to do.
func explainSchedule(e *health.Explanation) (why []string) {
	add := func(text string) { why = append(why, plain.Cut(text, 600)) }
	for i := range e.Causes {
		c := &e.Causes[i]
		text := sentence(c.Why)
		switch {
		case c.Do != "":
			text += " What to do: " + c.Do + "."
		case e.Next != nil: // nothing is wrong, and the page has the next slots
			continue
		}
		add(text)
	}
	if s := &e.Schedule; s.State == "active" && s.Failures > 0 {
		add("It is " + health.StateOf(s) + ".")
	}
	if e.Overdue != nil {
		add("It has been overdue since " + stamp(*e.Overdue) + " UTC, for " + plain.Span(e.Now.Sub(*e.Overdue)) + ".")
	}
	for _, o := range e.Open {
		add("Under way: " + o.Text + ".")
	}
	if len(e.Slots) > 0 {
		if last := &e.Slots[0]; last.State == "skipped" || last.State == "missed" {
			add("The last slot was " + last.State + ": " + last.Why + ".")
		}
	}
	return why
}

// policyOf lists a schedule's policy as text.
func policyOf(s *scheduler.Schedule) []setRow {
	var rows []setRow
	always := []string{"missed", "overlap", "max_attempts", "tag"}
	settings := scheduler.Settings()
	for i := range settings {
		set := &settings[i]
		if value := set.Text(s); slices.Contains(always, set.Name) || set.Has(s.Work()) && !set.Ordinary(s) && set.Name != "description" {
			rows = append(rows, setRow{set.Label(), plain.Clean(value), set.Help})
		}
	}
	if s.Source != "" {
		rows = append(rows, setRow{"Source", plain.Clean(s.Source), "The file that it comes from."})
	}
	return rows
}

func (d *Dashboard) runSchedule(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	run, err := scheduler.Start(ctx, d.db, name)
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "started", to: link("run", "id", run.ID)}, nil
}

func (d *Dashboard) pauseSchedule(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	why, err := r.reason(500)
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "paused"}, scheduler.Pause(ctx, d.db, name, why)
}

func (d *Dashboard) resumeSchedule(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "resumed"}, scheduler.Resume(ctx, d.db, name)
}
