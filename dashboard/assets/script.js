// Refreshes what a page shows, ticks all jobs of a list, and goes on with what is done in parts.
// Without it, loading the page again, ticking each one and a button do the same.
(() => {
  'use strict';
  const tickAll = () => {
    const all = document.querySelector('input[data-all]');
    if (!all) return;
    all.hidden = false;
    all.addEventListener('change', () => {
      for (const one of all.form.querySelectorAll('input[name=id]')) one.checked = all.checked;
    });
  };
  tickAll();
  const part = document.querySelector('form[data-go-on]');
  if (part && !document.querySelector('.banner.bad')) setTimeout(() => part.requestSubmit(part.querySelector('button')), 400);
  const every = 1000 * Number(document.body.dataset.refresh || 0);
  if (!every) return;
  const lost = document.getElementById('lost');
  let since = null;

  // What somebody fills in, has opened or has marked stays as it is.
  const busy = () => {
    const main = document.getElementById('main');
    const at = document.activeElement;
    const marked = document.getSelection();
    if (main.contains(at) && at.matches('input, select, textarea')) return true;
    if (marked && !marked.isCollapsed && main.contains(marked.anchorNode)) return true;
    return [...main.querySelectorAll('form input:not([type=hidden])')].some((i) => i.value !== i.defaultValue || i.checked !== i.defaultChecked);
  };

  const place = (e) => {
    const list = [...document.getElementById('main').querySelectorAll('a, button, summary')];
    return list.indexOf(e);
  };

  const show = (text) => {
    const next = new DOMParser().parseFromString(text, 'text/html');
    const from = next.getElementById('main');
    const main = document.getElementById('main');
    if (!from || busy()) return;
    for (const d of main.querySelectorAll('details[id]')) {
      const same = from.querySelector('#' + CSS.escape(d.id));
      if (same) same.open = d.open;
    }
    const note = main.querySelector('.banner.ok');
    const focused = main.contains(document.activeElement) ? place(document.activeElement) : -1;
    const scrolled = [...main.querySelectorAll('.scroll, pre')].map((e) => [e.scrollLeft, e.scrollTop]);
    main.replaceChildren(...[...from.childNodes].map((n) => document.importNode(n, true)));
    if (note) main.prepend(note);
    tickAll();
    if (focused >= 0) main.querySelectorAll('a, button, summary')[focused]?.focus({ preventScroll: true });
    [...main.querySelectorAll('.scroll, pre')].forEach((e, i) => {
      if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i];
    });
    const footer = next.querySelector('footer');
    if (footer) document.querySelector('footer').replaceChildren(...[...footer.childNodes].map((n) => document.importNode(n, true)));
  };

  const address = () => {
    const url = new URL(location.href);
    url.searchParams.delete('ok');
    url.searchParams.delete('n');
    url.hash = '';
    return url;
  };

  const refresh = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(address(), { headers: { Accept: 'text/html' }, signal: AbortSignal.timeout(20000) });
      if (answer.redirected) return location.reload(); // to sign in
      if (!answer.ok) throw new Error('the server answered ' + answer.status);
      show(await answer.text());
      lost.hidden = true;
      since = null;
    } catch (e) {
      since ??= new Date();
      lost.textContent = 'This page is not up to date since ' + since.toLocaleTimeString() + ': ' + (e instanceof TypeError ? 'the server does not answer' : e.message) + '.';
      lost.hidden = false;
    }
  };

  const again = async () => {
    await refresh();
    setTimeout(again, every);
  };
  setTimeout(again, every);
})();
