package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/queue/internal/store"
)

// A group's jobs have rows in a table of its members. They are written with the jobs, and updated
// by the transactions that end the jobs. These transactions share no row. After its commit, whoever
// has ended a job checks whether that was the group's last. Of several who find that it was, the
// one that updates the group's row ends the group.

// States of a group.
const (
	GroupOpen   = "open"   // it cannot end yet
	GroupSealed = "sealed" // it ends as soon as none of its jobs is pending
	GroupDone   = "done"   // it has ended, and its callback, if it has one, was enqueued
)

// keepGroup is the default of Group.Keep.
const keepGroup = 7 * 24 * time.Hour

// A Group is a set of jobs that belong together: when all of them have ended, the group ends, and
// its callback is enqueued, once.
type Group struct {
	Name     string        // for people; may be empty
	Callback *Job          // enqueued when the group has ended; nil: none
	Keep     time.Duration // how long it and its results are kept after its end; default: 7 days; negative: always
}

// GroupInfo is a stored group.
type GroupInfo struct {
	Group
	ID      int64
	State   string
	Created time.Time
	Ended   time.Time // zero: it has not ended
	Error   string    // why its callback could not be enqueued

	// The states of its jobs, as [Client.Group] counts them. A dead job that is retried is
	// pending again.
	Pending, Done, Dead, Cancelled int
}

// A Result is the outcome of a job.
type Result struct {
	Job    int64
	Queue  string // the queue of the job
	Kind   string
	State  string          // ResultDone and so on
	Result json.RawMessage // of a job that is done: set by [Delivery.SetResult]; nil: none
	Error  string          // why it is dead, or was discarded
}

// States of a [Result].
const (
	ResultPending   = "pending" // only in groups: it has not ended
	ResultDone      = "done"
	ResultDiscarded = "discarded" // not done, and it need not be: see [Discard]; in groups it counts as cancelled
	ResultDead      = "dead"      // it will not be retried by itself
	ResultCancelled = "cancelled" // somebody has removed it
)

// Decode decodes the JSON that the job's handler has set into v, which stays as it is if there is none. If the job is not done it
// returns an error that says so, an [ErrNotDone].
func (r *Result) Decode(v any) error {
	switch {
	case r.State != ResultDone && r.Error != "":
		return fmt.Errorf("%w: job %d is %s: %s", ErrNotDone, r.Job, r.State, r.Error)
	case r.State != ResultDone:
		return fmt.Errorf("%w: job %d is %s", ErrNotDone, r.Job, r.State)
	case len(r.Result) == 0:
		return nil
	}
	if err := json.Unmarshal(r.Result, v); err != nil {
		return invalid("result", "of job %d: %v", r.Job, err)
	}
	return nil
}

// NewGroup creates an open group. Any process adds jobs by enqueueing them with its id as their
// [Job.Group], and it does not end before [Client.Seal].
func (c *Client) NewGroup(ctx context.Context, g Group) (id int64, err error) {
	err = c.inGroup(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		id, err = c.newGroup(ctx, tx, g, GroupOpen)
		return err
	})
	return id, err
}

// EnqueueGroup creates a group with its jobs, all or none except for those whose unique keys are in
// use, and seals it. A group without jobs ends at once. With an [ErrUnknownOutcome] it returns the
// id that the group would have: call [Client.Group] to find out whether it exists.
func (c *Client) EnqueueGroup(ctx context.Context, g Group, jobs ...Job) (id int64, all []Enqueued, err error) {
	wake := func() {}
	err = c.inGroup(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		id, all, wake, err = c.enqueueGroup(ctx, c.own(tx), g, jobs)
		return err
	})
	switch {
	case errors.Is(err, ErrUnknownOutcome):
		return id, all, err
	case err != nil:
		return 0, nil, err
	}
	wake()
	c.concludeEmpty(ctx, id, all)
	return id, all, nil
}

// concludeEmpty ends a group that has no jobs to do so.
func (c *Client) concludeEmpty(ctx context.Context, id int64, all []Enqueued) {
	if id != 0 && !slices.ContainsFunc(all, func(e Enqueued) bool { return !e.Existed }) {
		c.tryConclude(ctx, id)
	}
}

// EnqueueGroupTx is [Client.EnqueueGroup] in a transaction of the caller's: see
// [Client.EnqueueTx].
func (c *Client) EnqueueGroupTx(ctx context.Context, tx dialect.Execer, g Group,
	jobs ...Job,
) (id int64, all []Enqueued, wake func(), err error) {
	return c.enqueueGroup(ctx, c.callers(tx), g, jobs)
}

func (c *Client) enqueueGroup(ctx context.Context, in *source, g Group, jobs []Job) (id int64, all []Enqueued, wake func(), err error) {
	if id, err = c.newGroup(ctx, in.tx, g, GroupSealed); err != nil || len(jobs) == 0 {
		return id, nil, func() {}, err
	}
	jobs = slices.Clone(jobs)
	for i := range jobs {
		if jobs[i].Group != 0 {
			return 0, nil, nil, ofMany(i, len(jobs), invalid("group", "it is of group %d already", jobs[i].Group))
		}
		jobs[i].Group = id
	}
	all, wake, err = c.enqueueIn(ctx, in, jobs)
	return id, all, wake, err
}

// inGroup runs a transaction that creates a group, and repeats it if an id is taken. It waits for
// the database as Enqueue does.
func (c *Client) inGroup(ctx context.Context, do func(context.Context, *sqlrun.Session) error) error {
	for tries := 0; ; tries++ {
		err := c.insist(ctx, func() error { return c.dbOf(ctx).ShortTx(ctx, do) })
		if err == nil || !c.taken(err) || tries == 3 {
			return uncertain(c.db.Dialect, err)
		}
	}
}

func (c *Client) newGroup(ctx context.Context, on *sqlrun.Session, g Group, state string) (int64, error) {
	args := sqlrun.Args{"name": g.Name, "state": state, "callback": nil, "keep": keepGroup.Microseconds()}
	if g.Name != "" {
		if err := sqlrun.CheckName(g.Name); err != nil {
			return 0, invalid("name", "%v", err)
		}
	}
	switch {
	case g.Keep > plain.LongestDuration:
		return 0, invalid("keep", "%v is longer than 100 years", g.Keep)
	case g.Keep < 0:
		args["keep"] = -1
	case g.Keep > 0:
		args["keep"] = g.Keep.Microseconds()
	}
	if g.Callback != nil {
		text, err := writeCallback(*g.Callback)
		if err != nil {
			return 0, err
		}
		args["callback"] = text
	}
	if err := c.clock.sync(ctx, on, instant.Now()); err != nil {
		return 0, err
	}
	tick, _ := c.clock.take(1)
	id := c.salt.ID(tick)
	args["group"] = id
	_, err := on.Exec(ctx, store.CreateGroup, args)
	return id, err
}

// Seal lets a group end as soon as none of its jobs is pending. Jobs can still be added until
// then, preferably by its own jobs: while one of those runs the group does not end. Sealing again
// does nothing. It returns [ErrNotFound] if there is no such group.
func (c *Client) Seal(ctx context.Context, id int64) error {
	n, err := c.db.Exec(ctx, store.SealGroup, sqlrun.Args{"group": id})
	if err != nil {
		return err
	}
	if n == 0 {
		if _, err := c.group(ctx, id); err != nil {
			return err
		}
	}
	c.tryConclude(ctx, id)
	return nil
}

// DeleteGroup ends a group without its callback, and removes it with its results. Its jobs are
// still done, as jobs without a group. It returns [ErrNotFound] if there is no such group.
func (c *Client) DeleteGroup(ctx context.Context, id int64) error {
	n, err := c.db.Exec(ctx, store.DropGroup, sqlrun.Args{"group": id})
	if err == nil && n == 0 {
		err = noGroup(id)
	}
	return err
}

func noGroup(id int64) error { return fmt.Errorf("%w: group %d", ErrNotFound, id) }

// Group returns a group and counts its jobs, which takes a while for very many. It returns
// ErrNotFound if there is no such group, or if it was removed after its end.
func (c *Client) Group(ctx context.Context, id int64) (GroupInfo, error) {
	g, err := c.group(ctx, id)
	if err != nil {
		return GroupInfo{}, err
	}
	counts := map[store.MemberState]int{}
	_, err = sqlrun.Select(ctx, &c.db.Session, store.CountMembers, sqlrun.Args{"group": id},
		func(rows *sql.Rows) (none struct{}, err error) {
			var state store.MemberState
			var n int
			err = rows.Scan(&state, &n)
			counts[state] = n
			return none, err
		})
	g.Pending, g.Done, g.Dead, g.Cancelled = counts[store.MemberPending], counts[store.MemberDone], counts[store.MemberDead],
		counts[store.MemberCancelled]
	return g, err
}

func (c *Client) group(ctx context.Context, id int64) (GroupInfo, error) {
	all, err := sqlrun.Select(ctx, &c.db.Session, store.GetGroup, sqlrun.Args{"group": id}, scanGroup)
	if err == nil && len(all) == 0 {
		err = noGroup(id)
	}
	if err != nil {
		return GroupInfo{}, err
	}
	return all[0], nil
}

func scanGroup(rows *sql.Rows) (g GroupInfo, err error) {
	var text string
	var keep, created, over int64
	if err = rows.Scan(&g.ID, &g.Name, &g.State, &text, &keep, &g.Error, &created, &over); err != nil {
		return g, err
	}
	g.Keep = time.Duration(keep) * time.Microsecond
	g.Created = time.UnixMicro(created).UTC()
	if over != 0 {
		g.Ended = time.UnixMicro(over).UTC()
	}
	g.Callback, err = readCallback(text)
	return g, err
}

// Groups lists the groups in a state, ordered by id, after an id and up to limit. It does not
// count their jobs.
func (c *Client) Groups(ctx context.Context, state string, after int64, limit int) ([]GroupInfo, error) {
	switch {
	case state != GroupOpen && state != GroupSealed && state != GroupDone:
		return nil, invalid("state", "%q is not open, sealed or done", state)
	case limit < 1 || limit > 10_000:
		return nil, invalid("limit", "%d is not 1 to 10000", limit)
	}
	return sqlrun.Select(ctx, &c.db.Session, store.ListGroups, sqlrun.Args{"state": state, "after": after, "limit": limit}, scanGroup)
}

// Results iterates over the jobs of a group, ordered by id, with the outcome of each. It reads
// some at a time: break off at any point.
func (c *Client) Results(ctx context.Context, group int64) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		for after, more := int64(0), true; more; {
			var all []Result
			var err error
			if all, more, err = c.ResultsAfter(ctx, group, after, store.Chunk); err != nil {
				yield(Result{}, err)
				return
			}
			for _, r := range all {
				if !yield(r, nil) {
					return
				}
				after = r.Job
			}
		}
	}
}

// maxResults is the maximum total size of the results in a part, in bytes, unless it has only one.
const maxResults = 1 << 20

// ResultsAfter is [Client.Results] for a part of the jobs: those with ids greater than after, up
// to limit, and fewer if their results exceed 1 MiB together. more reports whether there may be
// others after them.
func (c *Client) ResultsAfter(ctx context.Context, group, after int64, limit int) (all []Result, more bool, err error) {
	if limit < 1 || limit > 10_000 {
		return nil, false, invalid("limit", "%d is not 1 to 10000", limit)
	}
	args := sqlrun.Args{"group": group, "after": after, "limit": limit}
	sizes, err := sqlrun.Select(ctx, &c.db.Session, store.WeighMembers, args, store.ScanID)
	if err != nil || len(sizes) == 0 {
		return nil, false, err
	}
	n := store.PartOf(sizes, maxResults, func(size *int64) int { return int(*size) })
	args["limit"] = n
	all, err = sqlrun.Select(ctx, &c.db.Session, store.ListMembers, args, scanResult)
	return all, len(all) > 0 && (n < len(sizes) || n == limit), err
}

func scanResult(rows *sql.Rows) (r Result, err error) {
	var made sql.NullString
	err = rows.Scan(&r.Job, &r.Queue, &r.Kind, &r.State, &made, &r.Error)
	if made.Valid {
		r.Result = json.RawMessage(made.String)
	}
	return r, err
}
