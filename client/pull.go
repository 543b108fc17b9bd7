package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// A Claimed is a job that has been given to this client, to be done before its lease ends.
type Claimed struct {
	Token       string          `json:"token"`
	ID          string          `json:"id"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"kind"`
	Key         string          `json:"key"`
	Priority    string          `json:"priority"`
	Payload     json.RawMessage `json:"payload"`
	Binary      []byte          `json:"payload_base64"`
	Attempt     int             `json:"attempt"` // 1 is the first
	MaxAttempts int             `json:"max_attempts"`
	Crashes     int             `json:"crashes"`
	Enqueued    time.Time       `json:"enqueued"`
	Group       string          `json:"group"`
	CallbackOf  string          `json:"callback_of"`
	Trace       string          `json:"trace"`
}

// Decode reads the payload, which must be JSON.
func (j *Claimed) Decode(v any) error { return json.Unmarshal(j.Payload, v) }

// ClaimOptions adjusts a claim.
type ClaimOptions struct {
	Max   int           // how many jobs at the most, up to 1000; default: 1
	Lease time.Duration // how long they are this client's without a heartbeat; default: 30s
	Wait  time.Duration // how long to wait for a job, up to 30s; default: not at all
}

// Claim asks for jobs of a queue. It is sent once: jobs whose answer is lost are given out
// again when their lease ends.
func (c *Client) Claim(ctx context.Context, queue string, opt ClaimOptions) ([]Claimed, error) {
	in := struct {
		Max   int    `json:"max,omitempty"`
		Lease string `json:"lease,omitempty"`
		Wait  string `json:"wait,omitempty"`
	}{opt.Max, durationText(opt.Lease), durationText(opt.Wait)}
	var out struct{ Jobs []Claimed }
	err := c.do(ctx, &call{method: http.MethodPost, path: path("queues", queue, "claim"), in: in, out: &out, wait: opt.Wait})
	return out.Jobs, err
}

// A Done is a claim whose job is done.
type Done struct {
	Token  string `json:"token"`
	Result any    `json:"result,omitempty"` // becomes JSON; only for jobs of a group
}

// A Failed is a claim whose job has failed.
type Failed struct {
	Token   string
	Error   string
	After   time.Duration // the next attempt is not before; default: as the queue's settings say
	Dead    bool          // it is not tried again, and kept with the dead
	Discard bool          // it is not tried again, and leaves no trace
}

// Settled says what has become of claims. Those that are lost are not this client's any
// more: somebody else does their jobs, or has done them. After an answer that was lost it
// can also be this client who did.
type Settled struct {
	Done int      `json:"done"`
	Lost []string `json:"lost"` // tokens
}

// A reference names a claim, where there is no more to say.
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

// Complete ends claims, up to 1000, whose jobs are done. If all of them are lost, the error
// is [ErrConflict]; so it is with the other calls about claims.
func (c *Client) Complete(ctx context.Context, claims ...Done) (Settled, error) {
	return c.settle(ctx, "complete", map[string]any{"claims": claims})
}

// Fail ends claims, up to 1000, whose jobs have failed.
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
		all[i] = wire{f.Token, f.Error, durationText(f.After), f.Dead, f.Discard}
	}
	return c.settle(ctx, "fail", map[string]any{"claims": all})
}

// Heartbeat gives claims, up to 1000, a fresh lease. It has to reach the daemon that gave
// them out.
func (c *Client) Heartbeat(ctx context.Context, lease time.Duration, tokens ...string) (Settled, error) {
	in := map[string]any{"claims": references(tokens)}
	if lease > 0 {
		in["lease"] = durationText(lease)
	}
	return c.settle(ctx, "heartbeat", in)
}

// Release gives claims, up to 1000, back. It does not count as an attempt. It has to reach
// the daemon that gave them out.
func (c *Client) Release(ctx context.Context, tokens ...string) (Settled, error) {
	return c.settle(ctx, "release", map[string]any{"claims": references(tokens)})
}

// settle is sent again: a claim ends once.
func (c *Client) settle(ctx context.Context, what string, in map[string]any) (Settled, error) {
	var s Settled
	err := c.do(ctx, &call{method: http.MethodPost, path: path("claims", what), in: in, out: &s, again: true})
	return s, err
}
