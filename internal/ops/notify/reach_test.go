package notify

import (
	"slices"
	"strings"
	"testing"
)

// What is tried is what the targets need, and what cannot be reached is named.
func TestReach(t *testing.T) {
	s := newMailServer(t, nil, "")
	closed := newMailServer(t, nil, "")
	down := closed.URL()
	closed.Close()
	for _, c := range []struct {
		targets []string
		server  string
		want    []string
	}{
		{nil, down, nil},
		{[]string{"command:true", "https://127.0.0.1/x"}, down, nil},
		{[]string{"mailto:a@example.org"}, s.URL(), nil},
		{[]string{"mailto:a@example.org", "mailto:b@example.org"}, down, []string{"the mail server at 127.0.0.1:"}},
		{
			[]string{"https://nowhere.invalid/secret", "https://nowhere.invalid/other", "mailto:a@example.org"},
			down,
			[]string{"the mail server at 127.0.0.1:", "the webhook's host nowhere.invalid has no address: "},
		},
	} {
		got := Reach(t.Context(), c.targets, Mail{Server: c.server})
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) || strings.Contains(strings.Join(got, ""), "secret") {
			t.Errorf("%q: got %q, want %q", c.targets, got, c.want)
		}
	}
	if n := len(s.Letters()); n > 0 {
		t.Errorf("%d mails were sent", n)
	}
}
