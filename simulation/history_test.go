package simulation

import (
	"database/sql/driver"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// An event is something that happened in a world.
type event struct {
	at   time.Duration // since the beginning
	who  string        // a process and its life, or "the world"
	what string        // a round trip's statement, or what a workload or a fault noted
	args []driver.NamedValue
	out  string
}

// A history has all events of a run, in order.
type history struct {
	began time.Time

	mu     sync.Mutex
	events []event
	sum    hash.Hash64 // of all events
}

func newHistory(began time.Time) *history { return &history{began: began, sum: fnv.New64a()} }

func (h *history) add(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.at = time.Since(h.began)
	h.events = append(h.events, e)
	fmt.Fprintln(h.sum, int64(e.at), e.who, e.what, e.values(), e.out)
}

// about prints the events whose text or arguments mention one of the words, and those of the world.
func (h *history) about(out io.Writer, most int, words ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for i := range h.events {
		if e := &h.events[i]; e.who == theWorld || e.mentions(words) {
			lines = append(lines, e.String())
		}
	}
	if cut := len(lines) - most; cut > 0 {
		fmt.Fprintf(out, "    … %d earlier lines\n", cut)
		lines = lines[cut:]
	}
	for _, line := range lines {
		fmt.Fprintf(out, "    %s\n", line)
	}
}

const theWorld = "the world"

func (e *event) mentions(words []string) bool {
	text := e.what + " " + e.values()
	return slices.ContainsFunc(words, func(word string) bool { return word != "" && strings.Contains(text, word) })
}

func (e *event) values() string { return valuesOf(e.args) }

// valuesOf is the text of a statement's arguments. It has no addresses, as fmt has of pointers in a struct.
func valuesOf(args []driver.NamedValue) string {
	var all []string
	for _, a := range args {
		switch v := a.Value.(type) {
		case []byte:
			all = append(all, fmt.Sprintf("%.300q", v))
		default:
			all = append(all, fmt.Sprintf("%.300s", fmt.Sprint(v)))
		}
	}
	return strings.Join(all, " ")
}

func (e *event) String() string {
	line := fmt.Sprintf("%11.6f %-14s %s", e.at.Seconds(), e.who, e.what)
	if v := e.values(); v != "" {
		line += " [" + v + "]"
	}
	if e.out != "" {
		line += " → " + e.out
	}
	return line
}

// headOf shortens a statement to its first words.
func headOf(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 90 {
		text = text[:90] + "…"
	}
	return text
}
