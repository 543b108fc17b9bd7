package block

// A Heap orders lists of jobs by the place of their first jobs: the list with the very first
// job is at index 0. The zero value is empty.
type Heap[L Listed] []L

// Listed is an element of a Heap. It stores its own position there.
type Listed interface{ Spot() *Spot }

// A Spot is an element's position in a Heap. The zero value means that it is not in one.
type Spot struct {
	First  Place // place of its first job
	Listed bool
	at     int
}

// Set inserts a list, or moves it, now that its first job has this place.
func (h *Heap[L]) Set(list L, first Place) {
	s := list.Spot()
	s.First = first
	if !s.Listed {
		s.Listed, s.at = true, len(*h)
		*h = append(*h, list)
	}
	h.up(s.at)
	h.down(s.at)
}

// Drop removes the first list.
func (h *Heap[L]) Drop() {
	var none L
	first, n := (*h)[0], len(*h)-1
	h.swap(0, n)
	(*h)[n] = none
	*h = (*h)[:n]
	h.down(0)
	first.Spot().Listed = false
}

func (h Heap[L]) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].Spot().at, h[j].Spot().at = i, j
}

func (h Heap[L]) before(i, j int) bool { return h[i].Spot().First.Before(h[j].Spot().First) }

func (h Heap[L]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.before(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h Heap[L]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
