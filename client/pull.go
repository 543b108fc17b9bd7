package client

import (
	"context"
	"net/http"
	"time"

	"github.com/dbcron/dbcron/wire"
)

// ClaimOptions configures a claim.
type ClaimOptions struct {
	Max   int           // jobs at most, up to 1000; default: 1
	Lease time.Duration // of the jobs, until a heartbeat renews it; default: 30s
	Wait  time.Duration // how long to wait for a job, up to 30s; default: not at all
	Kinds []string      // of jobs, up to 100: the others stay for other workers; default: all
}

// Claim claims jobs of a queue. It does not retry: if the answer is lost, the jobs are claimable again
// when their lease ends.
func (c *Client) Claim(ctx context.Context, queue string, opt ClaimOptions) ([]wire.Claim, error) {
	in := wire.ClaimRequest{Max: opt.Max, Lease: wire.GivenDuration(opt.Lease), Wait: wire.GivenDuration(opt.Wait), Kinds: opt.Kinds}
	var out wire.Claimed
	err := c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "claim"), in: in, out: &out, wait: opt.Wait})
	return out.Jobs, err
}

// A Done is a claim whose job is done.
type Done struct {
	Token  string `json:"token"`
	Result any    `json:"result,omitempty"` // encoded as JSON
}

// claimTokens are claims of which only the tokens are said.
func claimTokens(tokens []string) []wire.ClaimToken {
	all := make([]wire.ClaimToken, len(tokens))
	for i, t := range tokens {
		all[i].Token = t
	}
	return all
}

// Complete ends up to 1000 claims whose jobs are done. Lost claims no longer belong to this client:
// another worker does their jobs, or has done them. If an earlier answer was lost, that worker may be
// this client. If all of them are lost, it returns [ErrConflict]. The other calls about claims do the
// same.
func (c *Client) Complete(ctx context.Context, claims ...Done) (wire.SettledClaims, error) {
	return c.settle(ctx, "complete", map[string]any{"claims": claims})
}

// Fail ends up to 1000 claims whose jobs have failed.
func (c *Client) Fail(ctx context.Context, claims ...wire.FailedClaim) (wire.SettledClaims, error) {
	return c.settle(ctx, "fail", map[string]any{"claims": claims})
}

// Heartbeat renews the leases of up to 1000 claims. It must reach the daemon that granted them.
func (c *Client) Heartbeat(ctx context.Context, lease time.Duration, tokens ...string) (wire.SettledClaims, error) {
	in := map[string]any{"claims": claimTokens(tokens)}
	if lease > 0 {
		in["lease"] = wire.DurationOf(lease)
	}
	return c.settle(ctx, "heartbeat", in)
}

// Release gives up to 1000 claims back, without counting an attempt. It must reach the daemon that
// granted them.
func (c *Client) Release(ctx context.Context, tokens ...string) (wire.SettledClaims, error) {
	return c.settle(ctx, "release", map[string]any{"claims": claimTokens(tokens)})
}

// settle may be retried, because a claim ends only once.
func (c *Client) settle(ctx context.Context, what string, in map[string]any) (wire.SettledClaims, error) {
	var s wire.SettledClaims
	err := c.do(ctx, &call{method: http.MethodPost, path: path("claims", what), in: in, out: &s, again: true})
	return s, err
}
