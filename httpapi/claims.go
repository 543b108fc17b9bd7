package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/jobfield"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

type completeInput struct {
	Body struct {
		Claims []wire.CompletedClaim `json:"claims" minItems:"1" maxItems:"1000" nullable:"false" doc:"The claims."`
	} `nameHint:"CompleteRequest"`
}

type failInput struct {
	Body struct {
		Claims []wire.FailedClaim `json:"claims" minItems:"1" maxItems:"1000" nullable:"false" doc:"The claims."`
	} `nameHint:"FailRequest"`
}

type heartbeatInput struct {
	Body struct {
		Claims []wire.ClaimToken `json:"claims" minItems:"1" maxItems:"1000" nullable:"false" doc:"The claims."`
		Lease  wire.Duration     `json:"lease,omitempty" maxLength:"40" doc:"The claims last this long from now, from 1s to 12h. Default: as long as when the jobs were claimed." example:"30s"`
	} `nameHint:"HeartbeatRequest"`
}

type releaseInput struct {
	Body struct {
		Claims []wire.ClaimToken `json:"claims" minItems:"1" maxItems:"1000" nullable:"false" doc:"The claims."`
	} `nameHint:"ReleaseRequest"`
}

type settledOutput struct{ Body wire.SettledClaims }

// claims registers the operations on claimed jobs.
func (a *API) claims() {
	const anywhere = " It can be sent to any daemon."
	const there = " It has to be sent to the daemon that gave them out: another one answers 421, and names it."
	const lost = " Those that are not claimed any more are listed as lost; when all are, the answer is 409."
	const again = " If the answer is lost, the same request to the same daemon gets the same answer."
	register(a, operation{
		id: "complete-claims", method: http.MethodPost, path: "/claims/complete", tag: "claims", scope: ScopeWork, body: sizeLarge,
		errors:  []int{http.StatusConflict},
		summary: "Complete claimed jobs",
		more:    "The answer comes after the commit." + anywhere + lost + again,
	}, a.complete)
	register(a, operation{
		id: "fail-claims", method: http.MethodPost, path: "/claims/fail", tag: "claims", scope: ScopeWork, body: sizeLarge,
		errors:  []int{http.StatusConflict},
		summary: "Fail claimed jobs",
		more:    "They are retried by the policy of their queue." + anywhere + lost + again,
	}, a.fail)
	register(a, operation{
		id: "heartbeat-claims", method: http.MethodPost, path: "/claims/heartbeat", tag: "claims", scope: ScopeWork, body: sizeTokens,
		errors:  []int{http.StatusConflict, http.StatusMisdirectedRequest},
		summary: "Extend the leases of claimed jobs",
		more:    "Their leases begin anew. A timeout that the job or its queue has stays as it is." + there + lost,
	}, a.heartbeat)
	register(a, operation{
		id: "release-claims", method: http.MethodPost, path: "/claims/release", tag: "claims", scope: ScopeWork, body: sizeTokens,
		errors:  []int{http.StatusConflict, http.StatusMisdirectedRequest},
		summary: "Give claimed jobs back",
		more:    "Others get them, and it does not count as an attempt." + there + lost,
	}, a.release)
}

// A claimed is a claim in a request, and the outcome that the request reports.
type claimed struct {
	token  string
	key    secret
	forged bool // no daemon of ours signed it: it counts as lost
	claim  queue.Claim
	err    error // the job's outcome
	result json.RawMessage
	said   [sha256.Size]byte // of the outcome; zero: it is not one that may be repeated
}

// readClaims parses tokens. It refuses duplicates, and those of queues that the sender may not claim from.
func (p *pulls) readClaims(ctx context.Context, tokens []string) ([]claimed, error) {
	if err := p.signer.ready(ctx); err != nil {
		return nil, err
	}
	all, at := make([]claimed, len(tokens)), map[secret]int{}
	for i, token := range tokens {
		c, ok := p.signer.read(token)
		if !ok {
			return nil, invalid(fmt.Sprintf("claims[%d].token", i), "it is not the token of a claim")
		}
		if other, twice := at[c.key]; twice {
			return nil, invalid(fmt.Sprintf("claims[%d].token", i), "it is that of claims[%d], too", other)
		}
		if err := mayUseQueues(ctx, queue.Job{Queue: c.claim.Queue}); err != nil {
			return nil, err
		}
		at[c.key], all[i] = i, c
	}
	return all, nil
}

func tokensOf(list []wire.ClaimToken) []string {
	tokens := make([]string, len(list))
	for i, c := range list {
		tokens[i] = c.Token
	}
	return tokens
}

func (a *API) complete(ctx context.Context, in *completeInput) (*settledOutput, error) {
	tokens := make([]string, len(in.Body.Claims))
	for i, c := range in.Body.Claims {
		tokens[i] = c.Token
	}
	all, err := a.pulls.readClaims(ctx, tokens)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].said = saying("completed", in.Body.Claims[i])
		result := in.Body.Claims[i].Result
		if result == nil {
			continue
		}
		all[i].result = json.RawMessage(result)
		field := fmt.Sprintf("claims[%d].result", i)
		if _, err := jobfield.EncodeResult(all[i].result); err != nil {
			return nil, invalid(field, "%v", err)
		}
	}
	return a.pulls.settle(ctx, all)
}

func (a *API) fail(ctx context.Context, in *failInput) (*settledOutput, error) {
	tokens := make([]string, len(in.Body.Claims))
	for i, c := range in.Body.Claims {
		tokens[i] = c.Token
	}
	all, err := a.pulls.readClaims(ctx, tokens)
	if err != nil {
		return nil, err
	}
	for i := range in.Body.Claims {
		all[i].said = saying("failed", in.Body.Claims[i])
		if all[i].err, err = failed(&in.Body.Claims[i], fmt.Sprintf("claims[%d].", i)); err != nil {
			return nil, err
		}
	}
	return a.pulls.settle(ctx, all)
}

// failed returns the outcome of a failed job.
func failed(f *wire.FailedClaim, at string) (outcome, err error) {
	why := errors.New("its worker gave no reason")
	if f.Error != "" {
		why = errors.New(f.Error)
	}
	after, err := readDuration(at+"retry_after", f.RetryAfter)
	switch {
	case err != nil:
		return nil, err
	case f.RetryAfter != "" && (f.Dead || f.Discard):
		return nil, invalid(at+"retry_after", "there is no next attempt at what is dead or discarded; send one of them")
	case f.Dead && f.Discard:
		return nil, invalid(at+"discard", "it is to be dead as well; send one of them")
	case f.Dead:
		return queue.Bury(why), nil
	case f.Discard:
		return queue.Discard(why), nil
	case f.RetryAfter != "":
		return queue.RetryAfter(after, why), nil
	}
	return why, nil
}

func (a *API) release(ctx context.Context, in *releaseInput) (*settledOutput, error) {
	all, err := a.pulls.readClaims(ctx, tokensOf(in.Body.Claims))
	if err == nil {
		err = a.pulls.here(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].err = queue.Snooze(0)
	}
	return a.pulls.settle(ctx, all)
}

func (a *API) heartbeat(ctx context.Context, in *heartbeatInput) (*settledOutput, error) {
	all, err := a.pulls.readClaims(ctx, tokensOf(in.Body.Claims))
	lease := time.Duration(0)
	if err == nil && in.Body.Lease != "" {
		lease, err = readLease(in.Body.Lease)
	}
	if err == nil {
		err = a.pulls.here(ctx, all)
	}
	if err != nil {
		return nil, err
	}
	return a.pulls.extend(all, lease)
}

// here returns a problem if one of the claims belongs to another live daemon.
func (p *pulls) here(ctx context.Context, all []claimed) error {
	others := map[string]bool{}
	p.mu.Lock()
	for i := range all {
		if node := all[i].claim.Node; !all[i].forged && p.nodes[node] == nil {
			others[node] = true
		}
	}
	p.mu.Unlock()
	for node := range others {
		lives, err := p.admin.NodeLives(ctx, node)
		if err != nil {
			return err
		}
		if lives {
			return problem(http.StatusMisdirectedRequest,
				fmt.Sprintf("the daemon %s has given the job out; send this to it. Nothing was done", daemonOf(node)))
		}
	}
	return nil
}

// extend renews leases; 0 means their previous duration.
func (p *pulls) extend(all []claimed, lease time.Duration) (*settledOutput, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lost []string
	for i := range all {
		g := p.given[all[i].key]
		if g == nil || all[i].forged || g.job.Context().Err() != nil {
			lost = append(lost, all[i].token)
			continue
		}
		if lease > 0 {
			g.lease = lease
		}
		g.until = instant.Now().Add(g.lease)
		g.timer.Reset(g.lease)
	}
	return settled(len(all), lost)
}

// settle records the outcomes of jobs: first those claimed from here, in batches, then those claimed
// from other daemons.
func (p *pulls) settle(ctx context.Context, all []claimed) (*settledOutput, error) {
	errs := make([]error, len(all))
	mine, others := map[*source][]int{}, []int(nil)
	outcomes := make([]queue.Outcome, len(all))
	begun, same := make([]*report, len(all)), make([]*report, len(all))
	p.mu.Lock()
	for i := range all {
		c := &all[i]
		g := p.given[c.key]
		if !c.forged {
			begun[i], same[i] = p.reports.begin(c)
		}
		switch {
		case same[i] != nil: // the answer was lost
		case c.forged:
			errs[i] = queue.ErrLost
		case g != nil:
			g.from.users++ // until it is written
			p.take(g)
			outcomes[i] = queue.Outcome{Delivery: g.job, Err: c.err}
			mine[g.from] = append(mine[g.from], i)
		case p.nodes[c.claim.Node] != nil:
			errs[i] = queue.ErrLost // its lease has expired, or it was settled before
		default:
			others = append(others, i)
		}
	}
	p.mu.Unlock()
	for s, indexes := range mine {
		p.settleHere(ctx, s, all, indexes, outcomes, errs)
	}
	if len(others) > 0 {
		away := make([]queue.ClaimOutcome, len(others))
		for k, i := range others {
			away[k] = queue.ClaimOutcome{Claim: all[i].claim, Err: all[i].err, Result: all[i].result}
		}
		for k, err := range p.queues.SettleClaims(ctx, away) {
			errs[others[k]] = err
		}
	}
	p.mu.Lock()
	for i := range all {
		if begun[i] != nil {
			p.reports.end(&all[i], begun[i], errs[i])
		}
	}
	p.mu.Unlock()
	for i, r := range same {
		if r != nil {
			errs[i] = r.wait(ctx)
		}
	}
	var lost []string
	for i, err := range errs {
		switch {
		case errors.Is(err, queue.ErrLost):
			lost = append(lost, all[i].token)
		case err != nil:
			return nil, err
		}
	}
	return settled(len(all), lost)
}

// settleHere records the outcomes of one source's jobs.
func (p *pulls) settleHere(ctx context.Context, s *source, all []claimed, indexes []int, outcomes []queue.Outcome, errs []error) {
	defer p.leave(s, len(indexes), false)
	part := make([]queue.Outcome, len(indexes))
	for k, i := range indexes {
		part[k] = outcomes[i]
		if all[i].result != nil {
			errs[i] = part[k].Delivery.SetResult(all[i].result)
		}
	}
	for k, err := range s.receiver.Settle(ctx, part) {
		errs[indexes[k]] = err
	}
}

// settled returns the answer for n claims, of which some are lost.
func settled(n int, lost []string) (*settledOutput, error) {
	if len(lost) == n {
		return nil, problem(http.StatusConflict, "none of the jobs is claimed any more: their leases have ended, or somebody else has ended them")
	}
	out := &settledOutput{}
	out.Body.Done, out.Body.Lost = n-len(lost), append([]string{}, lost...)
	return out, nil
}
