package httpapi

import (
	"context"
	"net/http"
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

var ping = dialect.SQL("httpapi.ping", `SELECT 1`)

// ServeHTTP answers.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/metrics" && h.Metrics != nil {
		h.Metrics.ServeHTTP(w, r)
		return
	}
	status, text := http.StatusOK, "ok\n"
	switch {
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

func (h *Health) notReady(ctx context.Context) string {
	select {
	case <-h.Stopping:
		return "stopping"
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.DB.Get(ctx, ping, nil, new(int)); err != nil {
		return "the database does not answer"
	}
	return ""
}
