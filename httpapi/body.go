package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/semaphore"
)

const (
	// smallBody limits the body of operations that need no more.
	smallBody = 64 << 10

	// tokensBody limits a body with the tokens of 1000 claims.
	tokensBody = 4 << 20

	// smallBodies and largeBodies limit the total size of all bodies in memory. Of the latter an account's quarter is one body of
	// the default maximum.
	smallBodies = 4 << 20
	largeBodies = 64 << 20

	// workedOn limits the total size of large bodies that are decoded and worked on, which takes a multiple of their size.
	workedOn = 16 << 20

	// firstRead is what a body takes before anything of it has arrived, in bytes.
	firstRead = 512
)

// bodies limits the memory of all request bodies together. A request waits until there is room for its
// body. Waiting is better than refusing at once, since requests take milliseconds, and a burst of large
// ones is nobody's fault. Small bodies have room of their own, so that large ones do not block them.
type bodies struct {
	small, large *pool

	// working is taken for a whole large body once it has arrived, so nobody is waited for who could be slow.
	working     *semaphore.Weighted
	workingSize int64
}

func newBodies(maxBody int64) *bodies {
	size := max(workedOn, maxBody) // room for at least one of the largest
	return &bodies{
		small: newPool(smallBodies), large: newPool(max(largeBodies, 4*maxBody)),
		working: semaphore.NewWeighted(size), workingSize: size,
	}
}

// A taken is what a request's body has of the memory. The zero value has nothing.
type taken struct {
	room    *room
	working *semaphore.Weighted // nil: the body is small
	weight  int64               // of the body, there
}

// leave gives everything back. It may be called again.
func (t *taken) leave() {
	if t.working != nil {
		t.working.Release(t.weight)
		t.working = nil
	}
	t.room.leave()
	t.room = nil
}

// decoded is called when the body has been decoded, before the handler. What is decoded of a small body is small; a large one is
// what the handler works on.
func (t *taken) decoded() {
	if t.working == nil {
		t.leave()
	}
}

// work waits until a large body that has arrived may be worked on.
func (b *bodies) work(ctx context.Context, t *taken) error {
	if t.room.in == b.small {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.large.patience)
	defer cancel()
	t.weight = min(t.room.bytes, b.workingSize)
	if b.working.Acquire(ctx, t.weight) != nil {
		return errNoRoom
	}
	t.working = b.working
	return nil
}

// readBody reads and checks the whole body before anything else happens.
func (a *API) readBody(w *reply, r *http.Request, to *route) *huma.ErrorModel {
	if r.ContentLength != 0 {
		kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || kind != "application/json" {
			return problem(http.StatusUnsupportedMediaType, "the body must be JSON, and declared as such: Content-Type: application/json",
				&huma.ErrorDetail{Location: "header.Content-Type", Message: "it is not application/json"})
		}
		switch charset := parameters["charset"]; strings.ToLower(charset) {
		case "", "utf-8", "utf8", "us-ascii": // which is part of UTF-8
		default:
			return problem(http.StatusUnsupportedMediaType, "the body must be UTF-8, as JSON is",
				&huma.ErrorDetail{Location: "header.Content-Type", Message: "the charset is not utf-8"})
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
	of := a.bodies.large
	if limit <= smallBody || expected <= smallBody {
		of = a.bodies.small
	}
	var err error
	if w.body.room, err = of.enter(r.Context(), w.account(r), expected); err != nil {
		return noRoom(w)
	}
	text, p := readAll(w, r, limit)
	if p != nil {
		return p
	}
	w.body.room.shrink(int64(cap(text)))
	if a.bodies.work(r.Context(), &w.body) != nil {
		return noRoom(w)
	}
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

// noRoom is the answer to a request for whose body there is no room.
func noRoom(w *reply) *huma.ErrorModel {
	w.Header().Set("Retry-After", "1")
	return problem(http.StatusServiceUnavailable, "other requests use all the memory for bodies; send it again in a moment")
}

// readAll reads the bytes of a body, and takes room for them as they arrive.
func readAll(w *reply, r *http.Request, limit int64) ([]byte, *huma.ErrorModel) {
	body := http.MaxBytesReader(w.ResponseWriter, r.Body, limit)
	most := limit
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	var text []byte
	var err error
	for n := 0; err == nil; {
		if len(text) == cap(text) {
			size := min(max(firstRead, 2*int64(cap(text))), most+1) // the last byte is for its end
			if w.body.room.grow(r.Context(), size-int64(cap(text))) != nil {
				return nil, noRoom(w)
			}
			text = append(make([]byte, 0, size), text...)
		}
		n, err = body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
	}
	if errors.Is(err, io.EOF) {
		return text, nil
	}
	var large *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return nil, problem(http.StatusRequestTimeout, "the body did not come in time")
	}
	return nil, problem(http.StatusBadRequest, "the body could not be read to its end",
		&huma.ErrorDetail{Location: "body", Message: "it is incomplete"})
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
