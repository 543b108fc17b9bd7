package push

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/instant"
	"github.com/dbcron/dbcron/internal/joblines"
	"github.com/dbcron/dbcron/queue"
)

// An endpoint with a Batch gets several jobs in a request, as a JSON array, and answers with an outcome
// for each. A request has jobs of one URL, and a job of a key only after the one before it has ended: the
// worker gives out one of each key at a time.

const (
	// longestBody is the maximum size of a request with several jobs, in bytes. A larger job is
	// sent by itself.
	longestBody = 1 << 20

	// longestAnswers limits how much of an answer to several jobs is read. A result has up to 1
	// MiB.
	longestAnswers = 8 << 20

	headerBatch = "Dbcron-Batch"
)

// A parcel is the jobs of a request.
type parcel struct {
	jobs  []*queue.Delivery
	at    []int    // where they are in their batch
	lines [][]byte // the jobs as JSON
	size  int
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
	err := enc.Encode(joblines.Of(d))
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
	for _, p := range all {
		for i, err := range s.sendParcel(ctx, p) {
			if err != nil && s.aborted.Err() != nil {
				err = queue.Snooze(0)
			}
			results[p.at[i]] = err
		}
	}
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
	}, readAnswers)
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

// limit returns the timeout of the request: the shortest of the jobs' timeouts.
func (p *parcel) limit(e *Endpoint) time.Duration {
	limit := limitOf(e, p.jobs[0])
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

// readAnswers is readAnswer for the outcomes of several jobs.
func readAnswers(r *http.Response) (a answer, err error) {
	if r.StatusCode < 200 || r.StatusCode > 299 {
		return readAnswer(r)
	}
	a = answer{status: r.StatusCode, header: r.Header}
	if a.body, err = io.ReadAll(io.LimitReader(r.Body, longestAnswers+1)); err != nil {
		return a, fmt.Errorf("HTTP %d, and the answer breaks off: %w", a.status, plain(err))
	}
	a.cut = len(a.body) > longestAnswers
	return a, nil
}

// failure returns the error of an answer without outcomes; nil if it has some.
func (a *answer) failure(now time.Time) error {
	switch {
	case a.status < 200 || a.status > 299:
		return a.outcome(now)
	case a.cut:
		return fmt.Errorf("HTTP %d, and the answer has more than %d MiB", a.status, longestAnswers>>20)
	case !strings.HasPrefix(strings.TrimSpace(string(a.body)), "[") || !json.Valid(a.body):
		return fmt.Errorf("HTTP %d, and the answer is no JSON array of outcomes, such as [{\"id\": \"…\"}]", a.status)
	}
	return nil
}

// outcomes returns the outcomes in an answer. It ignores those of other jobs, and all but the
// first for each job.
func (p *parcel) outcomes(a *answer) []error {
	var list []json.RawMessage
	_ = json.Unmarshal(a.body, &list) // it is one
	said := map[string]*joblines.Answer{}
	for _, text := range list {
		one := &joblines.Answer{}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(one); err == nil && said[one.ID] == nil {
			said[one.ID] = one
		}
	}
	errs := make([]error, len(p.jobs))
	for i, d := range p.jobs {
		if one := said[strconv.FormatInt(d.ID, 10)]; one != nil {
			errs[i] = one.Outcome(d)
		} else {
			errs[i] = fmt.Errorf("HTTP %d, and the answer has no outcome of the job", a.status)
		}
	}
	return errs
}
