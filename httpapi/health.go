package httpapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dbcron/dbcron/dialect"
)

// Health answers those who look after a daemon: /livez, whether the process answers at
// all, and /readyz, whether it can do its work. It needs no token, and tells nothing but
// that.
type Health struct {
	DB *dialect.DB

	// Stopping is closed when the daemon begins to end: then it is not ready any more.
	Stopping <-chan struct{}

	// Metrics answers /metrics; nil: nothing does.
	Metrics http.Handler
}

// ServeHTTP answers.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" && h.Metrics != nil && meantForHere(r) {
		h.Metrics.ServeHTTP(w, r)
		return
	}
	status, text := http.StatusOK, "ok\n"
	switch {
	case r.URL.Path == "/metrics" && h.Metrics != nil:
		status, text = http.StatusForbidden, "at a loopback address /metrics answers for localhost, a loopback address, or the name of this host\n"
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		status, text = http.StatusMethodNotAllowed, "GET or HEAD\n"
	case r.URL.Path == "/livez":
	case r.URL.Path != "/readyz":
		status, text = http.StatusNotFound, "there are /livez and /readyz\n"
	default:
		if why := h.notReady(r.Context()); why != "" {
			status, text = http.StatusServiceUnavailable, why+"\n"
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // nobody is there any more
}

// meantForHere tells whether a request that came to a loopback address names this host: a page
// that has given its own name to this host could read the answer otherwise. The others, at
// /livez and /readyz, tell nothing, and some that ask there name no host at all. At any other
// address whoever reaches it may ask, by whatever name they know it.
func meantForHere(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !isLoopback(local.String()) || isLoopback(r.Host) || isLocalhost(r.Host) {
		return true
	}
	own, err := os.Hostname() // to which some give a loopback address
	return err == nil && strings.EqualFold(own, withoutPort(r.Host))
}

func (h *Health) notReady(ctx context.Context) string {
	select {
	case <-h.Stopping:
		return "stopping"
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch why, err := h.DB.WhyReadOnly(ctx); {
	case errors.Is(err, dialect.ErrReadOnly):
		return "the database takes no writes: no server of its URL does"
	case err != nil:
		return "the database does not answer"
	case why != "":
		return "the database takes no writes: " + why
	}
	return ""
}
