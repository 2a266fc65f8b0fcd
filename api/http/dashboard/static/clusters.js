// The page of clusters: its contents anew every few seconds, without losing focus or place.

const EVERY_MS = 5000;
const page = document.getElementById("clusters");
const live = document.getElementById("live");

function show(state, text) {
  live.hidden = false;
  live.dataset.live = state;
  live.textContent = text;
}

// Only what differs is replaced: a reader's selection and focus stay in tables that did not change.
function replace(fresh) {
  const now = [...page.children], next = [...fresh.children];
  const isSameShape = now.length === next.length;
  if (!isSameShape) return page.replaceChildren(...next);
  now.forEach((each, index) => {
    if (each.isEqualNode(next[index])) return;
    const link = document.activeElement?.closest("a");
    const focused = link && each.contains(link) ? link.getAttribute("href") : null;
    each.replaceWith(next[index]);
    if (focused) [...next[index].querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus();
  });
}

async function refresh() {
  const answer = await fetch("/dashboard/clusters");
  if (!answer.ok) throw new Error(answer.status);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("clusters");
  replace(fresh);
}

async function follow() {
  if (!document.hidden) {
    try {
      await refresh();
      show("on", "live");
    } catch {
      show("lost", "reconnecting");
    }
  }
  setTimeout(follow, EVERY_MS);
}

show("on", "live");
setTimeout(follow, EVERY_MS);
