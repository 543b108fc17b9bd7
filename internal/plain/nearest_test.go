package plain

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"listen", "lease", "tag", "log_format", "database_url", "database_url_file"}
	for name, want := range map[string]string{
		"listne": "listen", "Listen": "listen", "log-format": "log_format", "leese": "lease",
		"tags": "tag", "databse_url": "database_url", "database_urlfile": "database_url_file",
		"port": "", "": "", "t": "", "workers": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}
