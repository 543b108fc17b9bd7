//go:build unix

package guardian

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// The second line is read only after the first has been passed on, so each comes while the command runs.
func TestLinesAsTheyCome(t *testing.T) {
	t.Parallel()
	theirs, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	defer ours.Close()
	c := sh(`echo one; read x; echo two >&2; read x
		printf '\n\r\nth\303\251\377\0re\r\n'; head -c 20000 /dev/zero | tr '\0' x; echo; printf end`)
	c.Stdin = theirs
	lines := make(chan string, 100)
	c.Line = func(line string) { lines <- line }
	p := start(t, c, time.Minute)
	for _, want := range []string{"one", "two"} {
		if got := next(t, lines); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if _, err := ours.WriteString("go on\n"); err != nil {
			t.Fatal(err)
		}
	}
	r := wait(t, p)
	close(lines)
	var rest []string
	for line := range lines {
		rest = append(rest, line)
	}
	long := strings.Repeat("x", maxEchoLine)
	want := []string{"thé\uFFFD\uFFFDre", long, long, long[:20000-2*maxEchoLine], "end"}
	if strings.Join(rest, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %.9000q", rest)
	}
	if !strings.HasPrefix(r.Output, "one\ntwo\n\n\r\nthé") || !strings.HasSuffix(r.Output, "x\nend") || r.Omitted != 0 {
		t.Errorf("kept: %.40q … %d left out", r.Output, r.Omitted)
	}
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(patience):
		t.Fatal("no line comes")
		return ""
	}
}

// A command goes on while nobody takes its lines, and what it has written is kept nevertheless.
func TestLinesThatNobodyTakes(t *testing.T) {
	t.Parallel()
	const number = 200_000
	done := t.TempDir() + "/done"
	c := sh(fmt.Sprintf(`seq %d; echo > "$1"; exec sleep 0.1`, number), done)
	hold := make(chan struct{})
	var got []string
	c.Line = func(line string) {
		<-hold
		got = append(got, line)
	}
	p := start(t, c, time.Minute)
	eventually(t, "the command has written all", func() bool {
		_, err := os.Stat(done)
		return err == nil
	})
	close(hold)
	r := wait(t, p)
	if !strings.HasSuffix(r.Output, fmt.Sprintf("\n%d\n", number)) || !strings.HasPrefix(r.Output, "1\n2\n") {
		t.Errorf("kept: %.40q", r.Output)
	}
	cut := 0
	for _, line := range got {
		if strings.HasSuffix(line, " bytes left out …]") {
			cut++
		}
	}
	if cut == 0 || got[0] != "1" {
		t.Errorf("%d lines, from %q, and %d say that some are left out", len(got), got[0], cut)
	}
}
