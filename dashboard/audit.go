package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/internal/plain"
)

// auditObjects are the kinds of object that pages with actions are about, where they differ
// from the page's name.
var auditObjects = map[string]string{
	"bulk": "job", "clone": "job", "backfill": "schedule", "routes": "route", "topics": "topic", "tokens": "token",
}

// record adds the action of a form to the audit log. It returns the entry for the next part of an action, if there
// may be one.
func (d *Dashboard) record(r *request, done outcome, failed error) (entry int64) {
	e := entryOf(r, done, failed)
	entry, err := audit.Write(r.Context(), d.db, e)
	if err != nil {
		d.log.Error("dashboard: done, and not written to the audit", "action", e.Action, "object", e.Object, "token", r.who.Name, "err", err)
	}
	return entry
}

// entryOf is the entry about the action of a form.
func entryOf(r *request, done outcome, failed error) audit.Entry {
	page := strings.TrimPrefix(r.URL.Path, "/")
	if other, ok := auditObjects[page]; ok {
		page = other
	}
	e := audit.Entry{
		ID: done.entry, Failed: failed != nil, More: done.next != nil,
		Actor: r.who.Name, Login: r.who.Login, Source: audit.Dashboard,
		Action: cmp.Or(done.action, page+"."+r.PostForm.Get("do")), Object: done.object, Count: done.n, Detail: done.detail,
	}
	if e.Actor == "" {
		e.Actor = audit.ThisHost
	}
	if e.Object == "" {
		e.Object = objectOf(r)
	}
	if e.Detail == "" {
		e.Detail = plain.Cut(r.PostForm.Get("reason"), 500)
	}
	if e.Count == 0 && !done.counted {
		e.Count = 1
	}
	return e
}

// objectOf returns the object that the page's address names, as the audit log calls it.
func objectOf(r *request) string {
	var parts []string
	for _, field := range []string{"queue", "name", "kind", "id"} {
		if is := r.query.Get(field); is != "" {
			parts = append(parts, is)
		}
	}
	return strings.Join(parts, "/")
}

type auditData struct {
	Actor, Action, Object string
	Entries               []audit.Entry
	Before, More          int64
	Filtered              bool
}

func (d *Dashboard) listAudit(ctx context.Context, r *request) (*view, error) {
	data := &auditData{Actor: r.query.Get("actor"), Action: r.query.Get("action"), Object: r.query.Get("object")}
	if len(data.Actor)+len(data.Action)+len(data.Object) > 4000 {
		return nil, fmt.Errorf("%w: the filter is too long", errBadRequest)
	}
	data.Filtered = data.Actor+data.Action+data.Object != ""
	var err error
	if data.Before, err = r.idIn("before", false); err != nil {
		return nil, err
	}
	data.Entries, data.More, err = audit.List(ctx, d.db,
		audit.Filter{Actor: data.Actor, Action: data.Action, Object: data.Object, Before: data.Before, Limit: listed})
	return &view{template: "audit.html", title: "Audit", section: "audit", data: data, still: data.Before != 0}, err
}
