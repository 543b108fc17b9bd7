package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dbcron/dbcron/internal/guardian"
	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/queue"
	"github.com/dbcron/dbcron/wire"
)

const (
	maxAnswers  = 256 << 20 // bytes of stdout that are read
	longestLine = 4 << 20   // of stdout; a result has at most 1 MiB
)

// linesOf formats a batch as lines of JSON.
func linesOf(batch []*queue.Delivery) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, d := range batch {
		if err := enc.Encode(wireof.Delivery(d)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// doBatch runs the command for several jobs. Those it does not answer have failed.
func (x *executor) doBatch(ctx context.Context, batch []*queue.Delivery) error {
	input, err := linesOf(batch)
	if err != nil {
		return err
	}
	first := batch[0]
	name := fmt.Sprintf("%s, %d jobs", first.Queue, len(batch))
	r, stdout, err := x.run(ctx, name, append(x.inherited(batchVariables), "DBCRON_BATCH="+strconv.Itoa(len(batch))), input, first.Left, true)
	if r.LeftBehind {
		x.log.Warn("killed processes that the command left running", "queue", first.Queue, "jobs", len(batch))
	}
	answers := x.answers(stdout, batch)
	results := make(queue.Results, len(batch))
	for i, d := range batch {
		switch a := answers[d.ID]; {
		case a != nil:
			results[i] = x.answered(d, a, r.Took)
		case err == nil && r.Cause == guardian.Exited:
			results[i] = fmt.Errorf("the command reported no outcome for the job; %s", endOf(r))
		default:
			results[i] = x.outcome(ctx, d, r, err)
		}
	}
	return results
}

// batchVariables are about one job, so a batch's command does not get them.
var batchVariables = []string{
	"DBCRON_JOB_ID", "DBCRON_QUEUE", "DBCRON_KIND", "DBCRON_KEY", "DBCRON_TENANT", "DBCRON_GROUP",
	"DBCRON_CALLBACK_OF", "DBCRON_ATTEMPT", "DBCRON_MAX_ATTEMPTS", "TRACEPARENT", "DBCRON_BATCH",
}

// answers parses a command's answers, the first for each job. It logs other lines.
func (x *executor) answers(stdout []byte, batch []*queue.Delivery) map[int64]*wire.Answer {
	known, all := map[int64]bool{}, map[int64]*wire.Answer{}
	for _, d := range batch {
		known[d.ID] = true
	}
	bad, sample := 0, ""
	lines := bufio.NewScanner(bytes.NewReader(stdout))
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		a := &wire.Answer{}
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		err := dec.Decode(a)
		id, e := strconv.ParseInt(a.ID, 10, 64)
		if err != nil || e != nil || !known[id] || all[id] != nil || dec.More() {
			if bad++; bad == 1 {
				sample = oneLine(string(line), 200)
			}
			continue
		}
		all[id] = a
	}
	if err := lines.Err(); err != nil {
		x.log.Warn("the command's outcomes could not be read to their end", "err", err)
	}
	if bad > 0 {
		x.log.Warn("the command's stdout has lines that are not outcomes of its jobs", "lines", bad, "first", sample)
	}
	return all
}

// answered returns the outcome of a job that the command has answered.
func (x *executor) answered(d *queue.Delivery, a *wire.Answer, took time.Duration) error {
	if err := wireof.Outcome(a, d); err != nil {
		return err
	}
	x.log.Info("job done", "queue", d.Queue, "kind", d.Kind, "id", d.ID, "attempt", d.Attempt, "took", took)
	return nil
}

// setResult sets a job's result to what its command has printed: JSON, or else a text.
func setResult(d *queue.Delivery, stdout []byte) error {
	text := bytes.TrimSpace(stdout)
	if len(text) == 0 {
		return nil
	}
	if json.Valid(text) {
		return d.SetResult(json.RawMessage(text))
	}
	return d.SetResult(string(text))
}

// A capture is an unnamed file for a command's stdout.
type capture struct{ file *os.File }

func newCapture() (*capture, error) {
	file, err := os.CreateTemp("", "dbcron-stdout-*")
	if err != nil {
		return nil, fmt.Errorf("a file for the command's stdout: %w", err)
	}
	_ = os.Remove(file.Name()) // except where an open file must have a name
	return &capture{file}, nil
}

// read returns what was written. The command may have changed the file's offset.
func (c *capture) read() ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(c.file, 0, maxAnswers))
}

func (c *capture) close() {
	_ = c.file.Close()
	_ = os.Remove(c.file.Name())
}
