package sqlconn

import (
	"context"
	"time"
)

// shortKey marks contexts of short transactions.
type shortKey struct{}

// Short marks the context of a transaction that waits only for the database.
func Short(ctx context.Context) context.Context { return context.WithValue(ctx, shortKey{}, true) }

// IsShort reports whether a transaction begun with ctx is short.
func IsShort(ctx context.Context) bool { return ctx.Value(shortKey{}) != nil }

// briefKey marks contexts of statements that wait only shortly for locks.
type briefKey struct{}

// Brief marks the context of statements that wait for a row's lock for [BriefWait] at most.
func Brief(ctx context.Context) context.Context { return context.WithValue(ctx, briefKey{}, true) }

// IsBrief reports whether statements run with ctx are brief.
func IsBrief(ctx context.Context) bool { return ctx.Value(briefKey{}) != nil }

// BriefWait is how long they wait: longer than transactions of dbcron hold a lock, unless the database is
// very slow, and the shortest time that MySQL knows.
const BriefWait = time.Second

// HastyWait is how long they wait that serve many callers: for those who are about to commit.
const HastyWait = 20 * time.Millisecond
