// Tokens: a turn's are loaded when it is opened; arrow keys go from one to the next.

const failed = "The tokens did not load: the link opens their page.";

async function load(part, address) {
  const answer = await fetch("/dashboard" + address);
  if (!answer.ok) throw new Error(answer.status);
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".token-part");
  part.replaceWith(fresh);
  return fresh;
}

for (const details of document.querySelectorAll("details[data-tokens]")) {
  details.addEventListener("toggle", async () => {
    if (!details.open || details.dataset.loaded) return;
    details.dataset.loaded = "yes";
    const part = details.querySelector(".token-part");
    try {
      await load(part, details.dataset.tokens);
    } catch {
      delete details.dataset.loaded;
      part.querySelector(".muted").textContent = failed;
    }
  });
}

// Links to another measure or to the next tokens replace the part; on the page of tokens they lead on.
document.addEventListener("click", async (event) => {
  const link = event.target.closest("details[data-tokens] a[data-loads]");
  const isPlain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
  if (link && isPlain) {
    event.preventDefault();
    try {
      const fresh = await load(link.closest(".token-part"), link.getAttribute("href"));
      fresh.querySelector(".tokens")?.focus();
    } catch {
      location.href = link.href;
    }
    return;
  }
  const token = event.target.closest(".tokens .token");
  if (token) choose(token);
});

function choose(token) {
  const group = token.closest(".tokens");
  group.querySelector(".token[data-chosen]")?.removeAttribute("data-chosen");
  token.dataset.chosen = "";
  group.parentElement.querySelector(".token-facts").textContent = token.title;
  token.scrollIntoView({ block: "nearest" });
}

const STEPS = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };

document.addEventListener("keydown", (event) => {
  const group = event.target.closest(".tokens");
  if (!group || !(event.key in STEPS) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const tokens = [...group.querySelectorAll(".token")];
  const now = tokens.findIndex((each) => "chosen" in each.dataset);
  const next = now < 0 ? 0 : now + STEPS[event.key];
  choose(tokens[Math.min(Math.max(next, 0), tokens.length - 1)]);
});
