package httpapi

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/lock"
)

type lockPath struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
}

const (
	usualTTL    = 30 * time.Second
	shortestTTL = time.Second
	longestTTL  = 24 * time.Hour
)

type acquireInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"Any secret text that is fresh to the request: sent again with it, the request gets the same lease, renewed"`
	Body *struct {
		TTL   string `json:"ttl,omitempty" maxLength:"40" doc:"How long the lock is held unless it is renewed, 1s to 24h; default: 30s" example:"30s"`
		Wait  string `json:"wait,omitempty" maxLength:"40" doc:"How long to wait for it, up to 30s; default: not at all" example:"10s"`
		Owner string `json:"owner,omitempty" maxLength:"100" doc:"Who holds it, for people; default: the token's name"`
		Meta  string `json:"meta,omitempty" maxLength:"10000" doc:"What the holder says about itself, for people"`
	} `nameHint:"Acquire"`
}

type renewInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Body struct {
		Token string `json:"token" minLength:"1" maxLength:"400" doc:"Of the answer to acquire"`
		TTL   string `json:"ttl,omitempty" maxLength:"40" doc:"How long it is held from now on, 1s to 24h; never shorter than it was; default: 30s" example:"30s"`
	} `nameHint:"Renew"`
}

type releaseLockInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Body struct {
		Token string `json:"token" minLength:"1" maxLength:"400" doc:"Of the answer to acquire"`
	} `nameHint:"ReleaseLock"`
}

type forceInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Body struct {
		Slot   int    `json:"slot,omitempty" minimum:"0" maximum:"1000000" doc:"Of a pool"`
		Reason string `json:"reason" minLength:"1" maxLength:"1000" doc:"For people"`
	} `nameHint:"ForceRelease"`
}

type ticketOutput struct {
	Body struct {
		Name    string  `json:"name"`
		Token   string  `json:"token" doc:"Secret: it renews and releases the lock"`
		By      string  `json:"by" doc:"The holder, as it is listed"`
		Fence   string  `json:"fence" doc:"Rises with each holder, so that what the holder writes to can refuse one that comes late"`
		Expires stamp   `json:"expires"`
		Left    float64 `json:"left_seconds"`
	} `nameHint:"LockTicket"`
}

func newTicketOutput(t *lock.Ticket) *ticketOutput {
	out := &ticketOutput{}
	out.Body.Name, out.Body.Token, out.Body.By, out.Body.Fence = t.Name, t.Token, t.By, strconv.FormatInt(t.Fence, 10)
	out.Body.Expires, out.Body.Left = stamp{t.Until}, wireof.Seconds(t.Left)
	return out
}

type forcedOutput struct{ Body lockJSON }

// A heldProblem is a problem that names the holder of a lock.
type heldProblem struct {
	huma.ErrorModel
	Holder  string  `json:"holder,omitempty" doc:"Whose the lock is"`
	Expires *stamp  `json:"expires,omitempty" doc:"Until when, unless it is renewed or released"`
	Left    float64 `json:"left_seconds,omitempty"`
}

func newHeldProblem(held *lock.HeldError) *heldProblem {
	return &heldProblem{*problem(http.StatusConflict, held.Error()), held.By, optional(held.Until), wireof.Seconds(held.Left)}
}

// tickets registers the operations that take locks over HTTP: see [lock.Ticket].
func (a *API) tickets() {
	register(a, operation{
		id: "acquire-lock", method: http.MethodPost, path: "/locks/{lock}/acquire", tag: "locks", scope: ScopeWork,
		errors:  []int{http.StatusConflict},
		summary: "Take a lock, which is held until it is released, or not renewed in time",
		more:    "Nobody renews it but the holder, at any daemon. If the answer is lost, the same request with the same Idempotency-Key gets the same lease; without one the lock is free when its time is over.",
	}, a.acquireLock)
	a.heldAnswer("/locks/{lock}/acquire")
	register(a, operation{
		id: "renew-lock", method: http.MethodPost, path: "/locks/{lock}/renew", tag: "locks", scope: ScopeWork,
		errors:  []int{http.StatusConflict},
		summary: "Keep a lock for longer",
		more:    "409: it is not the holder's any more, and somebody else may have begun.",
	}, func(ctx context.Context, in *renewInput) (*ticketOutput, error) {
		ttl, err := readTTL(in.Lock, in.Body.TTL)
		if err != nil {
			return nil, err
		}
		t, err := a.locks.RenewTicket(ctx, in.Lock, in.Body.Token, ttl)
		if err != nil {
			return nil, badTicket(err)
		}
		return newTicketOutput(t), nil
	})
	register(a, operation{
		id: "release-lock", method: http.MethodPost, path: "/locks/{lock}/release", tag: "locks", scope: ScopeWork,
		errors:  []int{http.StatusConflict},
		summary: "Free a lock",
		more:    "409: it was not the holder's any more, so the work was perhaps not alone.",
	}, func(ctx context.Context, in *releaseLockInput) (*struct{}, error) {
		if err := checkNames("lock", in.Lock); err != nil {
			return nil, err
		}
		return nil, badTicket(a.locks.ReleaseTicket(ctx, in.Lock, in.Body.Token))
	})
	register(a, operation{
		id: "force-release-lock", method: http.MethodPost, path: "/locks/{lock}/force-release", tag: "locks", scope: ScopeAdmin,
		errors:  []int{http.StatusNotFound, http.StatusConflict},
		summary: "Free a lock whoever holds it, and show what it was",
		more:    "The holder learns of it when it next renews the lock, and goes on until then: make sure that it is dead or stopped. Nothing happens to a lock that is free.",
	}, a.forceRelease)
}

// heldAnswer documents the conflict of an operation.
func (a *API) heldAnswer(path string) {
	doc := a.docs.OpenAPI()
	schema := doc.Components.Schemas.Schema(reflect.TypeFor[heldProblem](), true, "HeldProblem")
	doc.Paths[prefix+path].Post.Responses["409"].Content = map[string]*huma.MediaType{"application/problem+json": {Schema: schema}}
}

func (a *API) acquireLock(ctx context.Context, in *acquireInput) (*ticketOutput, error) {
	opt := lock.TicketOptions{Key: in.Key, Owner: caller(ctx), TTL: usualTTL}
	if b := in.Body; b != nil {
		if err := checkNames("owner", b.Owner); err != nil {
			return nil, err
		}
		ttl, err := readTTL(in.Lock, b.TTL)
		if err != nil {
			return nil, err
		}
		if opt.Wait, err = readDuration("wait", b.Wait); err != nil {
			return nil, err
		}
		if opt.Wait > longestWait {
			return nil, invalid("wait", "%q is longer than 30s", b.Wait)
		}
		if err := checkText("meta", b.Meta, 10_000); err != nil {
			return nil, err
		}
		opt.TTL, opt.Meta = ttl, b.Meta
		if b.Owner != "" {
			opt.Owner = b.Owner
		}
	} else if err := checkNames("lock", in.Lock); err != nil {
		return nil, err
	}
	if len(opt.Owner) > 100 {
		if in.Body != nil && in.Body.Owner != "" {
			return nil, invalid("owner", "it is longer than 100 bytes")
		}
		opt.Owner = "http" // the token's name is too long
	}
	if a.isStopping() {
		opt.Wait = 0
	}
	if opt.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = a.untilStopping(ctx)
		defer cancel()
	}
	t, err := a.locks.TakeTicket(ctx, in.Lock, opt)
	if err != nil {
		return nil, err
	}
	return newTicketOutput(t), nil
}

// checkText returns an error for an unfit text for people.
func checkText(field, text string, most int) error {
	if len(text) > most || strings.ContainsRune(text, 0) {
		return invalid(field, "it is longer than %d bytes, or has a NUL", most)
	}
	return nil
}

// badTicket sets the field of an error about a token.
func badTicket(err error) error {
	if errors.Is(err, lock.ErrInvalid) {
		return invalid("token", "it is none of a lock")
	}
	return err
}

// errStopping ends waiting requests when the process begins to stop.
var errStopping = errors.New("the daemon is ending; another may answer")

// isStopping reports whether the process has begun to stop.
func (a *API) isStopping() bool {
	select {
	case <-a.opt.Stopping: // nil: never
		return true
	default:
		return false
	}
}

// untilStopping returns a context that ends when the process begins to stop.
func (a *API) untilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if a.opt.Stopping != nil {
		go func() {
			select {
			case <-a.opt.Stopping:
				cancel(errStopping)
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// readTTL parses the TTL of a lock and checks the lock's name.
func readTTL(name, text string) (time.Duration, error) {
	if err := checkNames("lock", name); err != nil || text == "" {
		return usualTTL, err
	}
	ttl, err := readDuration("ttl", text)
	if err == nil && (ttl < shortestTTL || ttl > longestTTL) {
		err = invalid("ttl", "%q is not 1s to 24h", text)
	}
	return ttl, err
}

func (a *API) forceRelease(ctx context.Context, in *forceInput) (*forcedOutput, error) {
	if err := checkNames("lock", in.Lock); err != nil {
		return nil, err
	}
	why := in.Body.Reason
	if err := checkText("reason", why, 1000); err != nil {
		return nil, err
	}
	by := caller(ctx)
	if len(by) > 128 {
		by = "http"
	}
	d := deedOf(ctx)
	d.object, d.detail = in.Lock+slotText(in.Body.Slot), why
	was, err := a.locks.ForceRelease(ctx, in.Lock, in.Body.Slot, by, why)
	if err != nil {
		return nil, err
	}
	return &forcedOutput{newLockJSON(&was)}, nil
}
