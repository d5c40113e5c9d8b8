// The three pictures on one axis of time: memory by tool, jobs, and a lane a place. Drawn with Plotly.
// Plotly reads a few tags in texts: names from the trace are escaped on their way to it.
"use strict";

// The axis is one of dates, for its m:ss. Plotly takes small numbers for years: the build begins in 2000, at midnight.
const MIDNIGHT = Date.UTC(2000, 0, 1);
const ms = (s) => MIDNIGHT + Math.round(1000 * s);
const plain = (text) => text.replace(/[&<>]/g, (char) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[char]);
const PATTERNS = { cicc: "", ptxas: "/", cudafe: "x", cc1plus: ".", ld: "\\", other: "-" };
const MOST_NAMED_RUNS = 600; // more names than that in lanes cannot be read, and cost seconds
const MOST_PATTERNED_RUNS = 1500;
const narrow = () => byId("plot").clientWidth < 560;

// Colours that are given as light-dark(…) in the style sheet, as the browser makes them out.
function colour(name) {
  const probe = byId("probe");
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

function memoryTraces(hidden) {
  const m = data.moments;
  const x = m.at_s.map(ms);
  const line = { shape: "hv", width: 1 };
  const quiet = { x, yaxis: "y", hoverinfo: "skip", mode: "lines", showlegend: false };
  const toGib = (list) => list.map((mib) => mib / 1024);
  const stack = data.groups.map((group, at) => ({
    ...quiet,
    y: toGib(m.held[at]),
    name: group.name,
    stackgroup: "held",
    visible: !hidden.has(group.css),
    line: { ...line, width: 0 },
    fillpattern: {
      shape: PATTERNS[group.css], size: 7, solidity: 0.25, fillmode: "replace",
      bgcolor: colour(group.css), fgcolor: colour("on-" + group.css), fgopacity: 0.5,
    },
    fillcolor: colour(group.css),
  }));
  const room = { ...quiet, y: toGib(m.room), line: { ...line, width: 0 }, name: "room" };
  return [
    { ...quiet, y: toGib(m.budget), line: { ...line, width: 0 }, name: "budget floor" },
    {
      ...room, fill: "tonexty", name: "reserve", fillcolor: "rgba(0,0,0,0)",
      fillpattern: { shape: "/", size: 9, solidity: 0.12, fgcolor: colour("reserve"), bgcolor: "rgba(0,0,0,0)" },
    },
    { ...quiet, y: toGib(m.limit), line: { ...line, width: 0 }, fill: "tonexty", fillcolor: colour("soft"), name: "others" },
    ...stack,
    { ...quiet, y: toGib(m.budget), line: { shape: "hv", width: 1.75, dash: "dash", color: colour("ink") }, name: "budget" },
    { ...quiet, y: toGib(m.limit), line: { shape: "hv", width: 2.25, color: colour("limit") }, name: "limit" },
  ];
}

function killTrace() {
  const kills = data.marks.filter((mark) => mark.kind === "kill" || mark.kind === "ended");
  return {
    x: kills.map((mark) => ms(mark.at_s)),
    y: kills.map((mark) => mark.total / 1024),
    customdata: kills.map((mark) => plain(clock(mark.at_s) + " " + mark.text)),
    mode: "markers", type: "scatter", name: "kills", yaxis: "y", showlegend: false, cliponaxis: false,
    marker: { symbol: "x", size: 12, color: colour("bad"), line: { color: colour("card"), width: 2 } },
    hovertemplate: "%{customdata}<extra></extra>",
  };
}

function jobTraces() {
  const m = data.moments;
  const x = m.at_s.map(ms);
  const base = { x, yaxis: "y2", mode: "lines", hoverinfo: "skip", showlegend: false };
  const waits = data.marks.filter((mark) => mark.kind === "wait");
  return [
    { ...base, y: m.running, name: "running", fill: "tozeroy", fillcolor: colour("soft"), line: { shape: "hv", width: 1.75, color: colour("accent") } },
    { ...base, y: m.waiting, name: "waiting", line: { shape: "hv", width: 1.25, dash: "dot", color: colour("dim") } },
    { ...base, y: m.threads, name: "threads", line: { shape: "hv", width: 1.25, dash: "dashdot", color: colour("ink") } },
    {
      x: waits.map((mark) => ms(mark.at_s)), y: waits.map(() => 0), customdata: waits.map((mark) => plain(clock(mark.at_s) + " " + mark.text)),
      mode: "markers", type: "scatter", yaxis: "y2", name: "holds", showlegend: false, cliponaxis: false,
      marker: { symbol: "triangle-up", size: 8, color: colour("ink") },
      hovertemplate: "%{customdata}<extra></extra>",
    },
  ];
}

function runText(run) {
  const line = [
    `<b>${plain(unitName(run))}</b>`,
    `${plain(phaseName(run))}${runs.attempt[run] > 1 ? `, run ${runs.attempt[run]}` : ""}${runs.place[run] ? `, ${plain(runs.place[run])}` : ""}`,
    `peak ${gib(runs.peak[run])}, expected ${gib(runs.estimate[run])}, reserved ${gib(runs.reserve[run])}`,
    `${clock(runs.start[run])} to ${clock(runs.end[run])} (${(runs.end[run] - runs.start[run]).toFixed(1)} s)`,
  ];
  if (runs.waited[run] >= 0.1) line.push(`waited ${runs.waited[run].toFixed(1)} s` + (runs.waited_for[run] ? `: ${plain(runs.waited_for[run])}` : ""));
  line.push(plain(data.outcomes[runs.outcome[run]]));
  return line.join("<br>");
}

function laneTraces(hidden) {
  const many = runs.unit.length;
  return data.groups.map((group, at) => {
    const of = [];
    runs.group.forEach((each, run) => { if (each === at) of.push(run); });
    const bad = (run) => data.bad.includes(runs.outcome[run]);
    const faint = (run) => chosen.unit !== null && runs.unit[run] !== chosen.unit;
    const [card, red, torn] = [colour("card"), colour("bad"), colour("torn")];
    const short = (run) => unitName(run).split("/").pop();
    return {
      type: "bar", orientation: "h", yaxis: "y3", name: group.name, showlegend: false, visible: !hidden.has(group.css),
      base: of.map((run) => ms(runs.start[run])),
      x: of.map((run) => Math.max(1, 1000 * (runs.end[run] - runs.start[run]))),
      y: of.map((run) => runs.lane[run] + 1),
      width: 0.86, offset: -0.43,
      customdata: of, hovertext: of.map(runText), hovertemplate: "%{hovertext}<extra></extra>",
      text: many <= MOST_NAMED_RUNS ? of.map((run) => (!bad(run) ? "" : runs.outcome[run] === data.open ? "… " : "✕ ") + plain(short(run))) : undefined,
      textposition: many <= MOST_NAMED_RUNS ? "inside" : "none", insidetextanchor: "start", textangle: 0,
      insidetextfont: { color: colour("on-" + group.css), size: 11 },
      marker: {
        color: colour(group.css),
        opacity: chosen.unit === null ? 1 : of.map((run) => (faint(run) ? 0.18 : 1)),
        line: {
          color: of.map((run) => (!bad(run) ? card : runs.outcome[run] === data.open ? torn : red)),
          width: of.map((run) => (bad(run) ? 3 : many > MOST_PATTERNED_RUNS ? 0 : 0.75)),
        },
        pattern: many > MOST_PATTERNED_RUNS ? undefined : { shape: PATTERNS[group.css], size: 6, solidity: 0.22, fillmode: "overlay", fgcolor: colour("on-" + group.css), fgopacity: 0.22 },
      },
    };
  });
}

function heights() {
  const lane = Math.max(3, Math.min(30, 620 / Math.max(1, data.lanes)));
  const [memory, jobs, lanes] = [narrow() ? 230 : 300, 84, Math.max(46, lane * data.lanes)];
  const [top, gap, bottom] = [26, 34, 34];
  return { memory, jobs, lanes, top, gap, bottom, all: memory + jobs + lanes + 2 * gap + top + bottom };
}

function annotations() {
  const m = data.moments;
  const at = data.peak;
  const total = data.groups.reduce((sum, _, group) => sum + m.held[group][at], 0);
  const font = { size: 12, color: colour("ink") };
  const common = { xref: "paper", yref: "y", showarrow: false, font, bgcolor: colour("card"), borderpad: 1 };
  const end = m.at_s.length - 1;
  const list = [];
  const above = m.limit[end] / 1024 > data.top_gib;
  if (above) {
    list.push({ ...common, x: 1, xanchor: "right", y: data.top_gib, yanchor: "top", text: `budget ${gib(m.budget[end])}, limit ${gib(m.limit[end])}: above the picture` });
  } else {
    list.push({ ...common, x: 0, xanchor: "left", y: m.limit[end] / 1024, yanchor: "bottom", text: `limit ${gib(m.limit[end])}`, bgcolor: "rgba(0,0,0,0)", font: { ...font, color: colour("limit") } });
    list.push({ ...common, x: 0, xanchor: "left", y: m.budget[0] / 1024, yanchor: "top", text: `budget ${gib(m.budget[end])}`, xshift: 4 });
  }
  let peakText = "";
  if (total > 0) {
    const early = m.at_s[at] < 0.5 * data.end_s;
    const first = m.holders[at][0];
    const holder = first && !narrow() ? `: ${plain(phaseName(first[0]))} of ${plain(unitName(first[0]).split("/").pop())} ${gib(first[1])}` : "";
    peakText = `peak ${gib(total)}${holder}`;
    list.push({
      x: ms(m.at_s[at]), y: total / 1024, xref: "x", yref: "y", text: `<b>peak ${gib(total)}</b>${holder}`, showarrow: true, arrowhead: 2, arrowcolor: colour("ink"),
      ax: early ? 42 : -42, ay: total / 1024 > 0.85 * data.top_gib ? 34 : -24, xanchor: early ? "left" : "right", font, bgcolor: colour("card"), bordercolor: colour("line"), borderpad: 3,
    });
  }
  let said_s = -Infinity;
  for (const mark of data.marks) {
    if ((mark.kind !== "kill" && mark.kind !== "ended") || narrow() || mark.at_s - said_s < 0.08 * data.end_s) continue;
    said_s = mark.at_s;
    list.push({ x: ms(mark.at_s), y: mark.total / 1024, xref: "x", yref: "y", yanchor: "bottom", yshift: 9, xanchor: mark.at_s > 0.9 * data.end_s ? "right" : "center", showarrow: false, text: mark.kind === "kill" ? "killed" : "ended", font: { ...font, color: colour("bad") }, bgcolor: colour("card"), borderpad: 1 });
  }
  if (!narrow()) list.push(...hills(font, peakText));
  if (data.torn) {
    list.push({ x: ms(data.end_s), xref: "x", y: 1, yref: "paper", yanchor: "bottom", xanchor: "right", showarrow: false, text: "the trace stops here ▾", font: { ...font, color: colour("torn") } });
  }
  const title = (domain, text) => ({ xref: "paper", x: 0, xanchor: "left", yref: "paper", y: domain[1], yanchor: "bottom", showarrow: false, text, font: { size: 12, color: colour("dim") }, yshift: 2 });
  const d = domains();
  list.push(title(d.memory, "<b>Memory</b>, GiB"));
  list.push(title(d.jobs, narrow() ? "<b>Jobs</b>: — running ··· waiting -·- threads" : "<b>Jobs</b>: — running (effective MAX_JOBS)   ··· waiting   -·- threads of nvcc   ▲ a wait for memory"));
  list.push(title(d.lanes, narrow() ? "<b>Lanes</b>" : "<b>Lanes</b>: what ran beside what, a line for each place"));
  return list;
}

// The largest phases by name, where there is room beside the peak's label, kills, and each other.
function hills(font, peakText) {
  const m = data.moments;
  const width = byId("plot").clientWidth - 48;
  const px = (at_s) => (at_s / Math.max(1, data.end_s)) * width;
  const letters = (text) => 6.6 * text.length;
  const early = m.at_s[data.peak] < 0.5 * data.end_s;
  const peak = px(m.at_s[data.peak]);
  const taken = [early ? [peak - 8, peak + 50 + letters(peakText)] : [peak - 50 - letters(peakText), peak + 8]];
  for (const mark of data.marks) if (mark.kind === "kill" || mark.kind === "ended") taken.push([px(mark.at_s) - 24, px(mark.at_s) + 24]);
  const largest = runs.peak.map((_, run) => run).sort((a, b) => runs.peak[b] - runs.peak[a]).slice(0, 60);
  const list = [];
  for (const run of largest) {
    const at = momentAt(runs.peak_s[run]);
    const total = data.groups.reduce((sum, _, group) => sum + m.held[group][at], 0);
    const [name, what] = [unitName(run).split("/").pop(), `${runs.kind[run]} ${gib(runs.peak[run])}`];
    const half = Math.max(letters(name), letters(what)) / 2;
    const [from, to] = [px(runs.peak_s[run]) - half, px(runs.peak_s[run]) + half];
    const free = from > 0 && to < width && taken.every((other) => to < other[0] || from > other[1]);
    if (list.length === 5 || !free || total < 0.1 * m.budget[at]) continue;
    taken.push([from, to]);
    // Above all that the words are wide, not only above their own hill.
    let top = total;
    for (let near = momentAt((from / width) * data.end_s); near < times.length && px(times[near]) <= to; near += 1) {
      top = Math.max(top, data.groups.reduce((sum, _, group) => sum + m.held[group][near], 0));
    }
    list.push({ x: ms(runs.peak_s[run]), y: top / 1024, xref: "x", yref: "y", yanchor: "bottom", showarrow: false, text: `${plain(name)}<br>${plain(what)}`, font: { ...font, size: 11, color: colour("dim") }, bgcolor: colour("card"), opacity: 0.9, yshift: 3 });
  }
  return list;
}

function domains() {
  const h = heights();
  const all = h.memory + h.jobs + h.lanes + 2 * h.gap;
  return {
    lanes: [0, h.lanes / all],
    jobs: [(h.lanes + h.gap) / all, (h.lanes + h.gap + h.jobs) / all],
    memory: [(h.lanes + 2 * h.gap + h.jobs) / all, 1],
  };
}

function layout(range) {
  const d = domains();
  const h = heights();
  const axis = { color: colour("dim"), gridcolor: colour("grid"), zeroline: false, fixedrange: true, tickfont: { size: 11 } };
  const format = data.end_s >= 3600 ? "%-H:%M:%S" : "%-M:%S";
  const lines = data.torn ? [{ type: "line", xref: "x", yref: "paper", x0: ms(data.end_s), x1: ms(data.end_s), y0: 0, y1: 1, line: { color: colour("torn"), width: 2, dash: "dot" } }] : [];
  return {
    height: h.all, margin: { l: 38, r: 10, t: h.top, b: h.bottom }, barmode: "overlay", hovermode: "closest", showlegend: false,
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, color: colour("ink") },
    hoverlabel: { align: "left", bgcolor: colour("card"), bordercolor: colour("ink"), font: { color: colour("ink"), size: 13 } },
    xaxis: { ...axis, type: "date", tickformat: format, hoverformat: format, range, fixedrange: false, anchor: "y3", nticks: narrow() ? 5 : 12, autorange: false },
    yaxis: { ...axis, domain: d.memory, range: [0, data.top_gib], nticks: 7 },
    yaxis2: { ...axis, domain: d.jobs, rangemode: "tozero", nticks: 4 },
    yaxis3: { ...axis, domain: d.lanes, range: [data.lanes + 0.5, 0.5], showgrid: false, dtick: Math.max(1, Math.ceil(data.lanes / 16)), tick0: 1 },
    uniformtext: { minsize: 9, mode: "hide" },
    shapes: lines, annotations: annotations(),
  };
}

// -- drawing ---------------------------------------------------------------------------------------------------

function drawPictures() {
  const plot = byId("plot");
  const hidden = new Set();
  const whole = [ms(0), ms(Math.max(1, data.end_s) * 1.01)];
  let range = whole;
  const options = { displayModeBar: false, responsive: true, doubleClick: false };
  const draw = () => Plotly.react(plot, [...memoryTraces(hidden), killTrace(), ...jobTraces(), ...laneTraces(hidden)], layout(range), options);
  const zoomTo = (from, to) => {
    const span = Math.min(whole[1] - whole[0], Math.max(500, to - from));
    const start = Math.max(whole[0], Math.min(whole[1] - span, from));
    range = [start, start + span];
    Plotly.relayout(plot, { "xaxis.range": range.slice() });
  };
  plot.textContent = "";
  draw();
  // The picture as a whole has a name and a description; its thousand parts have none.
  for (const part of [plot.querySelector(".plot-container"), byId("js-plotly-tester")]) part?.setAttribute("aria-hidden", "true");

  const number = (value) => (typeof value === "number" ? value : Date.parse(String(value).replace(" ", "T") + "Z"));
  plot.on("plotly_relayout", () => {
    range = plot.layout.xaxis.range.map(number);
    placeCursor();
  });
  plot.on("plotly_doubleclick", () => zoomTo(...whole));
  plot.on("plotly_click", (event) => {
    const run = event.points[0].customdata;
    if (typeof run === "number") choose(runs.unit[run]);
  });
  const middle = () => (range[0] + range[1]) / 2;
  const around = (factor) => zoomTo(middle() - (factor * (range[1] - range[0])) / 2, middle() + (factor * (range[1] - range[0])) / 2);
  const shift = (share) => zoomTo(range[0] + share * (range[1] - range[0]), range[1] + share * (range[1] - range[0]));
  byId("zoom-in").addEventListener("click", () => {
    const span = (range[1] - range[0]) / 2;
    zoomTo(ms(times[moment.index]) - span / 2, ms(times[moment.index]) + span / 2);
  });
  byId("zoom-out").addEventListener("click", () => around(2));
  byId("earlier").addEventListener("click", () => shift(-0.5));
  byId("later").addEventListener("click", () => shift(0.5));
  byId("whole").addEventListener("click", () => zoomTo(...whole));
  for (const button of document.querySelectorAll("button[data-tool]")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      (shown ? hidden.add : hidden.delete).call(hidden, button.dataset.tool);
      draw();
    });
  }

  // A line through all three at the moment that is looked at: follows the mouse, and the slider.
  const cursor = byId("cursor");
  const axis = () => plot._fullLayout.xaxis;
  function placeCursor() {
    const x = axis();
    const at = x.l2p(ms(times[moment.index]));
    cursor.style.display = at >= 0 && at <= x._length ? "block" : "none";
    cursor.style.left = x._offset + at + "px";
    cursor.style.height = plot._fullLayout.height - heights().bottom + "px";
  }
  plot.addEventListener("mousemove", (event) => {
    const x = axis();
    const at = event.clientX - plot.getBoundingClientRect().left - x._offset;
    if (at >= 0 && at <= x._length && !event.buttons) moment.at((x.p2l(at) - MIDNIGHT) / 1000);
  });
  moment.changed.push(placeCursor);
  chosen.changed.push(draw);
  document.addEventListener("themechange", draw);
  let wide = plot.clientWidth;
  new ResizeObserver(() => {
    if (plot.clientWidth === wide) return;
    wide = plot.clientWidth;
    draw();
    placeCursor();
  }).observe(plot);
  placeCursor();
}

begin();
