package dbtest

import "sync"

// A Crowd counts those who are somewhere at once, such as the jobs or runs that are executed. It
// may be used by several goroutines.
type Crowd struct {
	mu              sync.Mutex
	here, most, all int
}

// Enter counts one who comes.
func (c *Crowd) Enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.here++
	c.all++
	c.most = max(c.most, c.here)
}

// Leave counts one who goes.
func (c *Crowd) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.here--
}

// Counts returns how many are here, the most that were here at once, and how many have come.
func (c *Crowd) Counts() (here, most, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.here, c.most, c.all
}
