package httpapi

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

const (
	// idempotencyField is the name of the Idempotency-Key in errors.
	idempotencyField = "Idempotency-Key"

	// uniquePrefix distinguishes such keys from the unique keys that programs choose.
	uniquePrefix = "Idempotency-Key:"

	// idempotentFor is how long a request with such a key may be repeated.
	idempotentFor = 24 * time.Hour
)

const idempotencyDoc = "\n\nWith an Idempotency-Key the request can be repeated for 24 hours when its outcome is not known, " +
	"from any process: a repetition gets the id of the job that is there or was, with status 200 and existed. " +
	"The key is a unique key of the queue, so name the queue if its route may change meanwhile. " +
	"The two jobs are not compared."

// putKey makes an Idempotency-Key, if there is one, the unique key of a job. suffix distinguishes the
// jobs of one request.
func putKey(j *queue.Job, key, suffix string) error {
	if key == "" {
		return nil
	}
	if j.Unique != "" {
		return invalid(idempotencyField, "the job has a unique key of its own; send one of them")
	}
	j.Unique, j.UniqueFor = uniquePrefix+key+suffix, idempotentFor
	return nil
}

type enqueueInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"150" pattern:"^[!-~]+$" doc:"A text that is fresh to this request, such as a UUID. With it, the request can be repeated."`
	Body           wire.NewJob
}

type enqueueOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     wire.Enqueued
}

type jobPath struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	ID    string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
}

// read returns the names in the path.
func (p *jobPath) read() (name string, id int64, err error) {
	if err = checkNames("queue", p.Queue); err == nil {
		id, err = readID("id", p.ID)
	}
	return p.Queue, id, err
}

type jobIDPath struct {
	ID string `path:"id" pattern:"^[1-9][0-9]*$" maxLength:"19"`
}

type jobOutput struct{ Body wire.Job }

type payloadOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

type jobsInput struct {
	Queue     string `path:"queue" minLength:"1" maxLength:"200"`
	State     string `query:"state" enum:"ready,delayed,running,dead,done" default:"ready" doc:"The state of the jobs. Only queues with keep_done have jobs that are done."`
	Kind      string `query:"kind" maxLength:"200" doc:"Only jobs of this kind."`
	Key       string `query:"key" maxLength:"200" doc:"Only jobs with this ordering key."`
	Tenant    string `query:"tenant" maxLength:"200" doc:"Only jobs of this tenant."`
	Where     string `query:"where" maxLength:"2000" doc:"Only jobs whose payload fulfils this condition, such as $.user.id = 42." example:"$.user.id = 42"`
	OlderThan string `query:"older_than" maxLength:"40" doc:"Only jobs that were enqueued longer ago than this." example:"1h"`
	Cursor    string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of jobs in the answer. There can be fewer, and a next_cursor all the same, if the jobs are large."`
}

type jobsOutput struct {
	Body struct {
		Jobs       []wire.Job `json:"jobs" nullable:"false" doc:"The jobs, by id."`
		NextCursor string     `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Jobs"`
}

// jobs registers the operations that enqueue and show jobs.
func (a *API) jobs() {
	register(a, operation{
		id: "enqueue-job", method: http.MethodPost, path: "/jobs", tag: "jobs", scope: ScopeEnqueue, body: sizeLarge,
		status: http.StatusCreated, also: http.StatusOK, errors: []int{http.StatusNotFound, http.StatusConflict},
		summary: "Enqueue a job",
		more:    "The answer comes after the commit: nothing loses the job." + idempotencyDoc,
	}, a.enqueue)
	oneJob(a, operation{
		id: "get-job", method: http.MethodGet, path: "/queues/{queue}/jobs/{id}", scope: ScopeRead, answer: answerList,
		summary: "Show a job, whatever its state",
		more:    "A job that is done is not there any more, unless its queue keeps such (keep_done).",
	}, func(ctx context.Context, name string, id int64) (*jobOutput, error) {
		i, err := a.admin.Job(ctx, name, id)
		if err != nil {
			return nil, err
		}
		weighAnswer(ctx, i.PayloadBytes+len(i.Progress.State)+len(i.Result))
		return &jobOutput{shownJob(ctx, &i)}, nil
	})
	oneJob(a, operation{
		id: "get-payload", method: http.MethodGet, path: "/queues/{queue}/jobs/{id}/payload", scope: ScopeRead, answer: answerList,
		summary: "Get a job's payload, byte for byte",
	}, func(ctx context.Context, name string, id int64) (*payloadOutput, error) {
		i, err := a.admin.Job(ctx, name, id)
		if err != nil {
			return nil, err
		}
		weighAnswer(ctx, i.PayloadBytes)
		out := &payloadOutput{"application/json", i.Payload}
		if i.Binary || len(i.Payload) == 0 {
			out.ContentType = "application/octet-stream"
		}
		return out, nil
	})
	a.rawAnswer("/queues/{queue}/jobs/{id}/payload")
	a.rawAnswer("/jobs/{id}/payload")
	register(a, operation{
		id: "list-jobs", method: http.MethodGet, path: "/queues/{queue}/jobs", tag: "jobs", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "List the jobs of a queue that are in one state",
		more:    "They are listed by id, which is when they were enqueued. With a filter not all of a long queue is looked at: there can be fewer than the limit, or none, and a next_cursor all the same. So it is when the jobs are large: payloads, errors and details of an answer have 1 MiB together at the most, unless a single job has more.",
	}, a.listJobs)
}

func (a *API) enqueue(ctx context.Context, in *enqueueInput) (*enqueueOutput, error) {
	j, err := wireof.NewJob(&in.Body)
	if err == nil {
		err = putKey(&j, in.IdempotencyKey, "")
	}
	if err != nil {
		return nil, err
	}
	if err := mayUseQueues(ctx, j); err != nil {
		return nil, err
	}
	if err := a.checkPushed(ctx, []queue.Job{j}); err != nil {
		return nil, err
	}
	e, err := a.queues.Enqueue(ctx, j)
	if err != nil {
		return nil, err
	}
	out := &enqueueOutput{http.StatusCreated, location("/queues/%s/jobs/%s", e.Queue, wire.ID(e.ID)), wireof.Enqueued(e)}
	if e.Existed {
		out.Status = http.StatusOK
	}
	return out, nil
}

// oneJob registers an operation on one job twice: below its queue, and by its id alone.
func oneJob[O any](a *API, o operation, do func(ctx context.Context, name string, id int64) (*O, error)) {
	o.tag, o.errors = "jobs", []int{http.StatusNotFound, http.StatusConflict}
	register(a, o, func(ctx context.Context, in *jobPath) (*O, error) {
		name, id, err := in.read()
		if err != nil {
			return nil, err
		}
		return do(ctx, name, id)
	})
	more := "This is " + o.id + " without the name of the queue. If two jobs have the id, which is rare, nothing is done, and the answer names them."
	o.path, o.id, o.summary = strings.TrimPrefix(o.path, "/queues/{queue}"), o.id+"-by-id", o.summary+": by its id alone"
	o.more = strings.TrimSpace(o.more + "\n\n" + more)
	register(a, o, func(ctx context.Context, in *jobIDPath) (*O, error) {
		id, err := readID("id", in.ID)
		if err != nil {
			return nil, err
		}
		i, err := a.admin.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		deedOf(ctx).object = i.Queue + "/" + in.ID
		return do(ctx, i.Queue, id)
	})
}

func (a *API) listJobs(ctx context.Context, in *jobsInput) (*jobsOutput, error) {
	f := admin.Filter{
		Queue: in.Queue, State: admin.State(in.State), Kind: in.Kind, Key: in.Key, Tenant: in.Tenant, Where: in.Where, Limit: in.Limit,
	}
	here := senderOf(ctx).here
	if here == nil || here.Brief {
		f.LongestPayload = longestListed
	}
	if here == nil { // otherwise the memory is that of who asked
		f.MaxBytes = maxListed
	}
	err := checkNames("queue", in.Queue, "kind", in.Kind, "key", in.Key)
	if err == nil {
		f.OlderThan, err = readDuration("older_than", in.OlderThan)
	}
	if err == nil {
		f.After, err = readIDCursor(in.Cursor)
	}
	if err != nil {
		return nil, err
	}
	found, more, err := a.admin.Jobs(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &jobsOutput{}
	out.Body.Jobs = wireof.Each(found, func(i *admin.Job) wire.Job { return shownJob(ctx, i) })
	out.Body.NextCursor = wire.ID(more)
	return out, nil
}

type batchInput struct {
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"150" pattern:"^[!-~]+$" doc:"A text that is fresh to this request, such as a UUID. With it, the request can be repeated."`
	Body           struct {
		Jobs []wire.NewJob `json:"jobs" minItems:"1" maxItems:"1000" nullable:"false" doc:"The jobs to enqueue, all or none."`
	} `nameHint:"Batch"`
}

type batchOutput struct {
	Status int
	Body   struct {
		Jobs []wire.Enqueued `json:"jobs" nullable:"false" doc:"The results, in the order of the jobs in the request."`
	} `nameHint:"EnqueuedBatch"`
}

type bulkInput struct {
	Queue string `path:"queue" minLength:"1" maxLength:"200"`
	Body  struct {
		Action    string        `json:"action" enum:"retry,cancel,delete" doc:"What is done: retry dead or delayed jobs, cancel ready, delayed or running ones, or delete dead ones or those that are done."`
		State     string        `json:"state,omitempty" enum:"ready,delayed,running,dead,done" doc:"The state of the jobs. Default: dead, or ready for cancel."`
		Kind      string        `json:"kind,omitempty" maxLength:"200" doc:"Only jobs of this kind."`
		Key       string        `json:"key,omitempty" maxLength:"200" doc:"Only jobs with this ordering key."`
		Tenant    string        `json:"tenant,omitempty" maxLength:"200" doc:"Only jobs of this tenant."`
		Where     string        `json:"where,omitempty" maxLength:"2000" doc:"Only jobs whose payload fulfils this condition, such as $.user.id = 42."`
		OlderThan wire.Duration `json:"older_than,omitempty" maxLength:"40" doc:"Only jobs that were enqueued longer ago than this." example:"1h"`
		After     string        `json:"after,omitempty" pattern:"^[1-9][0-9]*$" maxLength:"19" doc:"Only jobs with greater ids than this one."`
		Limit     int           `json:"limit,omitempty" minimum:"1" maximum:"100000" doc:"The greatest number of jobs. Default: 10000."`
		Cursor    string        `json:"cursor,omitempty" maxLength:"200" doc:"The next_cursor of the answer before. It goes on after that, with the jobs that were there at the beginning."`
		DryRun    bool          `json:"dry_run,omitempty" doc:"Whether to count the jobs only, and change nothing."`
	} `nameHint:"Bulk"`
}

type bulkOutput struct{ Body wire.BulkResult }

// manyJobs registers the operations on many jobs at once.
func (a *API) manyJobs() {
	register(a, operation{
		id: "enqueue-jobs", method: http.MethodPost, path: "/jobs/batch", tag: "jobs", scope: ScopeEnqueue, body: sizeLarge,
		status: http.StatusCreated, also: http.StatusOK, errors: []int{http.StatusNotFound, http.StatusConflict},
		summary: "Enqueue up to 1000 jobs, all or none",
		more:    "But for those whose unique keys are in use. Those of one ordering key are in the order of the list. It is much cheaper than one request for each." + idempotencyDoc,
	}, a.enqueueMany)
	register(a, operation{
		id: "bulk-jobs", method: http.MethodPost, path: "/queues/{queue}/jobs/bulk", tag: "jobs", scope: ScopeOperate,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "Retry, cancel or delete the jobs that a filter selects",
		more:    "Deleting takes the scope admin. In small transactions, each as a whole or not at all: when it is broken off, a part is done, and doing it again does the rest.",
	}, a.bulk)
}

func (a *API) enqueueMany(ctx context.Context, in *batchInput) (*batchOutput, error) {
	jobs := make([]queue.Job, len(in.Body.Jobs))
	for i := range in.Body.Jobs {
		var err error
		if jobs[i], err = wireof.NewJob(&in.Body.Jobs[i]); err == nil {
			err = putKey(&jobs[i], in.IdempotencyKey, ":"+wire.ID(int64(i+1)))
		}
		if err != nil {
			return nil, &queue.JobError{Index: i, Of: len(jobs), Err: err}
		}
	}
	if err := mayUseQueues(ctx, jobs...); err != nil {
		return nil, err
	}
	if err := a.checkPushed(ctx, jobs); err != nil {
		return nil, err
	}
	all, err := a.queues.EnqueueMany(ctx, jobs)
	var one *queue.JobError
	if err != nil {
		if len(jobs) == 1 && !errors.As(err, &one) && errors.Is(err, queue.ErrInvalid) {
			err = &queue.JobError{Index: 0, Of: 1, Err: err}
		}
		return nil, err
	}
	out := &batchOutput{Status: http.StatusOK}
	out.Body.Jobs = wireof.AllEnqueued(all)
	if slices.ContainsFunc(all, func(e queue.Enqueued) bool { return !e.Existed }) {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// errReserved means that a queue is dbcron's own: a job in it is a mail that is sent, or a command's input.
var errReserved = errors.New("queues whose names begin with dbcron. are dbcron's own, and need a token with the scope admin")

// mayUseQueues returns errReserved if the sender may not use the queues of some jobs.
func mayUseQueues(ctx context.Context, jobs ...queue.Job) error {
	for i := range jobs {
		if jobfield.Reserved(jobs[i].Queue) && !senderOf(ctx).may(ScopeAdmin) {
			return errReserved
		}
	}
	return nil
}

// errNoDelete means that the token may retry and cancel jobs, but not delete them.
var errNoDelete = errors.New("to delete jobs needs a token with the scope admin")

// usualBulk is the default limit of a bulk operation.
const usualBulk = 10_000

func (a *API) bulk(ctx context.Context, in *bulkInput) (*bulkOutput, error) {
	b := &in.Body
	if err := checkNames("queue", in.Queue, "kind", b.Kind, "key", b.Key, "tenant", b.Tenant); err != nil {
		return nil, err
	}
	if b.Action == string(admin.BulkDelete) && !senderOf(ctx).may(ScopeAdmin) {
		return nil, errNoDelete
	}
	if b.Limit == 0 {
		b.Limit = usualBulk
	}
	f := admin.Filter{Queue: in.Queue, State: admin.State(b.State), Kind: b.Kind, Key: b.Key, Tenant: b.Tenant, Where: b.Where, Limit: b.Limit}
	var err error
	if f.OlderThan, err = readDuration("older_than", b.OlderThan); err != nil {
		return nil, err
	}
	if b.After != "" {
		if f.After, err = readID("after", b.After); err != nil {
			return nil, err
		}
	}
	d := deedOf(ctx)
	var from admin.BulkCursor
	if _, from, d.entry, err = readBulkCursor(b.Cursor); err != nil {
		return nil, err
	}
	r, err := a.admin.Bulk(ctx, admin.BulkAction(b.Action), f, admin.BulkOptions{DryRun: b.DryRun, From: from, Most: maxLooked})
	d.action, d.count, d.detail, d.nothing = "job."+b.Action, r.Done, audit.FilterText(b.State, b.Kind, b.Key, b.Tenant, b.Where), b.DryRun
	if err != nil {
		return nil, err
	}
	out := &bulkOutput{wireof.BulkResult(admin.BulkAction(b.Action), &f, b.DryRun, &r)}
	d.goOn(&out.Body.NextCursor, f.State, r.Next)
	return out, nil
}

// maxLooked is how many jobs a request looks at, whether or not it acts on them: few of a long queue may fulfil
// a condition.
const maxLooked = 200_000

// goOn sets the cursor of an answer to a position among the jobs of a state, and to the entry of the audit when that
// is written; nil: there are no more.
func (d *deed) goOn(cursor *string, state admin.State, at *admin.BulkCursor) {
	if at == nil {
		return
	}
	d.next = func(entry int64) {
		parts := []string{cmp.Or(string(state), "default")}
		for _, n := range []int64{at.Began, int64(at.Block), at.After, entry} {
			parts = append(parts, strconv.FormatInt(n, 10))
		}
		*cursor = cursorOf(parts...)
	}
	d.next(d.entry)
}

// readBulkCursor reads a cursor of goOn; none is the beginning, of no state.
func readBulkCursor(cursor string) (state admin.State, at admin.BulkCursor, entry int64, err error) {
	var word string
	var numbers [4]string
	if err := readCursor(cursor, &word, &numbers[0], &numbers[1], &numbers[2], &numbers[3]); err != nil || cursor == "" {
		return "", at, 0, err
	}
	var parsed [4]int64
	for i, text := range numbers {
		if parsed[i], err = strconv.ParseInt(text, 10, 64); err != nil || parsed[i] < 0 {
			return "", at, 0, badCursor()
		}
	}
	if parsed[0] == 0 || parsed[1] > math.MaxInt32 {
		return "", at, 0, badCursor()
	}
	return admin.State(word), admin.BulkCursor{Began: parsed[0], Block: int(parsed[1]), After: parsed[2]}, parsed[3], nil
}

// jobActions registers the operations that change one job.
func (a *API) jobActions() {
	for _, o := range []struct {
		operation
		do func(ctx context.Context, name string, id int64) error
	}{
		{operation{
			id: "retry-job", method: http.MethodPost, path: "/queues/{queue}/jobs/{id}/retry",
			summary: "Retry a dead job, with all its attempts before it, or run a delayed one at once",
		}, func(ctx context.Context, name string, id int64) error { return a.admin.Retry(ctx, name, id) }},
		{operation{
			id: "run-job", method: http.MethodPost, path: "/queues/{queue}/jobs/{id}/run",
			summary: "Run a delayed job at once",
		}, func(ctx context.Context, name string, id int64) error { return a.admin.RunNow(ctx, name, id) }},
		{operation{
			id: "cancel-job", method: http.MethodPost, path: "/queues/{queue}/jobs/{id}/cancel",
			summary: "End a job that is not dead, wherever it stands",
			more:    "A job that a worker has read may still begin. A running job is asked to end, within a second or two.",
		}, func(ctx context.Context, name string, id int64) error { return a.admin.Cancel(ctx, name, id) }},
		{operation{
			id: "delete-job", method: http.MethodDelete, path: "/queues/{queue}/jobs/{id}",
			summary: "Remove a dead job, or one that is done and kept",
		}, func(ctx context.Context, name string, id int64) error { return a.admin.Delete(ctx, name, id) }},
	} {
		if o.scope = ScopeOperate; o.method == http.MethodDelete {
			o.scope = ScopeAdmin
		}
		oneJob(a, o.operation, func(ctx context.Context, name string, id int64) (*struct{}, error) { return nil, o.do(ctx, name, id) })
	}
}
