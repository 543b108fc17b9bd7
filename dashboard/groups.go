package dashboard

import (
	"context"
	"fmt"
	"slices"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
)

// groupStates are the states of a group, in order.
var groupStates = []string{queue.GroupOpen, queue.GroupSealed, queue.GroupDone}

type groupsData struct {
	State       string
	States      []string
	Groups      []queue.GroupInfo
	After, More int64
}

func (d *Dashboard) listGroups(ctx context.Context, r *request) (*view, error) {
	data := &groupsData{State: r.query.Get("state"), States: groupStates}
	if data.State == "" {
		data.State = queue.GroupSealed
	}
	if !slices.Contains(groupStates, data.State) {
		return nil, fmt.Errorf("%w: there is no such state", errBadRequest)
	}
	var err error
	if data.After, err = r.idIn("after", false); err != nil {
		return nil, err
	}
	data.Groups, err = d.queues.Groups(ctx, data.State, data.After, listed)
	if n := len(data.Groups); n == listed {
		data.More = data.Groups[n-1].ID
	}
	return &view{template: "groups.html", title: "Groups", section: "queues", data: data}, err
}

type groupData struct {
	queue.GroupInfo
	Results     []resultRow
	After, More int64
}

// A resultRow is a job's outcome and result, as text.
type resultRow struct {
	queue.Result
	Made string
}

func (d *Dashboard) showGroup(ctx context.Context, r *request) (*view, error) {
	id, err := r.idIn("id", true)
	if err != nil {
		return nil, err
	}
	data := &groupData{}
	if data.After, err = r.idIn("after", false); err != nil {
		return nil, err
	}
	if data.GroupInfo, err = d.queues.Group(ctx, id); err != nil {
		return nil, err
	}
	v := &view{template: "group.html", title: fmt.Sprint("Group ", id), section: "queues", data: data, still: data.State == queue.GroupDone}
	found, more, err := d.queues.ResultsAfter(ctx, id, data.After, jobsListed)
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("Jobs", err))
	}
	for i := range found {
		row := resultRow{Result: found[i]}
		if !r.hide {
			row.Made = plain.Cut(string(found[i].Result), 200)
		}
		data.Results = append(data.Results, row)
	}
	if more {
		data.More = found[len(found)-1].Job
	}
	return v, nil
}

// deleteGroup ends a group without its callback. The visitor has to type its id.
func (d *Dashboard) deleteGroup(ctx context.Context, r *request) (outcome, error) {
	id, err := r.idIn("id", true)
	if err != nil {
		return outcome{}, err
	}
	if r.PostForm.Get("typed") != fmt.Sprint(id) {
		return outcome{}, fmt.Errorf("%w: nothing was removed: the text entered is not the group's id", queue.ErrInvalid)
	}
	return outcome{note: "ungrouped", to: "groups?"}, d.queues.DeleteGroup(ctx, id)
}
