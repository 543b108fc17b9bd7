package block

import (
	"cmp"
	"iter"
	"slices"
)

// Priorities is the number of priorities; 1 is the most urgent.
const Priorities = 4

// A Place is a job's position in a queue: the lesser place begins first.
type Place struct {
	Priority int
	Order    int64
}

// Before reports whether a place comes before another.
func (p Place) Before(o Place) bool {
	return p.Priority < o.Priority || p.Priority == o.Priority && p.Order < o.Order
}

// Ready holds jobs that may start: a list for each priority, each in its order. The zero value
// is empty.
type Ready[J comparable] [Priorities + 1][]item[J]

type item[J comparable] struct {
	order int64
	job   J
}

// Put inserts a job behind those that are as old or older.
func (s *Ready[J]) Put(p Place, job J) {
	list := s[p.Priority]
	if n := len(list); n == 0 || list[n-1].order <= p.Order {
		s[p.Priority] = append(list, item[J]{p.Order, job})
		return
	}
	at, _ := slices.BinarySearchFunc(list, p.Order, func(o item[J], order int64) int {
		return cmp.Or(cmp.Compare(o.order, order), -1) // behind those of the same age
	})
	s[p.Priority] = slices.Insert(list, at, item[J]{p.Order, job})
}

// Take removes and returns the first job of a priority, or the zero J if there is none.
func (s *Ready[J]) Take(priority int) (job J) {
	list := s[priority]
	if len(list) == 0 {
		return job
	}
	job = list[0].job
	s[priority], list[0] = list[1:], item[J]{} // release the memory of jobs that are done
	return job
}

// First returns the place of the first job of a priority, if any. A nil Ready has none.
func (s *Ready[J]) First(priority int) (Place, bool) {
	if s == nil || len(s[priority]) == 0 {
		return Place{}, false
	}
	return Place{priority, s[priority][0].order}, true
}

// Upto returns how many jobs of a priority have an order up to this one.
func (s *Ready[J]) Upto(priority int, order int64) int {
	n, _ := slices.BinarySearchFunc(s[priority], order, func(o item[J], order int64) int { return cmp.Or(cmp.Compare(o.order, order), -1) })
	return n
}

// upto returns how many of some sorted numbers are not greater than this one.
func upto(sorted []int64, most int64) int {
	n, _ := slices.BinarySearch(sorted, most+1)
	return n
}

// Len returns the number of jobs. A nil Ready has none.
func (s *Ready[J]) Len() (n int) {
	if s != nil {
		for p := range s {
			n += len(s[p])
		}
	}
	return n
}

// Remove removes a job of a priority, and reports whether it was there.
func (s *Ready[J]) Remove(priority int, job J) bool {
	at := slices.IndexFunc(s[priority], func(i item[J]) bool { return i.job == job })
	if at >= 0 {
		s[priority] = slices.Delete(s[priority], at, at+1)
	}
	return at >= 0
}

// RemoveFunc removes the jobs for which f returns true. It calls f in their order.
func (s *Ready[J]) RemoveFunc(f func(J) bool) {
	for p := range s {
		s[p] = slices.DeleteFunc(s[p], func(i item[J]) bool { return f(i.job) })
	}
}

// All iterates over the jobs in their order. A nil Ready has none.
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

// FirstOf iterates over up to n of the first jobs of each priority.
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
