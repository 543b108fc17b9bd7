package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// A Claimed is a job that this client has claimed, to be done before its lease ends.
type Claimed struct {
	Token       string          `json:"token"`
	ID          string          `json:"id"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"kind"`
	Key         string          `json:"key"`
	Priority    string          `json:"priority"`
	Payload     json.RawMessage `json:"payload"`
	Binary      []byte          `json:"payload_base64"`
	Attempt     int             `json:"attempt"` // counts from 1
	MaxAttempts int             `json:"max_attempts"`
	Crashes     int             `json:"crashes"`
	Enqueued    time.Time       `json:"enqueued"`
	Group       string          `json:"group"`
	CallbackOf  string          `json:"callback_of"`
	Trace       string          `json:"trace"`
}

// Decode reads the payload, which must be JSON.
func (j *Claimed) Decode(v any) error { return json.Unmarshal(j.Payload, v) }

// ClaimOptions configures a claim.
type ClaimOptions struct {
	Max   int           // jobs at most, up to 1000; default: 1
	Lease time.Duration // of the jobs, until a heartbeat renews it; default: 30s
	Wait  time.Duration // how long to wait for a job, up to 30s; default: not at all
	Kinds []string      // of jobs, up to 100: the others stay for other workers; default: all
}

// Claim claims jobs of a queue. It does not retry: if the answer is lost, the jobs are claimable again
// when their lease ends.
func (c *Client) Claim(ctx context.Context, queue string, opt ClaimOptions) ([]Claimed, error) {
	in := struct {
		Max   int      `json:"max,omitempty"`
		Lease string   `json:"lease,omitempty"`
		Wait  string   `json:"wait,omitempty"`
		Kinds []string `json:"kinds,omitempty"`
	}{opt.Max, durationText(opt.Lease), durationText(opt.Wait), opt.Kinds}
	var out struct{ Jobs []Claimed }
	err := c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "claim"), in: in, out: &out, wait: opt.Wait})
	return out.Jobs, err
}

// A Done is a claim whose job is done.
type Done struct {
	Token  string `json:"token"`
	Result any    `json:"result,omitempty"` // encoded as JSON; only for jobs of a group
}

// A Failed is a claim whose job has failed.
type Failed struct {
	Token   string
	Error   string
	After   time.Duration // earliest time of the next attempt; default: the queue's backoff
	Bury    bool          // do not retry; keep it as a dead letter
	Discard bool          // do not retry; delete it
}

// Settled says what happened to claims. Lost claims no longer belong to this client: another worker
// does their jobs, or has done them. If an earlier answer was lost, that worker may be this client.
type Settled struct {
	Done int      `json:"done"`
	Lost []string `json:"lost"` // tokens
}

// A reference names a claim by its token only.
type reference struct {
	Token string `json:"token"`
}

func references(tokens []string) []reference {
	all := make([]reference, len(tokens))
	for i, t := range tokens {
		all[i].Token = t
	}
	return all
}

// Complete ends up to 1000 claims whose jobs are done. If all of them are lost, it returns
// [ErrConflict]. The other calls about claims do the same.
func (c *Client) Complete(ctx context.Context, claims ...Done) (Settled, error) {
	return c.settle(ctx, "complete", map[string]any{"claims": claims})
}

// Fail ends up to 1000 claims whose jobs have failed.
func (c *Client) Fail(ctx context.Context, claims ...Failed) (Settled, error) {
	type wire struct {
		Token      string `json:"token"`
		Error      string `json:"error"`
		RetryAfter string `json:"retry_after,omitempty"`
		Dead       bool   `json:"dead,omitempty"`
		Discard    bool   `json:"discard,omitempty"`
	}
	all := make([]wire, len(claims))
	for i, f := range claims {
		all[i] = wire{f.Token, f.Error, durationText(f.After), f.Bury, f.Discard}
	}
	return c.settle(ctx, "fail", map[string]any{"claims": all})
}

// Heartbeat renews the leases of up to 1000 claims. It must reach the daemon that granted them.
func (c *Client) Heartbeat(ctx context.Context, lease time.Duration, tokens ...string) (Settled, error) {
	in := map[string]any{"claims": references(tokens)}
	if lease > 0 {
		in["lease"] = durationText(lease)
	}
	return c.settle(ctx, "heartbeat", in)
}

// Release gives up to 1000 claims back, without counting an attempt. It must reach the daemon that
// granted them.
func (c *Client) Release(ctx context.Context, tokens ...string) (Settled, error) {
	return c.settle(ctx, "release", map[string]any{"claims": references(tokens)})
}

// settle may be retried, because a claim ends only once.
func (c *Client) settle(ctx context.Context, what string, in map[string]any) (Settled, error) {
	var s Settled
	err := c.do(ctx, &call{method: http.MethodPost, path: path("claims", what), in: in, out: &s, again: true})
	return s, err
}
