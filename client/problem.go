package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

var (
	// ErrNotFound is a problem of status 404.
	ErrNotFound = errors.New("client: there is no such thing")

	// ErrConflict is a problem of status 409: what is there does not allow it. With claims
	// it says that none of them is held any more.
	ErrConflict = errors.New("client: it cannot be done as things are")
)

// A Problem is an answer of the daemon that refuses a request: a problem detail (RFC 9457).
type Problem struct {
	Type     string         `json:"type"`
	Title    string         `json:"title"`
	Status   int            `json:"status"`
	Detail   string         `json:"detail"`
	Instance string         `json:"instance"`
	Errors   []FieldProblem `json:"errors"`

	request string
}

// A FieldProblem is what is wrong with one field.
type FieldProblem struct {
	Message  string `json:"message"`
	Location string `json:"location"` // such as body.max_attempts
}

// Error tells the request, and what is wrong with it.
func (p *Problem) Error() string {
	text := fmt.Sprintf("client: %s: %d %s", p.request, p.Status, p.Title)
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	for _, e := range p.Errors {
		if !strings.Contains(p.Detail, e.Message) {
			text += fmt.Sprintf("; %s: %s", e.Location, e.Message)
		}
	}
	return text
}

// Is tells whether it is one of the errors of this package.
func (p *Problem) Is(target error) bool {
	return target == ErrNotFound && p.Status == http.StatusNotFound ||
		target == ErrConflict && p.Status == http.StatusConflict
}

// readProblem reads an answer that is none of success. What is before a daemon may answer
// with a page.
func readProblem(r *call, answer *http.Response) error {
	p := &Problem{}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, mostProblem)) // what there is says enough
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(text, p) != nil {
		p = &Problem{}
	}
	p.request, p.Status = r.method+" "+r.path, answer.StatusCode
	if p.Title == "" {
		p.Title = http.StatusText(answer.StatusCode)
	}
	return p
}

// status is that of a problem, or 0.
func status(err error) int {
	var p *Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}
