package browser

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/dbcron/dbcron/dialect/dbtest"
)

// spilling evaluates to what is wider than the card that it is in, and to the bars of links that hide some of theirs. What a box scrolls
// does not spill, but tables have to fit on a phone, and in a card from 1061 pixels on, where there are two columns.
const spilling = `(() => {
	const found = [], name = (e) => e.tagName + '.' + (e.getAttribute('class') || '') + ': ' + e.textContent.trim().slice(0, 60);
	const boxes = '.card, .scroll, .problems, .tile, .json, pre, header, main, footer, body';
	for (const e of document.querySelectorAll('body *')) {
		if (e.ownerSVGElement || e.matches('.skip') || !e.checkVisibility()) continue;
		const box = e.parentElement.closest(boxes), is = e.getBoundingClientRect(), its = box.getBoundingClientRect();
		if (!is.width || ['auto', 'scroll'].includes(getComputedStyle(box).overflowX) || e.closest('.tabs')) continue;
		if (is.right > its.right + 0.5 || is.left < its.left - 0.5) found.push(name(e));
	}
	for (const e of document.querySelectorAll('header nav' + (innerWidth > 1060 ? ', .card .scroll' : innerWidth < 400 ? ', .scroll' : '')))
		if (e.scrollWidth > e.clientWidth + 1) found.push('cut off: ' + name(e));
	return found.slice(0, 3);
})()`

// No element is wider than its card, at any width of a window.
func TestWidths(t *testing.T) {
	db := dbtest.Fresh(t, "sqlite")
	must(t, migrate(t, db))
	w := life(t, db, 500)
	b := open(t, serve(t, db.DB))
	widths := []int64{641, 900, 1061}
	for width := int64(360); width <= 1600; width += 40 {
		widths = append(widths, width)
	}
	pages := b.all(&w)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		b.as(look{"", "light", 900, 800, false})
		b.visit(pages[name])
		for _, width := range widths {
			b.as(look{"", "light", width, 800, false})
			var found []string
			b.run(chromedp.Evaluate(spilling, &found))
			if len(found) > 0 {
				t.Errorf("%s, %d pixels: %s", name, width, strings.Join(found, " | "))
			}
		}
	}
}
