package push

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dbcron/dbcron/internal/address"
)

// Public stands for all addresses of the internet in a list of hosts.
const Public = "public"

// Hosts restricts where requests are sent. Whoever may enqueue a job or set an endpoint makes the daemon
// send a request: without restrictions, even to services that only the daemon's host or network can
// reach, such as a database's admin page or a cloud's metadata. So each address is checked when it is
// dialed, after the name was resolved, and redirects are not followed.
type Hosts struct {
	public bool
	names  []hostName
	nets   []netip.Prefix
}

// A hostName is a name, or all names below one, and a port or 0 for any.
type hostName struct {
	name  string
	below bool
	port  uint16
}

// ParseHosts parses a list of allowed hosts. An entry is one of
//
//	public                all addresses of the internet: what an empty list means
//	10.1.0.0/16, ::1      a network or an address, whatever the name
//	worker, worker:8080   a host of that name, also at a private address
//	*.example.org         a host of a name below this one
//
// A name also allows loopback addresses, but not link-local ones and others at which clouds serve
// metadata: only such an address itself does.
func ParseHosts(list []string) (*Hosts, error) {
	h := &Hosts{public: len(list) == 0}
	for _, entry := range list {
		if entry == Public {
			h.public = true
			continue
		}
		if net, err := netip.ParsePrefix(entry); err == nil && !net.Addr().Is4In6() {
			h.nets = append(h.nets, net.Masked())
			continue
		}
		if at, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
			h.nets = append(h.nets, netip.PrefixFrom(at.Unmap(), at.Unmap().BitLen()))
			continue
		}
		name, err := parseHostName(entry)
		if err != nil {
			return nil, invalid("hosts", "%q: %v", entry, err)
		}
		h.names = append(h.names, name)
	}
	return h, nil
}

func parseHostName(entry string) (n hostName, err error) {
	name := entry
	if host, port, ok := strings.Cut(entry, ":"); ok {
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return n, errors.New("its port is not 1 to 65535")
		}
		name, n.port = host, uint16(number)
	}
	name, n.below = strings.CutPrefix(name, "*.")
	n.name = cleanHost(name)
	if n.name == "" || strings.ContainsFunc(n.name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
	}) {
		return n, errors.New("it is not public, an address, a network such as 10.1.0.0/16, or the name of a host such as worker or *.example.org, with or without a port")
	}
	return n, nil
}

// cleanHost normalizes a name for comparison.
func cleanHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// named reports whether the list contains a host by name.
func (h *Hosts) named(host string, port uint16) bool {
	host = cleanHost(host)
	for _, n := range h.names {
		if (n.port == 0 || n.port == port) && (n.below && strings.HasSuffix(host, "."+n.name) || !n.below && host == n.name) {
			return true
		}
	}
	return false
}

// ErrRefused means that a host may not be sent to.
var ErrRefused = errors.New("push: the daemon may not send there")

// allow returns ErrRefused unless requests to a host may go to one of its addresses.
func (h *Hosts) allow(host string, at netip.AddrPort) error {
	ip := at.Addr().Unmap().WithZone("")
	for _, net := range h.nets {
		if net.Contains(ip) {
			return nil
		}
	}
	switch {
	case h.named(host, at.Port()) && !neverByName(ip):
		return nil
	case h.public && isPublic(ip):
		return nil
	}
	return fmt.Errorf("%w: %s has an address that is not allowed; dbcron serve --push-to allows hosts and networks", ErrRefused, host)
}

// Check returns [ErrRefused] for a URL that is not allowed whatever the addresses of its host.
func (h *Hosts) Check(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		return address.CheckEndpoint(endpoint)
	}
	host, port := u.Hostname(), portOf(u)
	if ip, err := netip.ParseAddr(host); err == nil {
		return h.allow(host, netip.AddrPortFrom(ip, port))
	}
	if !h.public && !h.named(host, port) && len(h.nets) == 0 {
		return fmt.Errorf("%w: %s is none of the hosts that dbcron serve --push-to names", ErrRefused, host)
	}
	return nil
}

func portOf(u *url.URL) uint16 {
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		return uint16(n)
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}

// neverByName reports addresses that a name does not allow, because whoever controls the name could
// choose them.
func neverByName(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || !ip.IsValid() || slices.Contains(metadata, ip)
}

// metadata are addresses at which clouds serve a host's secrets, besides the link-local ones.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("168.63.129.16"),
}

// global is the part of IPv6 allocated so far.
var global = netip.MustParsePrefix("2000::/3")

// notPublic are networks, besides those known to netip, that are not part of the internet or lead
// elsewhere.
var notPublic = prefixes("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
	"240.0.0.0/4", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16",
	"3fff::/20", "5f00::/16", "fec0::/10")

func prefixes(list ...string) (all []netip.Prefix) {
	for _, text := range list {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func isPublic(ip netip.Addr) bool {
	for _, net := range notPublic {
		if net.Contains(ip) {
			return false
		}
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() && !ip.IsLoopback() && (ip.Is4() || global.Contains(ip)) && !slices.Contains(metadata, ip)
}

// Dial connects to a host if that is allowed. It checks the address right before it connects, so that the
// name cannot resolve to another one in between.
func (h *Hosts) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %s", ErrRefused, address)
		}
		return h.allow(host, at)
	}}
	return d.DialContext(ctx, network, address)
}
