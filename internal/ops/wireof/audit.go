package wireof

import (
	"cmp"

	"github.com/dbcron/dbcron/internal/ops/audit"
	"github.com/dbcron/dbcron/wire"
)

// AuditEntry returns an entry of the audit log.
func AuditEntry(e *audit.Entry) wire.AuditEntry {
	return wire.AuditEntry{
		ID: wire.ID(e.ID), At: wire.At(e.At), Actor: text(e.Actor), Login: cmp.Or(e.Login, audit.None), Source: e.Source,
		Action: e.Action, Object: text(e.Object), Count: e.Count, Detail: text(e.Detail),
	}
}
