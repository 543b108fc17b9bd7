package client

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrSignature means that a request was not signed with any of the secrets, or was
	// changed on its way.
	ErrSignature = errors.New("client: the signature is not good")

	// ErrTimestamp means that a request was signed too long ago, or in the future: it may
	// have been recorded and sent again, or one of the two clocks is wrong.
	ErrTimestamp = errors.New("client: the signature's time is too far off")
)

// usualTolerance is how far the clocks of the two hosts may be apart.
const usualTolerance = 5 * time.Minute

// Verify checks the signature of a request that a daemon has pushed, in the way of Standard
// Webhooks: the headers webhook-id, webhook-timestamp and webhook-signature. The secrets are
// such as whsec_…; while one is replaced by another there are two. The body is as it was
// sent, byte for byte. tolerance is how old the signature may be; 0 is five minutes.
func Verify(secrets []string, header http.Header, body []byte, tolerance time.Duration) error {
	return verifyAt(time.Now(), secrets, header, body, tolerance) //nolint:forbidigo // who receives has no database's clock
}

func verifyAt(now time.Time, secrets []string, header http.Header, body []byte, tolerance time.Duration) error {
	if len(secrets) == 0 {
		return errors.New("client: there is no secret to verify with")
	}
	if tolerance == 0 {
		tolerance = usualTolerance
	}
	id, stamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if id == "" || err != nil || seconds < 0 || seconds > math.MaxInt32*1000 {
		return ErrSignature
	}
	if off := now.Sub(time.Unix(seconds, 0)).Abs(); off > tolerance {
		return ErrTimestamp
	}
	good := false
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return errors.New("client: a secret is whsec_ and base64 behind it")
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, stamp)
		mac.Write(body)
		want := mac.Sum(nil)
		for _, one := range strings.Fields(header.Get("webhook-signature")) {
			text, isV1 := strings.CutPrefix(one, "v1,")
			got, err := base64.StdEncoding.DecodeString(text)
			if isV1 && err == nil && hmac.Equal(got, want) { // takes as long whatever differs
				good = true
			}
		}
	}
	if !good {
		return ErrSignature
	}
	return nil
}

// A Delivery is a job that a daemon has pushed.
type Delivery struct {
	ID          string // of the job, and of all its attempts
	Queue       string
	Kind        string
	Key         string
	Attempt     int // 1 is the first
	MaxAttempts int
	Deadline    time.Time // when the daemon waits no longer, by the database's clock
	Trace       string
	JSON        bool // what the payload is
	Payload     []byte
}

// Decode reads the payload, which must be JSON.
func (d *Delivery) Decode(v any) error { return json.Unmarshal(d.Payload, v) }

// PushOptions adjusts a PushHandler. Secrets and Handle are required.
type PushOptions struct {
	Secrets   []string
	Handle    func(ctx context.Context, d *Delivery) error
	Tolerance time.Duration // of clocks: see [Verify]
	MaxBody   int64         // bytes; default: 16 MiB
}

// PushHandler returns what a daemon can push jobs to. An error of Handle has the job tried
// again, as the queue's settings say, or as [RetryAfter] does; with [Dead] and [Discard] it
// goes to the dead. The context of Handle ends when the daemon waits no longer.
func PushHandler(opt PushOptions) http.Handler {
	if opt.MaxBody == 0 {
		opt.MaxBody = 16 << 20
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "jobs are sent by POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, opt.MaxBody))
		if err != nil {
			http.Error(w, "the body could not be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		if err := Verify(opt.Secrets, r.Header, body, opt.Tolerance); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		d := deliveryOf(r, body)
		ctx := r.Context()
		if !d.Deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d.Deadline.Sub(sentAt(r.Header)))
			defer cancel()
		}
		_, err = guarded(func() (struct{}, error) { return struct{}{}, opt.Handle(ctx, d) })
		answerPush(w, err)
	})
}

// sentAt is when a request was sent, by the sender's clock, as its deadline is: this host's may
// be ahead. The signature was verified, so it is a time.
func sentAt(h http.Header) time.Time {
	seconds, _ := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	return time.Unix(seconds, 0)
}

// answerPush tells the daemon what came of a job.
func answerPush(w http.ResponseWriter, err error) {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	o, code, said := outcomeOf(err), http.StatusInternalServerError, "failure"
	switch {
	case o.dead || o.discard:
		code, said = http.StatusGone, "permanent-failure"
	case o.after > 0:
		code = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(o.after.Seconds()))))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	text, _ := encode(map[string]string{"status": said, "message": o.Error()}) // two texts
	_, _ = w.Write(text)                                                       // the daemon may be gone
}

// deliveryOf reads what the headers say of a job. Names are escaped there.
func deliveryOf(r *http.Request, body []byte) *Delivery {
	name := func(header string) string {
		text := r.Header.Get(header)
		if plain, err := url.PathUnescape(text); err == nil {
			return plain
		}
		return text
	}
	number := func(header string) int {
		n, _ := strconv.Atoi(r.Header.Get(header)) // 0 if there is none
		return n
	}
	d := &Delivery{
		ID: r.Header.Get("Idempotency-Key"), Queue: name("Dbcron-Queue"), Kind: name("Dbcron-Kind"), Key: name("Dbcron-Key"),
		Attempt: number("Dbcron-Attempt"), MaxAttempts: number("Dbcron-Max-Attempts"), Trace: r.Header.Get("traceparent"),
		JSON: strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"), Payload: body,
	}
	d.Deadline, _ = time.Parse(time.RFC3339, r.Header.Get("Dbcron-Deadline")) // zero if there is none
	return d
}
