package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/scheduler"
)

const runsListed = 50

type runsData struct {
	State, Schedule string
	States          []string
	Runs            []scheduler.Run
	Lines           map[int64]string // the first line of what each has written
	Before, More    int64
}

func (d *Dashboard) listRuns(ctx context.Context, r *request) (*view, error) {
	data := &runsData{State: r.query.Get("state"), States: scheduler.RunStates}
	f := scheduler.RunFilter{Limit: runsListed}
	if data.State != "" {
		if !slices.Contains(scheduler.RunStates, data.State) {
			return nil, fmt.Errorf("%w: there is no such state", errBadRequest)
		}
		f.States = []string{data.State}
	}
	var err error
	if f.Before, err = r.idIn("before", false); err != nil {
		return nil, err
	}
	data.Before = f.Before
	if data.Runs, data.More, err = scheduler.RecentRuns(ctx, d.db, f); err == nil {
		data.Lines, err = health.LastLines(ctx, d.db, data.Runs)
	}
	return &view{template: "runs.html", title: "Runs", section: "runs", data: data}, err
}

type runData struct {
	scheduler.Run
	Shown  string // its output
	Open   bool   // it has not ended
	HasJob bool
}

func (d *Dashboard) showRun(ctx context.Context, r *request) (*view, error) {
	id, err := r.idIn("id", true)
	if err != nil {
		return nil, err
	}
	run, err := scheduler.GetRun(ctx, d.db, id)
	if err != nil {
		return nil, err
	}
	data := &runData{Run: run, Shown: plain.Clean(run.Output), Open: run.Finished.IsZero()}
	return &view{template: "run.html", title: fmt.Sprint("Run ", id), section: "runs", data: data, still: !data.Open}, nil
}

func (d *Dashboard) cancelRun(ctx context.Context, r *request) (outcome, error) {
	id, err := r.idIn("id", true)
	if err != nil {
		return outcome{}, err
	}
	why, err := r.reason(150)
	if err != nil {
		return outcome{}, err
	}
	run, err := scheduler.Cancel(ctx, d.db, id, why)
	return outcome{note: "cancelled", object: fmt.Sprint(run.Schedule, "/", id)}, err
}

type locksData struct {
	Locks    []lock.Info
	From     string
	Begun    bool // it is not the first page
	MoreName string
	MoreSlot int
}

func (d *Dashboard) listLocks(ctx context.Context, r *request) (*view, error) {
	after, err := r.optionalName("after")
	var slot int64
	if err == nil {
		slot, err = r.idIn("slot", false)
	}
	if err != nil || slot > lock.MaxSlots {
		return nil, errors.Join(err, errBadRequest)
	}
	data := &locksData{Begun: after != ""}
	data.Locks, err = d.locks.List(ctx, after, int(slot), listed)
	if n := len(data.Locks); n == listed {
		data.MoreName, data.MoreSlot = data.Locks[n-1].Name, data.Locks[n-1].Slot
	}
	return &view{template: "locks.html", title: "Locks", section: "locks", data: data}, err
}

type lockData struct {
	Name  string
	Slots []lock.Info
	Pool  bool
}

func (d *Dashboard) showLock(ctx context.Context, r *request) (*view, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return nil, err
	}
	found, err := d.locks.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	data := &lockData{Name: name, Slots: found, Pool: len(found) > 1 || found[0].State == lock.Head}
	return &view{template: "lock.html", title: "Lock " + plain.Clean(name), section: "locks", data: data}, nil
}

type daemonsData struct {
	Nodes []daemonRow
	Begun bool
	More  string
}

// A daemonRow is a process and its work.
type daemonRow struct {
	scheduler.Node
	admin.Serving
	Runs int // runs that it executes now
}

// add adds the work of a part of the process.
func (n *daemonRow) add(s admin.Serving, runs int) {
	n.Runs += runs
	for _, name := range s.Names {
		if slices.Contains(n.Names, name) {
			s.Queues--
		} else {
			n.Names = append(n.Names, name)
		}
	}
	n.Queues, n.Blocks = n.Queues+s.Queues, n.Blocks+s.Blocks
}

// Some returns the names of the queues that are shown.
func (n *daemonRow) Some() []string { return n.Names[:min(len(n.Names), 3)] }

// Others returns the number of its queues that are not shown.
func (n *daemonRow) Others() int { return max(0, n.Queues-len(n.Some())) }

func (d *Dashboard) listDaemons(ctx context.Context, r *request) (*view, error) {
	after, err := r.optionalName("after")
	if err != nil {
		return nil, err
	}
	data := &daemonsData{Begun: after != ""}
	v := &view{template: "daemons.html", title: "Daemons", section: "daemons", data: data}
	nodes, err := scheduler.Nodes(ctx, d.db, after, listed)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	serving, err := d.admin.Serving(ctx, names)
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("What works on which queue", err))
	}
	runs, err := scheduler.Executing(ctx, d.db)
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("What runs", err))
	}
	for _, n := range scheduler.Processes(nodes) {
		row := daemonRow{Node: n}
		for i := range nodes {
			if nodes[i].Process() == n.Name {
				row.add(serving[nodes[i].Name], runs[nodes[i].Name])
			}
		}
		data.Nodes = append(data.Nodes, row)
	}
	if n := len(nodes); n == listed {
		data.More = names[n-1]
	}
	return v, nil
}
