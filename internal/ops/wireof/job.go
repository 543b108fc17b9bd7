// Package wireof makes the types of package wire, which leave the process, from those of the libraries, and applies
// changes, which enter it, to these.
package wireof

import (
	"encoding/json"
	"strings"

	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// text returns a text that was written by anybody as valid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "�") }

// ifJSON returns bytes as JSON, or as they are if they are not.
func ifJSON(b []byte, binary bool) (asJSON json.RawMessage, other []byte) {
	if binary || !json.Valid(b) { // somebody may have written it by hand
		return nil, b
	}
	return b, nil
}

// Job returns a stored job.
func Job(i *admin.Job) wire.Job {
	j := wire.Job{
		ID: wire.ID(i.ID), Queue: i.Queue, State: string(i.State), Kind: i.Kind, Key: i.Key, Priority: wire.PriorityName(i.Priority),
		Enqueued: wire.At(i.Enqueued), At: wire.At(i.At), Started: wire.At(i.Started), Discarded: i.Discarded, Cancelled: i.Cancelled,
		Attempts: i.Attempts, Crashes: i.Crashes, MaxAttempts: i.MaxAttempts, Timeout: wire.GivenDuration(i.Timeout),
		Unique: i.Unique, UniqueUntil: i.UniqueUntil, Group: wire.ID(i.Group), CallbackOf: wire.ID(i.Callback), Trace: i.Trace, Endpoint: i.Endpoint, Tenant: i.Tenant, Cost: i.Cost,
		Progress: progress(&i.Progress), Worker: i.Worker, Block: i.Block, Error: text(i.Error), Detail: text(i.Detail), PayloadBytes: i.PayloadBytes,
		Unreadable: i.Unreadable,
	}
	for _, e := range i.Errors {
		j.Errors = append(j.Errors, wire.AttemptError{Attempt: e.Attempt, At: wire.At(e.At), Error: text(e.Error)})
	}
	if i.Refused != nil {
		r := Refusal(i.Refused)
		r.Job, r.Kind = "", "" // it is this one
		j.Refused = &r
	}
	j.Payload, j.Binary = ifJSON(i.Payload, i.Binary)
	j.Result, _ = ifJSON(i.Result, false)
	return j
}

func progress(p *admin.Progress) *wire.Progress {
	if p.Percent == 0 && p.Message == "" && len(p.State) == 0 {
		return nil
	}
	w := &wire.Progress{Percent: p.Percent, Message: text(p.Message)}
	w.State, w.Binary = ifJSON(p.State, false)
	return w
}

// BulkResult returns what was done with jobs.
func BulkResult(what admin.BulkAction, f *admin.Filter, dryRun bool, r *admin.BulkResult) wire.BulkResult {
	return wire.BulkResult{
		Action: string(what), Queue: f.Queue, State: string(f.State), DryRun: dryRun, Done: r.Done, Gone: r.Gone, InUse: r.InUse,
		All: r.Next == nil,
	}
}

// Refusal returns what the database refuses to store.
func Refusal(r *admin.Refusal) wire.Refusal {
	return wire.Refusal{
		Job: wire.ID(r.Job), Kind: r.Kind, Block: r.Block, What: r.What, Error: text(r.Error), Since: wire.At(r.Since),
		Tries: r.Tries, Worker: r.Worker,
	}
}

// Enqueued returns the result of enqueueing a job.
func Enqueued(e queue.Enqueued) wire.Enqueued {
	return wire.Enqueued{ID: wire.ID(e.ID), Queue: e.Queue, Existed: e.Existed}
}

// AllEnqueued returns the results of enqueueing jobs, in order.
func AllEnqueued(all []queue.Enqueued) []wire.Enqueued {
	return Each(all, func(e *queue.Enqueued) wire.Enqueued { return Enqueued(*e) })
}

// Delivery returns a job for whoever does it.
func Delivery(d *queue.Delivery) wire.Delivery {
	w := wire.Delivery{
		ID: wire.ID(d.ID), Queue: d.Queue, Kind: d.Kind, Key: d.Key, Priority: wire.PriorityName(d.Priority),
		Attempt: d.Attempt, MaxAttempts: d.AttemptLimit(), Crashes: d.Crashes, Enqueued: wire.At(d.Enqueued()),
		Group: wire.ID(d.Group), CallbackOf: wire.ID(d.Callback), Trace: d.Trace, Tenant: d.Tenant,
	}
	w.Payload, w.Binary = ifJSON(d.Payload, d.Binary)
	return w
}

// Each converts a list. It is never nil, so that it becomes [] as JSON.
func Each[T, W any](all []T, of func(*T) W) []W {
	list := make([]W, len(all))
	for i := range all {
		list[i] = of(&all[i])
	}
	return list
}
