package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/setting"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/scheduler/cronspec"
	"github.com/dbcron/dbcron/wire"
)

type schedulePath struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
}

// shownTo returns a schedule as the sender may see it: all of it to who has the database.
func shownTo(ctx context.Context, s *scheduler.Schedule) wire.Schedule {
	if senderOf(ctx).here != nil {
		return wireof.Schedule(s)
	}
	return shownSchedule(s)
}

// shownSchedule returns a schedule without parts that may be secret: environment, headers, input, and the
// query of a URL.
func shownSchedule(s *scheduler.Schedule) wire.Schedule {
	w := wireof.Schedule(s)
	w.Command, w.Stdin, w.Env, w.Headers = ShownCommand(s), "", nil, nil
	return w
}

// ShownCommand returns a schedule's command or, for a request, its method and URL without password and
// query, which may be secret.
func ShownCommand(s *scheduler.Schedule) string {
	if s.Kind != "http" {
		return s.Command
	}
	method, address, found := strings.Cut(s.Command, " ")
	u, err := url.Parse(strings.TrimSpace(address))
	if !found || err != nil {
		return method
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	u.User, u.Fragment = nil, ""
	text := u.String()
	return method + " " + strings.ReplaceAll(text, "%E2%80%A6", "…")
}

type schedulesOutput struct {
	Body struct {
		Schedules  []wire.Schedule `json:"schedules" nullable:"false" doc:"The schedules, by name."`
		NextCursor string          `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Schedules"`
}

type scheduleOutput struct{ Body wire.Schedule }

type scheduleStatusOutput struct{ Body wire.ScheduleDetail }

type pauseScheduleInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Body     *pauseJSON
}

// listedRun returns a run without what only it alone shows.
func listedRun(r *scheduler.Run) wire.Run {
	w := wireof.Run(r)
	w.Cancel, w.Output = "", ""
	return w
}

type runOutput struct{ Body wire.Run }

type historyInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of runs."`
}

type historyOutput struct {
	Body struct {
		Runs []wire.Run `json:"runs" nullable:"false" doc:"The runs, the newest first."`
	} `nameHint:"History"`
}

type backfillInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Body     struct {
		From   string `json:"from" minLength:"1" maxLength:"40" doc:"The time of the first slot, in RFC 3339, or a date with or without a time of day, in the schedule's zone." example:"2026-11-20T10:00"`
		To     string `json:"to" minLength:"1" maxLength:"40" doc:"The time of the last slot. A date alone is the whole day, as far as it is past." example:"2026-11-22"`
		DryRun bool   `json:"dry_run,omitempty" doc:"Whether to tell only what would be run."`
	} `nameHint:"Backfill"`
}

type backfillOutput struct{ Body wire.Backfilled }

type nextInput struct {
	Schedule string `path:"schedule" minLength:"1" maxLength:"200"`
	Count    int    `query:"count" minimum:"1" maximum:"10000" default:"5" doc:"The number of slots."`
}

type nextOutput struct{ Body wire.Slots }

// schedules registers the operations that show schedules and act on them.
func (a *API) schedules() {
	register(a, operation{
		id: "list-schedules", method: http.MethodGet, path: "/schedules", tag: "schedules", scope: ScopeRead, answer: answerList,
		summary: "List the schedules by name",
		more:    "When their commands, inputs and environments have more than 1 MiB together there are fewer than the limit, and a next_cursor.",
	}, func(ctx context.Context, in *page) (*schedulesOutput, error) {
		var after string
		if err := readCursor(in.Cursor, &after); err != nil {
			return nil, err
		}
		found, more, err := scheduler.ListSome(ctx, a.db, after, in.Limit, maxListed)
		if err != nil {
			return nil, err
		}
		out := &schedulesOutput{}
		out.Body.Schedules = wireof.Each(found, func(s *scheduler.Schedule) wire.Schedule { return shownTo(ctx, s) })
		if more {
			out.Body.NextCursor = cursorOf(found[len(found)-1].Name)
		}
		return out, nil
	})
	register(a, operation{
		id: "get-schedule", method: http.MethodGet, path: "/schedules/{schedule}", tag: "schedules", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "Show a schedule",
	}, func(ctx context.Context, in *schedulePath) (*scheduleOutput, error) {
		s, err := a.schedule(ctx, in)
		if err != nil {
			return nil, err
		}
		return &scheduleOutput{shownTo(ctx, &s)}, nil
	})
	register(a, operation{
		id: "schedule-status", method: http.MethodGet, path: "/schedules/{schedule}/status", tag: "schedules", scope: ScopeRead,
		answer: answerList, errors: []int{http.StatusNotFound},
		summary: "Show all of one schedule: settings, next slots, what runs, and the last result",
	}, a.scheduleStatus)
	register(a, operation{
		id: "schedule-history", method: http.MethodGet, path: "/schedules/{schedule}/runs", tag: "schedules", scope: ScopeRead,
		answer:  answerList,
		summary: "List the newest runs of a schedule, also of one that was removed",
	}, func(ctx context.Context, in *historyInput) (*historyOutput, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		list, shown := scheduler.ShortHistory, listedRun
		if senderOf(ctx).here != nil {
			list, shown = scheduler.History, wireof.Run
		}
		found, err := list(ctx, a.db, in.Schedule, in.Limit)
		out := &historyOutput{}
		out.Body.Runs = wireof.Each(found, shown)
		return out, err
	})
	register(a, operation{
		id: "schedule-next", method: http.MethodGet, path: "/schedules/{schedule}/next", tag: "schedules", scope: ScopeRead,
		errors:  []int{http.StatusNotFound},
		summary: "Tell the next slots of a schedule; one that is not active has none",
	}, a.next)
	a.explaining()
	a.scheduleActions()
	a.scheduleSettings()
	a.runs()
}

func (a *API) scheduleActions() {
	notFound := []int{http.StatusNotFound}
	register(a, operation{
		id: "run-schedule", method: http.MethodPost, path: "/schedules/{schedule}/run", tag: "schedules", scope: ScopeOperate,
		status: http.StatusCreated, errors: []int{http.StatusNotFound, http.StatusConflict},
		summary: "Ask the daemons to run a schedule now, also one that is paused",
	}, func(ctx context.Context, in *schedulePath) (*runOutput, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		r, err := scheduler.Start(ctx, a.db, in.Schedule)
		if err != nil {
			return nil, err
		}
		return &runOutput{listedRun(&r)}, nil
	})
	register(a, operation{
		id: "backfill-schedule", method: http.MethodPost, path: "/schedules/{schedule}/backfill", tag: "schedules", scope: ScopeOperate,
		errors:  notFound,
		summary: "Run past slots that have no good run",
		more:    "The oldest first, and one after another unless the schedule's runs may overlap. Slots whose run is ok or has not ended are left alone.",
	}, a.backfill)
	register(a, operation{
		id: "pause-schedule", method: http.MethodPost, path: "/schedules/{schedule}/pause", tag: "schedules", scope: ScopeOperate,
		errors:  notFound,
		summary: "Pause a schedule; runs under way go on",
	}, func(ctx context.Context, in *pauseScheduleInput) (*struct{}, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		deedOf(ctx).detail = in.Body.why()
		return nil, scheduler.Pause(ctx, a.db, in.Schedule, cmp.Or(in.Body.why(), doneBy(ctx, "paused")))
	})
	register(a, operation{
		id: "resume-schedule", method: http.MethodPost, path: "/schedules/{schedule}/resume", tag: "schedules", scope: ScopeOperate,
		errors:  notFound,
		summary: "Let a schedule run again from the next slot on",
	}, func(ctx context.Context, in *schedulePath) (*struct{}, error) {
		if err := checkNames("schedule", in.Schedule); err != nil {
			return nil, err
		}
		return nil, scheduler.Resume(ctx, a.db, in.Schedule)
	})
}

func (a *API) schedule(ctx context.Context, in *schedulePath) (scheduler.Schedule, error) {
	if err := checkNames("schedule", in.Schedule); err != nil {
		return scheduler.Schedule{}, err
	}
	return scheduler.Get(ctx, a.db, in.Schedule)
}

func (a *API) scheduleStatus(ctx context.Context, in *schedulePath) (*scheduleStatusOutput, error) {
	if err := checkNames("schedule", in.Schedule); err != nil {
		return nil, err
	}
	s, at, err := health.LookUp(ctx, a.db, in.Schedule)
	if err != nil {
		return nil, err
	}
	open, err := health.OpenRuns(ctx, a.db, in.Schedule, health.OpenLimit)
	if err != nil {
		return nil, err
	}
	out := &scheduleStatusOutput{wire.ScheduleDetail{
		Schedule: shownTo(ctx, &s), NextSlots: wireof.Instants(health.NextSlots(&s, at, 3)), UnderWay: wireof.Each(open, wireof.Run),
	}}
	newest, err := health.NewestRuns(ctx, a.db, in.Schedule, 200)
	if last := slices.IndexFunc(newest, func(r scheduler.Run) bool { return health.Ended(&r) }); last >= 0 {
		out.Body.Last = new(wireof.Run(&newest[last]))
	}
	return out, err
}

func (a *API) next(ctx context.Context, in *nextInput) (*nextOutput, error) {
	s, err := a.schedule(ctx, &schedulePath{in.Schedule})
	if err != nil {
		return nil, err
	}
	now, err := scheduler.Clock(ctx, a.db)
	if err != nil {
		return nil, err
	}
	out := &nextOutput{}
	out.Body.Slots = wireof.Instants(s.SlotsAfter(now, in.Count))
	return out, nil
}

func (a *API) backfill(ctx context.Context, in *backfillInput) (*backfillOutput, error) {
	s, err := a.schedule(ctx, &schedulePath{in.Schedule})
	if err != nil {
		return nil, err
	}
	b := &in.Body
	from, to, err := a.window(ctx, &s, b.From, b.To)
	if err != nil {
		return nil, err
	}
	d := deedOf(ctx)
	d.detail, d.nothing = b.From+" to "+b.To, b.DryRun
	done, err := scheduler.Backfill(ctx, a.db, in.Schedule, from, to, b.DryRun)
	if err != nil {
		return nil, err
	}
	d.count = len(done.Slots)
	out := &backfillOutput{wire.Backfilled{Slots: len(done.Slots), Left: done.Left, DryRun: b.DryRun}}
	if n := len(done.Slots); n > 0 {
		out.Body.First, out.Body.Last = wire.At(done.Slots[0]), wire.At(done.Slots[n-1])
	}
	return out, nil
}

// window reads two times in a schedule's zone. A day as the second one is its end, or now.
func (a *API) window(ctx context.Context, s *scheduler.Schedule, first, last string) (from, to time.Time, err error) {
	plan, err := cronspec.New("@daily", s.Zone, "")
	if err != nil {
		return from, to, fmt.Errorf("%s: %w", s.Name, err)
	}
	if from, _, err = setting.ParseTime(first, plan.Location()); err != nil {
		return from, to, invalid("from", "%v", err)
	}
	to, day, err := setting.ParseTime(last, plan.Location())
	if err != nil {
		return from, to, invalid("to", "%v", err)
	}
	if !day {
		return from, to, nil
	}
	now, err := scheduler.Clock(ctx, a.db)
	if end := to.In(plan.Location()).AddDate(0, 0, 1).Add(-time.Microsecond); end.Before(now) {
		to = end
	} else if to.Before(now) {
		to = now
	}
	return from, to, err
}
