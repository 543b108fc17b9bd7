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
	// ErrNotFound is a Problem of status 404.
	ErrNotFound = errors.New("client: not found")

	// ErrConflict is a Problem of status 409: the current state does not allow the request. For claims
	// it means that none of them is held any more.
	ErrConflict = errors.New("client: conflict with the current state")
)

// A Problem is the daemon's refusal of a request: a problem detail (RFC 9457).
type Problem struct {
	Type     string         `json:"type"`
	Title    string         `json:"title"`
	Status   int            `json:"status"`
	Detail   string         `json:"detail"`
	Instance string         `json:"instance"`
	Errors   []FieldProblem `json:"errors"`

	request string
}

// A FieldProblem says what is wrong with one field.
type FieldProblem struct {
	Message  string `json:"message"`
	Location string `json:"location"` // such as body.max_attempts
}

// Error returns the request and what is wrong with it.
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

// Is reports whether p is one of the errors of this package.
func (p *Problem) Is(target error) bool {
	return target == ErrNotFound && p.Status == http.StatusNotFound ||
		target == ErrConflict && p.Status == http.StatusConflict
}

// readProblem reads an answer without success. A proxy may have sent a page instead of JSON.
func readProblem(r *call, answer *http.Response) error {
	p := &Problem{}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxProblem)) // a part of it is enough
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(text, p) != nil {
		p = &Problem{}
	}
	p.request, p.Status = r.method+" "+r.path, answer.StatusCode
	if p.Title == "" {
		p.Title = http.StatusText(answer.StatusCode)
	}
	return p
}

// status returns the status of a Problem, or 0.
func status(err error) int {
	var p *Problem
	if errors.As(err, &p) {
		return p.Status
	}
	return 0
}
