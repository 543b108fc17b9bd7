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
	"github.com/dbcron/dbcron/wire"
)

const (
	// longestAnswer limits how much of an answer is read, in bytes.
	longestAnswer = 64 << 10

	longestQuote = 2000 // bytes of an answer in a job's error

	// longestRetryAfter limits the delay that an answer may ask for.
	longestRetryAfter = 30 * 24 * time.Hour
)

// An answer is the answer of a worker's endpoint.
type answer struct {
	status  int
	header  http.Header
	body    []byte // its beginning
	cut     bool   // the rest was not read
	verdict verdict

	// Of several jobs, by their ids, and what is wrong with it.
	said     map[string]*wire.Answer
	unusable string
}

// A verdict is JSON in the body of an answer, as workers written for Fireworq send it.
type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

// Statuses of a verdict. Others have no meaning.
const (
	statusSuccess          = "success"
	statusFailure          = "failure"
	statusPermanentFailure = "permanent-failure"
)

// readAnswer reads the relevant part of an answer. A truncated answer is an error, because its verdict is
// unknown.
func readAnswer(r *http.Response) (a answer, err error) {
	a = answer{status: r.StatusCode, header: r.Header}
	if a.status < 200 { // an interim answer: it wants to switch protocols, without end
		return a, nil
	}
	a.body, err = io.ReadAll(io.LimitReader(r.Body, longestAnswer+1))
	if err != nil {
		return a, fmt.Errorf("HTTP %d, and the answer breaks off: %w", a.status, WithoutAddresses(err))
	}
	if len(a.body) > longestAnswer {
		a.body, a.cut = a.body[:longestAnswer], true
		return a, nil
	}
	if text := strings.TrimSpace(string(a.body)); strings.HasPrefix(text, "{") {
		_ = json.Unmarshal([]byte(text), &a.verdict) // no verdict otherwise
	}
	return a, nil
}

// state returns the state of the host that gave the answer.
func (a *answer) state() state {
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable {
		return busy
	}
	return well
}

// outcome returns the outcome of the job: nil, or an error as a handler returns it.
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

// text returns the answer as the error of its job.
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

// retryAfter parses the header Retry-After: seconds, or a time by the sender's clock if its Date is known.
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
