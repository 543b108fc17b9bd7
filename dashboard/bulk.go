package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

const (
	bulkPart  = 10_000 // jobs that one request examines
	bulkCount = 10_000 // jobs that are examined to count matches
	maxIDs    = 500    // jobs that are selected one by one
)

// A bulkAct is an action on many jobs of a state.
type bulkAct struct {
	what         admin.BulkAction
	Label, Doing string // text of the button, and of its result
	Why          string
	Danger       bool
	one          func(c *admin.Client, ctx context.Context, queue string, id int64) error
}

// bulkActs has the actions for each state, by their names in addresses.
var bulkActs = map[admin.State]map[string]bulkAct{
	admin.StateReady: {"cancel": {
		admin.BulkCancel, "Cancel", "cancelled",
		"They are removed. Workers may still begin jobs that they have already read.", true, (*admin.Client).Cancel,
	}},
	admin.StateDelayed: {
		"run":    {admin.BulkRetry, "Run now", "let go", "They become due at once.", false, (*admin.Client).RunNow},
		"cancel": {admin.BulkCancel, "Cancel", "cancelled", "They are removed.", true, (*admin.Client).Cancel},
	},
	admin.StateRunning: {"cancel": {
		admin.BulkCancel, "Cancel", "cancelled",
		"They are removed. Their workers notice within two seconds.", true, (*admin.Client).Cancel,
	}},
	admin.StateDead: {"retry": {
		admin.BulkRetry, "Retry", "retried", "They get all their attempts again.",
		false, (*admin.Client).Retry,
	}, "delete": {
		admin.BulkDelete, "Delete", "deleted", "They are deleted. This cannot be undone.",
		true, (*admin.Client).Delete,
	}},
	admin.StateDone: {"delete": {
		admin.BulkDelete, "Delete", "deleted", "They are deleted. This cannot be undone.",
		true, (*admin.Client).Delete,
	}},
}

// bulkNames returns the names of the actions on jobs of a state, harmless ones first.
func bulkNames(state admin.State) (names []string) {
	for _, name := range []string{"retry", "run", "cancel", "delete"} {
		if _, ok := bulkActs[state][name]; ok {
			names = append(names, name)
		}
	}
	return names
}

// A jobsFilter selects the jobs of a page. All of it is in the page's address.
type jobsFilter struct {
	Queue, Kind, Key, Tenant, Where string
	Like                            string // selects jobs with similar errors: see likeness
	State                           admin.State
}

// jobsFilterIn reads a filter from the query. The queue may be missing.
func (r *request) jobsFilterIn() (f jobsFilter, err error) {
	f.State, f.Where, f.Like = admin.State(r.query.Get("state")), r.query.Get("where"), r.query.Get("like")
	for _, name := range []struct {
		field string
		to    *string
	}{{"queue", &f.Queue}, {"kind", &f.Kind}, {"key", &f.Key}, {"tenant", &f.Tenant}} {
		if *name.to, err = r.optionalName(name.field); err != nil {
			return f, err
		}
	}
	if f.State == "" {
		f.State = admin.StateReady
	}
	if r.hide && f.Where != "" { // search results would reveal the hidden payloads
		return f, fmt.Errorf("%w: payloads are hidden here, and cannot be searched", errBadRequest)
	}
	if !slices.Contains(states, f.State) || len(f.Where) > whereBytes || len(f.Like) > likenessBytes {
		return f, fmt.Errorf("%w: there is no such state, or the filter is too long", errBadRequest)
	}
	return f, nil
}

// Filtered reports whether the filter selects only some jobs of a state.
func (f *jobsFilter) Filtered() bool {
	return f.Kind != "" || f.Key != "" || f.Tenant != "" || f.Where != "" || f.Like != ""
}

// filter returns the filter for the queue package.
func (f *jobsFilter) filter() admin.Filter {
	q := admin.Filter{Queue: f.Queue, State: f.State, Kind: f.Kind, Key: f.Key, Tenant: f.Tenant, Where: f.Where}
	if f.Like != "" {
		q.Match = func(i *admin.Job) bool { return i.Error != "" && likeness(i.Error) == f.Like }
	}
	return q
}

// To returns the address of a page about the same jobs.
func (f jobsFilter) To(page string, pairs ...any) string {
	return link(page, append([]any{
		"queue", f.Queue, "state", f.State, "kind", f.Kind, "key", f.Key, "tenant", f.Tenant, "where", f.Where, "like", f.Like,
	}, pairs...)...)
}

// In returns the address for jobs of another state.
func (f jobsFilter) In(state admin.State) string {
	f.State = state
	return f.To("jobs")
}

type bulkData struct {
	jobsFilter
	bulkAct
	Do      string
	IDs     []int64 // selected ones; none: all that match
	N       int     // number of jobs
	Counted string  // N as text
	Here    string  // the page's address, for the form
	Begun   bool    // some parts are done
	Over    bool    // all parts are done
	Entry   int64   // of the parts that are done, in the audit log
	bulkDone
}

// bulkDone counts the outcomes so far.
type bulkDone struct{ Done, Gone, InUse int }

// bulkIn reads the action and its jobs.
func (r *request) bulkIn() (*bulkData, error) {
	f, err := r.jobsFilterIn()
	if err != nil {
		return nil, err
	}
	b := &bulkData{jobsFilter: f, Do: r.query.Get("do")}
	var ok bool
	if b.bulkAct, ok = bulkActs[f.State][b.Do]; !ok || f.Queue == "" {
		return nil, fmt.Errorf("%w: this cannot be done with jobs that are %s, or the address lacks their queue", errBadRequest, f.State)
	}
	for _, text := range r.query["id"] {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || id < 1 || len(b.IDs) >= maxIDs {
			return nil, fmt.Errorf("%w: id is not a number, or there are more than %d", errBadRequest, maxIDs)
		}
		b.IDs = append(b.IDs, id)
	}
	if r.query.Get("chosen") != "" && len(b.IDs) == 0 {
		return nil, fmt.Errorf("%w: no job was selected: go back and tick some, or take all that match", errBadRequest)
	}
	for field, n := range map[string]*int{"done": &b.Done, "gone": &b.Gone, "in_use": &b.InUse} {
		if *n, err = strconv.Atoi(r.query.Get(field)); err != nil || *n < 0 {
			*n = 0
		}
	}
	b.Over, b.Begun = r.query.Get("from") == "end", r.query.Get("from") != ""
	b.Entry, err = r.idIn("entry", false)
	return b, err
}

// cursor reads where a bulk action continues.
func (r *request) cursor() (c admin.BulkCursor, err error) {
	text := r.query.Get("from")
	if text == "" {
		return c, nil
	}
	if n, err := fmt.Sscanf(text, "%d.%d.%d", &c.Began, &c.Block, &c.After); err != nil || n != 3 || c.Began < 1 {
		return c, fmt.Errorf("%w: from is not a valid position", errBadRequest)
	}
	return c, nil
}

// at returns the address at which the action continues. It includes the counts so far.
func (b *bulkData) at(from string) string {
	to := b.To("bulk", "do", b.Do, "from", from, "done", b.Done, "gone", b.Gone, "in_use", b.InUse, "entry", b.Entry)
	var all strings.Builder
	for _, id := range b.IDs {
		fmt.Fprint(&all, "&id=", id)
	}
	return to + all.String()
}

// showBulk asks for confirmation of an action on many jobs, and shows its progress.
func (d *Dashboard) showBulk(ctx context.Context, r *request) (*view, error) {
	b, err := r.bulkIn()
	if err != nil {
		return nil, err
	}
	v := &view{template: "bulk.html", title: b.Label + " jobs of " + plain.Clean(b.Queue), section: "jobs", data: b, still: true}
	if _, err := d.admin.Queue(ctx, b.Queue); err != nil {
		return nil, err
	}
	b.Here = b.at(r.query.Get("from"))
	if b.N = len(b.IDs); b.N > 0 || b.Over {
		b.Counted = plain.Number(b.N)
		return v, nil
	}
	if !b.Filtered() && !b.Begun {
		n, err := d.admin.Count(ctx, b.Queue, health.CountTo)
		b.N = map[admin.State]int{
			admin.StateReady: n.Ready, admin.StateDelayed: n.Delayed, admin.StateRunning: n.Running,
			admin.StateDead: n.Dead, admin.StateDone: n.Done,
		}[b.State]
		b.Counted = plain.Count(b.N, health.CountTo)
		return v, err
	}
	from, err := r.cursor()
	if err != nil {
		return nil, err
	}
	f := b.filter()
	f.Limit = health.CountTo
	found, err := d.admin.Bulk(ctx, b.what, f, admin.BulkOptions{DryRun: true, Most: bulkCount, From: from})
	if err != nil {
		return nil, err
	}
	b.N, b.Counted = found.Done, plain.Number(found.Done)
	switch {
	case found.Done >= health.CountTo:
		b.Counted = plain.Count(found.Done, health.CountTo)
	case found.Next != nil: // not all jobs were examined
		b.N, b.Counted = max(1, b.N), "at least "+b.Counted
	}
	return v, nil
}

// doBulk does one part of the action, and redirects to the page for the next part.
func (d *Dashboard) doBulk(ctx context.Context, r *request) (outcome, error) {
	b, err := r.bulkIn()
	if err == nil && r.PostForm.Get("do") != b.Do {
		err = fmt.Errorf("%w: the form does not match its address", errBadRequest)
	}
	if err != nil {
		return outcome{}, err
	}
	if len(b.IDs) > 0 {
		before := b.Done
		if err := d.doEach(ctx, b); err != nil {
			return outcome{n: b.Done - before, object: b.Queue, detail: b.detail()}, err
		}
		return outcome{to: b.at("end"), n: b.Done - before, counted: true, object: b.Queue, detail: b.detail()}, nil
	}
	from, err := r.cursor()
	if err != nil {
		return outcome{}, err
	}
	done, err := d.admin.Bulk(ctx, b.what, b.filter(), admin.BulkOptions{Most: bulkPart, From: from})
	part := outcome{n: done.Done, counted: true, object: b.Queue, detail: b.detail(), entry: b.Entry}
	if err != nil {
		if done.Done > 0 {
			err = fmt.Errorf("%s were %s, then it failed; continue with the rest: %w", plain.Plural(done.Done, "job", "jobs"), b.Doing, err)
		}
		return part, err
	}
	b.Done, b.Gone, b.InUse = b.Done+done.Done, b.Gone+done.Gone, b.InUse+done.InUse
	part.to = b.at("end")
	if n := done.Next; n != nil {
		part.next = func(entry int64) string {
			b.Entry = entry
			return b.at(fmt.Sprintf("%d.%d.%d", n.Began, n.Block, n.After))
		}
	}
	return part, nil
}

// detail describes the selected jobs for the audit log.
func (b *bulkData) detail() string {
	text := audit.FilterText(string(b.State), b.Kind, b.Key, b.Tenant, b.Where)
	if b.Like != "" {
		text += " like=" + b.Like
	}
	if n := len(b.IDs); n > 0 {
		text += fmt.Sprintf(" (%d chosen)", n)
	}
	return text
}

// doEach applies the action to jobs that were selected one by one.
func (d *Dashboard) doEach(ctx context.Context, b *bulkData) error {
	for _, id := range b.IDs {
		err := b.one(d.admin, ctx, b.Queue, id)
		switch {
		case err == nil:
			b.Done++
		case errors.Is(err, queue.ErrNotFound):
			b.Gone++
		case errors.Is(err, queue.ErrState), errors.Is(err, admin.ErrAmbiguous):
			b.InUse++
		case b.Done > 0:
			return fmt.Errorf("%s were %s, then it failed: %w", plain.Plural(b.Done, "job", "jobs"), b.Doing, err)
		default:
			return err
		}
	}
	return nil
}
