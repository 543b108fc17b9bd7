package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/httpapi/push"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
	"github.com/dbcron/dbcron/wire"
)

// troubles returns troubles as webhooks get them.
func troubles(all []Trouble) []wire.Trouble {
	return wireof.Each(all, func(x *Trouble) wire.Trouble {
		w := wire.Trouble{
			Subject: x.Subject, Name: x.Name, Problem: x.Problem, Detail: x.Detail, Run: wire.ID(x.Run), Due: instantOf(x.Due), Times: x.Times,
			Begun: instantOf(x.Begun), Last: instantOf(x.Last), Well: instantOf(x.Well), Output: x.output,
		}
		if w.Subject == "dead" || w.Subject == "behind" {
			w.Subject = "queue"
		}
		return w
	})
}

// instantOf returns the instant of a number of µs; 0 is none.
func instantOf(us int64) wire.Instant {
	if us == 0 {
		return wire.Instant{}
	}
	return wire.At(time.UnixMicro(us))
}

// webhook posts a message. It does not follow redirects, and checks each address when it is dialed, as for
// pushed jobs.
func (n *Notifier) webhook(ctx context.Context, m *Message, id string) error {
	body, err := json.Marshal(wire.Notification{
		Type: "dbcron.notification", Timestamp: instantOf(m.At), Text: m.Subject(), Data: wire.NotificationData{
			Test: m.Test, Failed: m.Failed, Recovered: m.Well, Problems: troubles(m.Troubles), Well: troubles(m.Recovered),
		},
	})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, m.Target, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL cannot be requested")
	}
	now, err := scheduler.Clock(ctx, n.db)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "dbcron/"+n.opt.Version)
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	if n.opt.Secret != "" {
		signature, err := push.Sign(n.opt.Secret, id, now, body)
		if err != nil {
			return err
		}
		r.Header.Set("webhook-signature", signature)
	}
	client := &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: n.opt.Hosts.Dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 10 * time.Second, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
		},
	}
	answer, err := client.Do(r)
	if err != nil {
		return push.WithoutAddresses(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 300)) // only for the error message
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("the webhook answered %d: %s", answer.StatusCode, plain.Cut(string(text), 200))
	}
	return nil
}
