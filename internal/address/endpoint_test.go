package address

import (
	"net/url"
	"strings"
	"testing"
)

func TestCheckEndpoint(t *testing.T) {
	for text, part := range map[string]string{
		"https://worker.example.org/jobs": "", "http://127.0.0.1:8080": "", "http://[::1]:80/?a=b%20c": "", "https://a:443/x": "",
		"": "begin with", "worker.example.org": "begin with", "//worker/x": "begin with", "HTTPS:worker": "no host",
		"https:///x": "no host", "file:///etc/passwd": "begin with",
		"https://user@a/": "user", "https://user:pass@a/": "user", "https://a/#b": "after #", "https://a/#": "after #",
		"https://a/ b": "ASCII", "https://ä/": "ASCII",
		"https://a:0/": "port", "https://a:/": "port", "https://a:x/": "not a URL", "https://[::1/": "not a URL",
		"https://a/" + strings.Repeat("x", 1000): "bytes",
	} {
		err := CheckEndpoint(text)
		if (err == nil) != (part == "") || err != nil && !strings.Contains(err.Error(), part) {
			t.Errorf("%.50q: %v", text, err)
		}
	}
}

// What is accepted is a URL that an HTTP client takes, and to which it sends no secret.
func FuzzCheckEndpoint(f *testing.F) {
	for _, text := range []string{
		"https://a/", "http://[::1]:80/", "https://a:b@c", "https://%41/",
		"http://a%00/", "https://a/#", "http://a:99999/",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if CheckEndpoint(text) != nil {
			return
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" || len(text) > longestEndpoint {
			t.Errorf("%q is accepted: %v", text, err)
		}
	})
}
