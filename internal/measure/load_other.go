//go:build !linux

package measure

// A load is what the host's processors have done, which only Linux tells here.
type load struct{ busy, all float64 }

func loadNow() load { return load{} }
