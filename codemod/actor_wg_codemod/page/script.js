"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const search = document.getElementById("search");
const shown = document.getElementById("shown");
const sections = all("main section");
const links = new Map(all("nav li a").map((link) => [link.hash.slice(1), link]));

function chosen(name) {
  return new Set(all(`input[name="${name}"]:checked`).map((box) => box.value));
}

function filter() {
  const codes = chosen("code");
  const kinds = chosen("class");
  const states = chosen("state");
  const words = search.value.toLowerCase();
  let rows = 0;
  let files = 0;
  for (const section of sections) {
    let here = 0;
    for (const row of all(".findings tbody tr", section)) {
      const { code, kind, state } = row.dataset;
      row.hidden = !(codes.has(code) && kinds.has(kind) && states.has(state));
      here += row.hidden ? 0 : 1;
    }
    const named = section.dataset.path.toLowerCase().includes(words);
    section.hidden = !named || (here === 0 && !section.dataset.problem);
    links.get(section.id).parentElement.hidden = section.hidden;
    rows += section.hidden ? 0 : here;
    files += section.hidden ? 0 : 1;
  }
  shown.textContent = `${rows} findings in ${files} files shown`;
}

function visible() {
  return sections.filter((section) => !section.hidden);
}

function jump(section) {
  if (!section) return;
  for (const link of links.values()) link.removeAttribute("aria-current");
  links.get(section.id).setAttribute("aria-current", "true");
  section.scrollIntoView();
  section.querySelector("h2").focus({ preventScroll: true });
}

function step(by) {
  const list = visible();
  const now = list.findIndex((section) => section.contains(document.activeElement));
  jump(list[now < 0 ? (by > 0 ? 0 : list.length - 1) : now + by]);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search) {
    if (event.key === "Escape") {
      search.value = "";
      filter();
      search.blur();
    }
    return;
  }
  const actions = { j: () => step(1), k: () => step(-1), "/": () => search.focus() };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});

for (const [id, link] of links) {
  link.addEventListener("click", (event) => {
    // Going to the fragment would take the focus away again.
    event.preventDefault();
    history.replaceState(null, "", link.hash);
    jump(document.getElementById(id));
  });
}
search.addEventListener("input", filter);
for (const box of all('nav input[type="checkbox"]')) box.addEventListener("change", filter);
filter();
