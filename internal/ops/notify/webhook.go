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
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/scheduler"
)

// A hook is the body of a webhook. Chat services display its text.
type hook struct {
	Type      string   `json:"type"`
	Timestamp string   `json:"timestamp"`
	Text      string   `json:"text"`
	Data      hookData `json:"data"`
}

type hookData struct {
	Test      bool      `json:"test,omitempty"`
	Failed    int       `json:"failed"`
	Recovered int       `json:"recovered"`
	Problems  []hookOne `json:"problems"`
	Well      []hookOne `json:"well"`
}

type hookOne struct {
	Subject string `json:"subject"`
	Name    string `json:"name"`
	Problem string `json:"problem"`
	Detail  string `json:"detail,omitempty"`
	Run     int64  `json:"run_id,omitempty"`
	Due     string `json:"due,omitempty"`
	Times   int64  `json:"times"`
	Begun   string `json:"begun"`
	Last    string `json:"last"`
	Well    string `json:"well,omitempty"`
	Output  string `json:"output,omitempty"`
}

func hookOnes(all []Trouble) []hookOne {
	at := func(us int64) string {
		if us == 0 {
			return ""
		}
		return time.UnixMicro(us).UTC().Format(time.RFC3339Nano)
	}
	ones := []hookOne{}
	for i := range all {
		x := &all[i]
		subject := x.Subject
		if subject != "schedule" {
			subject = "queue"
		}
		ones = append(ones, hookOne{
			subject, x.Name, x.Problem, x.Detail, x.Run, at(x.Due), x.Times, at(x.Begun),
			at(x.Last), at(x.Well), x.output,
		})
	}
	return ones
}

// webhook posts a message. It does not follow redirects, and checks each address when it is dialed, as for
// pushed jobs.
func (n *Notifier) webhook(ctx context.Context, m *Message, id string) error {
	body, err := json.Marshal(hook{
		Type: "dbcron.notification", Timestamp: time.UnixMicro(m.At).UTC().Format(time.RFC3339Nano), Text: m.Subject(),
		Data: hookData{m.Test, m.Failed, m.Well, hookOnes(m.Troubles), hookOnes(m.Recovered)},
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
