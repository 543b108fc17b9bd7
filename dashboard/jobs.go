package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

const (
	jobsListed    = 50
	listedPayload = 200     // bytes of a payload shown in a list
	listedBytes   = 1 << 20 // total of payloads and errors in a list, and of the texts of schedules
	whereBytes    = 2000
)

// states are the states of a job, in order.
var states = []admin.State{admin.StateReady, admin.StateDelayed, admin.StateRunning, admin.StateDead, admin.StateDone}

type jobsData struct {
	jobsFilter
	States      []admin.State
	Queues      []string // for the selection list
	Jobs        []admin.Job
	After, More int64
	Unknown     bool // the queue does not exist
}

func (d *Dashboard) listJobs(ctx context.Context, r *request) (*view, error) {
	f, err := r.jobsFilterIn()
	if err != nil {
		return nil, err
	}
	data := &jobsData{jobsFilter: f, States: states}
	if data.After, err = r.idIn("after", false); err != nil {
		return nil, err
	}
	v := &view{template: "jobs.html", title: "Jobs", section: "jobs", data: data}
	known, err := d.admin.Queues(ctx, "", listed)
	if err != nil {
		return nil, err
	}
	for i := range known {
		data.Queues = append(data.Queues, known[i].Name)
	}
	if data.Queue == "" {
		switch {
		case len(data.Queues) == 0:
			return v, nil
		case slices.Contains(data.Queues, "default"):
			data.Queue = "default"
		default:
			data.Queue = data.Queues[0]
		}
	}
	v.title = "Jobs of " + plain.Clean(data.Queue)
	page := data.filter()
	page.After, page.Limit, page.LongestPayload, page.MaxBytes = data.After, jobsListed, listedPayload, listedBytes
	data.Jobs, data.More, err = d.admin.Jobs(ctx, page)
	for i := range data.Jobs {
		if r.hide {
			data.Jobs[i].Payload = nil
		}
	}
	switch {
	case errors.Is(err, queue.ErrNotFound):
		data.Unknown, err = true, nil
	case errors.Is(err, queue.ErrInvalid): // show the filter, so that it can be corrected
		v.troubles, err = append(v.troubles, sentence(err.Error())), nil
	}
	return v, err
}

type jobData struct {
	admin.Job
	Max     int // failed attempts after which it is dead
	Payload payloadView
	Made    *payloadView // its result; nil: it has none
	Acts    []jobAct
	Life    []moment
	Why     []health.Cause // why it waits
}

// A jobAct is an action on a job in its state.
type jobAct struct {
	Do, Label, Why string
	Danger         bool
}

var jobActs = map[admin.State][]jobAct{
	admin.StateReady:   {{"cancel", "Cancel", "It is removed. A worker that has already read it may still begin it.", true}},
	admin.StateDelayed: {{"run", "Run now", "It becomes due at once.", false}, {"cancel", "Cancel", "It is removed.", true}},
	admin.StateRunning: {{"cancel", "Cancel", "It is removed. Its worker notices within two seconds.", true}},
	admin.StateDead:    {{"retry", "Retry", "It gets all its attempts again.", false}, {"delete", "Delete", "It is removed.", true}},
	admin.StateDone:    {{"delete", "Delete", "It is removed.", true}},
}

func (r *request) job() (name string, id int64, err error) {
	if name, err = r.nameIn("queue"); err == nil {
		id, err = r.idIn("id", true)
	}
	return name, id, err
}

func (d *Dashboard) showJob(ctx context.Context, r *request) (*view, error) {
	name, id, err := r.job()
	if err != nil {
		return nil, err
	}
	i, err := d.admin.Job(ctx, name, id)
	if errors.Is(err, queue.ErrNotFound) && noteOf(r.query) != "" { // the action has removed it
		return &view{template: "gone.html", title: fmt.Sprint("Job ", id), section: "jobs", data: name, still: true}, nil
	}
	if err != nil {
		return nil, err
	}
	data := &jobData{Job: i, Max: i.MaxAttempts, Acts: jobActs[i.State]}
	if !r.hide {
		data.Payload = viewOf(&i)
	}
	if i.Result != nil {
		data.Made = &payloadView{}
		if !r.hide {
			*data.Made = viewOf(&admin.Job{Payload: i.Result})
		}
	}
	if data.Max == 0 {
		q, err := d.admin.Queue(ctx, name)
		if err != nil {
			return nil, err
		}
		data.Max = q.MaxAttempts
	}
	if i.State == admin.StateReady || i.State == admin.StateDelayed {
		e, err := health.ExplainJob(ctx, d.db, d.admin, name, id)
		if err != nil && !errors.Is(err, queue.ErrNotFound) { // it has ended meanwhile
			return nil, err
		}
		if err == nil {
			data.Why = e.Causes
		}
	}
	data.Life = timelineOf(&i, data.Max, r.now)
	return &view{
		template: "job.html", title: fmt.Sprint("Job ", id), section: "jobs", data: data,
		still: i.State == admin.StateDead || i.State == admin.StateDone,
	}, nil
}

// jobAction returns the action that applies the queue's operation to one job.
func (d *Dashboard) jobAction(what string) action {
	do, note := map[string]func(context.Context, string, int64) error{
		"retry": d.admin.Retry, "run": d.admin.RunNow, "cancel": d.admin.Cancel, "delete": d.admin.Delete,
	}[what], map[string]string{"retry": "retried", "run": "goes", "cancel": "ended", "delete": "deleted"}[what]
	return func(ctx context.Context, r *request) (outcome, error) {
		name, id, err := r.job()
		if err != nil {
			return outcome{}, err
		}
		return outcome{note: note}, do(ctx, name, id)
	}
}
