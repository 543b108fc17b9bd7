package health

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/dbcron/dbcron/internal/plain"
	"github.com/dbcron/dbcron/queue/admin"
)

// notifications is the queue of the messages of package notify, which uses this one.
const notifications = "dbcron.notify"

// ofNotifications finds targets to which notifications cannot be delivered: a message was tried in vain, or was given up in the last day
// if any was. It looks at a bounded number of messages.
func ofNotifications(ctx context.Context, c *admin.Client, given bool, now time.Time) (all []Problem, err error) {
	states, seen := []admin.State{admin.StateDelayed}, map[string]int{}
	if given {
		states = append(states, admin.StateDead)
	}
	for _, state := range states {
		found, _, err := c.Jobs(ctx, admin.Filter{Queue: notifications, State: state, Limit: 100, Match: func(i *admin.Job) bool {
			return i.Error != "" && (state == admin.StateDelayed || now.Sub(i.At) <= back)
		}})
		if err != nil {
			return nil, err
		}
		for i := range found {
			j := &found[i]
			var m struct {
				Target string `json:"target"` // as people may see it
			}
			_ = json.Unmarshal(j.Payload, &m) // which was written by hand if it is none
			if seen[m.Target]++; seen[m.Target] > 1 {
				continue
			}
			all = append(all, Problem{
				Of: Queues, Bad: true, what: "Notifications to " + plain.Cut(m.Target, 80) + " cannot be delivered", Since: j.Enqueued, change: j.Error,
				Why: fmt.Sprintf("tried %s; the last error: %s", plain.Plural(j.Attempts, "time", "times"), plain.Cut(j.Error, 200)),
				Do:  fmt.Sprintf("correct the target or its server, and try it: dbcron notify test; then send what waits: dbcron job retry %d", j.ID),
			})
		}
	}
	slices.SortStableFunc(all, func(a, b Problem) int { return a.Since.Compare(b.Since) })
	return cut(all, "target gets no notifications", "targets get no notifications",
		"see all: dbcron job list --state delayed --queue "+notifications), nil
}
