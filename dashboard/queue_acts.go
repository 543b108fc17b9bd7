package dashboard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/health"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/queue/admin"
)

// An endpointView describes where a queue's jobs are sent, without secret parts.
type endpointView struct {
	push.Endpoint
	Shown   string
	How     string // its state
	Is      health.Standing
	Answers []push.Answer // some of the newest
}

// readEndpoint reads the queue's endpoint, if it has one.
func (d *Dashboard) readEndpoint(ctx context.Context, r *request, data *queueData) error {
	endpoints := push.NewEndpoints(d.db)
	e, err := endpoints.Get(ctx, data.Name)
	if errors.Is(err, queue.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	answers, err := endpoints.Answers(ctx, data.Name)
	data.Endpoint = &endpointView{e, plain.URL(e.URL), health.EndpointText(answers, r.now), health.StandingOf(answers, r.now), answers}
	return err
}

// said returns why a request failed, without the status, which is shown beside it.
func said(a push.Answer) string {
	return plain.Cut(strings.TrimPrefix(a.Error, fmt.Sprintf("HTTP %d ", a.Status)), 160)
}

// formNumber parses a number in the form; an empty field is 0.
func (r *request) formNumber(field string) (int, error) {
	text := r.PostForm.Get(field)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %s: %q is not a number of 1 or more", queue.ErrInvalid, field, plain.Cut(text, 30))
	}
	return n, nil
}

// limitQueue sets the limit of a queue, of one of its kinds, or of a tenant, from the form.
func (d *Dashboard) limitQueue(ctx context.Context, r *request) (outcome, error) {
	of, err := r.limited()
	to := admin.Limit{Per: time.Second}
	if err == nil {
		to.Running, err = r.formNumber("running")
	}
	if err == nil {
		to.Burst, err = r.formNumber("burst")
	}
	detail := ""
	if to.Running > 0 {
		detail = fmt.Sprint("running=", to.Running)
	}
	if text := r.PostForm.Get("rate"); err == nil && text != "" {
		if to.Rate, to.Per, err = plain.ParseRate(text); err != nil {
			err = &queue.InvalidError{Field: "rate", Problem: err.Error()}
		}
		detail += " rate=" + plain.Cut(text, 50)
	}
	if err != nil {
		return outcome{}, err
	}
	change := func(l *admin.Limit) {
		l.Running, l.Rate, l.Per = to.Running, to.Rate, to.Per
		l.Burst = max(to.Burst, 1)
	}
	if of.Tenant == "" {
		_, err = d.admin.EditLimit(ctx, of.Queue, of.Kind, change)
	} else {
		_, err = d.admin.EditTenantLimit(ctx, of.Queue, of.Tenant, change)
		detail = "tenant=" + of.Tenant + " " + detail
	}
	return outcome{note: "limited", action: "limit.set", object: objectOfKind(of.Queue, of.Kind), detail: detail}, err
}

func (d *Dashboard) unlimitQueue(ctx context.Context, r *request) (outcome, error) {
	of, err := r.limited()
	if err != nil {
		return outcome{}, err
	}
	out := outcome{note: "unlimited", action: "limit.delete", object: objectOfKind(of.Queue, of.Kind)}
	if of.Tenant == "" {
		return out, d.admin.DeleteLimit(ctx, of.Queue, of.Kind)
	}
	out.detail = "tenant=" + of.Tenant
	return out, d.admin.DeleteTenantLimit(ctx, of.Queue, of.Tenant)
}

// limited reads which limit is meant: of a queue, and of one kind, of a tenant, or of all its jobs.
func (r *request) limited() (of admin.Limit, err error) {
	if of.Queue, err = r.nameIn("name"); err != nil {
		return of, err
	}
	if of.Kind = r.PostForm.Get("kind"); of.Kind != "" {
		err = checkName("kind", of.Kind)
	}
	if of.Tenant = r.PostForm.Get("tenant"); err == nil && of.Tenant != "" {
		err = checkName("tenant", of.Tenant)
	}
	if err == nil && of.Kind != "" && of.Tenant != "" {
		err = &queue.InvalidError{Field: "tenant", Problem: "a limit is of a kind or of a tenant, not of both"}
	}
	return of, err
}

func objectOfKind(name, kind string) string {
	if kind == "" {
		return name
	}
	return name + "/" + kind
}

// resizeQueue changes how many workers can share a queue.
func (d *Dashboard) resizeQueue(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	var n int
	if err == nil {
		n, err = r.formNumber("blocks")
	}
	if err != nil {
		return outcome{}, err
	}
	return outcome{note: "resized", detail: fmt.Sprint("to ", n)}, d.admin.Resize(ctx, name, n)
}

// notifyOfQueue changes who is notified of a queue's problems.
func (d *Dashboard) notifyOfQueue(ctx context.Context, r *request) (outcome, error) {
	name, err := r.nameIn("name")
	if err != nil {
		return outcome{}, err
	}
	_, err = d.admin.Queue(ctx, name) // the action must not create the queue
	if err == nil {
		_, err = d.admin.Edit(ctx, name, func(q *admin.Queue) { q.Notify = strings.TrimSpace(r.PostForm.Get("notify")) })
	}
	return outcome{note: "notifies", action: "queue.set", detail: "notify"}, err
}
