package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/wire"
)

// acts maps the operations in the audit log to the names of their actions. The routine work of
// programs is not audited: they enqueue, claim and lock.
var acts = map[string]string{
	"retry-job": "job.retry", "run-job": "job.run", "cancel-job": "job.cancel", "delete-job": "job.delete",
	"retry-job-by-id": "job.retry", "run-job-by-id": "job.run", "cancel-job-by-id": "job.cancel", "delete-job-by-id": "job.delete",
	"bulk-jobs":   "job.bulk", // the handler sets the verb
	"pause-queue": "queue.pause", "resume-queue": "queue.resume", "purge-queue": "queue.purge",
	"resize-queue": "queue.resize", "move-jobs": "queue.move",
	"set-queue": "queue.set", "delete-queue": "queue.delete",
	"set-queue-limit": "limit.set", "set-limit": "limit.set", "delete-queue-limit": "limit.delete", "delete-limit": "limit.delete",
	"set-share": "share.set", "delete-share": "share.delete",
	"set-endpoint": "endpoint.set", "delete-endpoint": "endpoint.delete",
	"set-route": "route.set", "delete-route": "route.delete",
	"subscribe": "topic.subscribe", "unsubscribe": "topic.unsubscribe",
	"delete-group": "group.delete",
	"run-schedule": "schedule.run", "backfill-schedule": "schedule.backfill",
	"pause-schedule": "schedule.pause", "resume-schedule": "schedule.resume",
	"set-schedule": "schedule.set", "delete-schedule": "schedule.delete",
	"cancel-run":         "run.cancel",
	"force-release-lock": "lock.release", "resize-lock": "lock.resize", "purge-locks": "lock.purge",
	"acknowledge-finding": health.Acknowledge, "reopen-finding": health.Reopen,
	"drain-node": "node.drain", "undrain-node": "node.undrain",
}

// unsaid is the count of a deed whose handler does not set one: it affected one object.
const unsaid = -1

// A deed is the audit entry of a request. The handler may change it.
type deed struct {
	action  string
	object  string // default: the names in the path
	count   int
	detail  string
	nothing bool // it changed nothing

	// An operation that its caller sends in parts has one entry.
	entry int64             // the entry of the parts before, which the cursor has; 0: none
	next  func(entry int64) // there may be a next part: puts the entry into its cursor
}

type deedKey struct{}

// deedOf returns the audit entry of the current request.
func deedOf(ctx context.Context) *deed {
	if d, ok := ctx.Value(deedKey{}).(*deed); ok {
		return d
	}
	return &deed{} // the operation is not audited
}

// audited adds a handler's success to the audit log, and its failure if a part was done.
func audited[I, O any](a *API, o *operation, handle func(ctx context.Context, in *I) (*O, error)) func(ctx context.Context,
	in *I) (*O, error) {
	action, ok := acts[o.id]
	if !ok {
		if (o.scope == ScopeAdmin || o.scope == ScopeOperate) && o.method != http.MethodGet {
			panic("operation " + o.id + " is not among the acts of the audit")
		}
		return handle
	}
	return func(ctx context.Context, in *I) (*O, error) {
		d := &deed{action: action, count: unsaid}
		out, err := handle(context.WithValue(ctx, deedKey{}, d), in)
		if d.nothing || err != nil && d.count <= 0 && d.entry == 0 {
			return out, err
		}
		e := audit.Entry{
			ID: d.entry, Source: audit.API, Action: d.action, Object: d.object, Count: d.count, Detail: d.detail,
			Failed: err != nil, More: d.next != nil,
		}
		if e.Object == "" {
			e.Object = strings.Join(pathOf(reflect.ValueOf(in).Elem()), "/")
		}
		if d.count == unsaid {
			e.Count = 1
		}
		who := senderOf(ctx)
		e.Actor, e.Login = audit.ThisHost, audit.None
		switch {
		case who.here != nil:
			e.Actor, e.Login, e.Source = who.here.Name, audit.OS, audit.CLI
		case who.bearer != nil:
			e.Actor, e.Login = who.bearer.name, who.bearer.Login()
		}
		entry, failed := audit.Write(ctx, a.db, e)
		if d.next != nil {
			d.next(entry)
		}
		switch {
		case failed != nil && who.here != nil:
			who.here.Warn("warning: the change was made, but could not be written to the audit: " + plain.Line(failed.Error(), 1000))
		case failed != nil:
			a.log.Error("http: done, and not written to the audit", "action", e.Action, "object", e.Object, "actor", e.Actor, "err", failed)
		}
		return out, err
	}
}

// pathOf returns the path parameters of a request, in order.
func pathOf(in reflect.Value) (all []string) {
	for i := range in.NumField() {
		f := in.Type().Field(i)
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			all = append(all, pathOf(in.Field(i))...)
		case f.Tag.Get("path") != "":
			all = append(all, in.Field(i).String())
		}
	}
	return all
}

// slotText names a slot of a pool.
func slotText(slot int) string {
	if slot == 0 {
		return ""
	}
	return fmt.Sprint("/", slot)
}

type auditInput struct {
	Actor  string `query:"actor" maxLength:"200" doc:"Only what this actor did."`
	Action string `query:"action" maxLength:"100" doc:"Only this action." example:"queue.pause"`
	Object string `query:"object" maxLength:"500" doc:"Only what was done to this, such as the name of a queue, or queue/id of a job."`
	Since  string `query:"since" maxLength:"40" doc:"Only what was done since this time, in RFC 3339, or this long ago, such as 24h."`
	Cursor string `query:"cursor" maxLength:"1200" doc:"The next_cursor of the answer before. The list goes on after it."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The greatest number of entries in the answer."`
}

type auditOutput struct {
	Body struct {
		Entries    []wire.AuditEntry `json:"entries" nullable:"false" doc:"The entries, the newest first."`
		NextCursor string            `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Audit"`
}

// audit registers the operation that lists the audit log.
func (a *API) audit() {
	register(a, operation{
		id: "list-audit", method: http.MethodGet, path: "/audit", tag: "audit", scope: ScopeRead, answer: answerList,
		summary: "List what operators did, the newest first",
		more:    "From the command line, the API and the dashboard. What programs do as their work is not there: they enqueue, claim and lock. Entries are kept for 90 days, unless the daemons say otherwise.",
	}, a.listAudit)
}

func (a *API) listAudit(ctx context.Context, in *auditInput) (*auditOutput, error) {
	f := audit.Filter{Actor: in.Actor, Action: in.Action, Object: in.Object, Limit: in.Limit}
	var err error
	if f.Before, err = readIDCursor(in.Cursor); err != nil {
		return nil, err
	}
	if f.Since, err = a.timeOrAgo(ctx, "since", in.Since); err != nil {
		return nil, err
	}
	found, more, err := audit.List(ctx, a.db, f)
	if err != nil {
		return nil, err
	}
	out := &auditOutput{}
	out.Body.Entries = wireof.Each(found, wireof.AuditEntry)
	out.Body.NextCursor = wire.ID(more)
	return out, nil
}
