package browser

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// axeVersion is the version of npm's axe-core, which finds accessibility problems.
const axeVersion = "4.10.3"

// axe returns axe-core's script. npm fetches it into the user's cache when it is first needed. Only
// this test uses it; it is not part of the project.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	must(t, err)
	folder := filepath.Join(cache, "dbcron-tests", "axe-core-"+axeVersion)
	file := filepath.Join(folder, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(file); err != nil {
		must(t, os.MkdirAll(folder, 0o755))
		fetch := exec.CommandContext(t.Context(), "npm", "install", "--prefix", folder, "--no-save", "--no-audit",
			"--no-fund", "--ignore-scripts", "axe-core@"+axeVersion)
		if out, err := fetch.CombinedOutput(); err != nil {
			if os.Getenv("CI") != "true" {
				t.Skipf("there is no axe-core: npm install axe-core@%s: %v: %s", axeVersion, err, out)
			}
			t.Fatalf("there is no axe-core; npm has to be there, and reach its registry: %v: %s", err, out)
		}
	}
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// A look is a way to view pages: a colour scheme and a screen size.
type look struct {
	name, scheme  string
	width, height int64
	mobile        bool
}

var looks = []look{
	{"light", "light", 1280, 800, false},
	{"dark", "dark", 1280, 800, false},
	{"narrow", "light", 900, 800, false},
	{"narrow-dark", "dark", 900, 800, false},
	{"phone", "light", 360, 780, true},
	{"phone-dark", "dark", 360, 780, true},
}

// as switches the browser to a look.
func (b *tab) as(l look) {
	b.t.Helper()
	b.run(emulation.SetDeviceMetricsOverride(l.width, l.height, 1, l.mobile),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.scheme}}))
}

// violations evaluates to axe's serious and critical findings on a page, with the first elements.
const violations = `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical')
	.map((v) => v.impact + ': ' + v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + ' (' + (n.any[0] || n.all[0] || n.none[0] || {}).message + ')').join(' | ')))`

// No page has a serious accessibility problem, in dark and light, on a desktop and on a phone.
func TestAxe(t *testing.T) {
	script := axe(t)
	db := dbtest.Fresh(t, "sqlite")
	must(t, migrate(t, db))
	w := life(t, db, 500)
	address := serve(t, db.DB)
	b := open(t, address)
	pages := b.all(&w)
	for _, l := range looks {
		b.as(l)
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			b.visit(pages[name])
			var found []string
			b.run(chromedp.Evaluate(script, nil),
				chromedp.Evaluate(violations, &found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
			for _, text := range found {
				t.Errorf("%s, %s: %s", name, l.name, text)
			}
			if wide := b.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth"); wide != false {
				t.Errorf("%s, %s: it is wider than the window", name, l.name)
			}
		}
	}
	if len(pages) < 25 {
		t.Error(fmt.Sprint("there are only ", len(pages), " pages"))
	}
}
