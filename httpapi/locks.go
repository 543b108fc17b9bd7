package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/lock"
)

type lockJSON struct {
	Name      string  `json:"name"`
	Slot      int     `json:"slot,omitempty" doc:"Of a pool"`
	State     string  `json:"state" enum:"free,held,expired,kept,pool,closed"`
	By        string  `json:"by,omitempty" doc:"The holder, also the last one"`
	Since     *stamp  `json:"since,omitempty"`
	Until     *stamp  `json:"until,omitempty"`
	Left      float64 `json:"left_seconds"`
	Released  *stamp  `json:"released,omitempty"`
	Fence     string  `json:"fence"`
	Takeovers int64   `json:"takeovers" doc:"How often it was taken because a lease had run out"`
	Meta      string  `json:"meta,omitempty"`
}

func newLockJSON(i *lock.Info) lockJSON {
	return lockJSON{
		Name: i.Name, Slot: i.Slot, State: string(i.State), By: i.By, Since: optional(i.Since), Until: optional(i.Until), Left: wireof.Seconds(i.Left),
		Released: optional(i.Released), Fence: strconv.FormatInt(i.Fence, 10), Takeovers: i.Takeovers, Meta: i.Meta,
	}
}

type locksOutput struct {
	Body struct {
		Locks      []lockJSON `json:"locks" nullable:"false"`
		NextCursor string     `json:"next_cursor,omitempty"`
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
		out.Body.Locks = make([]lockJSON, len(found))
		for i := range found {
			out.Body.Locks[i] = newLockJSON(&found[i])
		}
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
		out.Body.Locks = make([]lockJSON, len(found))
		for i := range found {
			out.Body.Locks[i] = newLockJSON(&found[i])
		}
		return out, nil
	})
	a.tickets()
}
