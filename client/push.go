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

	"github.com/dbcron/dbcron/internal/barrier"
)

var (
	// ErrSignature means that a request was signed with none of the secrets, or was changed on the
	// way.
	ErrSignature = errors.New("client: invalid signature")

	// ErrTimestamp means that a request's signature is too old or from the future: it may be a
	// replay, or one of the two clocks is wrong.
	ErrTimestamp = errors.New("client: the signature's time is too far off")
)

// usualTolerance is the default difference between the clocks of the two hosts.
const usualTolerance = 5 * time.Minute

// Verify checks the signature of a request that a daemon has pushed, according to Standard Webhooks:
// the headers webhook-id, webhook-timestamp and webhook-signature. The secrets look like whsec_…; pass
// two while one replaces the other. The body must be as it was sent, byte for byte. tolerance is the
// largest age of the signature; 0 means five minutes.
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
			return errors.New("client: invalid secret: it is whsec_ followed by base64")
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, stamp)
		mac.Write(body)
		want := mac.Sum(nil)
		for _, one := range strings.Fields(header.Get("webhook-signature")) {
			text, isV1 := strings.CutPrefix(one, "v1,")
			got, err := base64.StdEncoding.DecodeString(text)
			if isV1 && err == nil && hmac.Equal(got, want) { // in constant time
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
	ID          string // of the job, the same for all attempts
	Queue       string
	Kind        string
	Key         string
	Tenant      string
	Attempt     int // counts from 1
	MaxAttempts int
	Deadline    time.Time // when the daemon stops waiting, by the database's clock
	Trace       string
	JSON        bool // the payload is JSON
	Payload     []byte
}

// Decode reads the payload, which must be JSON.
func (d *Delivery) Decode(v any) error { return json.Unmarshal(d.Payload, v) }

// PushOptions configures PushHandler. Secrets and Handle are required.
type PushOptions struct {
	Secrets   []string
	Handle    func(ctx context.Context, d *Delivery) error
	Tolerance time.Duration // of the signature's age: see [Verify]
	MaxBody   int64         // bytes; default: 16 MiB
}

// PushHandler returns a handler for the jobs that a daemon pushes. If Handle returns an error, the job
// is retried according to the queue's settings or [RetryAfter]; after [Bury] and [Discard] it becomes a
// dead letter. Handle's context ends when the daemon stops waiting.
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
		_, err = barrier.Call(func() error { return opt.Handle(ctx, d) })
		answerPush(w, err)
	})
}

// sentAt returns when a request was sent, by the sender's clock. The deadline is by that clock, too,
// while this host's clock may be ahead. The signature was verified, so the header is a valid time.
func sentAt(h http.Header) time.Time {
	seconds, _ := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	return time.Unix(seconds, 0)
}

// answerPush answers the daemon with the outcome of a job.
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
	text, _ := encode(map[string]string{"status": said, "message": o.Error()}) // strings always encode
	_, _ = w.Write(text)                                                       // the daemon may be gone
}

// deliveryOf reads a job's headers, which escape names.
func deliveryOf(r *http.Request, body []byte) *Delivery {
	name := func(header string) string {
		text := r.Header.Get(header)
		if plain, err := url.PathUnescape(text); err == nil {
			return plain
		}
		return text
	}
	number := func(header string) int {
		n, _ := strconv.Atoi(r.Header.Get(header)) // 0 if missing
		return n
	}
	d := &Delivery{
		ID: r.Header.Get("Idempotency-Key"), Queue: name("Dbcron-Queue"), Kind: name("Dbcron-Kind"), Key: name("Dbcron-Key"), Tenant: name("Dbcron-Tenant"),
		Attempt: number("Dbcron-Attempt"), MaxAttempts: number("Dbcron-Max-Attempts"), Trace: r.Header.Get("traceparent"),
		JSON: strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"), Payload: body,
	}
	d.Deadline, _ = time.Parse(time.RFC3339, r.Header.Get("Dbcron-Deadline")) // zero if missing
	return d
}
