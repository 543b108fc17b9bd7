package wireof

import (
	"strconv"

	"github.com/dbcron/dbcron/lock"
	"github.com/dbcron/dbcron/wire"
)

// Lock returns a lock.
func Lock(i *lock.Info) wire.Lock {
	w := wire.Lock{
		Name: i.Name, Slot: i.Slot, State: string(i.State), By: text(i.By), Since: wire.At(i.Since), Until: wire.At(i.Until),
		Released: wire.At(i.Released), Fence: strconv.FormatInt(i.Fence, 10), Extends: i.Extends, Takeovers: i.Takeovers, Meta: text(i.Meta),
		ForcedBy: text(i.ForcedBy), Forced: wire.At(i.Forced), ForcedWhy: text(i.ForcedWhy), Changed: wire.At(i.Changed), Ahead: Seconds(i.Ahead),
	}
	if i.State == lock.Held || i.State == lock.Kept { // not of a lease that was released early
		w.Left = Seconds(i.Left)
	}
	return w
}

// LockTicket returns a lock for its holder.
func LockTicket(t *lock.Ticket) wire.LockTicket {
	return wire.LockTicket{
		Name: t.Name, Token: t.Token, By: t.By, Fence: strconv.FormatInt(t.Fence, 10), Until: wire.At(t.Until), Left: Seconds(t.Left),
	}
}
