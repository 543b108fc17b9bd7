package wireof

import (
	"github.com/dbcron/dbcron/queue/admin"
	"github.com/dbcron/dbcron/wire"
)

// Share returns a tenant's share.
func Share(s *admin.Share) wire.Share {
	return wire.Share{Queue: s.Queue, Tenant: s.Tenant, Weight: s.Weight}
}
