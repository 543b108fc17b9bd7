package logs

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
)

// A reader takes nothing while it is stopped, and then all.
type reader struct {
	mu      sync.Mutex
	text    bytes.Buffer
	stopped chan struct{} // closed: it reads
	err     error
}

func (r *reader) Write(p []byte) (int, error) {
	<-r.stopped
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, r.err
	}
	return r.text.Write(p)
}

func (r *reader) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Split(strings.TrimSuffix(r.text.String(), "\n"), "\n")
}

// A reader that has stopped holds up no line for good. When it reads again it gets what had room, and how much had not.
func TestOutletOfAStoppedReader(t *testing.T) {
	r := &reader{stopped: make(chan struct{})}
	o := NewOutlet(r)
	line := strings.Repeat("a", 1023) + "\n"
	const sent = 3000
	for range sent {
		if n, err := o.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if !strings.Contains(o.Problem(), "nobody has read its log") || o.Dropped() == 0 || o.Dropped() == sent {
		t.Errorf("%q, dropped %d", o.Problem(), o.Dropped())
	}
	o.mu.Lock()
	told := o.told
	o.mu.Unlock()
	close(r.stopped)
	<-told
	all := r.lines()
	if last := all[len(all)-1]; !strings.Contains(last, "dropped here") {
		t.Errorf("the last line is %.80q", last)
	}
	if n := int64(len(all) - 1); n+o.Dropped() != sent {
		t.Errorf("%d lines came, %d were dropped, of %d", n, o.Dropped(), sent)
	}
	if o.Problem() != "" {
		t.Error(o.Problem())
	}
	if _, err := o.Write([]byte("then\n")); err != nil {
		t.Fatal(err)
	}
	o.Flush(t.Context())
	if all := r.lines(); all[len(all)-1] != "then" {
		t.Errorf("the last line is %.80q", all[len(all)-1])
	}
}

// A reader that has gone costs lines, and another one is told how many.
func TestOutletOfAReaderThatHasGone(t *testing.T) {
	r := &reader{stopped: make(chan struct{}), err: errors.New("broken pipe")}
	close(r.stopped)
	o := NewOutlet(r)
	for range 3 {
		_, _ = o.Write([]byte("lost\n"))
		o.Flush(t.Context())
	}
	if o.Dropped() != 3 || !strings.Contains(o.Problem(), "broken pipe; 3 lines were dropped") {
		t.Errorf("%q, dropped %d", o.Problem(), o.Dropped())
	}
	r.mu.Lock()
	r.err = nil
	r.mu.Unlock()
	_, _ = o.Write([]byte("again\n"))
	o.Flush(t.Context())
	if got := strings.Join(r.lines(), "|"); !strings.HasPrefix(got, "again|") || !strings.Contains(got, "3 lines were dropped") || o.Problem() != "" {
		t.Errorf("%q, %q", got, o.Problem())
	}
}
