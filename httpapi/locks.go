package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/dbcron/dbcron/internal/ops/wireof"
	"github.com/dbcron/dbcron/wire"
)

type locksOutput struct {
	Body struct {
		Locks      []wire.Lock `json:"locks" nullable:"false" doc:"The locks and the slots of pools, by name and slot."`
		NextCursor string      `json:"next_cursor,omitempty" doc:"If it is there, there may be more: send it as cursor."`
	} `nameHint:"Locks"`
}

type resizeInput struct {
	Lock string `path:"lock" minLength:"1" maxLength:"200"`
	Body struct {
		Slots int `json:"slots" minimum:"1" maximum:"1000" doc:"How many the pool has from now on."`
	} `nameHint:"ResizeLock"`
}

type purgeLocksInput struct {
	Body struct {
		Unused wire.Duration `json:"unused" minLength:"1" maxLength:"40" doc:"How long they have not been used; a minute at least." example:"30d"`
	} `nameHint:"PurgeLocks"`
}

type purgeLocksOutput struct{ Body wire.LocksPurged }

// locking registers the operations that show, free and remove locks.
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
	register(a, operation{
		id: "resize-lock", method: http.MethodPost, path: "/locks/{lock}/resize", tag: "locks", scope: ScopeAdmin,
		errors:  []int{http.StatusConflict},
		summary: "Change how many slots a pool has, or make it",
		more:    "409: more of its slots are held than are to stay, or it is a lock; nothing was changed.",
	}, func(ctx context.Context, in *resizeInput) (*struct{}, error) {
		if err := checkNames("lock", in.Lock); err != nil {
			return nil, err
		}
		deedOf(ctx).detail = fmt.Sprint("to ", in.Body.Slots)
		pool, err := a.locks.Pool(in.Lock, 0)
		if err != nil {
			return nil, err
		}
		return nil, pool.Resize(ctx, in.Body.Slots)
	})
	register(a, operation{
		id: "purge-locks", method: http.MethodPost, path: "/locks/purge", tag: "locks", scope: ScopeAdmin,
		summary: "Delete locks that have not been used for long",
		more:    "Their fences go on rising if they are used again. Pools stay. It is done in small transactions: when it is broken off, a part is done.",
	}, a.purgeLocks)
	a.tickets()
}

func (a *API) purgeLocks(ctx context.Context, in *purgeLocksInput) (*purgeLocksOutput, error) {
	unused, err := readDuration("unused", in.Body.Unused)
	if err == nil && unused < time.Minute {
		err = invalid("unused", "%q is less than a minute; give one such as 720h", in.Body.Unused)
	}
	if err != nil {
		return nil, err
	}
	d := deedOf(ctx)
	d.detail = fmt.Sprint("unused for ", wire.DurationOf(unused))
	n, err := a.locks.Purge(ctx, unused)
	d.count = n
	return &purgeLocksOutput{wire.LocksPurged{Purged: n}}, err
}
