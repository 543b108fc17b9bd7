package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
	"github.com/dbcron/dbcron/wire"
)

// errNoCommands means that this daemon does not create such schedules.
var errNoCommands = errors.New("schedules that run commands, requests, statements or functions are made and changed here only with a token and dbcron serve --allow-commands; those of the kind job need neither")

type setScheduleInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Only     string `query:"only" enum:"new,existing" doc:"new: only if there is no such schedule yet, else 409. existing: only if there is one, else 404."`
	Body     wire.ScheduleChange
}

type setScheduleOutput struct {
	Status int
	Body   wire.Schedule
}

type previewInput struct {
	Body struct {
		Spec     string `json:"spec" minLength:"1" maxLength:"1000" doc:"When the schedule would run." example:"30 2 * * *"`
		TimeZone string `json:"time_zone,omitempty" maxLength:"100" doc:"The time zone of the spec. Default: UTC." example:"Europe/Berlin"`
		DST      string `json:"dst,omitempty" enum:"vixie,wall" doc:"What happens when clocks change. Default: vixie."`
		Starts   string `json:"starts,omitempty" maxLength:"40" doc:"There are no slots before this time, in RFC 3339."`
		Ends     string `json:"ends,omitempty" maxLength:"40" doc:"There are no slots after this time, in RFC 3339."`
		After    string `json:"after,omitempty" maxLength:"40" doc:"The slots are those after this time, in RFC 3339. Default: after now."`
		Count    int    `json:"count,omitempty" minimum:"1" maximum:"100" doc:"The number of slots. Default: 5."`
	} `nameHint:"Preview"`
}

// scheduleSettings registers the operations that create, change and delete schedules.
func (a *API) scheduleSettings() {
	register(a, operation{
		id: "set-schedule", method: http.MethodPut, path: "/schedules/{schedule}", tag: "schedules", scope: ScopeAdmin, body: sizeLarge,
		status: http.StatusOK, also: http.StatusCreated, errors: []int{http.StatusNotFound, http.StatusConflict},
		summary: "Change a schedule's settings, or make it",
		more: "What is not given stays as it is, or is as usual in a new schedule, which needs spec and command. Texts that are empty take a setting back. " +
			"A schedule that does something else than enqueue a job is made and changed only with a token, by a daemon with --allow-commands; one that comes from a file, only there.",
	}, a.setSchedule)
	register(a, operation{
		id: "delete-schedule", method: http.MethodDelete, path: "/schedules/{schedule}", tag: "schedules", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound},
		summary: "Remove a schedule; its history stays",
		more:    "A run under way goes on, and runs that wait are cancelled. A schedule that comes from a file is there again after the next import.",
	}, func(ctx context.Context, in *schedulePath) (*struct{}, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		return nil, scheduler.Delete(ctx, a.db, in.Schedule)
	})
	register(a, operation{
		id: "preview-schedule", method: http.MethodPost, path: "/schedules/preview", tag: "schedules", scope: ScopeRead,
		summary: "Tell the next slots that a schedule would have; nothing is stored",
	}, a.preview)
}

// AllowsCommands reports whether schedules that run something on or from the daemons' hosts can be
// created and changed here: see Options.AllowCommands. The request needs a token, too.
func (a *API) AllowsCommands() bool { return a.opt.AllowCommands }

// errTaken has Set end at once: it tries again after an ErrExists.
var errTaken = errors.New("the schedule exists")

// mayRunCommands reports whether who asks may have schedules that run something on or from the daemons' hosts.
func (a *API) mayRunCommands(ctx context.Context) bool {
	return senderOf(ctx).here != nil || a.AllowsCommands() && senderOf(ctx).token != ""
}

func (a *API) setSchedule(ctx context.Context, in *setScheduleInput) (*setScheduleOutput, error) {
	if err := checkNames("schedule", in.Schedule); err != nil {
		return nil, err
	}
	taken := false
	s, isNew, err := scheduler.Set(ctx, a.db, in.Schedule, func(s *scheduler.Schedule, isNew bool) error {
		if taken = in.Only == "new" && !isNew; taken {
			return errTaken
		}
		if in.Only == "existing" && isNew {
			return fmt.Errorf("%w: %s", scheduler.ErrNotFound, in.Schedule)
		}
		was := s.Kind
		if err := applyChange(&in.Body, s); err != nil {
			return err
		}
		// Before validation: the flag is missing in any case.
		if (s.Kind != "job" || !isNew && was != "job") && !a.mayRunCommands(ctx) {
			return errNoCommands
		}
		return problemsOf(s)
	})
	if taken {
		return nil, fmt.Errorf("%w: %s", scheduler.ErrExists, in.Schedule)
	}
	var known scheduleProblems
	if errors.Is(err, scheduler.ErrInvalid) && !errors.As(err, &known) { // it has no slots
		field := "spec"
		if in.Body.Ends != nil {
			field = "ends"
		}
		err = scheduleProblems{{Field: field, Text: err.Error()}}
	}
	if err != nil {
		return nil, err
	}
	out := &setScheduleOutput{Status: http.StatusOK, Body: shownSchedule(&s)}
	if isNew {
		out.Status = http.StatusCreated
	}
	return out, nil
}

func (a *API) preview(ctx context.Context, in *previewInput) (*nextOutput, error) {
	b := &in.Body
	s := scheduler.Schedule{Spec: b.Spec, Zone: b.TimeZone, DST: b.DST, State: "active"}
	if _, err := cronspec.New(s.Spec, s.Zone, s.DST); err != nil {
		return nil, invalid(timeField(s.Zone, s.DST), "%v", err)
	}
	after, err := scheduler.Clock(ctx, a.db)
	for _, one := range []struct {
		field, text string
		to          *time.Time
	}{{"starts", b.Starts, &s.Starts}, {"ends", b.Ends, &s.Ends}, {"after", b.After, &after}} {
		if err == nil && one.text != "" {
			err = givenTime(one.field, one.to, &one.text)
		}
	}
	if err != nil {
		return nil, err
	}
	count := b.Count
	if count == 0 {
		count = 5
	}
	out := &nextOutput{}
	out.Body.Slots = wireof.Instants(s.SlotsAfter(after, count))
	return out, nil
}
