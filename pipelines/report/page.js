"use strict";
// Pictures, filters and theme. Every number here also stands in a table, so the page is whole without this script.
const data = JSON.parse(document.getElementById("pictures").textContent);
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const narrow = matchMedia("(max-width: 640px)");
const dark = matchMedia("(prefers-color-scheme: dark)");

// Plotly reads a little HTML in its texts; names are text.
const text = value => String(value).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
// In lines that a phone has room for: a label that does not fit is not shown at all.
const wrapped = value => text(value).replace(/(.{1,44})(?: |$)/g, "$1<br>").replace(/<br>$/, "");
const many = (count, what, plural = what + "s") => `${count.toLocaleString("en")} ${count === 1 ? what : plural}`;
const chosen = name => new Set(all(`input[name="${name}"]:checked`).map(input => input.value));

// Colours come from the style sheet, resolved for the theme of the moment.
const probe = document.body.appendChild(document.createElement("i"));
probe.hidden = true;
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}
const faded = rgb => rgb.replace(/^rgb\((.*)\)$/, "rgba($1, .7)");
const STATES = all('input[name="state"]').map(input => input.value);
const REASONS = {"directory offline": "failed", "directory lost": "lost", "broker fenced": "fenced", "broker missing": "missing"};

// Plotly is packed. The page's policy permits it by the hash of its text.
async function unpack() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), char => char.charCodeAt(0));
  const script = document.createElement("script");
  script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.body.append(script);
}
const unpacked = unpack();

async function draw(id, traces, layout) {
  await unpacked;
  const axis = {gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true, tickangle: 0};
  const whole = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
    font: {family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft")},
    margin: {l: 8, r: 8, t: 8, b: 8, pad: 4}, dragmode: narrow.matches ? false : "zoom",
    hoverlabel: {bgcolor: colour("card"), bordercolor: colour("line"), font: {color: colour("ink"), size: narrow.matches ? 11 : 13}, align: "left"},
    ...layout, xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis},
  };
  const picture = document.getElementById(id);
  whole.height = Math.max(layout.height, 160); // room for a label
  picture.style.height = `${whole.height}px`;
  return Plotly.react(picture, traces, whole, {displayModeBar: false, responsive: true, doubleClick: "reset"});
}

// The end of a path, but the beginning of an id.
const shortened = (name, most) => name.length <= most ? name : name.startsWith("/") ? `…${name.slice(1 - most)}` : `${name.slice(0, most - 1)}…`;

// -- The map: brokers by directories.
function drawMap() {
  const map = data.map, shown = chosen("state"), wanted = one("#map-search").value.trim().toLowerCase();
  const measure = one("#map-colour").value, byState = measure === "state";
  const brokers = [...new Set(map.broker)], place = new Map(brokers.map((id, at) => [id, at]));
  const slots = new Array(brokers.length).fill(0);
  const seen = map.broker.map((id, at) => shown.has(map.state[at])
    && (!wanted || String(id) === wanted || map.directory[at].toLowerCase().includes(wanted)));
  const cells = map.broker.map((id, at) => ({at, row: place.get(id), column: slots[place.get(id)]++}));
  const widest = Math.max(1, ...slots), upright = brokers.length > 24 && !narrow.matches;
  const size = upright ? [widest, brokers.length] : [brokers.length, widest];
  const grid = empty => Array.from({length: size[0]}, () => new Array(size[1]).fill(empty));
  const z = grid(null), label = grid(""), hover = grid("");
  const roomy = !upright && widest <= (narrow.matches ? 3 : 6);
  // As many letters of a name as a cell has room for.
  const letters = upright || widest > 16 ? 0 : roomy && !narrow.matches ? 22 : Math.min(10, Math.floor((narrow.matches ? 26 : 110) / widest));
  for (const {at, row, column} of cells) {
    const [y, x] = upright ? [column, row] : [row, column];
    if (!seen[at]) continue;
    z[y][x] = byState ? STATES.indexOf(map.state[at]) : map[measure][at];
    const counts = roomy && !narrow.matches ? `${many(map.replicas[at], "replica")}, leads ${map.leaders[at]}` : `${map.replicas[at]}`;
    label[y][x] = letters ? `${text(shortened(map.name[at] ?? map.directory[at], letters))}<br>${counts}` : "";
    hover[y][x] = `<b>broker ${map.broker[at]}</b>, ${map.broker_is[at]}<br>${text(map.directory[at])}<br>${map.is[at]}`
      + (map.since[at] ? ` since ${map.since[at]}` : "")
      + `<br>${many(map.replicas[at], "replica")}, ${many(map.leaders[at], "leader")}, ${map.offline[at]} offline`;
  }
  const steps = STATES.flatMap((state, at) => [[at / STATES.length, colour(state)], [(at + 1) / STATES.length, colour(state)]]);
  const names = brokers.map(id => `broker ${id}`), ticks = brokers.map((_, at) => at);
  const rare = Math.ceil(brokers.length / 25);
  const ids = {tickvals: ticks.filter(at => at % rare === 0), showgrid: false, zeroline: false, fixedrange: true, ticks: "", showline: false};
  const free = {showticklabels: false, showgrid: false, zeroline: false, fixedrange: true, ticks: "", showline: false};
  const along = upright ? {...ids, ticktext: ids.tickvals.map(at => brokers[at]), title: {text: "broker"}} : {...ids, ticktext: ids.tickvals.map(at => names[at]), autorange: "reversed"};
  const height = upright ? 60 + widest * 22 : 24 + brokers.length * (roomy ? 46 : letters ? 38 : narrow.matches ? 22 : 34) + (byState ? 0 : 50);
  return draw("picture-map", [{
    type: "heatmap", z, text: label, customdata: hover, texttemplate: "%{text}", hovertemplate: "%{customdata}<extra></extra>",
    hoverongaps: false, xgap: upright ? 2 : 4, ygap: upright ? 2 : 4, textfont: {size: 12},
    ...(byState ? {colorscale: steps, zmin: -0.5, zmax: STATES.length - 0.5, showscale: false}
      : {colorscale: [[0, colour("few")], [1, colour("many")]], zmin: 0, zmax: Math.max(1, ...map[measure]),
        colorbar: {orientation: "h", thickness: 10, len: 0.5, x: 0, xanchor: "left", y: 0, yanchor: "top", outlinewidth: 0}}),
  }], {height, xaxis: upright ? along : free, yaxis: upright ? free : along});
}

// -- Offline replicas over time.
function drawOverTime() {
  const series = data.over_time, dated = one("#clock").value === "time", shown = chosen("reason");
  const at = dated ? series.time.map(time => Date.parse(`${time}Z`)) : series.offset;
  const last = at.length - 1, lead = Math.max((at[last] - at[Math.min(1, last)]) * 0.05, 1), end = at[last] + lead;
  // What a step made true holds until just before the next, so the hover near either end of it says the same. Records
  // of one batch have one time: on a clock, what holds after the last of them.
  const points = at.flatMap((x, step) => {
    const next = step < last ? at[step + 1] : end + 1;
    return next === x ? [] : next === x + 1 ? [[x, step]] : [[x, step], [next - 1, step]];
  });
  const axis = value => dated ? new Date(value).toISOString().slice(0, -1) : value;
  const x = points.map(([value]) => axis(value)), pick = values => points.map(([, step]) => values[step]);
  const shared = {type: "scatter", mode: "lines", x, hovertemplate: "%{y}"};
  const traces = Object.entries(REASONS).filter(([reason]) => shown.has(reason)).map(([reason, name]) => ({
    ...shared, name: reason, y: pick(series.offline[reason]), stackgroup: "offline",
    line: {shape: "hv", width: 0, color: colour(name)}, fillcolor: faded(colour(name)),
  }));
  if (shown.has("leaderless")) traces.push({
    ...shared, name: "partitions without a leader", y: pick(series.leaderless),
    line: {shape: "hv", width: 2, dash: "dot", color: colour("ink")},
  });
  return draw("picture-over-time", traces, {
    height: narrow.matches ? 260 : 320, hovermode: "x unified", hoverdistance: -1,
    // From a little before the first change on; a double click shows all.
    xaxis: {
      type: dated ? "date" : "linear", range: [axis(at[Math.min(1, last)] - lead), axis(end)], showgrid: false,
      hoverformat: dated ? "%H:%M:%S.%L, %-d %b %Y" : ",d", nticks: narrow.matches ? 4 : 8, exponentformat: "none",
    },
    yaxis: {rangemode: "tozero", fixedrange: true, separatethousands: true, nticks: 6},
  });
}

// -- Incidents: a lane each, newest on top.
const ROOM = 6; // lanes, for the label of a single one
function drawIncidents() {
  if (!one("#picture-incidents")) return undefined;
  const clock = one("#incident-clock").value, dated = clock === "time", list = data.incidents;
  const at = value => dated ? Date.parse(`${value}Z`) : value;
  const from = list.map(it => dated ? it.from : it.from_offset), to = list.map(it => (dated ? it.to : it.to_offset) ?? data.end[dated ? 0 : 1]);
  const lanes = list.map(it => it.number);
  const title = it => (narrow.matches ? `#${it.number} ${it.what.split(":")[0]}` : `#${it.number} ${it.what}`);
  const hover = list.map(it => `<b>#${it.number} ${text(it.what)}</b>${it.directory ? `<br>${text(it.directory)}` : ""}`
    + `<br>from ${it.from}, offset ${it.from_offset.toLocaleString("en")}`
    + (it.to ? `<br>to ${it.to}, offset ${it.to_offset.toLocaleString("en")}` : "<br>still going on")
    + `<br>${wrapped(it.ending)}<br>${many(it.replicas, "replica")} offline, the longest for ${it.longest}`
    + `<br>${many(it.leaders, "leader")} lost` + (it.without_leader ? `, ${it.without_leader} not replaced at once` : "")
    + (it.data_lost ? `<br>data of ${many(it.data_lost, "partition")} lost` : "")
    + (it.may_lack_writes ? `<br>${many(it.may_lack_writes, "partition")} may lack writes` : "")
    + (it.successors.length ? `<br>${wrapped(it.successors.map(([broker, count]) => `broker ${broker} took ${count}`).join(", "))}` : ""));
  const colours = list.map(it => colour(it.kind));
  const shared = {y: lanes, customdata: hover, hovertemplate: "%{customdata}<extra></extra>"};
  return draw("picture-incidents", [
    {...shared, type: "bar", orientation: "h", base: from, x: to.map((end, row) => at(end) - at(from[row])), width: 0.55, marker: {color: colours}},
    {...shared, type: "scatter", mode: "markers", x: from, marker: {color: colours, symbol: "diamond", size: 9, line: {width: 1, color: colour("card")}}},
  ], {
    height: 60 + Math.max(list.length, ROOM) * 26, hovermode: "closest",
    xaxis: {type: dated ? "date" : "linear", nticks: narrow.matches ? 4 : 8, exponentformat: "none", fixedrange: narrow.matches},
    yaxis: {tickvals: lanes, ticktext: list.map(title), fixedrange: true, showgrid: false, zeroline: false, ticks: "", range: [Math.min(...lanes, lanes[0] - ROOM + 1) - 0.7, lanes[0] + 0.7]},
  });
}

// -- The assignment queue of each broker over time.
function drawQueue() {
  if (!one("#picture-queue")) return undefined;
  const queue = data.queue, measure = one("#queue-of").value, size = queue.steps;
  const row = new Map(queue.brokers.map((broker, at) => [broker, at]));
  const z = queue.brokers.map(() => new Array(size).fill(null)), hover = queue.brokers.map(() => new Array(size).fill(""));
  const edge = step => new Date(Date.parse(`${queue.start}Z`) + step * queue.step).toISOString().slice(0, -1).replace("T", " ");
  const x = Array.from({length: size + 1}, (_, step) => edge(step));
  const tell = (broker, step, entries, waiting, retries, refused) => {
    const value = {entries, waiting, retries, refused}[measure];
    if (value) z[row.get(broker)][step] = value;
    hover[row.get(broker)][step] = `<b>broker ${broker}</b>, from ${x[step]}<br>${many(entries, "assignment")} asked for, ${refused} refused, ${many(retries, "retry", "retries")}<br>${many(waiting, "replica")} waiting at the end`;
  };
  const before = new Map(); // until something changes, those that wait go on waiting
  queue.broker.forEach((broker, at) => {
    const [last, waiting] = before.get(broker) ?? [queue.at[at], 0];
    for (let step = last + 1; waiting && step < queue.at[at]; step++) tell(broker, step, 0, waiting, 0, 0);
    tell(broker, queue.at[at], queue.entries[at], queue.waiting[at], queue.retries[at], queue.refused[at]);
    before.set(broker, [queue.at[at], queue.waiting[at]]);
  });
  for (const [broker, [last, waiting]] of before) for (let step = last + 1; waiting && step < size; step++) tell(broker, step, 0, waiting, 0, 0);
  return draw("picture-queue", [{
    type: "heatmap", x, y: queue.brokers.map(broker => `broker ${broker}`), z, customdata: hover,
    hovertemplate: "%{customdata}<extra></extra>", hoverongaps: false, ygap: 2, zmin: 0, zmax: Math.max(1, ...z.flat()),
    colorscale: [[0, colour("few")], [1, colour("many")]], colorbar: {thickness: 10, outlinewidth: 0, tickformat: ",d", nticks: 4},
  }], {
    height: 70 + Math.max(queue.brokers.length, 3) * 26, hovermode: "closest",
    xaxis: {type: "date", nticks: narrow.matches ? 3 : 8, showgrid: false, fixedrange: narrow.matches},
    yaxis: {type: "category", autorange: "reversed", fixedrange: true, ticks: "", showgrid: false},
  });
}

// -- What the next failure would cost.
function drawRisk() {
  if (!one("#picture-risk")) return undefined;
  const of = data.risk[one("#risk-of").value];
  const names = of.map(it => it.directory ? `broker ${it.broker} · ${it.directory.includes(" (") ? it.directory.split(" (")[0] : `${it.directory.slice(0, 8)}…`}` : `broker ${it.broker}`);
  const hover = of.map(it => `<b>broker ${it.broker}</b>${it.directory ? `<br>${text(it.directory)}` : ", all of it"}<br>${many(it.replicas, "replica")} online`);
  const bars = [["without_leader", "without a leader", "failed"], ["last_replicas", "with no other replica online", "lost"], ["under_min_isr", "under min ISR", "fenced"]];
  const traces = bars.map(([key, label, name]) => ({
    type: "bar", orientation: "h", name: label, y: names, x: of.map(it => it[key]), customdata: hover, marker: {color: colour(name)},
    hovertemplate: `%{customdata}<br>partitions ${label}: %{x}<extra></extra>`,
  }));
  const most = Math.max(...of.flatMap(it => bars.map(([key]) => it[key])));
  return draw("picture-risk", traces, {
    height: 70 + of.length * 36, bargap: 0.3, barmode: "group", hovermode: "closest",
    xaxis: {
      rangemode: "tozero", fixedrange: true, tickformat: ",d", side: "bottom", title: {text: "partitions"},
      ...(most < 6 ? {dtick: 1} : {nticks: 6}), // no halves of a partition
    },
    yaxis: {autorange: "reversed", fixedrange: true, ticks: "", type: "category", showgrid: false},
  });
}

// -- Tables: search, filters beside the picture, sorting.
const FILTERS = {directories: "state", findings: "severity"};
function filterTable(name) {
  const table = one(`[data-table="${name}"]`);
  if (!table) return;
  const wanted = one(`[data-search="${name}"]`).value.trim().toLowerCase();
  const kinds = FILTERS[name] && chosen(FILTERS[name]);
  const rows = all("tbody tr", table);
  let shown = 0;
  for (const row of rows) {
    row.hidden = (kinds && !kinds.has(row.dataset.kind)) || (wanted && !row.textContent.toLowerCase().includes(wanted));
    shown += !row.hidden;
  }
  one(`[data-shown="${name}"]`).textContent = shown === rows.length ? "" : `${shown} of ${rows.length} shown`;
}

function sortable(table) {
  all("th", table).forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending", number = head.classList.contains("number");
      all("th", table).forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].textContent;
      const order = (a, b) => number
        ? Number(key(a).replace(/[^\d.-]/g, "") || -1) - Number(key(b).replace(/[^\d.-]/g, "") || -1)
        : key(a).localeCompare(key(b), "en", {numeric: true});
      const body = one("tbody", table);
      body.append(...[...body.rows].sort((a, b) => up ? order(a, b) : order(b, a)));
    });
  });
}

// -- Theme: the system's, until the button says otherwise.
const theme = document.getElementById("theme");
const isDark = () => (document.documentElement.style.colorScheme || (dark.matches ? "dark" : "light")) === "dark";
function setTheme(name) {
  document.documentElement.style.colorScheme = name;
  drawAll();
}
theme.addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));

const pictures = [drawMap, drawOverTime, drawIncidents, drawQueue, drawRisk];
function drawAll() {
  theme.setAttribute("aria-pressed", isDark());
  theme.textContent = isDark() ? "Light" : "Dark";
  return Promise.all(pictures.map(picture => picture()));
}
all("table[data-table]").forEach(sortable);
all("[data-search]").forEach(input => input.addEventListener("input", () => filterTable(input.dataset.search)));
all('input[name="state"]').forEach(input => input.addEventListener("change", () => { drawMap(); filterTable("directories"); }));
all('input[name="reason"]').forEach(input => input.addEventListener("change", drawOverTime));
all('input[name="severity"]').forEach(input => input.addEventListener("change", () => {
  const shown = chosen("severity");
  all(".found li").forEach(item => { item.hidden = !shown.has(item.dataset.kind); });
  filterTable("findings");
}));
one("#incident-clock")?.addEventListener("change", drawIncidents);
one("#queue-of")?.addEventListener("change", drawQueue);
one("#risk-of")?.addEventListener("change", drawRisk);
one("#map-search").addEventListener("input", drawMap);
one("#map-colour").addEventListener("change", drawMap);
one("#clock").addEventListener("change", drawOverTime);
dark.addEventListener("change", drawAll);
narrow.addEventListener("change", drawAll);

const minutes = Math.floor((Date.now() - Date.parse(one(".where time").dateTime)) / 60000);
one("#age").textContent = minutes < 0 ? "" : minutes < 120 ? `(${many(minutes, "minute")} ago)` : minutes < 2880 ? `(${many(Math.floor(minutes / 60), "hour")} ago)` : `(${many(Math.floor(minutes / 1440), "day")} ago)`;
drawAll().then(() => { document.documentElement.dataset.drawn = "yes"; });
