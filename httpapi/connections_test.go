package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// Connections without a request take neither the descriptors that others need nor the place of who has one to send: when there
// are too many, the one that has waited for longest ends. The class: what costs something before a token is asked for.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	var closed atomic.Int64
	const limit = 4
	address, _ := run(t, &Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(begun)
				<-finish
			}
			_, _ = io.WriteString(w, "well")
		}),
		Logger: quiet(), Grace: time.Second, Connections: limit, ConnectionClosed: func() { closed.Add(1) },
	})
	dial := func() net.Conn {
		t.Helper()
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn, path string) error {
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
			return err
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	busy := dial()
	slow := make(chan error, 1)
	go func() { slow <- ask(busy, "/slow") }()
	<-begun
	used := dial() // and kept
	must(t, ask(used, "/"))
	var idle []net.Conn
	for range 3 * limit {
		idle = append(idle, dial())
	}
	newest := dial()
	must(t, ask(newest, "/"))
	for _, c := range append([]net.Conn{used}, idle[:2*limit]...) { // ended long ago: neither sends anything
		//nolint:forbidigo // of the connection, which knows no other clock
		must(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a connection that waited for long is open: %v", err)
		}
	}
	if n := closed.Load(); n != 3*limit+3-limit {
		t.Errorf("%d connections were closed", n)
	}
	close(finish)
	must(t, <-slow)
}

// Whatever the limit, the connections that have a request stay, and a further one is refused.
func TestConnectionsAreAllBusy(t *testing.T) {
	t.Parallel()
	c := newConnections(2, quiet(), nil)
	all := make([]net.Conn, 3)
	for i := range all {
		all[i], _ = net.Pipe()
	}
	for _, one := range all[:2] {
		if c.note(one, http.StateNew) != nil || c.note(one, http.StateActive) != nil {
			t.Fatal("one of the first two is closed")
		}
	}
	if c.note(all[2], http.StateNew) != all[2] || c.note(all[2], http.StateActive) != nil || c.note(all[2], http.StateClosed) != nil {
		t.Error("the third is not the one that is closed")
	}
	c.note(all[0], http.StateIdle)
	if c.note(all[2], http.StateNew) != all[0] {
		t.Error("one without a request is not closed for it")
	}
	if len(c.open) != 2 || c.idle.Len() != 1 {
		t.Errorf("%d are open, %d without a request", len(c.open), c.idle.Len())
	}
}
