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
	// smallBody is how large a body may be where nothing large is ever sent.
	smallBody = 64 << 10

	// tokensBody has room for the tokens of 1000 claims.
	tokensBody = 4 << 20

	// smallBodies and largeBodies bound the bytes of all bodies that are in memory.
	smallBodies = 4 << 20
	largeBodies = 16 << 20

	// bodyPatience is how long a request waits for others to end.
	bodyPatience = 10 * time.Second
)

// bodies bound how much memory requests take together: a request waits until there is room for
// its body, which it gives back when it has been answered. To wait is better than to refuse at
// once, since requests take milliseconds and a burst of large ones is no fault of anybody's.
// Small bodies have room of their own, so that who sends large ones slowly holds up none of
// them.
type bodies struct {
	small, large *semaphore.Weighted
	largeSize    int64
	patience     time.Duration
}

func newBodies(maxBody int64) *bodies {
	size := max(largeBodies, maxBody) // one of the largest fits
	return &bodies{small: semaphore.NewWeighted(smallBodies), large: semaphore.NewWeighted(size), largeSize: size, patience: bodyPatience}
}

// A room is what a body takes of the memory for bodies.
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

// shrink gives back what a body did not need whose length was not told before.
func (r *room) shrink(bytes int64) {
	r.of.Release(r.bytes - bytes)
	r.bytes = bytes
}

// leave gives back all. A nil room has nothing.
func (r *room) leave() {
	if r != nil {
		r.of.Release(r.bytes)
	}
}

// readBody reads a body as a whole, and checks it, before anything is done with it.
func (a *API) readBody(w *reply, r *http.Request, to *route) *huma.ErrorModel {
	if r.ContentLength != 0 {
		if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
			return problem(http.StatusUnsupportedMediaType, "the body has to be JSON, and declared so: Content-Type: application/json",
				&huma.ErrorDetail{Location: "header.Content-Type", Message: "it is not application/json"})
		}
		r.Header.Set("Content-Type", "application/json") // huma takes it in small letters only
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
		return problem(http.StatusServiceUnavailable, "other requests take all the memory that there is for bodies; send it again in a moment")
	}
	w.room = taken
	text, p := readAll(w, r, limit)
	if p != nil {
		return p
	}
	taken.shrink(int64(len(text)))
	r.Body = &handed{text}
	// The server's time for reading is over soon, and would end the handler's context.
	_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{}) // a test's writer has none
	switch {
	case len(text) > 0:
		return checkBody(a.docs.OpenAPI().Components.Schemas, to.body, text)
	case to.needsBody:
		return problem(http.StatusBadRequest, "there has to be a body, which is JSON",
			&huma.ErrorDetail{Location: "body", Message: "it is missing"})
	}
	return nil
}

// readAll reads the bytes of a body.
func readAll(w *reply, r *http.Request, limit int64) ([]byte, *huma.ErrorModel) {
	var text bytes.Buffer
	if r.ContentLength > 0 {
		text.Grow(int(r.ContentLength) + bytes.MinRead) // so that it need not grow, and be copied
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
			&huma.ErrorDetail{Location: "body", Message: "it is not whole"})
	}
	return text.Bytes(), nil
}

func tooLarge(limit int64) *huma.ErrorModel {
	return problem(http.StatusRequestEntityTooLarge,
		fmt.Sprintf("the body is larger than %d bytes, the most that this operation takes; store what is large elsewhere and send its name", limit),
		&huma.ErrorDetail{Location: "body", Message: "it is too large"})
}

// A handed body is forgotten when it has been read: huma has a copy then.
type handed struct{ text []byte }

// Read reads a part.
func (h *handed) Read(p []byte) (n int, err error) {
	if n = copy(p, h.text); n == len(h.text) {
		err = io.EOF
	}
	h.text = h.text[n:]
	return n, err
}

// WriteTo hands all of it over at once.
func (h *handed) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(h.text)
	h.text = nil
	return int64(n), err
}

// Close forgets it.
func (h *handed) Close() error {
	h.text = nil
	return nil
}
