// The page's own program: theme, table, the moment that is looked at. The pictures are in charts.js.
// Everything from the trace reaches the document as text, never as markup.
"use strict";

const data = JSON.parse(document.getElementById("trace").textContent);
const byId = (id) => document.getElementById(id);
const gib = (mib) => (mib >= 1024 ? (mib / 1024).toFixed(1) + " GiB" : Math.round(mib) + " MiB");
const two = (number) => String(number).padStart(2, "0");
const clock = (s) => {
  const whole = Math.max(0, Math.round(s));
  const [h, m] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return h ? `${h}:${two(m)}:${two(whole % 60)}` : `${m}:${two(whole % 60)}`;
};
const make = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

// A path that may be broken behind its slashes and underscores, and not within words.
const breakable = (text) => text.split(/(?<=[/_])/).flatMap((part) => [part, make("wbr")]);

const runs = data.runs;
const phaseName = (run) => runs.kind[run] + (runs.arch[run] ? " " + runs.arch[run] : "");
const unitName = (run) => data.units[runs.unit[run]];

// -- theme ---------------------------------------------------------------------------------------------------

const theme = {
  names: ["auto", "light", "dark"],
  now: "auto",
  set(name) {
    theme.now = name;
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    byId("theme").textContent = "Theme: " + name;
    document.dispatchEvent(new Event("themechange"));
  },
};
byId("theme").addEventListener("click", () => {
  theme.set(theme.names[(theme.names.indexOf(theme.now) + 1) % theme.names.length]);
});
byId("theme").hidden = false;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme.set(theme.now));

// -- the table of units --------------------------------------------------------------------------------------

const table = byId("unit-table");
const body = table.tBodies[0];
const rows = [...body.rows];

const shown = { words: [], all: false, extra: "" };
const FIRST_ROWS = 40;

function sortBy(header) {
  const column = header.cellIndex;
  const down = header.getAttribute("aria-sort") !== "descending";
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  // Numbers are worth looking at from the largest on, names from the first.
  const numbers = header.classList.contains("n");
  const descending = numbers ? down : !up;
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const worth = (row) => row.cells[column].dataset.sort;
  const order = numbers ? (a, b) => worth(a) - worth(b) : (a, b) => worth(a).localeCompare(worth(b));
  rows.sort((a, b) => (descending ? -order(a, b) : order(a, b)));
  shown.extra = `, sorted by ${header.textContent.trim()}, ${descending ? "descending" : "ascending"}`;
  body.append(...rows);
  showRows();
}

function showRows() {
  let [matching, visible] = [0, 0];
  for (const row of rows) {
    const fits = shown.words.every((word) => row.textContent.toLowerCase().includes(word));
    matching += fits;
    const early = shown.all || shown.words.length > 0 || matching <= FIRST_ROWS;
    row.classList.remove("later");
    row.hidden = !(fits && early);
    visible += !row.hidden;
  }
  byId("unit-count").textContent = `${visible} of ${rows.length} units${shown.extra}`;
}

byId("unit-all").addEventListener("click", () => {
  shown.all = !shown.all;
  byId("unit-all").setAttribute("aria-pressed", String(shown.all));
  showRows();
});

for (const header of table.tHead.rows[0].cells) {
  const button = header.querySelector("button");
  if (button) button.addEventListener("click", () => sortBy(header));
}
byId("unit-filter").addEventListener("input", (event) => {
  shown.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  showRows();
});

// -- what is chosen: a unit, whose runs stand out in the picture ----------------------------------------------

const chosen = { unit: null, changed: [] };
function choose(unit) {
  chosen.unit = unit;
  byId("chosen").hidden = unit === null;
  byId("chosen-name").textContent = unit === null ? "" : data.units[unit];
  for (const row of rows) row.classList.toggle("chosen-row", unit !== null && Number(row.dataset.unit) === unit);
  for (const tell of chosen.changed) tell();
}
byId("unchoose").addEventListener("click", () => choose(null));
body.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-show]");
  if (!button) return;
  const unit = Number(button.dataset.show);
  choose(unit);
  const first = runs.unit.indexOf(unit);
  if (first >= 0) moment.at(runs.peak_s[largestRun(unit)]);
  byId("memory").scrollIntoView();
  byId("memory-title").focus({ preventScroll: true });
});
function largestRun(unit) {
  let best = runs.unit.indexOf(unit);
  runs.unit.forEach((each, run) => { if (each === unit && runs.peak[run] > runs.peak[best]) best = run; });
  return best;
}

// -- the moment that is looked at -----------------------------------------------------------------------------

const times = data.moments.at_s;
const moment = {
  index: data.peak,
  changed: [],
  set(index) {
    moment.index = Math.max(0, Math.min(times.length - 1, index));
    tellMoment();
    for (const tell of moment.changed) tell();
  },
  at(at_s) {
    moment.set(momentAt(at_s));
  },
};

// The last moment that is not after this time.
function momentAt(at_s) {
  let [low, high] = [0, times.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= at_s + 1e-6) low = middle;
    else high = middle - 1;
  }
  return low;
}

function tellMoment() {
  const m = data.moments;
  const at = moment.index;
  const total = data.groups.reduce((sum, _, group) => sum + m.held[group][at], 0);
  const jobs = `${m.running[at]} running, ${m.waiting[at]} waiting`;
  byId("now-title").textContent = "At " + clock(times[at]);
  byId("now-sum").textContent = `${gib(total)} of ${gib(m.budget[at])} budget`;
  byId("now-jobs").textContent = jobs;
  const list = byId("now-list");
  list.replaceChildren();
  for (const [run, size] of m.holders[at]) {
    const item = make("li");
    const name = make("span");
    name.append(make("b", "", phaseName(run)), " ", ...breakable(unitName(run)));
    const right = make("span", "n", gib(size));
    right.append(make("span", "of", "of ~" + gib(runs.estimate[run])));
    const meter = make("span", "meter");
    meter.style.width = Math.max(1, (100 * size) / Math.max(1, m.limit[at])) + "%";
    meter.style.background = `var(--${data.groups[runs.group[run]].css})`;
    item.append(name, right, meter);
    list.append(item);
  }
  if (!m.holders[at].length) list.append(make("li", "", "no compiler holds memory"));
  const slider = byId("moment");
  slider.value = at;
  const most = m.holders[at].length ? `, most of it ${phaseName(m.holders[at][0][0])} of ${unitName(m.holders[at][0][0])}` : "";
  slider.setAttribute("aria-valuetext", `${clock(times[at])}: ${gib(total)} held${most}; ${jobs}`);
}

byId("moment").max = times.length - 1;
byId("moment").addEventListener("input", (event) => moment.set(Number(event.target.value)));
byId("to-peak").addEventListener("click", () => moment.set(data.peak));
byId("events-list").addEventListener("click", (event) => {
  const button = event.target.closest("button[data-at]");
  if (button) {
    moment.at(Number(button.dataset.at));
    byId("memory").scrollIntoView();
  }
});

// -- copying a fix --------------------------------------------------------------------------------------------

for (const button of document.querySelectorAll("button[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
    }
  });
}

// -- the library comes packed in the page ---------------------------------------------------------------------

async function unpackLibrary() {
  const packed = Uint8Array.from(atob(byId("library").textContent.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = make("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
}

async function begin() {
  tellMoment();
  showRows();
  for (const element of document.querySelectorAll("[data-needs-script]")) element.hidden = false;
  byId("unit-all").hidden = rows.length <= FIRST_ROWS;
  try {
    performance.mark("begin");
    await unpackLibrary();
    performance.mark("unpacked");
    drawPictures();
    performance.mark("drawn");
    document.documentElement.dataset.ready = "yes";
  } catch (error) {
    byId("plot").textContent = "This browser cannot draw the pictures (it needs one from 2024 or later). Everything else is on this page.";
    document.documentElement.dataset.ready = "no";
    throw error;
  }
}
