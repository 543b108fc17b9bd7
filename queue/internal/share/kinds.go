package share

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/dbcron/dbcron/queue/internal/store"
)

// A KindSet is a set of kinds. nil means all.
type KindSet struct {
	Text string // as in a row
	has  map[string]bool
}

// NewKindSet returns a set of kinds.
func NewKindSet(kinds []string) *KindSet {
	kinds = slices.Compact(slices.Sorted(slices.Values(kinds)))
	s := &KindSet{has: map[string]bool{}}
	for _, kind := range kinds {
		s.has[kind] = true
	}
	text, _ := json.Marshal(append([]string{}, kinds...)) // strings always encode
	s.Text = string(text)
	return s
}

// Takes reports whether a kind is in the set. The empty kind stands for a limit of all kinds.
func (s *KindSet) Takes(kind string) bool { return s == nil || kind == "" || s.has[kind] }

// List returns the kinds in order.
func (s *KindSet) List() []string { return slices.Sorted(maps.Keys(s.has)) }

// KindSets caches the sets that rows recently had: each text is parsed once, and the same text
// gives the same set. It is safe for concurrent use.
type KindSets struct {
	mu  sync.Mutex
	all map[string]*KindSet
}

// Read parses the kinds in a row. It returns nil, which means all kinds, for an empty text, and
// for one that was written by hand and is not such a list.
func (c *KindSets) Read(text string) *KindSet {
	if text == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.all[text]; ok {
		return s
	}
	var s *KindSet
	if kinds, ok := store.Kinds(text); ok {
		s = NewKindSet(kinds)
		s.Text = text
	}
	if c.all == nil || len(c.all) >= 1000 {
		c.all = map[string]*KindSet{}
	}
	c.all[text] = s
	return s
}
