package push

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/dbcron/dbcron/internal/barrier"
	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// An endpoint with a Batch gets several jobs in a request, as a JSON array, and answers with an outcome
// for each. A request has jobs of one URL, and a job of a key only after the one before it has ended: the
// worker gives out one of each key at a time.

const (
	// longestBody is the maximum size of a request with several jobs, in bytes. A larger job is
	// sent by itself.
	longestBody = 1 << 20

	// longestAnswers limits how much of an answer to several jobs is read, in bytes, and longestOutcome how much for one of them:
	// a result has up to 1 MiB.
	longestAnswers = 8 << 20
	longestOutcome = 2 << 20

	headerBatch = "Dbcron-Batch"
)

// A parcel is the jobs of a request.
type parcel struct {
	jobs  []*queue.Delivery
	at    []int    // where they are in their batch
	lines [][]byte // the jobs as JSON
	size  int

	beside bool // the batch has others, which end with it
}

// parcels divides a batch, whose jobs are these lines of JSON, by what a request may have.
func parcels(e *Endpoint, batch []*queue.Delivery, lines [][]byte) (all []*parcel) {
	open := map[string]*parcel{}
	for i, d := range batch {
		line, to := lines[i], urlOf(e, d)
		p := open[to]
		if p == nil || p.size+len(line)+1 > longestBody {
			p = &parcel{size: len("[]")}
			open[to], all = p, append(all, p)
		}
		p.jobs, p.at, p.lines, p.size = append(p.jobs, d), append(p.at, i), append(p.lines, line), p.size+len(line)+1
	}
	return all
}

func encode(d *queue.Delivery) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(wireof.Delivery(d))
	return bytes.TrimSpace(b.Bytes()), err
}

func (p *parcel) body() []byte {
	body := append(make([]byte, 0, p.size), '[')
	body = append(body, bytes.Join(p.lines, []byte(","))...)
	return append(body, ']')
}

// handleBatch does jobs by sending them, several in a request. It is the handler of a worker.
func (s *sender) handleBatch(ctx context.Context, batch []*queue.Delivery) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.aborted, cancel)()
	lines := make([][]byte, len(batch))
	for i, d := range batch {
		d.Extend(forever) // its time begins with its request
		var err error
		if lines[i], err = encode(d); err != nil {
			return err
		}
	}
	all := parcels(s.endpoint.Load(), batch, lines)
	results := make(queue.Results, len(batch))
	var sending sync.WaitGroup
	for _, p := range all { // side by side: one that is not answered holds up no other
		p.beside = len(all) > 1
		sending.Go(func() {
			var errs []error
			if _, err := barrier.Do(func() { errs = s.sendParcel(ctx, p) }); err != nil {
				errs = p.all(err)
			}
			for i, err := range errs {
				if err != nil && s.aborted.Err() != nil {
					err = queue.HandBack(err)
				}
				results[p.at[i]] = err
			}
		})
	}
	sending.Wait()
	return results
}

// sendParcel sends the jobs of a request and returns their outcomes.
func (s *sender) sendParcel(ctx context.Context, p *parcel) []error {
	first := p.jobs[0]
	e, v, err := s.admit(ctx, first)
	if err != nil {
		return p.all(err)
	}
	noted := &Answer{Job: first.ID}
	if first.Endpoint != "" {
		noted.Origin = v.at.origin
	}
	limit := p.limit(e)
	for _, d := range p.jobs {
		d.Extend(limit + time.Second)
	}
	began := instant.Now()
	a, seen, after, err := s.roundTrip(ctx, v, limit, noted, func(ctx context.Context) (*http.Request, error) {
		return newBatchRequest(ctx, e, urlOf(e, first), p, s.agent, s.now(), limit)
	}, p.read)
	v.leave(seen, after)
	if err == nil {
		err = a.failure(s.now())
	}
	noted.Took = instant.Now().Sub(began)
	if !errors.Is(ctx.Err(), context.Canceled) {
		s.noteAnswer(noted, v, err)
	}
	if err != nil {
		return p.all(err)
	}
	return p.outcomes(&a)
}

// all returns the same outcome for each job.
func (p *parcel) all(err error) []error {
	errs := make([]error, len(p.jobs))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// limit returns the timeout of the request: the shortest of the jobs' timeouts. While other requests of the batch wait for its
// end, it is not longer than what is usual for the queue.
func (p *parcel) limit(e *Endpoint) time.Duration {
	limit := limitOf(e, p.jobs[0])
	if p.beside {
		limit = min(limit, usualLimit(e))
	}
	for _, d := range p.jobs[1:] {
		limit = min(limit, limitOf(e, d))
	}
	return limit
}

// newBatchRequest makes the request for several jobs. Its id depends on all of its content, so
// that no receiver takes it for another request that has some of the jobs, too.
func newBatchRequest(ctx context.Context, e *Endpoint, to string, p *parcel, agent string, now time.Time,
	limit time.Duration,
) (*http.Request, error) {
	body := p.body()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	id := "batch-" + hex.EncodeToString(sum[:16])
	signed, err := signatures(e, id, now, body)
	if err != nil {
		return nil, err
	}
	h := r.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", agent)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	h.Set("webhook-signature", signed)
	h.Set(headerQueue, headerText(p.jobs[0].Queue))
	h.Set(headerBatch, strconv.Itoa(len(p.jobs)))
	h.Set(headerDeadline, now.Add(limit).UTC().Format("2006-01-02T15:04:05.000Z"))
	return r, nil
}

// read is readAnswer for the outcomes of several jobs. It stops when each job has its outcome, and keeps nothing else: an
// endpoint is a stranger, whose answer must not take more memory than the outcomes that were asked for.
func (p *parcel) read(r *http.Response) (a answer, err error) {
	if r.StatusCode < 200 || r.StatusCode > 299 {
		return readAnswer(r)
	}
	a = answer{status: r.StatusCode, header: r.Header}
	in := &portion{from: r.Body}
	a.said, err = p.decode(in)
	switch {
	case err == nil:
		return a, nil
	case in.cut:
		a.unusable = fmt.Sprintf("has more than %d MiB, or an outcome of more than %d", longestAnswers>>20, longestOutcome>>20)
	case in.err == nil:
		a.unusable = "is no JSON array of outcomes, such as [{\"id\": \"…\"}]"
	default:
		return a, fmt.Errorf("HTTP %d, and the answer breaks off: %w", a.status, WithoutAddresses(in.err))
	}
	return a, nil
}

// decode reads the outcomes of the parcel's jobs. It ignores those of other jobs, all but the first for each job, and what is
// no outcome, up to one such element for each job and a few more.
func (p *parcel) decode(in *portion) (map[string]*wire.Answer, error) {
	missing := make(map[string]bool, len(p.jobs))
	for _, d := range p.jobs {
		missing[strconv.FormatInt(d.ID, 10)] = true
	}
	said := make(map[string]*wire.Answer, len(p.jobs))
	in.next()
	list := json.NewDecoder(in)
	if begin, err := list.Token(); err != nil || begin != json.Delim('[') {
		return nil, cmp.Or(err, errNoArray)
	}
	for left := 2*len(p.jobs) + 8; left > 0 && len(missing) > 0; left-- {
		in.next()
		if !list.More() {
			_, err := list.Token() // its end
			return said, err
		}
		var text json.RawMessage
		if err := list.Decode(&text); err != nil {
			return nil, err
		}
		one := &wire.Answer{}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if dec.Decode(one) == nil && missing[one.ID] {
			said[one.ID] = one
			delete(missing, one.ID)
		}
	}
	return said, nil
}

var errNoArray = errors.New("no array")

// A portion reads from an answer as much as the next element and the whole may have.
type portion struct {
	from      io.Reader
	all, left int
	cut       bool  // there was more
	err       error // of the connection
}

// next allows another element.
func (r *portion) next() { r.left = longestOutcome }

func (r *portion) Read(b []byte) (int, error) {
	most := min(r.left, longestAnswers-r.all)
	if most <= 0 {
		r.cut = true
		return 0, errors.New("too much")
	}
	n, err := r.from.Read(b[:min(len(b), most)])
	r.all, r.left = r.all+n, r.left-n
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// failure returns the error of an answer without outcomes; nil if it has some.
func (a *answer) failure(now time.Time) error {
	switch {
	case a.status < 200 || a.status > 299:
		return a.outcome(now)
	case a.unusable != "":
		return fmt.Errorf("HTTP %d, and the answer %s", a.status, a.unusable)
	}
	return nil
}

// outcomes returns the outcomes in an answer.
func (p *parcel) outcomes(a *answer) []error {
	errs := make([]error, len(p.jobs))
	for i, d := range p.jobs {
		if one := a.said[strconv.FormatInt(d.ID, 10)]; one != nil {
			errs[i] = wireof.Outcome(one, d)
		} else {
			errs[i] = fmt.Errorf("HTTP %d, and the answer has no outcome of the job", a.status)
		}
	}
	return errs
}
