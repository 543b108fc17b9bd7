package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

type newGroupInput struct{ Body wire.NewGroup }

type newGroupOutput struct {
	Location string `header:"Location"`
	Body     wire.CreatedGroup
}

// groupActions registers the operations that make and end groups.
func (a *API) groupActions() {
	register(a, operation{
		id: "create-group", method: http.MethodPost, path: "/groups", tag: "groups", scope: ScopeEnqueue, body: sizeLarge,
		status: http.StatusCreated, errors: []int{http.StatusConflict},
		summary: "Make a group: open, or with all its jobs",
		more:    "With its jobs it is made in one transaction, all or none but for those whose unique keys are in use.",
	}, a.createGroup)
	register(a, operation{
		id: "seal-group", method: http.MethodPost, path: "/groups/{id}/seal", tag: "groups", scope: ScopeEnqueue,
		errors:  []int{http.StatusNotFound},
		summary: "Let a group end as soon as none of its jobs is pending",
		more:    "To seal it again does nothing.",
	}, func(ctx context.Context, in *groupPath) (*struct{}, error) {
		id, err := readID("id", in.ID)
		if err != nil {
			return nil, err
		}
		return nil, a.queues.Seal(ctx, id)
	})
	register(a, operation{
		id: "delete-group", method: http.MethodDelete, path: "/groups/{id}", tag: "groups", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound},
		summary: "End a group without its callback, and have it and its results removed",
		more:    "Its jobs are done all the same, as if they were of none.",
	}, func(ctx context.Context, in *groupPath) (*struct{}, error) {
		id, err := readID("id", in.ID)
		if err != nil {
			return nil, err
		}
		return nil, a.queues.DeleteGroup(ctx, id)
	})
}

func (a *API) createGroup(ctx context.Context, in *newGroupInput) (*newGroupOutput, error) {
	g, jobs, err := readGroup(&in.Body)
	if err != nil {
		return nil, err
	}
	taken := slices.Clone(jobs)
	if g.Callback != nil {
		taken = append(taken, *g.Callback)
	}
	if err := mayUseQueues(ctx, taken...); err != nil {
		return nil, err
	}
	out := &newGroupOutput{}
	var id int64
	var all []queue.Enqueued
	if len(jobs) == 0 {
		out.Body.State = queue.GroupOpen
		id, err = a.queues.NewGroup(ctx, g)
	} else {
		out.Body.State = queue.GroupSealed
		id, all, err = a.queues.EnqueueGroup(ctx, g, jobs...)
	}
	var one *queue.JobError
	if len(jobs) == 1 && err != nil && !errors.As(err, &one) && errors.Is(err, queue.ErrInvalid) {
		err = &queue.JobError{Index: 0, Of: 1, Err: err}
	}
	if err != nil {
		return nil, err
	}
	out.Location, out.Body.ID = location("/groups/%s", wire.ID(id)), wire.ID(id)
	out.Body.Jobs = wireof.AllEnqueued(all)
	return out, nil
}

// readGroup returns the group in a request, or an error about a field.
func readGroup(b *wire.NewGroup) (g queue.Group, jobs []queue.Job, err error) {
	if err := checkNames("name", b.Name); err != nil {
		return g, nil, err
	}
	g.Name = b.Name
	if g.Keep, err = b.Keep.Time(); err != nil {
		return g, nil, invalid("keep", "%v", err)
	} else if g.Keep == 0 && b.Keep != "" {
		return g, nil, invalid("keep", "it is 0; delete the group when it is not needed any more")
	}
	if g.Callback, err = readCallback(b.Callback); err != nil {
		return g, nil, err
	}
	jobs = make([]queue.Job, len(b.Jobs))
	for i := range b.Jobs {
		if jobs[i], err = wireof.NewJob(&b.Jobs[i]); err == nil && jobs[i].Group != 0 {
			err = invalid("group", "it is of the group that is made")
		}
		if err != nil {
			return g, nil, &queue.JobError{Index: i, Of: len(jobs), Err: err}
		}
	}
	return g, jobs, nil
}

// readCallback returns the callback in a request.
func readCallback(n *wire.NewJob) (*queue.Job, error) {
	if n == nil {
		return nil, nil //nolint:nilnil // a group need not have one
	}
	j, err := wireof.NewJob(n)
	switch {
	case err != nil:
	case j.Unique != "":
		err = invalid("unique", "it is enqueued once, and needs none")
	case j.Group != 0:
		err = invalid("group", "it is of no group")
	case !j.RunAt.IsZero():
		err = invalid("run_at", "give it a delay after the group's end, or none")
	}
	var wrong *queue.InvalidError
	if errors.As(err, &wrong) {
		err = &queue.InvalidError{Field: "callback." + wrong.Field, Problem: wrong.Problem}
	}
	return &j, err
}
