package store

import (
	"hash/fnv"
	"strconv"
	"testing"
)

// Blocks are those of the documented hash: other producers, and the SQL at the prompt, compute it too.
func TestDivided(t *testing.T) {
	hash := func(text string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(text)) // never returns an error
		return h.Sum64()
	}
	for _, key := range []string{"", "a", "customer-17", "über", "\x00\xff"} {
		for _, id := range []int64{0, 1, 1<<63 - 1, 812345678901234567} {
			for _, blocks := range []int{0, 1, 5, 16, 1000} {
				text := key
				if key == "" {
					text = strconv.FormatInt(id, 10)
				}
				if got, want := Divided(key, id, blocks), int(hash(text)%uint64(max(1, blocks))); got != want {
					t.Errorf("%q, %d, %d blocks: got %d, want %d", key, id, blocks, got, want)
				}
			}
		}
	}
}
