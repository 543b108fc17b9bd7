package wire

// A Lock is a lock, a pool, or a slot of a pool.
type Lock struct {
	Name      string  `json:"name" doc:"The name of the lock or the pool."`
	Slot      int     `json:"slot,omitempty" doc:"The number of a slot of a pool, from 1."`
	State     string  `json:"state" enum:"free,held,expired,kept,pool,closed" doc:"free: nobody has it. held: by a holder that renews it. expired: its holder died or was cut off, and it can be taken. kept: its holder is done, and it comes free when its minimum hold is over. pool: it stands for a pool, whose slots follow. closed: a slot that its pool no longer has."`
	By        string  `json:"by,omitempty" doc:"The holder, or the last one."`
	Since     Instant `json:"since,omitzero" doc:"When the holder acquired the lock."`
	Until     Instant `json:"until,omitzero" doc:"When the lease ends or ended, unless it is renewed."`
	Left      float64 `json:"left_seconds,omitempty" doc:"How long the lease of a lock that is held or kept still lasts, in seconds."`
	Released  Instant `json:"released,omitzero" doc:"When the last holder released the lock."`
	Fence     string  `json:"fence" doc:"A number that grows with each holder, so that what the holder writes to can refuse a late one."`
	Extends   int64   `json:"extends" doc:"How often the holder has renewed the lease."`
	Takeovers int64   `json:"takeovers" doc:"How often the lock was acquired because a lease had expired."`
	Meta      string  `json:"meta,omitempty" doc:"What the holder says about itself."`
	ForcedBy  string  `json:"forced_by,omitempty" doc:"Who last released the lock by force."`
	Forced    Instant `json:"forced,omitzero" doc:"When that was."`
	ForcedWhy string  `json:"forced_reason,omitempty" doc:"Why that was."`
	Changed   Instant `json:"changed,omitzero" doc:"When anything about the lock last changed."`
	Ahead     float64 `json:"ahead_seconds,omitempty" doc:"How far that is in the future, in seconds: the database's clock has gone back since by as much or more, and a lease that was not renewed since lasts for as much longer."`
}

// A LockTicket is a lock as its holder gets it over HTTP.
type LockTicket struct {
	Name  string  `json:"name" doc:"The name of the lock."`
	Token string  `json:"token" doc:"The secret by which the holder renews and releases the lock."`
	By    string  `json:"by" doc:"The holder, as lists of locks show it."`
	Fence string  `json:"fence" doc:"A number that grows with each holder. Pass it to what the work writes to, which can then refuse a late holder."`
	Until Instant `json:"until" doc:"When the lease ends, unless it is renewed."`
	Left  float64 `json:"left_seconds" doc:"How long that is from now, in seconds."`
}

// LocksPurged is what became of locks that nobody used.
type LocksPurged struct {
	Purged int `json:"purged" doc:"The number of locks that were forgotten."`
}
