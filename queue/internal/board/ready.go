// Package board is the order in which jobs begin, as far as they are in memory: which of several
// lists has the first one, and which of a key goes next. It knows no tables and no handlers, and
// nothing in it is safe for concurrent use: a worker guards it.
package board

import (
	"cmp"
	"iter"
	"slices"
)

// Priorities is the number of priorities, of which 1 is the most urgent.
const Priorities = 4

// A Place is where a job stands in a queue: what is less begins first.
type Place struct {
	Priority int
	Order    int64
}

// Before reports whether a place comes before another.
func (p Place) Before(o Place) bool {
	return p.Priority < o.Priority || p.Priority == o.Priority && p.Order < o.Order
}

// A Ready is jobs that may start: a list for each priority, each in its order. The zero value is
// empty.
type Ready[J comparable] [Priorities + 1][]item[J]

type item[J comparable] struct {
	order int64
	job   J
}

// Put adds a job behind those that are older, or as old.
func (s *Ready[J]) Put(p Place, job J) {
	list := s[p.Priority]
	if n := len(list); n == 0 || list[n-1].order <= p.Order {
		s[p.Priority] = append(list, item[J]{p.Order, job})
		return
	}
	at, _ := slices.BinarySearchFunc(list, p.Order, func(o item[J], order int64) int {
		return cmp.Or(cmp.Compare(o.order, order), -1) // behind those that are as old
	})
	s[p.Priority] = slices.Insert(list, at, item[J]{p.Order, job})
}

// Take takes the first job of a priority out; it returns the zero J if there is none.
func (s *Ready[J]) Take(priority int) (job J) {
	list := s[priority]
	if len(list) == 0 {
		return job
	}
	job = list[0].job
	s[priority], list[0] = list[1:], item[J]{} // what is done is not kept in memory
	return job
}

// First returns the place of the first job of a priority, if there is one. A nil Ready has none.
func (s *Ready[J]) First(priority int) (Place, bool) {
	if s == nil || len(s[priority]) == 0 {
		return Place{}, false
	}
	return Place{priority, s[priority][0].order}, true
}

// Len returns how many jobs there are. A nil Ready has none.
func (s *Ready[J]) Len() (n int) {
	if s != nil {
		for p := range s {
			n += len(s[p])
		}
	}
	return n
}

// Remove takes a job of a priority out, and tells whether it was there.
func (s *Ready[J]) Remove(priority int, job J) bool {
	at := slices.IndexFunc(s[priority], func(i item[J]) bool { return i.job == job })
	if at >= 0 {
		s[priority] = slices.Delete(s[priority], at, at+1)
	}
	return at >= 0
}

// RemoveFunc takes those jobs out for which f returns true, which it is asked in their order.
func (s *Ready[J]) RemoveFunc(f func(J) bool) {
	for p := range s {
		s[p] = slices.DeleteFunc(s[p], func(i item[J]) bool { return f(i.job) })
	}
}

// All returns the jobs in their order. A nil Ready has none.
func (s *Ready[J]) All() iter.Seq[J] {
	return func(yield func(J) bool) {
		if s == nil {
			return
		}
		for p := range s {
			for _, i := range s[p] {
				if !yield(i.job) {
					return
				}
			}
		}
	}
}

// FirstOf returns up to n of the first jobs of each priority.
func (s *Ready[J]) FirstOf(n int) iter.Seq[J] {
	return func(yield func(J) bool) {
		for p := range s {
			for _, i := range s[p][:min(n, len(s[p]))] {
				if !yield(i.job) {
					return
				}
			}
		}
	}
}
