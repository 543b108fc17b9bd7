package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/wire"
)

type locksOutput struct {
	Body struct {
		Locks      []wire.Lock `json:"locks" nullable:"false" doc:"The locks and the slots of pools, by name and slot."`
		NextCursor string      `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Locks"`
}

// locking registers the operations that show and free locks.
func (a *API) locking() {
	register(a, operation{
		id: "list-locks", method: http.MethodGet, path: "/locks", tag: "locks", scope: ScopeRead, answer: answerList,
		summary: "List the locks and the slots of pools, and whose they are",
	}, func(ctx context.Context, in *page) (*locksOutput, error) {
		var name, text string
		slot := 0
		err := readCursor(in.Cursor, &name, &text)
		if err == nil && text != "" {
			if slot, err = strconv.Atoi(text); err != nil || slot < 0 || slot > 1<<30 {
				err = badCursor()
			}
		}
		if err != nil {
			return nil, err
		}
		found, err := a.locks.List(ctx, name, slot, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &locksOutput{}
		out.Body.Locks = wireof.Each(found, wireof.Lock)
		if n := len(found); n == in.Limit {
			out.Body.NextCursor = cursorOf(found[n-1].Name, strconv.Itoa(found[n-1].Slot))
		}
		return out, nil
	})
	register(a, operation{
		id: "get-lock", method: http.MethodGet, path: "/locks/{lock}", tag: "locks", scope: ScopeRead, answer: answerList,
		errors:  []int{http.StatusNotFound},
		summary: "Show a lock, or the slots of a pool",
	}, func(ctx context.Context, in *lockPath) (*locksOutput, error) {
		if err := checkNames("lock", in.Lock); err != nil {
			return nil, err
		}
		found, err := a.locks.Get(ctx, in.Lock)
		if err != nil {
			return nil, err
		}
		out := &locksOutput{}
		out.Body.Locks = wireof.Each(found, wireof.Lock)
		return out, nil
	})
	a.tickets()
}
