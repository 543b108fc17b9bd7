package queue

import "slices"

// A sifter writes those parts of a refused batch that are accepted.
type sifter[T any] struct {
	refuses func(error) bool
	write   func([]T) error
	refuse  func(x T, err error) // with a nil error for what follows a refused one of its key
	whole   bool                 // items of one key are written together or not at all
}

// halve writes both halves of a refused batch. The items of a key are a unit.
func (s *sifter[T]) halve(units [][]T, err error) error {
	if len(units) == 1 {
		return s.part(units[0], err)
	}
	half := len(units) / 2
	for _, part := range [][][]T{units[:half], units[half:]} {
		err := s.write(slices.Concat(part...))
		if s.refuses(err) {
			err = s.halve(part, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// part writes a refused unit in order, up to the first item that is refused by itself.
func (s *sifter[T]) part(unit []T, err error) error {
	for i, x := range unit {
		if len(unit) > 1 && !s.whole {
			if err = s.write(unit[i : i+1]); err == nil {
				continue
			}
			if !s.refuses(err) {
				return err
			}
		}
		s.refuse(x, err)
		for _, later := range unit[i+1:] {
			if s.whole {
				s.refuse(later, err)
			} else {
				s.refuse(later, nil)
			}
		}
		return nil
	}
	return nil
}

// sift writes what is accepted.
func (s *sifter[T]) sift(units [][]T) error {
	if len(units) == 0 {
		return nil
	}
	err := s.write(slices.Concat(units...))
	if s.refuses(err) {
		err = s.halve(units, err)
	}
	return err
}

// byKey divides a list into units: the jobs of each key, and each job without a key.
func byKey[T any](list []T, key func(T) string) (units [][]T) {
	at := map[string]int{}
	for _, x := range list {
		k := key(x)
		if i, ok := at[k]; ok && k != "" {
			units[i] = append(units[i], x)
			continue
		}
		at[k] = len(units)
		units = append(units, []T{x})
	}
	return units
}
