package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A server that a page starts has no password, so it listens on loopback alone.
func TestServersOfPagesListenOnLoopback(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 20 {
		t.Fatal(pages, err)
	}
	server := regexp.MustCompile(`^\s*(mysqld|mariadbd|vttablet|vtgate|vtorc|vtctld|vtcombo) `)
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
			found := server.FindStringSubmatch(line)
			if found == nil || strings.Contains(line, "--initialize") {
				continue
			}
			seen++
			wants := []string{"--bind-address"}
			if strings.Contains(line, "--grpc-port") {
				wants = append(wants, "--grpc-bind-address")
			}
			if strings.Contains(line, "--mysql-server-port") {
				wants = append(wants, "--mysql-server-bind-address")
			}
			for _, want := range wants {
				if !regexp.MustCompile(regexp.QuoteMeta(want) + `[= ]127\.0\.0\.1`).MatchString(line) {
					t.Errorf("%s starts %s without %s 127.0.0.1", page, found[1], want)
				}
			}
		}
	}
	if seen < 4 {
		t.Errorf("%d servers were seen", seen)
	}
}
