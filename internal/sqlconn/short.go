package sqlconn

import "context"

// shortKey marks contexts of short transactions.
type shortKey struct{}

// Short marks the context of a transaction that waits only for the database.
func Short(ctx context.Context) context.Context { return context.WithValue(ctx, shortKey{}, true) }

// IsShort reports whether a transaction begun with ctx is short.
func IsShort(ctx context.Context) bool { return ctx.Value(shortKey{}) != nil }
