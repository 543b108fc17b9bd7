package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dbcron/dbcron/queue"
)

// lineLimit is how many jobs are enqueued at once: they are one transaction, which
// should not last long.
const lineLimit = 100_000

// A jobLine is a line of JSON that is a job. What is null was not given.
type jobLine struct {
	Kind        *looseText      `json:"kind"`
	Queue       *looseText      `json:"queue"`
	Key         *looseText      `json:"key"`
	Unique      *looseText      `json:"unique"`
	UniqueFor   *looseText      `json:"unique_for"`
	Group       *looseText      `json:"group"`
	Priority    *looseText      `json:"priority"`
	Delay       *looseText      `json:"delay"`
	RunAt       *looseText      `json:"run_at"`
	MaxAttempts *looseText      `json:"max_attempts"`
	Timeout     *looseText      `json:"timeout"`
	Trace       *looseText      `json:"trace"`
	Endpoint    *looseText      `json:"endpoint"`
	Payload     json.RawMessage `json:"payload"` // as it stands there
	Binary      *[]byte         `json:"payload_base64"`
}

// A looseText is a string, or a number as it is written.
type looseText string

func (t *looseText) UnmarshalJSON(b []byte) error {
	var number json.Number
	if err := json.Unmarshal(b, &number); err == nil && b[0] != '"' {
		*t = looseText(number)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// enqueueLines enqueues the jobs of standard input. t has what lines do not say.
func (p *program) enqueueLines(ctx context.Context, t jobText, args []string) error {
	switch {
	case t.binary:
		return usagef("--binary is not for --jsonl; a line has payload_base64 instead of payload")
	case len(args) > 1:
		return usagef("with --jsonl the payloads are in the lines")
	case len(args) == 1:
		t.kind = args[0]
	}
	jobs, lines, err := readLines(p.in, t)
	if err != nil {
		return err
	}
	if len(jobs) == 0 {
		fmt.Fprintln(p.err, "dbcron: there was no job on standard input")
		return nil
	}
	return p.withQueues(ctx, func(c *queue.Client) error {
		if err := p.routed(ctx, c, jobs); err != nil {
			return err
		}
		made, err := fits(ctx, c, jobs, func(i int) string { return fmt.Sprintf("line %d: ", lines[i]) })
		if err != nil {
			return err
		}
		all, err := c.EnqueueMany(ctx, jobs)
		if err != nil {
			return err
		}
		return p.tellEnqueued(all, made)
	})
}

// readLines reads jobs, and on which lines they are. Blank lines are none.
func readLines(in io.Reader, usual jobText) (jobs []queue.Job, lines []int, err error) {
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, nil, fmt.Errorf("standard input: %w", err)
		}
		last := err != nil
		if line = bytes.TrimSpace(line); len(line) > 0 {
			job, err := readLine(line, usual)
			if err != nil {
				return nil, nil, usagef("line %d: %v; nothing was enqueued", n, err)
			}
			jobs, lines = append(jobs, job), append(lines, n)
		}
		if len(jobs) > lineLimit {
			return nil, nil, usagef("there are more than %d jobs; enqueue them in parts: split -l %d", lineLimit, lineLimit)
		}
		if last {
			return jobs, lines, nil
		}
	}
}

func readLine(line []byte, t jobText) (queue.Job, error) {
	var l jobLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return queue.Job{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return queue.Job{}, errors.New("there is more on it than one JSON object")
	}
	if l.Payload != nil && l.Binary != nil {
		return queue.Job{}, errors.New("there are both payload and payload_base64; keep one of them")
	}
	if l.Queue != nil && *l.Queue == "" {
		return queue.Job{}, errors.New("queue is empty; leave it out if the job goes where its kind's route says")
	}
	l.over(&t)
	return t.job(lineNames)
}

// over puts what a line says over what is usual.
func (l *jobLine) over(t *jobText) {
	if l.Delay != nil || l.RunAt != nil { // one takes the place of the other
		t.delay, t.runAt = "", ""
	}
	for _, field := range []struct {
		given *looseText
		to    *string
	}{
		{l.Kind, &t.kind},
		{l.Queue, &t.queue},
		{l.Key, &t.key},
		{l.Unique, &t.unique},
		{l.UniqueFor, &t.uniqueFor},
		{l.Group, &t.group},
		{l.Priority, &t.priority},
		{l.Delay, &t.delay},
		{l.RunAt, &t.runAt},
		{l.MaxAttempts, &t.maxAttempts},
		{l.Timeout, &t.timeout},
		{l.Trace, &t.trace},
		{l.Endpoint, &t.endpoint},
	} {
		if field.given != nil {
			*field.to = string(*field.given)
		}
	}
	t.payload = l.Payload
	if l.Binary != nil {
		t.payload, t.binary = *l.Binary, true
	}
}
