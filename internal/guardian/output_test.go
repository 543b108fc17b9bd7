package guardian

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestOutputKeepsHeadAndTail(t *testing.T) {
	for _, c := range []struct {
		limit int
		in    string
		want  string
	}{
		{8, "", ""},
		{8, "12345678", "12345678"},
		{8, "123456789", "1234\n[… 1 bytes left out …]\n6789"},
		{8, strings.Repeat("x", 100) + "abcd", "xxxx\n[… 96 bytes left out …]\nabcd"},
		{8, "aé", "aé"},
		{8, "123éxxxé89", "123\n[… 5 bytes left out …]\né89"},                  // a rune at either edge
		{8, "12345é\xff", "1234\n[… 3 bytes left out …]\n\uFFFD"},              // longer once cleaned
		{8, "\x00\xc3", "\uFFFD\uFFFD"},                                        // half a rune at the very end
		{6, "1é34é6789é2", "1é\n[… 8 bytes left out …]\né2"},                   // both cuts between runes
		{6, "12é" + strings.Repeat("€", 20), "12\n[… 59 bytes left out …]\n€"}, // both inside one
		{10, "12345xxxx😀ab", "12345\n[… 8 bytes left out …]\nab"},
		{1, "abc", "\n[… 3 bytes left out …]\n"},
	} {
		o := newOutput(c.limit)
		write(t, o, []byte(c.in))
		if got, _ := o.text(); got != c.want {
			t.Errorf("%q in %d bytes: got %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

// The boundaries of the pieces make no difference: a byte that ends no rune stays, even if the bytes
// before it were left out.
func TestOutputInPieces(t *testing.T) {
	for _, pieces := range [][]string{{"\x00\x00\x00\u1f88\x80"}, {"\x00\x00\x00", "\u1f88", "\x80"}} {
		o := newOutput(6)
		for _, p := range pieces {
			write(t, o, []byte(p))
		}
		if got, _ := o.text(); got != "\uFFFD\n[… 5 bytes left out …]\n\uFFFD" {
			t.Errorf("%q: %q", pieces, got)
		}
	}
}

func TestOutputIsCleanWhateverComes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 64).Draw(t, "limit")
		piece := rapid.OneOf(
			rapid.SliceOfN(rapid.Byte(), 0, 200),
			rapid.Map(rapid.StringN(0, 50, 200), func(s string) []byte { return []byte(s) }),
			rapid.Map(rapid.IntRange(0, 200), func(n int) []byte { return bytes.Repeat([]byte("a"), n) }),
		)
		pieces := rapid.SliceOfN(piece, 0, 6).Draw(t, "pieces")
		all := bytes.Join(pieces, nil)
		parts, whole := newOutput(limit), newOutput(limit)
		for _, p := range pieces {
			write(t, parts, p)
		}
		write(t, whole, all)
		got, omitted := parts.text()
		if at, _ := whole.text(); got != at {
			t.Fatalf("in pieces %q, at once %q", got, at)
		}
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Fatalf("not clean: %q", got)
		}
		if cap(parts.head)+cap(parts.tail) > 20*limit+1000 {
			t.Fatalf("holds %d and %d bytes for a limit of %d", cap(parts.head), cap(parts.tail), limit)
		}
		head, tail, cut := strings.Cut(got, "\n[… ")
		if cut != (omitted > 0) && !bytes.Contains(all, []byte("\n[… ")) {
			t.Fatalf("%d bytes left out of %q, but got %q", omitted, all, got)
		}
		if omitted > 0 {
			_, tail, _ = strings.Cut(tail, " …]\n")
		}
		if len(head)+len(tail) > limit {
			t.Fatalf("%q and %q are more than %d bytes", head, tail, limit)
		}
		if text := string(all); utf8.Valid(all) && !strings.ContainsRune(text, 0) {
			if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail) {
				t.Fatalf("%q is not an end of %q", got, text)
			}
			if kept := len(head) + len(tail); int64(kept)+omitted != int64(len(all)) {
				t.Fatalf("kept %d and left out %d of %d bytes", kept, omitted, len(all))
			}
			if omitted > 0 && (len(head) < limit/2-3 || len(tail) < limit/2-3) {
				t.Fatalf("%q keeps less than it could", got)
			}
		}
	})
}

func write(t interface{ Error(...any) }, o *output, p []byte) {
	if n, err := o.Write(p); n != len(p) || err != nil {
		t.Error(n, err)
	}
}

func TestFollowSendsNewsAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, sent, gone := newOutput(100), make(chan string), make(chan struct{})
		var follower sync.WaitGroup
		follower.Go(func() {
			o.follow(nil, func(text string) error {
				select {
				case sent <- text:
					return nil
				case <-gone:
					return errors.New("gone")
				}
			})
		})
		want := func(text string) {
			t.Helper()
			select {
			case got := <-sent:
				if got != text {
					t.Errorf("got %q, want %q", got, text)
				}
			case <-time.After(2 * newsEvery):
				t.Errorf("got nothing, want %q", text)
			}
		}
		silence := func() {
			t.Helper()
			select {
			case got := <-sent:
				t.Errorf("got %q, want nothing", got)
			case <-time.After(41 * newsEvery / 4): // never coincides with a tick
			}
		}
		silence()
		write(t, o, []byte("a"))
		write(t, o, []byte("b"))
		want("ab")
		silence()
		write(t, o, []byte("c"))
		for range 10 { // while nobody reads abc
			<-time.After(newsEvery)
			write(t, o, []byte("d"))
		}
		want("abc")
		want("abcdddddddddd")
		silence()
		write(t, o, []byte("e"))
		close(gone)
		follower.Wait() // it ends once nobody reads
	})
}

func TestOutputIsReadWhileItIsWritten(t *testing.T) { // for the race detector, which sees nothing inside a guardian's process
	o := newOutput(10)
	written := make(chan struct{})
	go func() {
		defer close(written)
		for range 1000 {
			write(t, o, []byte("0123456"))
		}
	}()
	for more := true; more; {
		select {
		case <-written:
			more = false
		default:
		}
		o.news()
		o.text()
	}
	if got, omitted := o.text(); got != "01234\n[… 6990 bytes left out …]\n23456" || omitted != 6990 {
		t.Errorf("got %q", got)
	}
}
