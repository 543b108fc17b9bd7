// Package address checks the addresses to which dbcron sends: doorbells of workers, endpoints of jobs, and the
// targets of notifications.
package address

import (
	"fmt"
	"net/netip"
)

// CheckDoorbell returns an error if no worker could hear a doorbell at an address: see queue.Options.
func CheckDoorbell(text string) error {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return fmt.Errorf("%q: write an address of this host and a port, such as 10.0.0.7:0; port 0 is any", text)
	}
	if at.Addr().IsUnspecified() || at.Addr().IsMulticast() {
		return fmt.Errorf("%q: other processes connect to this address, so they must be able to reach it", text)
	}
	return nil
}
