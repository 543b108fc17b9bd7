package wireof

import (
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// Route returns a route.
func Route(r *admin.Route) wire.Route { return wire.Route{Kind: r.Kind, Queue: r.Queue} }

// Subscription returns a subscription.
func Subscription(s *admin.Subscription) wire.Subscription {
	return wire.Subscription{Topic: s.Topic, Queue: s.Queue}
}
