package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/dbcron/dbcron/internal/ops/progress"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

// Lines are enqueued in batches, one transaction each. A batch has usualBatch lines by default, batchMost at
// most, so that transactions stay short, and ends at batchBytes.
const (
	usualBatch = 10_000
	batchMost  = 100_000
	batchSent  = 1000 // to a daemon: see the operation enqueue-jobs
	batchBytes = 16 << 20
	lineBytes  = 1<<30/3*4 + 1<<20 // length of the longest line: a payload of 1 GiB in base64, and the rest
)

// A linesFlags says how lines are read.
type linesFlags struct {
	from  int // the first line to enqueue
	batch int
}

// enqueueLines enqueues jobs from standard input. t has the defaults for the lines.
func (p *program) enqueueLines(ctx context.Context, t jobFlags, args []string, f linesFlags) error {
	switch {
	case t.binary:
		return usagef("--binary is not for lines of JSON; a line has payload_base64 instead of payload")
	case len(args) > 1:
		return usagef("the payloads are in the lines")
	case len(args) == 1:
		t.Kind = args[0]
	}
	switch {
	case f.from < 1:
		return usagef("--from-line %d: lines are counted from 1", f.from)
	case f.batch < 1 || f.batch > batchMost:
		return usagef("--batch %d: use 1 to %d", f.batch, batchMost)
	}
	usual, err := t.text()
	if err != nil {
		return usagef("%v", err)
	}
	if at, _, err := p.findDatabase(); err != nil {
		return err
	} else if isDaemon(at) {
		if f.batch > batchSent && f.batch != usualBatch {
			return usagef("--batch %d: a daemon takes up to %d at a time", f.batch, batchSent)
		}
		f.batch = min(f.batch, batchSent)
	}
	r := &lineReader{r: bufio.NewReaderSize(p.in, 1<<16), usual: usual, from: f.from, batch: f.batch}
	first, err := r.next() // before the database is opened: wrong input must not touch it
	if err != nil {
		return err
	}
	if len(first.jobs) == 0 {
		fmt.Fprintln(p.err, "dbcron: there was no job on standard input")
		return nil
	}
	return p.withAPI(ctx, func() error {
		so := p.begin(ctx, progress.Task{What: "enqueueing", Unit: "jobs", Share: r.share(p.in)})
		defer so.End()
		e := p.newEnqueueing()
		for b, done := first, 0; len(b.jobs) > 0; {
			if err := e.enqueueLines(ctx, b, t.told); err != nil {
				return r.goOn(b, err)
			}
			done += len(b.jobs)
			so.At(done)
			if b, err = r.next(); err != nil {
				return err
			}
		}
		return nil
	})
}

// enqueueLines enqueues a batch of lines, all or none.
func (e *enqueueing) enqueueLines(ctx context.Context, b lineBatch, output string) error {
	made, err := e.look(ctx, b.jobs, func(i int) string { return fmt.Sprintf("line %d: ", b.lines[i]) })
	if err != nil {
		return err
	}
	answer, err := e.p.send(ctx, "enqueue-jobs", nil, struct{ Jobs []wire.NewJob }{b.jobs}, keyFor(b.jobs...))
	var one *queue.JobError
	var wrong *queue.InvalidError
	switch {
	case errors.As(err, &one) && errors.As(err, &wrong) && one.Index < len(b.lines):
		return usagef("line %d: %s: %s", b.lines[one.Index], wrong.Field, wrong.Problem)
	case err != nil:
		return err
	}
	return e.p.tellEnqueued(entriesOf(answer).([]wire.Enqueued), made, output) //nolint:forcetypeassert // it enqueues some
}

// A lineBatch holds the jobs of some lines.
type lineBatch struct {
	jobs  []wire.NewJob
	lines []int
	from  int // number of its first line, including blank ones
}

// A lineReader parses jobs from lines.
type lineReader struct {
	r           *bufio.Reader
	usual       wire.NewJob
	from, batch int
	line        int // the last one read
	read        atomic.Int64
	ended       bool
}

// next reads a batch, which is empty at the end. It skips blank lines.
func (r *lineReader) next() (b lineBatch, err error) {
	b.from = max(r.line+1, r.from)
	for size := 0; !r.ended && len(b.jobs) < r.batch && size < batchBytes; {
		line, err := r.readLine()
		if err != nil {
			return b, r.goOn(b, err)
		}
		if line = bytes.TrimSpace(line); r.line < r.from || len(line) == 0 {
			continue
		}
		job, err := readLine(line, r.usual)
		if err != nil {
			return b, r.goOn(b, usagef("line %d: %w", r.line, err))
		}
		size += len(line)
		b.jobs, b.lines = append(b.jobs, job), append(b.lines, r.line)
	}
	return b, nil
}

// readLine reads a line; the last one need not end with a line feed.
func (r *lineReader) readLine() (line []byte, err error) {
	r.line++
	for {
		part, err := r.r.ReadSlice('\n')
		line = append(line, part...)
		r.read.Add(int64(len(part)))
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, io.EOF):
			r.ended = true
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("standard input: %w", err)
		case len(line) > lineBytes:
			return nil, usagef("line %d is longer than any queue takes", r.line)
		}
	}
}

// share reports the fraction of a file that has been read; nil: its size is unknown.
func (r *lineReader) share(in io.Reader) func() float64 {
	file, isFile := in.(*os.File)
	if !isFile {
		return nil
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil
	}
	return func() float64 { return float64(r.read.Load()) / float64(info.Size()) }
}

// goOn adds to an error what was enqueued before the batch, and how to continue.
func (r *lineReader) goOn(b lineBatch, err error) error {
	switch {
	case errors.Is(err, queue.ErrUnknownOutcome):
		return fmt.Errorf("%w: lines %d to %d may have been enqueued, as a whole; if dbcron job list does not show them, go on with --from-line %d", err, b.from, r.line, b.from)
	case b.from == r.from && r.from == 1:
		return fmt.Errorf("%w; nothing was enqueued", err)
	}
	return fmt.Errorf("%w; of lines from %d on nothing was enqueued: go on with --from-line %[2]d", err, b.from)
}

// readLine returns the job of a line, which has what the line does not say from usual.
func readLine(line []byte, usual wire.NewJob) (wire.NewJob, error) {
	const unsaid = "\x00" // no queue
	n := usual
	n.Queue, n.Delay, n.RunAt = unsaid, "", wire.Instant{} // a delay and a time replace each other
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&n); err != nil {
		if err = plain.JSONError(err); err.Error() == `unknown field "id"` {
			err = fmt.Errorf("%w: a listed job is not a new one; dbcron queue move --to-database moves a queue to another database", err)
		}
		return n, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return n, errors.New("there is more on it than one JSON object")
	}
	switch n.Queue {
	case "":
		return n, errors.New("queue is empty; leave it out if the job goes where its kind's route says")
	case unsaid:
		n.Queue = usual.Queue
	}
	if n.Delay == "" && n.RunAt.IsZero() {
		n.Delay, n.RunAt = usual.Delay, usual.RunAt
	}
	_, err := wireof.NewJob(&n)
	var wrong *queue.InvalidError
	if errors.As(err, &wrong) {
		err = fmt.Errorf("%s: %s", wrong.Field, wrong.Problem)
	}
	return n, err
}
