package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dbcron/dbcron/dialect"
	"github.com/dbcron/dbcron/internal/pace"
	"github.com/dbcron/dbcron/internal/sqlrun"
	"github.com/dbcron/dbcron/internal/trouble"
)

// Answers are recorded in memory. Every few seconds the newest go into one row per queue, so a request
// costs no statement.
const (
	reportEvery   = 5 * time.Second
	maxAnswers    = 20        // in the row of a queue
	maxReporters  = 10        // processes whose newest answer is kept even if others have newer ones
	reporterFor   = time.Hour // how long it is kept
	longestReason = 300       // bytes of an answer's error
	sampled       = 3         // successes, and failures, that a process records between two reports
)

// An Answer is the result of a request to an endpoint.
type Answer struct {
	At       time.Time     // when the request ended
	Took     time.Duration // from the start of the request to the end of the answer
	Status   int           // 0: no complete answer
	Error    string        // why the attempt failed; "": it succeeded
	Origin   string        // where it was sent, if the job has its own endpoint; otherwise ""
	Job      int64         // the job's id
	By       string        // the process that sent the request
	Failures int           // consecutive failures of the endpoint, up to now
	Until    time.Time     // end of the pause after a failure; zero: none
}

// A Report lists recent answers of a queue's endpoint.
type Report struct {
	Queue   string
	Answers []Answer // some of the newest, newest first
}

// answerJSON is an answer as stored. Times are in µs.
type answerJSON struct {
	At       int64  `json:"at"`
	Took     int64  `json:"took"`
	Status   int    `json:"status,omitempty"`
	Error    string `json:"error,omitempty"`
	Origin   string `json:"origin,omitempty"`
	Job      int64  `json:"job"`
	By       string `json:"by"`
	Failures int    `json:"failures,omitempty"`
	Until    int64  `json:"until,omitempty"`
}

func encodeAnswers(all []Answer) (string, error) {
	list := make([]answerJSON, len(all))
	for i, a := range all {
		list[i] = answerJSON{a.At.UnixMicro(), a.Took.Microseconds(), a.Status, a.Error, a.Origin, a.Job, a.By, a.Failures, 0}
		if !a.Until.IsZero() {
			list[i].Until = a.Until.UnixMicro()
		}
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// decodeAnswers parses stored answers. It ignores malformed ones, which were written by hand.
func decodeAnswers(text string) []Answer {
	var list []answerJSON
	if json.Unmarshal([]byte(text), &list) != nil {
		return nil
	}
	all := make([]Answer, len(list))
	for i, a := range list {
		all[i] = Answer{
			time.UnixMicro(a.At).UTC(), time.Duration(a.Took) * time.Microsecond, a.Status, a.Error, a.Origin, a.Job, a.By, a.Failures, time.Time{},
		}
		if a.Until != 0 {
			all[i].Until = time.UnixMicro(a.Until).UTC()
		}
	}
	return all
}

// Answers returns some of the newest answers to requests with a queue's jobs, newest first.
func (s *Endpoints) Answers(ctx context.Context, name string) ([]Answer, error) {
	found, err := sqlrun.Select(ctx, &s.db.Session, getAnswers, sqlrun.Args{"name": name}, scanReport)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0].Answers, nil
}

// Reports lists the answers of endpoints, by queue, up to limit queues. It includes those that answered
// within the given time.
func (s *Endpoints) Reports(ctx context.Context, last time.Duration, limit int) ([]Report, error) {
	return sqlrun.Select(ctx, &s.db.Session, listAnswers, sqlrun.Args{"since": -last.Microseconds(), "limit": limit}, scanReport)
}

func scanReport(rows *sql.Rows) (r Report, err error) {
	var text string
	err = rows.Scan(&r.Queue, &text)
	r.Answers = decodeAnswers(text)
	return r, err
}

// merged returns the newest of some answers, newest first. It keeps the newest of each recently active
// process, since the endpoint may fail for one and not for another.
func merged(all ...[]Answer) (some []Answer) {
	sorted := slices.Concat(all...)
	slices.SortStableFunc(sorted, func(a, b Answer) int { return b.At.Compare(a.At) })
	seen := map[string]bool{}
	for i := range sorted {
		a := &sorted[i]
		first := !seen[a.By] && len(seen) < maxReporters && sorted[0].At.Sub(a.At) < reporterFor
		if seen[a.By] = true; len(some) < maxAnswers || first {
			some = append(some, *a)
		}
	}
	return some
}

// A notepad collects answers between two reports.
type notepad struct {
	mu        sync.Mutex
	good, bad []Answer // the newest ones, newest last
}

// note records an answer, and reports whether it is the first one.
func (n *notepad) note(a *Answer) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	first = len(n.good)+len(n.bad) == 0
	list := &n.good
	if a.Error != "" {
		list = &n.bad
	}
	if len(*list) == sampled {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, *a)
	return first
}

func (n *notepad) take() []Answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := slices.Concat(n.good, n.bad)
	n.good, n.bad = nil, nil
	return all
}

// A reporter stores answers of endpoints.
type reporter struct {
	db    *dialect.DB
	every time.Duration

	mu    sync.Mutex
	noted map[*sender]bool // those that have recorded something
}

func (r *reporter) add(s *sender) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.noted == nil {
		r.noted = map[*sender]bool{}
	}
	r.noted[s] = true
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context, noting *trouble.Trouble) {
	for range pace.Ticks(ctx, cmp.Or(r.every, reportEvery)) {
		if err := r.report(ctx); ctx.Err() == nil {
			noting.Note(err)
		}
	}
}

// last reports once more after the workers have ended.
func (r *reporter) last(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = r.report(ctx) // best effort
}

// report stores what was recorded since the last report. On failure it drops the answers: newer ones
// follow soon.
func (r *reporter) report(ctx context.Context) error {
	r.mu.Lock()
	noted := r.noted
	r.noted = nil
	r.mu.Unlock()
	var errs []error
	for s := range noted {
		if answers := s.notes.take(); ctx.Err() == nil {
			errs = append(errs, r.write(ctx, s.endpoint.Load().id, answers))
		}
	}
	return errors.Join(errs...)
}

// write merges answers into the row of a queue. It locks the row before reading it, so no process undoes
// the writes of another. If two insert the row at once, one waits for the other, inserts nothing, and
// drops its answers.
func (r *reporter) write(ctx context.Context, id int, answers []Answer) error {
	return r.db.ShortTx(ctx, func(ctx context.Context, tx *sqlrun.Session) error {
		var before string
		stmt := updateAnswers
		switch err := tx.Get(ctx, lockAnswers, sqlrun.Args{"queue": id}, &before); {
		case errors.Is(err, sql.ErrNoRows):
			stmt = insertAnswers
		case err != nil:
			return err
		}
		text, err := encodeAnswers(merged(answers, decodeAnswers(before)))
		if err == nil {
			_, err = tx.Exec(ctx, stmt, sqlrun.Args{"queue": id, "answers": text})
		}
		return err
	})
}

// noteAnswer records the result of a request.
func (s *sender) noteAnswer(a *Answer, v *visit, err error) {
	if s.reporter == nil || s.aborted.Err() != nil {
		return
	}
	a.At, a.By = s.now(), s.node
	a.Origin = cut(a.Origin, longestReason)
	if err != nil {
		a.Error = cut(err.Error(), longestReason)
	}
	var pause time.Duration
	if a.Failures, pause = s.throttle.standing(v.at); pause > 0 {
		a.Until = a.At.Add(pause)
	}
	if s.notes.note(a) {
		s.reporter.add(s)
	}
}

// cut returns the beginning of a text.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
