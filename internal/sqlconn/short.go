package sqlconn

import "context"

// shortKey marks the contexts of short transactions.
type shortKey struct{}

// Short marks the context of a transaction that is begun as a short one, which waits for
// nothing but the database.
func Short(ctx context.Context) context.Context { return context.WithValue(ctx, shortKey{}, true) }

// IsShort tells whether a transaction that is begun with ctx is a short one.
func IsShort(ctx context.Context) bool { return ctx.Value(shortKey{}) != nil }
