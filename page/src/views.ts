/** The page's views, by the fragment of its address: `#chat`, `#wire`, `#labs`. */

const VIEWS = ['chat', 'wire', 'labs'];

/** Show the view that the address names, now and whenever it changes. */
export function showViews(): void {
  const show = () => {
    const named = location.hash.slice(1);
    const view = VIEWS.includes(named) ? named : 'chat';
    document.body.dataset.view = view;
    for (const link of document.querySelectorAll('.views a')) {
      if (link.getAttribute('href') === `#${view}`) link.setAttribute('aria-current', 'page');
      else link.removeAttribute('aria-current');
    }
  };
  addEventListener('hashchange', show);
  show();
}
