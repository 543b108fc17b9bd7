package push

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/queue"
)

const (
	// longestAnswer is how much of an answer is read: who sends more is not listened to.
	longestAnswer = 64 << 10

	longestQuote = 2000 // bytes of an answer in a job's error

	// longestRetryAfter is how long a job waits at the most because an answer says so.
	longestRetryAfter = 30 * 24 * time.Hour
)

// An answer is what a worker's endpoint has said.
type answer struct {
	status  int
	header  http.Header
	body    []byte // its beginning
	cut     bool   // there was more
	verdict verdict
}

// A verdict is what JSON in the body of an answer may say: workers that were written for
// Fireworq do.
type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// What a verdict's status may be. Others say nothing.
const (
	statusSuccess          = "success"
	statusFailure          = "failure"
	statusPermanentFailure = "permanent-failure"
)

// readAnswer reads as much of an answer as counts. One that breaks off is an error: what it
// was about to say is not known.
func readAnswer(r *http.Response) (a answer, err error) {
	a = answer{status: r.StatusCode, header: r.Header}
	if a.status < 200 { // it wants to speak something else, without an end
		return a, nil
	}
	a.body, err = io.ReadAll(io.LimitReader(r.Body, longestAnswer+1))
	if err != nil {
		return a, fmt.Errorf("HTTP %d, and the answer breaks off: %w", a.status, plain(err))
	}
	if len(a.body) > longestAnswer {
		a.body, a.cut = a.body[:longestAnswer], true
		return a, nil
	}
	if text := strings.TrimSpace(string(a.body)); strings.HasPrefix(text, "{") {
		_ = json.Unmarshal([]byte(text), &a.verdict) // else it says nothing
	}
	return a, nil
}

// state tells how the host is that has answered so.
func (a *answer) state() state {
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		return busy
	}
	return well
}

// outcome is what an answer makes of its job: nil, or an error as handlers return it.
func (a *answer) outcome(now time.Time) error {
	success := a.status >= 200 && a.status < 300
	said := a.verdict.Status
	if success && said != statusFailure && said != statusPermanentFailure {
		return nil
	}
	err := a.text()
	if a.status == http.StatusGone || success && said == statusPermanentFailure || strings.EqualFold(a.header.Get(headerNoRetry), "true") {
		return queue.Bury(err)
	}
	if after, ok := retryAfter(a.header, now); ok {
		return queue.RetryAfter(after, err)
	}
	return err
}

// text is the answer as a job's error has it.
func (a *answer) text() error {
	text := fmt.Sprintf("HTTP %d %s", a.status, http.StatusText(a.status))
	if a.status >= 300 && a.status < 400 {
		text += " (redirects are not followed)"
	}
	switch {
	case a.verdict.Status != "":
		text += ": " + a.verdict.Status
		if a.verdict.Message != "" {
			text += ": " + a.verdict.Message
		}
	case len(a.body) > longestQuote:
		text += ": " + string(a.body[:longestQuote]) + "…"
	case len(a.body) > 0:
		text += ": " + string(a.body)
	}
	return errors.New(strings.TrimSpace(text))
}

// retryAfter reads the header of that name: seconds, or a time by the answerer's clock, if it
// says what that is.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, longestRetryAfter), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(0, at.Sub(now)), longestRetryAfter), true
}
