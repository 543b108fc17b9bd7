package httpapi

import (
	"iter"

	"github.com/danielgtaylor/huma/v2"
)

// methods goes through the operations of a path.
func methods(item *huma.PathItem) iter.Seq2[string, *huma.Operation] {
	return func(yield func(string, *huma.Operation) bool) {
		for _, one := range []struct {
			method string
			op     *huma.Operation
		}{{"GET", item.Get}, {"PUT", item.Put}, {"POST", item.Post}, {"DELETE", item.Delete}, {"PATCH", item.Patch}, {"HEAD", item.Head}, {"OPTIONS", item.Options}} {
			if one.op != nil && !yield(one.method, one.op) {
				return
			}
		}
	}
}
