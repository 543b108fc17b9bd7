package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// mostAwaits is how many requests may wait for jobs at a time.
const mostAwaits = 1000

// errAwaits means that too many requests wait for jobs.
var errAwaits = errors.New("1000 requests wait for jobs at this daemon; send it again in a moment, or to another")

type awaitInput struct {
	Queue string        `path:"queue" minLength:"1" maxLength:"200"`
	ID    string        `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
	Wait  wire.Duration `query:"wait" maxLength:"40" doc:"The request waits this long for the job's end, up to 30s. Default: 20s." example:"20s"`
}

type awaitByIDInput struct {
	ID   string        `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
	Wait wire.Duration `query:"wait" maxLength:"40" doc:"The request waits this long for the job's end, up to 30s. Default: 20s." example:"20s"`
}

// awaitJobs registers the operations that wait for a job.
func (a *API) awaitJobs() {
	o := operation{
		id: "await-job", method: http.MethodGet, path: "/queues/{queue}/jobs/{id}/await", tag: "jobs", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
		summary: "Wait until a job has ended",
		more: "The answer is the job: as it has ended, with its result, or as it is when the wait is over. Then its state is neither " +
			"done nor dead; ask again. The job may have ended before. Its queue has to keep done jobs (keep_done), else the status is 409 at once.",
	}
	register(a, o, func(ctx context.Context, in *awaitInput) (*jobOutput, error) {
		name, id, err := (&jobPath{in.Queue, in.ID}).read()
		if err != nil {
			return nil, err
		}
		return a.await(ctx, name, id, in.Wait)
	})
	o.path, o.id, o.summary = "/jobs/{id}/await", o.id+"-by-id", o.summary+": by its id alone"
	register(a, o, func(ctx context.Context, in *awaitByIDInput) (*jobOutput, error) {
		id, err := readID("id", in.ID)
		if err != nil {
			return nil, err
		}
		return a.await(ctx, "", id, in.Wait)
	})
}

// await waits for a job of a queue, or of any, and returns it.
func (a *API) await(ctx context.Context, name string, id int64, text wire.Duration) (*jobOutput, error) {
	wait, err := readDuration("wait", text)
	switch {
	case err != nil:
		return nil, err
	case text == "":
		wait = 20 * time.Second
	case wait > longestWait:
		return nil, invalid("wait", "%v is longer than %v; ask again when the job has not ended", wait, longestWait)
	}
	if n := a.awaits.Add(1); n > mostAwaits {
		a.awaits.Add(-1)
		return nil, errAwaits
	}
	defer a.awaits.Add(-1)
	if senderOf(ctx).here == nil {
		wait = min(wait, a.opt.Timeout/2) // so that the request does not time out
	}
	waiting, stop := a.untilStopping(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(waiting, wait)
	defer cancel()
	r, err := a.queues.Await(waiting, name, id)
	switch {
	case err == nil:
		name = r.Queue // it may have been moved
	case waiting.Err() == nil, errors.Is(err, queue.ErrNotFound), errors.Is(err, queue.ErrNotKept), ctx.Err() != nil:
		return nil, err
	}
	find := a.admin.Find
	if name != "" {
		find = func(ctx context.Context, id int64) (admin.Job, error) { return a.admin.Job(ctx, name, id) }
	}
	i, err := find(ctx, id)
	if errors.Is(err, queue.ErrNotFound) { // it may have been moved
		i, err = a.admin.Find(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	weighAnswer(ctx, i.PayloadBytes+len(i.Progress.State)+len(i.Result))
	return &jobOutput{shownJob(ctx, &i)}, nil
}
