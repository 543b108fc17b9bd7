package dashboard

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/dbcron/dbcron/queue/admin"
)

const (
	failuresRead = 10_000 // jobs whose errors are grouped
	groupsListed = 100
)

// A failureList has the newest failed jobs, grouped.
type failureList struct {
	groups []errorGroup
	jobs   int
	more   bool // there are older jobs
}

// An errorGroup is a set of jobs of a kind and queue with similar errors.
type errorGroup struct {
	Queue, Kind   string
	Like          string // identifies the errors
	Common        string // the common part of the errors
	Sample        string // error of the newest job
	ID            int64  // id of the newest job
	Dead, Failing int
	First, Last   time.Time // when dead jobs died; zero: none did
}

// N returns the number of jobs.
func (g *errorGroup) N() int { return g.Dead + g.Failing }

// Jobs returns the address of the group's jobs in a state.
func (g *errorGroup) Jobs(state admin.State) string { return g.filter(state).To("jobs") }

// Do returns the address of an action on the group's jobs in a state.
func (g *errorGroup) Do(state admin.State, what string) string {
	return g.filter(state).To("bulk", "do", what)
}

func (g *errorGroup) filter(state admin.State) jobsFilter {
	return jobsFilter{Queue: g.Queue, Kind: g.Kind, State: state, Like: g.Like}
}

// groupErrors groups jobs, given newest first, by queue, kind and the common part of their
// errors. The largest groups come first.
func groupErrors(all []admin.Failure) []errorGroup {
	type key struct{ queue, kind, common string }
	at := map[key]int{}
	var groups []errorGroup
	for i := range all {
		f := &all[i]
		k := key{f.Queue, f.Kind, commonText(f.Error)}
		n, ok := at[k]
		if !ok {
			n = len(groups)
			at[k] = n
			groups = append(groups, errorGroup{Queue: f.Queue, Kind: f.Kind, Like: likeness(f.Error), Common: k.common, Sample: f.Error, ID: f.ID})
		}
		g := &groups[n]
		if f.State != admin.StateDead {
			g.Failing++
			continue
		}
		g.Dead++
		if g.First.IsZero() || f.At.Before(g.First) {
			g.First = f.At
		}
		if f.At.After(g.Last) {
			g.Last = f.At
		}
	}
	slices.SortStableFunc(groups, func(a, b errorGroup) int {
		return cmp.Or(cmp.Compare(b.N(), a.N()), b.Last.Compare(a.Last), cmp.Compare(a.Queue, b.Queue),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Common, b.Common))
	})
	return groups
}

type errorsData struct {
	Queue  string // only this one; empty: all
	Queues []string
	Groups []errorGroup
	Jobs   int  // number of jobs that were read
	Others int  // number of groups not listed
	More   bool // there are older jobs
}

func (d *Dashboard) listErrors(ctx context.Context, r *request) (*view, error) {
	name, err := r.optionalName("queue")
	if err != nil {
		return nil, err
	}
	data := &errorsData{Queue: name}
	v := &view{template: "errors.html", title: "Errors", section: "errors", data: data}
	list, err := d.failures.get(ctx, func(ctx context.Context) (failureList, error) {
		all, more, err := d.admin.Failures(ctx, failuresRead)
		return failureList{groupErrors(all), len(all), more}, err
	})
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("Errors", err))
		return v, nil
	}
	data.More, data.Jobs, data.Groups = list.more, list.jobs, slices.Clone(list.groups)
	for i := range list.groups {
		data.Queues = append(data.Queues, list.groups[i].Queue)
	}
	slices.Sort(data.Queues)
	data.Queues = slices.Compact(data.Queues)
	data.Queues = data.Queues[:min(len(data.Queues), listed)]
	if name != "" {
		data.Groups = slices.DeleteFunc(data.Groups, func(g errorGroup) bool { return g.Queue != name })
	}
	if n := len(data.Groups); n > groupsListed {
		data.Groups, data.Others = data.Groups[:groupsListed], n-groupsListed
	}
	return v, nil
}
