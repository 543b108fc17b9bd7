//go:build !linux

package measure

// A load is the processor time of the host, which only Linux reports here.
type load struct{ busy, all float64 }

func loadNow() load { return load{} }
