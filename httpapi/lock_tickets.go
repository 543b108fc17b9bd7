package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/wire"
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
	Key  string `header:"Idempotency-Key" maxLength:"200" doc:"A secret text of the request's own. The same request sent again with it gets the same lease, renewed."`
	Body *struct {
		TTL   wire.Duration `json:"ttl,omitempty" maxLength:"40" doc:"The lock is held this long unless it is renewed, from 1s to 24h. Default: 30s." example:"30s"`
		Wait  wire.Duration `json:"wait,omitempty" maxLength:"40" doc:"The request waits this long for the lock, up to 30s. Default: not at all." example:"10s"`
		Owner string        `json:"owner,omitempty" maxLength:"100" doc:"Who holds the lock, for people. Default: the name of the request's token."`
		Meta  string        `json:"meta,omitempty" maxLength:"10000" doc:"What the holder says about itself, for people."`
	} `nameHint:"Acquire"`
}

type renewInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Body struct {
		Token string        `json:"token" minLength:"1" maxLength:"400" doc:"The token that the holder got when it acquired the lock."`
		TTL   wire.Duration `json:"ttl,omitempty" maxLength:"40" doc:"The lock is held this long from now on, from 1s to 24h, and not shorter than it was. Default: 30s." example:"30s"`
	} `nameHint:"Renew"`
}

type releaseLockInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Body struct {
		Token string `json:"token" minLength:"1" maxLength:"400" doc:"The token that the holder got when it acquired the lock."`
	} `nameHint:"ReleaseLock"`
}

type forceInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Body struct {
		Slot   int    `json:"slot,omitempty" minimum:"0" maximum:"1000000" doc:"The number of the slot, if it is a pool."`
		Reason string `json:"reason" minLength:"1" maxLength:"1000" doc:"Why it is released, for others to read later."`
		By     string `json:"by,omitempty" maxLength:"128" doc:"Who releases it, for others to read. Default: the name of the request's token."`
	} `nameHint:"ForceRelease"`
}

type ticketOutput struct{ Body wire.LockTicket }

type forcedOutput struct{ Body wire.Lock }

// A heldProblem is a problem that names the holder of a lock.
type heldProblem struct {
	huma.ErrorModel
	By    string       `json:"by,omitempty" doc:"The holder of the lock."`
	Until wire.Instant `json:"until,omitzero" doc:"When the holder's lease ends, unless it is renewed."`
	Left  float64      `json:"left_seconds,omitempty" doc:"How long that is from now, in seconds."`
}

func newHeldProblem(held *lock.HeldError) *heldProblem {
	return &heldProblem{*problem(http.StatusConflict, held.Error()), held.By, wire.At(held.Until), wireof.Seconds(held.Left)}
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
		return &ticketOutput{wireof.LockTicket(t)}, nil
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
		summary: "Free a lock by force, and show what it was",
		more:    "The holder learns of it when it next renews the lock, and goes on until then: make sure that it is dead or stopped. Nothing happens to a lock that is free.",
	}, a.forceRelease)
}

// heldAnswer documents the conflict of an operation.
func (a *API) heldAnswer(path string) {
	if a.docs == nil {
		return
	}
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
	return &ticketOutput{wireof.LockTicket(t)}, nil
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
func readTTL(name string, text wire.Duration) (time.Duration, error) {
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
	was, err := a.locks.ForceRelease(ctx, in.Lock, in.Body.Slot, cmp.Or(in.Body.By, by), why)
	if err != nil {
		return nil, err
	}
	d.nothing = was.State != lock.Held && was.State != lock.Kept && was.State != lock.Expired
	return &forcedOutput{wireof.Lock(&was)}, nil
}
