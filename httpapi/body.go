package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"
)

const (
	// smallBody limits the body of operations that need no more.
	smallBody = 64 << 10

	// tokensBody limits a body with the tokens of 1000 claims.
	tokensBody = 4 << 20

	// smallBodies and largeBodies limit the total size of all bodies in memory.
	smallBodies = 4 << 20
	largeBodies = 16 << 20

	// bodyPatience is how long a request waits for others to finish.
	bodyPatience = 10 * time.Second
)

// bodies limits the memory of all request bodies together. A request waits until there is room for its
// body, and frees it when it has been answered. Waiting is better than refusing at once, since requests
// take milliseconds, and a burst of large ones is nobody's fault. Small bodies have room of their own,
// so that slow senders of large bodies do not block them.
type bodies struct {
	small, large *semaphore.Weighted
	largeSize    int64
	patience     time.Duration
}

func newBodies(maxBody int64) *bodies {
	size := max(largeBodies, maxBody) // room for at least one of the largest
	return &bodies{small: semaphore.NewWeighted(smallBodies), large: semaphore.NewWeighted(size), largeSize: size, patience: bodyPatience}
}

// A room is the memory reserved for a body.
type room struct {
	of    *semaphore.Weighted
	bytes int64
}

// enter waits until there is room for a body.
func (b *bodies) enter(ctx context.Context, bytes int64) (*room, error) {
	r := &room{of: b.large, bytes: bytes}
	if bytes <= smallBody {
		r.of = b.small
	}
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	return r, r.of.Acquire(ctx, bytes)
}

// shrink frees what a body of undeclared length did not need.
func (r *room) shrink(bytes int64) {
	r.of.Release(r.bytes - bytes)
	r.bytes = bytes
}

// leave frees everything. A nil room has nothing.
func (r *room) leave() {
	if r != nil {
		r.of.Release(r.bytes)
	}
}

// readBody reads and checks the whole body before anything else happens.
func (a *API) readBody(w *reply, r *http.Request, to *route) *huma.ErrorModel {
	if r.ContentLength != 0 {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return problem(http.StatusUnsupportedMediaType, "the body must be JSON, and declared as such: Content-Type: application/json",
				&huma.ErrorDetail{Location: "header.Content-Type", Message: "it is not application/json"})
		}
		r.Header.Set("Content-Type", "application/json") // huma only accepts it in lower case
	}
	limit := to.maxBody(a.opt.MaxBody)
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	expected := r.ContentLength
	if expected < 0 {
		expected = limit
	}
	taken, err := a.bodies.enter(r.Context(), expected)
	if err != nil {
		w.Header().Set("Retry-After", "1")
		return problem(http.StatusServiceUnavailable, "other requests use all the memory for bodies; send it again in a moment")
	}
	w.room = taken
	text, p := readAll(w, r, limit)
	if p != nil {
		return p
	}
	taken.shrink(int64(len(text)))
	r.Body = &handed{text}
	// The server's read deadline is near, and would end the handler's context.
	_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{}) // a test's writer has none
	switch {
	case len(text) > 0:
		return checkBody(a.docs.OpenAPI().Components.Schemas, to.body, text)
	case to.needsBody:
		return problem(http.StatusBadRequest, "a JSON body is required",
			&huma.ErrorDetail{Location: "body", Message: "it is missing"})
	}
	return nil
}

// readAll reads the bytes of a body.
func readAll(w *reply, r *http.Request, limit int64) ([]byte, *huma.ErrorModel) {
	var text bytes.Buffer
	if r.ContentLength > 0 {
		text.Grow(int(r.ContentLength) + bytes.MinRead) // avoid growing and copying
	}
	_, err := text.ReadFrom(http.MaxBytesReader(w.ResponseWriter, r.Body, limit))
	var large *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return nil, problem(http.StatusRequestTimeout, "the body did not come in time")
	case err != nil:
		return nil, problem(http.StatusBadRequest, "the body could not be read to its end",
			&huma.ErrorDetail{Location: "body", Message: "it is incomplete"})
	}
	return text.Bytes(), nil
}

func tooLarge(limit int64) *huma.ErrorModel {
	return problem(http.StatusRequestEntityTooLarge,
		fmt.Sprintf("the body is larger than %d bytes, the most that this operation takes; store what is large elsewhere and send its name", limit),
		&huma.ErrorDetail{Location: "body", Message: "it is too large"})
}

// A handed body is released once it has been read: huma has a copy by then.
type handed struct{ text []byte }

// Read reads a part.
func (h *handed) Read(p []byte) (n int, err error) {
	if n = copy(p, h.text); n == len(h.text) {
		err = io.EOF
	}
	h.text = h.text[n:]
	return n, err
}

// WriteTo writes everything at once.
func (h *handed) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(h.text)
	h.text = nil
	return int64(n), err
}

// Close releases the body.
func (h *handed) Close() error {
	h.text = nil
	return nil
}
