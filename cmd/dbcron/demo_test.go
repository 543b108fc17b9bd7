package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The demo shows a shop in which things happen and fail, and leaves nothing behind.
func TestDemo(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	var errs bytes.Buffer
	p := &program{
		out: in, err: &errs, signals: &signals{again: make(chan struct{}), reload: make(chan struct{})},
		environ: []string{"DBCRON_DATABASE_URL=nonsense"},
	}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, p, []string{"demo", "--listen", "127.0.0.1:0"})
		in.Close()
	}()
	said := make([]byte, 1000)
	n, err := out.Read(said)
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(string(said[:n]))
	if err != nil || link == "" {
		t.Fatalf("it says %q, %v, exits with %d: %s", said[:n], err, <-code, errs.String())
	}
	get := func(path string) string {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return "" // it is about to answer
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	shows := func(path string, words ...string) {
		t.Helper()
		tick, over := time.NewTicker(100*time.Millisecond), time.After(5*time.Minute)
		defer tick.Stop()
		for text := get(path); ; text = get(path) {
			missing := ""
			for _, word := range words {
				if !strings.Contains(text, word) {
					missing = word
				}
			}
			if missing == "" {
				return
			}
			select {
			case <-tick.C:
			case <-over:
				t.Fatalf("/%s does not show %q:\n%s\n%s", path, missing, text, errs.String())
			}
		}
	}
	shows("", "prices-import", "ledger")
	shows("queues", "orders", "mail", "thumbnails", "exports")
	shows("runs", "stock-sync", "prices-import")
	shows("locks", "stock-count", "warehouse-2", "cache-warmup")
	stop()
	if got := <-code; got != exitOK {
		t.Errorf("it exits with %d: %s", got, errs.String())
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if errs.Len() > 0 {
		t.Errorf("it says:\n%s", errs.String())
	}
}
