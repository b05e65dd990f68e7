// The dashboard: asks the scheduler for JSON every two seconds while the page is visible, and shows it.
// All text is put into the page as text, never as markup. docs/dashboard.md describes the JSON.
"use strict";

const EVERY_MS = 2000;
const ANSWER_MS = 10000;
const POINTS = 400;  // of a curve; the page is not wider
const STATES = {
  queued: ["◷", "wait"], starting: ["◔", "busy"], running: ["▶", "busy"], recovering: ["↻", "wait"],
  done: ["✓", "good"], failed: ["✕", "bad"], cancelled: ["⊘", "quiet"],
};
const $ = (id) => document.getElementById(id);
const none = "–";

// ---- text of numbers and times

const grouped = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const count = (n) => grouped.format(n);
const fixed = (n, digits) => (n === null || n === undefined ? none : n.toFixed(digits));
const counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; ++unit; }
  return `${unit === 0 ? n : n.toFixed(1)} ${units[unit]}`;
}

function duration(s) {
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

// The time of day, for the title of a relative time.
const absolute = (seconds) => new Date(seconds * 1000).toLocaleString("en-GB");
const ago = (age, now) => ({text: `${duration(age)} ago`, title: absolute(now - age)});

// ---- rates: differences of counters between two answers

const counters = new Map();

// The rate of a counter a second; null at first, and after its process has started again.
function rate(key, value, now) {
  if (value === null || value === undefined) return null;
  const last = counters.get(key);
  if (!last || value < last.value) {
    counters.set(key, {value, now, rate: null, seen: now});
    return null;
  }
  last.seen = now;
  if (now - last.now >= 0.9) {
    last.rate = (value - last.value) / (now - last.now);
    last.value = value;
    last.now = now;
  }
  return last.rate;
}

function forgetCounters(now) {
  for (const [key, one] of counters) if (now - one.seen > 60) counters.delete(key);
}

// ---- elements that change only where their text does, so that focus and selection stay

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// The same for a path, whose lines end behind a '/' where they can.
function setPath(node, path) {
  if (node.textContent === path) return;
  node.textContent = "";
  path.split(/(?<=\/)/).forEach((part) => node.append(part, document.createElement("wbr")));
}

function setCell(td, column, value) {
  const cell = value !== null && typeof value === "object" ? value : {text: value};
  const text = String(cell.text);
  let node = td;
  if (cell.href) {
    node = td.querySelector("a");
    if (!node) {
      td.textContent = "";
      node = td.appendChild(document.createElement("a"));
    }
    if (node.getAttribute("href") !== cell.href) node.setAttribute("href", cell.href);
    if (cell.label) node.setAttribute("aria-label", cell.label);
  }
  setText(node, text);
  td.className = [column.kind || "", cell.kind || "", text === "" || text === none ? "empty" : ""].join(" ").trim();
  if (cell.title) td.title = cell.title; else td.removeAttribute("title");
}

// columns: [{name, kind}]; rows: [{key, cells, chosen}]
function fill(id, columns, rows) {
  const table = $(id);
  if (!table.tHead.rows.length) {
    const head = table.tHead.insertRow();
    for (const column of columns) {
      const th = head.appendChild(document.createElement("th"));
      th.scope = "col";
      th.textContent = column.name;
      if (column.kind === "number") th.className = "number";
    }
  }
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  rows.forEach((row, at) => {
    let tr = known.get(row.key);
    known.delete(row.key);
    if (!tr) {
      tr = document.createElement("tr");
      tr.dataset.key = row.key;
      for (const column of columns) tr.insertCell().dataset.label = column.name;
    }
    if (body.rows[at] !== tr) body.insertBefore(tr, body.rows[at] || null);
    tr.className = row.chosen ? "chosen" : "";
    row.cells.forEach((value, i) => setCell(tr.cells[i], columns[i], value));
  });
  for (const tr of known.values()) tr.remove();
}

function figures(id, pairs) {
  const list = $(id);
  pairs.forEach(([name, value], i) => {
    let box = list.children[i];
    if (!box) {
      box = list.appendChild(document.createElement("li"));
      box.appendChild(document.createElement("span")).className = "what";
      box.appendChild(document.createElement("span")).className = "value";
    }
    const cell = value !== null && typeof value === "object" ? value : {text: value};
    setText(box.firstChild, name);
    (cell.path ? setPath : setText)(box.lastChild, String(cell.text));
    box.className = cell.path ? "path" : "";
    if (cell.title) box.lastChild.title = cell.title; else box.lastChild.removeAttribute("title");
  });
  while (list.children.length > pairs.length) list.lastChild.remove();
}

function notes(id, texts) {
  const list = $(id);
  list.hidden = texts.length === 0;
  texts.forEach((text, i) => setText(list.children[i] || list.appendChild(document.createElement("li")), text));
  while (list.children.length > texts.length) list.lastChild.remove();
}

function line(id, text) {
  $(id).hidden = text === "";
  setText($(id), text);
}

// ---- charts

const charts = {};
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// series: [{label, points, second}]; digits: of the newest value, which stands beside the title as text
function draw(id, series, x, format) {
  const data = series.map((one) => ({
    label: one.label, data: one.points.map(([at, y]) => ({x: at, y})), borderWidth: 1.8, tension: 0,
    borderColor: colour(one.second ? "--second" : "--first"), backgroundColor: colour(one.second ? "--second" : "--first"),
    borderDash: one.second ? [6, 4] : [], pointStyle: one.second ? "rect" : "circle",
    pointRadius: one.points.length <= 40 ? 2.5 : 0, pointHitRadius: 6,
  }));
  const newest = series.filter((one) => one.points.length).map((one) => {
    const [at, y] = one.points[one.points.length - 1];
    return `${series.length > 1 ? `${one.label} ` : ""}${format(y)} at ${x} ${count(at)}`;
  }).join(", ");
  setText($(`${id}-now`), newest || "no points yet");
  $(id).setAttribute("aria-label", `${$(id).closest("figure").querySelector("figcaption").firstChild.textContent.trim()}: ${newest || "no points yet"}`);
  const axis = (title) => ({
    grid: {color: colour("--grid")}, ticks: {color: colour("--quiet"), maxTicksLimit: 6},
    title: {display: title !== "", text: title, color: colour("--quiet")},
  });
  const xAxis = {type: "linear", ...axis(x)};
  xAxis.ticks.precision = 0;
  const options = {
    animation: false, responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
    interaction: {mode: "nearest", intersect: false, axis: "x"},
    scales: {x: xAxis, y: axis("")},
    plugins: {
      legend: {display: series.length > 1, labels: {color: colour("--text"), usePointStyle: true, boxHeight: 6}},
      tooltip: {callbacks: {
        title: (items) => `${x} ${count(items[0].parsed.x)}`,
        label: (item) => `${item.dataset.label}: ${format(item.parsed.y)}`,
      }},
    },
  };
  if (!charts[id]) {
    charts[id] = new Chart($(id), {type: "line", data: {datasets: data}, options});
  } else {
    charts[id].data.datasets = data;
    charts[id].options = options;
    charts[id].update("none");
  }
}

function showCurves(answer) {
  const of = (name) => {
    const curve = answer.curves.find((one) => one.name === name);
    return curve ? curve.points.filter(([, y]) => y !== null) : [];
  };
  draw("loss", [{label: "loss", points: of("train/loss")}], "step", (y) => y.toFixed(5));
  draw("speed", [{label: "examples/s", points: of("train/examples_per_second")}], "step", count);
  draw("auc", [{label: "AUC", points: of("eval/auc")}], "epoch", (y) => y.toFixed(5));
  draw("epochs", [{label: "training", points: of("train/epoch_loss")},
    {label: "evaluation", points: of("eval/log_loss"), second: true}], "epoch", (y) => y.toFixed(5));
}

// ---- the address: /?job=ID&log=NAME says what is shown, so that it can be kept and sent

const shown = (name) => new URLSearchParams(location.search).get(name);

function addressWith(name, value) {
  const wanted = new URLSearchParams(location.search);
  if (value === null) wanted.delete(name); else wanted.set(name, value);
  const text = wanted.toString();
  return text ? `/?${text}` : "/";
}

function show(address) {
  history.pushState(null, "", address);
  changed();
}

// ---- what is shown

function state(word) {
  const [sign, kind] = STATES[word] || ["?", "quiet"];
  return {text: `${sign} ${word}`, kind};
}

const JOB_COLUMNS = [{name: "Job", kind: "name"}, {name: "State", kind: "name"}, {name: "Mode"}, {name: "Epoch", kind: "number"},
  {name: "Step", kind: "number"}, {name: "Examples/s", kind: "number"}, {name: "Loss", kind: "number"}, {name: "AUC", kind: "number"},
  {name: "Workers", kind: "number"}, {name: "Left", kind: "number"}, {name: "Waits for", kind: "words"}];

function showJobs(answer, chosen) {
  fill("jobs", JOB_COLUMNS, answer.jobs.map((job) => ({
    key: job.job_id, chosen: job.job_id === chosen,
    cells: [{text: job.job_id, href: addressWith("job", job.job_id)}, state(job.state), job.mode,
      job.epochs ? `${count(job.epoch)} of ${count(job.epochs)}` : none, count(job.global_step),
      job.examples_per_second ? count(job.examples_per_second) : none,
      fixed(job.loss, 5), fixed(job.auc, 5), `${job.workers_alive} of ${job.worker_num}`,
      job.eta_s === null ? none : duration(job.eta_s), job.message || job.waiting_for.replace(/^waits for /, "")],
  })));
  $("jobs").hidden = answer.jobs.length === 0;
  $("jobs-empty").hidden = answer.jobs.length > 0;
  line("jobs-left-out", answer.jobs_left_out ? `${counted(answer.jobs_left_out, "older job")} not shown.` : "");
}

const MEMBER_COLUMNS = [{name: "Member", kind: "name"}, {name: "State", kind: "name"}, {name: "Memory", kind: "number"},
  {name: "CPU", kind: "number"}, {name: "Rate", kind: "number"}, {name: "Rows", kind: "number"}, {name: "Job", kind: "name"}, {name: "Host"},
  {name: "PID", kind: "number"}, {name: "Heard from", kind: "number"}, {name: "Does", kind: "words"}, {name: "Log", kind: "words"}];

function showMembers(answer) {
  fill("members", MEMBER_COLUMNS, answer.members.map((member) => {
    const who = `${member.role} ${member.rank}`;
    const key = `${who} ${member.host} ${member.pid}`;
    // It is of the member's last report, which may be a heartbeat old.
    const cpu = rate(`cpu ${key}`, member.cpu_seconds, answer.time_s - member.last_seen_s);
    const updates = rate(`frames ${key}`, member.frames_applied, answer.time_s);
    let speed = "";
    if (member.role === "worker" && member.examples_per_second) speed = `${count(member.examples_per_second)} examples/s`;
    if (member.role === "pserver") speed = updates === null ? none : `${count(updates)} updates/s`;
    const alive = member.alive ? (member.draining ? {text: "◒ draining", kind: "wait"} : {text: "● alive", kind: "good"}) : {text: "✕ gone", kind: "bad"};
    const log = member.log_name ? {text: member.log_name, href: addressWith("log", member.log_name), label: `Log of ${who}: ${member.log_name}`}
      : {text: member.log_file ? `on ${member.host}: ${member.log_file}` : none};
    return {key, cells: [who, alive, member.memory_bytes ? bytes(member.memory_bytes) : none,
      cpu === null ? none : `${Math.round(100 * cpu)} %`, speed || none,
      member.role === "pserver" ? count(member.rows) : "", member.job_id || none, member.host, member.pid,
      member.role === "scheduler" ? none : ago(member.last_seen_s, answer.time_s), member.doing || none, log]};
  }));
  line("members-left-out", answer.members_left_out ? `${counted(answer.members_left_out, "more member")} not shown.` : "");
}

function showJob(job) {
  $("job").hidden = false;
  const [sign] = STATES[job.state] || ["?"];
  setText($("job-title"), `Job ${job.job_id}: ${sign} ${job.state}`);
  line("job-wait", job.message || (job.waiting_for ? `Now: ${job.waiting_for}` : ""));
  figures("job-figures", [
    ["Mode", job.mode], ["Phase", job.phase || none], ["Epoch", job.epochs ? `${count(job.epoch)} of ${count(job.epochs)}` : none],
    ["Step", count(job.global_step)], ["Examples", count(job.examples)],
    ["Speed", job.examples_per_second ? `${count(job.examples_per_second)} examples/s` : none],
    ["Loss", fixed(job.loss, 5)], ["AUC", fixed(job.auc, 5)], ["Log loss", fixed(job.log_loss, 5)],
    ["Left", job.eta_s === null ? none : duration(job.eta_s)],
    ["Staleness", job.staleness.pushes ? `${job.staleness.mean.toFixed(2)} updates, ${count(job.staleness.max)} at most` : none],
    ["Output", {text: job.output_dir || none, path: true}]]);
  const stoodFor = new Map(job.pservers.map((one) => [one.pserver, one]));
  fill("workers", [{name: "Rank", kind: "number"}, {name: "Worker", kind: "number"}, {name: "Epoch", kind: "number"}, {name: "Step", kind: "number"},
    {name: "Examples/s", kind: "number"}, {name: "Loss", kind: "number"}, {name: "Batches ready", kind: "number"}, {name: "Does", kind: "words"}],
  job.workers.map((one) => ({key: String(one.rank), cells: [one.rank, one.worker === undefined ? none : one.worker, one.epoch, count(one.step),
    count(one.examples_per_second), one.loss ? one.loss.toFixed(5) : none, one.batches_capacity ? `${one.batches_ready} of ${one.batches_capacity}` : none, one.doing || none]})));
  fill("pservers", [{name: "Pserver", kind: "number"}, {name: "Rows", kind: "number"}, {name: "Memory", kind: "number"}, {name: "Load", kind: "number"},
    {name: "Staleness", kind: "number"}, {name: "Updates lost", kind: "number"}, {name: "Waits for", kind: "words"}],
  job.pservers.map((one) => {
    const load = rate(`load ${job.job_id} ${one.pserver}`, one.frames_applied, job.time_s);
    return {key: String(one.pserver), cells: [one.pserver, count(one.rows), bytes(one.bytes), load === null ? none : `${count(load)} updates/s`,
      one.staleness.pushes ? `${one.staleness.mean.toFixed(2)}, max ${count(one.staleness.max)}` : none, count(one.updates_lost),
      one.error || one.waiting_for || none]};
  }));
  fill("shards", [{name: "Table", kind: "name"}, {name: "Kind"}, {name: "Pserver", kind: "number"}, {name: "Shards", kind: "number"},
    {name: "Rows or elements", kind: "number"}, {name: "In use", kind: "number"}, {name: "Reserved", kind: "number"}],
  job.shards.filter((one) => one.shards > 0).map((one) => ({key: `${one.table} ${one.pserver}`, cells: [one.table, one.kind, one.pserver, one.shards, count(one.rows),
    bytes(one.bytes), bytes(one.reserved_bytes)]})));
  const each = job.each_shard || [];
  fill("each-shard", [{name: "Table", kind: "name"}, {name: "Shard", kind: "number"}, {name: "Pserver", kind: "number"},
    {name: "Rows or elements", kind: "number"}, {name: "In use", kind: "number"}, {name: "Load", kind: "number"}],
  each.map((one) => {
    const load = rate(`shard ${job.job_id} ${one.table} ${one.shard} ${one.pserver}`, one.rows_pushed, job.time_s);
    return {key: `${one.table} ${one.shard} ${one.pserver}`, cells: [one.table, one.shard, one.pserver, count(one.rows), bytes(one.bytes),
      load === null ? none : `${count(load)} rows/s`]};
  }));
  $("each-shard-details").hidden = each.length === 0;
  line("each-shard-left-out", job.each_shard_left_out ? `${counted(job.each_shard_left_out, "more shard")} not shown.` : "");
  for (const [id, list] of [["workers", job.workers], ["pservers", [...stoodFor.values()]], ["shards", job.shards]]) {
    $(id).parentNode.hidden = list.length === 0;
    $(`${id}-title`).hidden = list.length === 0;
  }
  const checkpoint = job.checkpoint;
  const recovery = job.recovery;
  const over = job.checkpoint_age_s === null;
  figures("recovery", [
    ["Newest checkpoint", checkpoint.step ? `step ${count(checkpoint.step)}, ${bytes(checkpoint.bytes)}` : "none yet"],
    ["Its age", checkpoint.step && !over ? ago(checkpoint.age_s, job.time_s) : none],
    ["Checkpoints", `${count(checkpoint.made)} made, ${count(checkpoint.failed)} failed`],
    ["Now", checkpoint.doing || none],
    ["Workers lost", count(recovery.worker_losses)], ["Pservers lost", count(recovery.pserver_losses)],
    ["Rollbacks", count(recovery.rollbacks)], ["Steps rolled back", count(recovery.steps_rolled_back)],
    ["Updates lost", count(recovery.updates_lost)], ["Scheduler restarts", count(recovery.scheduler_restarts)]]);
  line("recovery-last", [recovery.last ? `Last loss: ${recovery.last}` : "", checkpoint.last_error ? `Last failed checkpoint: ${checkpoint.last_error}` : ""]
    .filter((text) => text).join(". "));
  fill("epoch-rows", [{name: "Epoch", kind: "number"}, {name: "Examples", kind: "number"}, {name: "Seconds", kind: "number"}, {name: "Examples/s", kind: "number"},
    {name: "Loss", kind: "number"}, {name: "AUC", kind: "number"}, {name: "Log loss", kind: "number"}],
  job.epochs_log.map((one) => ({key: String(one.epoch), cells: [one.epoch, count(one.examples), `${one.seconds.toFixed(2)} s`,
    one.seconds > 0 ? count(one.examples / one.seconds) : none, one.loss.toFixed(5), fixed(one.auc, 5), fixed(one.log_loss, 5)]})));
  $("epochs-details").hidden = job.epochs_log.length === 0;
  notes("warnings", job.warnings);
  setText($("config"), job.config + (job.config_cut ? "\n# cut here" : ""));
}

// ---- asking

async function ask(path) {
  const answer = await fetch(path, {cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(ANSWER_MS)});
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error || `HTTP status ${answer.status}`), {status: answer.status});
  return body;
}

const STARTED = ["running", "recovering", "starting"];

// The job of the address, else the newest that runs, else the newest.
function chosenJob(jobs) {
  const wanted = shown("job");
  if (jobs.some((job) => job.job_id === wanted)) return wanted;
  const runs = jobs.find((job) => STARTED.includes(job.state)) || jobs[0];
  return runs ? runs.job_id : null;
}

let shownCurves = "";

async function showChosenJob(job_id, ended) {
  const path = `/api/v1/jobs/${encodeURIComponent(job_id)}`;
  const curvesOf = `${job_id} ${ended}`;
  const [job, curves] = await Promise.all([ask(path), ended && shownCurves === curvesOf ? null : ask(`${path}/curves?points=${POINTS}`)]);
  showJob(job);
  if (curves) showCurves(curves);
  shownCurves = curvesOf;
}

async function showLog() {
  const wanted = shown("log");
  $("log").hidden = !wanted;
  if (!wanted) return;
  setText($("log-title"), `Log ${wanted}`);
  try {
    const log = await ask(`/api/v1/logs/${encodeURIComponent(wanted)}`);
    setText($("log-path"), `The end of ${log.path}, ${bytes(log.bytes)}`);
    const pre = $("log-text");
    const atEnd = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 20;
    setText(pre, log.text);
    if (atEnd) pre.scrollTop = pre.scrollHeight;
  } catch (error) {
    setText($("log-path"), error.message);
    setText($("log-text"), "");
  }
}

function live(text, lost) {
  setText($("live"), text);
  $("live").className = lost ? "lost" : "";
}

async function showAll() {
  const answer = await ask("/api/v1/jobs");
  setText($("cluster"), `cluster ${answer.cluster || "without a name"}, up ${duration(answer.uptime_s)}`);
  setText($("version"), `version ${answer.version}`);
  document.title = `Sluice ${answer.cluster}`.trim();
  notes("notes", answer.notes);
  const chosen = chosenJob(answer.jobs);
  showJobs(answer, chosen);
  showMembers(answer);
  forgetCounters(answer.time_s);
  $("job").hidden = chosen === null;
  const job = answer.jobs.find((one) => one.job_id === chosen);
  if (job) await showChosenJob(chosen, ["done", "failed", "cancelled"].includes(job.state));
  await showLog();
}

let timer = null;
let asking = false;
let again = false;
let lostSince = null;

async function update() {
  clearTimeout(timer);
  if (asking) { again = true; return; }
  if (document.hidden) { live("paused: the page is hidden", false); return; }
  asking = true;
  again = false;
  try {
    await showAll();
    lostSince = null;
    live("● live", false);
  } catch (error) {
    // A job that is forgotten meanwhile is no lost scheduler.
    if (error.status !== 404) {
      lostSince = lostSince || Date.now();
      live(`✕ no answer for ${duration((Date.now() - lostSince) / 1000)}; what is shown is old`, true);
    }
  }
  asking = false;
  timer = setTimeout(update, again ? 0 : EVERY_MS);
}

document.addEventListener("visibilitychange", update);
function changed() {
  shownCurves = "";
  update();
}

window.addEventListener("popstate", changed);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  const plain = link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
  const address = plain ? link.getAttribute("href") : "";
  if (!address.startsWith("/?") && link !== $("log-close")) return;
  event.preventDefault();
  if (link === $("log-close")) {
    show(addressWith("log", null));
    $("log").hidden = true;
    return;
  }
  show(address);
  if (link.closest("#jobs")) $("job").scrollIntoView();
  else showLog().then(() => $("log").scrollIntoView());
});
// The colours of the charts are those of the scheme.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { shownCurves = ""; update(); });
update();
