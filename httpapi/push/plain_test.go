package push

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// The error of a job whose host cannot be reached, or goes away, contains none of the addresses
// of its name.
func TestErrorsHaveNoAddresses(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	breaks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0) // a reset
			_ = conn.Close()
		}
	}))
	defer breaks.Close()
	for _, one := range []struct{ url, hosts, want string }{
		{closed.URL, "localhost", "connection refused"},
		{closed.URL, Public, "may not send there"},
		{breaks.URL, "localhost", "breaks off"},
	} {
		u, err := url.Parse(one.url)
		must(t, err)
		hosts, err := ParseHosts([]string{one.hosts})
		must(t, err)
		s := &sender{client: &http.Client{Transport: &http.Transport{DialContext: hosts.Dial, DisableKeepAlives: true}}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost:"+u.Port(), http.NoBody)
		must(t, err)
		_, err = s.exchange(r, readAnswer)
		if err == nil {
			t.Fatalf("%s with %s was sent", one.url, one.hosts)
		}
		if text := WithoutAddresses(err).Error(); !strings.Contains(text, one.want) || strings.Contains(text, "127.0.0.1") || strings.Contains(text, "::1") {
			t.Errorf("%q, want %s without an address", text, one.want)
		}
	}
}
