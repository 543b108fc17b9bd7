package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// listed is the number of rows in a list.
const listed = 100

type queuesData struct {
	Queues []queueRow
	After  string
	More   string // the last name of this page; empty: there is no next page
}

// A queueRow is a queue in a list, with the rates of its jobs.
type queueRow struct {
	health.Depth
	In, Out string // per minute
	Empty   health.Emptying
}

func newQueueRow(d health.Depth, flows map[string]health.Flow, now time.Time) queueRow {
	f := flows[d.Name]
	in, ok := d.In(f, now)
	if !ok {
		in = -1
	}
	return queueRow{d, plain.Rate(in), plain.Rate(f.Out), d.Empty(f, now)}
}

func (d *Dashboard) listQueues(ctx context.Context, r *request) (*view, error) {
	after, err := r.optionalName("after")
	if err != nil {
		return nil, err
	}
	data := &queuesData{After: after}
	v := &view{template: "queues.html", title: "Queues", section: "queues", data: data}
	found, err := d.admin.Queues(ctx, after, listed)
	if err != nil {
		return nil, err
	}
	minutes, err := d.minutesOf(ctx)
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("Rates", err))
	}
	flows, counted := health.Flows(minutes, r.now), map[string]health.Depth{}
	all, err := d.countsOf(ctx)
	if err != nil {
		v.troubles = append(v.troubles, d.trouble("Counts", err))
	}
	for _, q := range all {
		counted[q.Name] = q
	}
	for i := range found {
		q, ok := counted[found[i].Name]
		if !ok && err == nil { // it is new, or not among the queues counted together
			one, err := health.Depths(ctx, d.admin, found[i:i+1], health.CountTo, r.now)
			if err != nil {
				return nil, err
			}
			q = one[0]
		}
		q.Queue = found[i] // the cached counts may be older
		data.Queues = append(data.Queues, newQueueRow(q, flows, r.now))
	}
	if n := len(found); n == listed {
		data.More = found[n-1].Name
	}
	return v, nil
}

type queueData struct {
	health.Depth
	Outlook  string
	HeldText string        // of jobs that no worker could begin
	HeldUp   *health.Cause // why
	Behind   *health.Cause // why its oldest job waits; nil: for its turn
	Chart    chart
	Kinds    []admin.Finished // counts of the last hour
	Limits   []limitRow
	Tenants  admin.Tenants
	Blocks   []admin.Block
	Leased   int
	Workers  int
	Settings []setRow
	Endpoint *endpointView // nil: it has none
}

type limitRow struct {
	admin.LimitInfo
	Speed string // its rate as text; empty: it has none
}

// Of says which jobs the limit is of.
func (l *limitRow) Of() string {
	switch {
	case l.Tenant == admin.EachTenant:
		return "each tenant"
	case l.Tenant != "":
		return "tenant " + l.Tenant
	case l.Kind != "":
		return l.Kind
	}
	return "all jobs"
}

type setRow struct{ Name, Value, Why string }

func (d *Dashboard) showQueue(ctx context.Context, r *request) (*view, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return nil, err
	}
	q, err := d.admin.Queue(ctx, name)
	if err != nil {
		return nil, err
	}
	data := &queueData{Settings: settingsOf(&q)}
	v := &view{template: "queue.html", title: "Queue " + plain.Clean(name), section: "queues", data: data}
	data.Queue = q
	for _, part := range []struct {
		name string
		read func(context.Context, *request, *queueData) error
	}{{"Counts", d.readCounts}, {"Limits", d.readLimits}, {"Tenants", d.readTenants}, {"Blocks", d.readBlocks}, {"Endpoint", d.readEndpoint}} {
		if err := part.read(ctx, r, data); err != nil {
			v.troubles = append(v.troubles, d.trouble(part.name, err))
		}
	}
	return v, nil
}

func (d *Dashboard) readCounts(ctx context.Context, r *request, data *queueData) error {
	depth, err := health.DepthOf(ctx, d.admin, &data.Queue, health.CountTo, r.now)
	if err != nil {
		return err
	}
	data.Depth = depth
	minutes, err := d.minutesOf(ctx)
	if err != nil {
		return err
	}
	data.Chart = chartOf(minutes, data.Name, r.now)
	if h := depth.Held; h != nil {
		data.HeldUp = &h.Cause
		data.HeldText = h.Text(r.now)
	}
	if data.Behind, err = depth.WhyBehind(ctx, d.db, d.admin); err != nil {
		return err
	}
	if data.Behind == nil && depth.State == "active" {
		if data.Behind, err = health.Unserved(ctx, d.admin, data.Name, r.now); err != nil {
			return err
		}
	}
	if data.Ready > 0 {
		data.Outlook = data.Depth.Outlook(health.Flows(minutes, r.now)[data.Name], r.now)
	}
	finished, err := d.admin.Finished(ctx, time.Hour)
	for _, f := range finished {
		if f.Queue == data.Name && len(data.Kinds) < listed {
			data.Kinds = append(data.Kinds, f)
		}
	}
	return err
}

func (d *Dashboard) readLimits(ctx context.Context, _ *request, data *queueData) error {
	limits, err := d.admin.LimitsOf(ctx, data.Name)
	for _, l := range limits[:min(len(limits), listed)] {
		row := limitRow{LimitInfo: l}
		if l.Rate > 0 {
			row.Speed = plain.FormatRate(l.Rate, l.Per)
		}
		data.Limits = append(data.Limits, row)
	}
	return err
}

func (d *Dashboard) readTenants(ctx context.Context, _ *request, data *queueData) (err error) {
	data.Tenants, err = health.TenantsOf(ctx, d.admin, &data.Queue)
	return err
}

func (d *Dashboard) readBlocks(ctx context.Context, _ *request, data *queueData) error {
	blocks, err := d.admin.Blocks(ctx, data.Name)
	data.Leased, data.Workers = health.Holders(blocks)
	data.Blocks = blocks
	return err
}

// settingsOf lists a queue's settings as text.
func settingsOf(q *admin.Queue) []setRow {
	settings := admin.Settings()
	rows := make([]setRow, len(settings))
	for i := range settings {
		set := &settings[i]
		rows[i] = setRow{set.Label(), plain.Clean(cmp.Or(set.Text(q), set.Default())), set.Help}
	}
	return rows
}

func (d *Dashboard) pauseQueue(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	why, err := r.reason(500)
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "paused"}, d.admin.Pause(ctx, name, why)
}

func (d *Dashboard) resumeQueue(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "resumed"}, d.admin.Resume(ctx, name)
}

// errMistyped means that the confirmation does not match the name.
var errMistyped = fmt.Errorf("%w: nothing was removed: the text entered is not the queue's name", queue.ErrInvalid)

// purgeQueue removes up to ten thousand waiting or dead jobs.
func (d *Dashboard) purgeQueue(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	if r.PostForm.Get("typed") != name {
		return outcome{}, errMistyped
	}
	state := admin.State(r.PostForm.Get("state"))
	what := admin.BulkCancel
	switch state {
	case admin.StateReady, admin.StateDelayed:
	case admin.StateDead:
		what = admin.BulkDelete
	default:
		return outcome{}, fmt.Errorf("%w: jobs that are ready, delayed or dead can be removed", errBadRequest)
	}
	detail := "state=" + string(state)
	done, err := d.admin.Bulk(ctx, what, admin.Filter{Queue: name, State: state, Limit: health.CountTo}, admin.BulkOptions{})
	if err != nil {
		if done.Done > 0 {
			err = errors.Join(fmt.Errorf("after %s were removed", plain.Plural(done.Done, "job", "jobs")), err)
		}
		return outcome{n: done.Done, detail: detail}, err
	}
	note := "purgedAll"
	switch {
	case done.Done == 0:
		note = "nothing"
	case done.Done+done.Gone+done.InUse >= health.CountTo:
		note = "purged"
	}
	return outcome{note: note, n: done.Done, counted: true, detail: detail}, nil
}

// reason reads the optional reason of an action, and adds the visitor's name.
func (r *request) reason(limit int) (string, error) {
	why := plain.Cut(r.PostForm.Get("reason"), 10_000)
	if len(why) > limit {
		return "", fmt.Errorf("%w: the reason is longer than %d bytes", errBadRequest, limit)
	}
	if r.who.Name == "" {
		return why, nil
	}
	if why == "" {
		return "by " + r.who.Name, nil
	}
	return why + " (" + r.who.Name + ")", nil
}
