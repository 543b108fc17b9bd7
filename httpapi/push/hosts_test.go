package push

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/dbcron/dbcron/queue"
)

func TestHosts(t *testing.T) {
	for _, test := range []struct {
		list          string
		host, address string
		allowed       bool
	}{
		{"", "example.org", "93.184.216.34:443", true},
		{"", "example.org", "[2606:2800:220:1::1]:443", true},
		{"", "example.org", "127.0.0.1:80", false}, // whatever the name says
		{"", "localhost", "[::1]:80", false},
		{"", "a", "10.0.0.1:80", false},
		{"", "a", "172.16.0.1:80", false},
		{"", "a", "192.168.1.1:80", false},
		{"", "a", "169.254.169.254:80", false}, // metadata of clouds
		{"", "a", "[fd00:ec2::254]:80", false},
		{"", "a", "100.100.100.200:80", false},
		{"", "a", "[::ffff:10.0.0.1]:80", false},
		{"", "a", "[64:ff9b::a00:1]:80", false}, // which leads to 10.0.0.1
		{"", "a", "[2002:a00:1::]:80", false},
		{"", "a", "0.0.0.0:80", false},
		{"", "a", "[::]:80", false},
		{"", "a", "224.0.0.1:80", false},
		{"", "a", "255.255.255.255:80", false},
		{"", "a", "[fe80::1%eth0]:80", false},
		{"10.1.0.0/16", "a", "10.1.2.3:80", true},
		{"10.1.0.0/16", "a", "[::ffff:10.1.2.3]:80", true},
		{"10.1.0.0/16", "a", "10.2.2.3:80", false},
		{"10.1.0.0/16", "example.org", "93.184.216.34:443", false}, // a list is all that is allowed
		{"10.1.0.0/16 public", "example.org", "93.184.216.34:443", true},
		{"::1", "a", "[::1]:80", true},
		{"[::1]", "a", "[::1]:80", true},
		{"::ffff:10.0.0.1", "a", "10.0.0.1:80", true},
		{"169.254.169.254", "a", "169.254.169.254:80", true},
		{"worker", "worker", "10.0.0.1:80", true},
		{"worker", "WORKER.", "93.184.216.34:80", true},
		{"worker", "worker.evil.org", "10.0.0.1:80", false},
		{"worker", "x.worker", "10.0.0.1:80", false},
		{"worker", "worker", "169.254.169.254:80", false},
		{"worker", "worker", "127.0.0.1:80", true},
		{"worker", "worker", "[fd00:ec2::254]:80", false},
		{"worker", "worker", "100.100.100.200:80", false},
		{"", "a", "168.63.129.16:80", false},
		{"", "a", "[::10.0.0.1]:80", false},
		{"", "a", "[4000::1]:80", false},
		{"worker:8080", "worker", "10.0.0.1:8080", true},
		{"worker:8080", "worker", "10.0.0.1:80", false},
		{"*.example.org", "a.b.example.org", "10.0.0.1:80", true},
		{"*.example.org", "example.org", "10.0.0.1:80", false},
		{"*.example.org", "badexample.org", "10.0.0.1:80", false},
	} {
		h, err := ParseHosts(strings.Fields(test.list))
		must(t, err)
		err = h.allow(test.host, netip.MustParseAddrPort(test.address))
		if (err == nil) != test.allowed || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %s at %s: %v", test.list, test.host, test.address, err)
		}
	}
	for _, entry := range []string{"", "a b", "http://a", "a:0", "a:x", "10.0.0.0/33", "::ffff:10.0.0.0/104", "*.", "*", "a/b", "ä"} {
		if _, err := ParseHosts([]string{entry}); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%q: %v", entry, err)
		}
	}
	for _, test := range []struct {
		list, url string
		allowed   bool
	}{
		{"", "http://10.0.0.1/", false},
		{"", "http://[::1]:80/", false},
		{"", "http://name/", true}, // its address is looked at later
		{"worker", "http://worker/", true},
		{"worker", "http://other/", false},
		{"worker:8080", "http://worker/", false},
		{"worker:443", "https://worker/", true},
		{"10.0.0.0/8", "http://name/", true},
	} {
		h, err := ParseHosts(strings.Fields(test.list))
		must(t, err)
		if err := h.Check(test.url); (err == nil) != test.allowed {
			t.Errorf("%q: %s: %v", test.list, test.url, err)
		}
	}
}

func FuzzParseHosts(f *testing.F) {
	for _, entry := range []string{"public", "10.0.0.0/8", "::1", "*.example.org:443", "a:b:c", "[::1]:80"} {
		f.Add(entry)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		h, err := ParseHosts([]string{entry})
		if err != nil {
			return
		}
		if entry != "169.254.169.254" && !strings.Contains(entry, "/") && !strings.Contains(entry, "254") &&
			h.allow("x", netip.MustParseAddrPort("169.254.169.254:80")) == nil {
			t.Errorf("%q allows metadata", entry)
		}
	})
}
