package client

import (
	"context"
	"net/http"

	"github.com/dbcron/dbcron/wire"
)

// Findings lists what is wrong with the work, the worst first, and with what was acknowledged.
func (c *Client) Findings(ctx context.Context) ([]wire.Finding, error) {
	return all(ctx, c, "/findings", func(p *struct{ Findings []wire.Finding }) []wire.Finding { return p.Findings })
}

// AcknowledgeFinding has a finding no longer count until it changes. The reason is for people. The error is [ErrNotFound] if no
// finding has the ID any more.
func (c *Client) AcknowledgeFinding(ctx context.Context, id, reason string) error {
	return c.do(ctx, &call{
		method: http.MethodPost, path: path("findings", id, "acknowledge"),
		in: map[string]string{"reason": reason}, again: true,
	})
}

// ReopenFinding has a finding count again that was acknowledged.
func (c *Client) ReopenFinding(ctx context.Context, id string) error {
	return c.do(ctx, &call{method: http.MethodPost, path: path("findings", id, "reopen"), again: true})
}
