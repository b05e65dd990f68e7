
// The page of sluice report: shows the JSON of its own file. All text is put in as text, never as markup.
"use strict";

const DATA = JSON.parse(document.getElementById("data").textContent);
const JOBS = DATA.jobs;
const MOST_FEATURES = 200;
const MOST_CHARTS = 24;
const $ = (id) => document.getElementById(id);
const none = "–";

// ---- text of numbers

const grouped = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const isNumber = (n) => typeof n === "number" && Number.isFinite(n);
const count = (n) => (isNumber(n) ? grouped.format(n) : none);
const fixed = (n, digits) => (isNumber(n) ? n.toFixed(digits) : none);
const seconds = (n) => (isNumber(n) ? `${n < 100 ? n.toFixed(2) : grouped.format(n)} s` : none);
const percent = (n) => (isNumber(n) ? `${(100 * n).toFixed(n > 0 && n < 0.01 ? 3 : 1)} %` : none);
const get = (object, ...path) => path.reduce((at, name) => (at === null || at === undefined ? undefined : at[name]), object);

// Jobs of one id, in different folders, get as much of the end of their folder as tells them apart.
const idOf = (job) => String(get(job, "result", "job") || job.folder);
const endOf = (job, parts) => job.folder.replace(/\/+$/, "").split("/").slice(-parts).join("/");
const NAMES = JOBS.map((job) => {
  const same = JOBS.filter((other) => other !== job && idOf(other) === idOf(job));
  if (same.length === 0) return idOf(job);
  let parts = 1;
  while (endOf(job, parts) !== endOf(job, parts + 1) && same.some((other) => endOf(other, parts) === endOf(job, parts))) ++parts;
  return `${idOf(job)} (${endOf(job, parts)})`;
});

// ---- elements

function add(parent, kind, text, className) {
  const node = parent.appendChild(document.createElement(kind));
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

// rows: [name, [value of each column], "number" or "path"?]; a value is a text or {text, kind}. Lines of a path end behind a '/'.
function table(id, corner, columns, rows) {
  const node = $(id);
  const head = add(add(node, "thead"), "tr");
  add(head, "th", corner).scope = "col";
  const numeric = rows.length > 0 && rows.every(([, , kind]) => kind === "number");
  for (const name of columns) add(head, "th", name, numeric ? "number" : "").scope = "col";
  const body = add(node, "tbody");
  for (const [name, values, kind] of rows) {
    const row = add(body, "tr");
    add(row, "th", name).scope = "row";
    for (const value of values) {
      const cell = value !== null && typeof value === "object" ? value : {text: value};
      const text = cell.text === undefined || cell.text === "" ? none : String(cell.text);
      const td = add(row, "td", kind === "path" ? undefined : text, `${kind || ""} ${cell.kind || ""}`.trim());
      if (kind === "path") text.split(/(?<=\/)/).forEach((part) => td.append(part, document.createElement("wbr")));
    }
  }
}

const forJobs = (name, value, kind) => [name, JOBS.map(value), kind];

// ---- charts

const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const LIGHT = ["#0b62b8", "#b3480a", "#17692f", "#7b2fa8", "#8a5300", "#b3261e", "#00696b", "#5a5f00"];
const DARK = ["#74adff", "#ffab6b", "#7bd192", "#d3a1f5", "#f2c26b", "#ff9a92", "#6fd7d9", "#cdd36a"];
// Colour is never the only difference.
const DASHES = [[], [6, 4], [2, 3], [8, 3, 2, 3], [12, 4], [1, 2], [6, 2, 1, 2, 1, 2], [3, 6]];
const POINTS = ["circle", "rect", "triangle", "rectRot", "cross", "star", "crossRot", "dash"];
const style = (at) => ({
  borderColor: (dark.matches ? DARK : LIGHT)[at % LIGHT.length], backgroundColor: (dark.matches ? DARK : LIGHT)[at % LIGHT.length],
  borderDash: DASHES[at % DASHES.length], pointStyle: POINTS[at % POINTS.length],
});

const drawn = [];

// series: [{label, points: [[x, y]], at}]; `what` is read to those who do not see the chart.
function chart(parent, title, x, series, options = {}) {
  const figure = add(parent, "figure");
  add(figure, "figcaption", title);
  const canvas = add(add(figure, "div", undefined, "chart"), "canvas");
  canvas.setAttribute("role", "img");
  const ends = series.map((one) => {
    const last = one.points[one.points.length - 1];
    return `${one.label}: ${last[1].toPrecision(5)} at ${x} ${count(last[0])}`;
  });
  canvas.setAttribute("aria-label", `${title}. ${options.read || ends.join("; ")}`);
  drawn.push({canvas, x, series, options, chart: null});
}

function draw(one) {
  const axis = (title) => ({
    grid: {color: colour("--grid")}, ticks: {color: colour("--quiet"), maxTicksLimit: 6},
    title: {display: title !== "", text: title, color: colour("--quiet")},
  });
  const datasets = one.series.map((series) => Object.assign({
    label: series.label, data: series.points.map(([x, y]) => ({x, y})), borderWidth: 1.8, tension: 0, spanGaps: false,
    pointRadius: series.points.length <= 60 ? 2.5 : 0, pointHitRadius: 6,
  }, style(series.at), series.plain ? {borderColor: colour("--quiet"), backgroundColor: colour("--quiet"), pointStyle: "line", pointRadius: 0, borderDash: [2, 2]} : {}));
  const xAxis = Object.assign({type: "linear"}, axis(one.x));
  if (!one.options.shares) xAxis.ticks.precision = 0;
  if (one.chart) one.chart.destroy();
  const bars = one.options.bars;
  one.chart = new Chart(one.canvas, {
    type: bars ? "bar" : "line",
    data: bars ? {labels: bars.labels, datasets: bars.stages.map((stage, at) => Object.assign({label: stage.label, data: stage.values},
      {backgroundColor: style(at).backgroundColor}))} : {datasets},
    options: Object.assign({
      animation: false, responsive: true, maintainAspectRatio: false,
      interaction: bars ? {mode: "index", axis: "y", intersect: false} : {mode: "nearest", intersect: false, axis: "x"},
      scales: bars ? {x: Object.assign({stacked: true}, axis("seconds")), y: Object.assign({stacked: true}, axis(""))} : {x: xAxis, y: axis(one.options.y || "")},
      plugins: {legend: {display: bars ? true : one.series.length > 1, labels: {color: colour("--text"), usePointStyle: !bars, boxHeight: 6}}},
    }, bars ? {indexAxis: "y"} : {parsing: false, normalized: true}),
  });
}

// ---- sections

const curveOf = (job, name) => {
  const curve = job.curves.find((one) => one.name === name);
  return curve && Array.isArray(curve.points) ? curve.points.filter(([, y]) => isNumber(y)) : [];
};
const epochsOf = (job, value) => (Array.isArray(get(job, "result", "epochs_log")) ? job.result.epochs_log : [])
  .map((one) => [one.epoch, value(one)]).filter(([, y]) => isNumber(y));

function showJobs() {
  const auc = (job) => {
    const evaluated = get(job, "result", "eval");
    if (!isNumber(get(evaluated, "auc"))) return get(evaluated, "auc_undefined") || none;
    const error = get(evaluated, "auc_standard_error");
    return isNumber(error) ? `${evaluated.auc.toFixed(5)} ± ${(1.96 * error).toFixed(5)}` : evaluated.auc.toFixed(5);
  };
  const state = (job) => {
    const word = String(get(job, "result", "status"));
    const [sign, kind] = {done: ["✓", "good"], failed: ["✕", "bad"], cancelled: ["⊘", "wait"]}[word] || ["?", "wait"];
    return {text: `${sign} ${word}`, kind};
  };
  const r = (name) => (job) => get(job, "result", name);
  table("jobs", "", NAMES, [
    forJobs("Folder", (job) => job.folder, "path"), forJobs("Status", state), forJobs("Message", r("message")),
    forJobs("Mode", (job) => (r("mode")(job) === "geo" ? `geo, every ${r("k_steps")(job)} steps` : r("mode")(job))),
    forJobs("Workers", (job) => count(r("worker_num")(job)), "number"),
    forJobs("Epochs", (job) => `${count(r("epochs")(job))}${r("stopped_early")(job) ? ", stopped early" : ""}`, "number"),
    forJobs("Steps", (job) => count(r("global_step")(job)), "number"), forJobs("Examples", (job) => count(r("examples")(job)), "number"),
    forJobs("Malformed lines", (job) => count(r("bad_lines")(job)), "number"), forJobs("Time of training", (job) => seconds(r("seconds")(job)), "number"),
    forJobs("Examples/s", (job) => count(r("examples_per_second")(job)), "number"),
    forJobs("AUC, with the 95 % interval of its sampling error", auc, "number"),
    forJobs("Error of the AUC's binning, at most", (job) => (isNumber(get(job, "result", "eval", "auc_error_bound")) ? job.result.eval.auc_error_bound.toExponential(1) : none), "number"),
    forJobs("Log loss", (job) => fixed(get(job, "result", "eval", "log_loss"), 5), "number"),
    forJobs("Accuracy", (job) => fixed(get(job, "result", "eval", "accuracy"), 5), "number"),
    forJobs("Mean prediction over mean label", (job) => fixed(get(job, "result", "eval", "calibration"), 4), "number"),
    forJobs("Best epoch", (job) => count(get(job, "result", "best", "epoch")), "number"),
    forJobs("Loss of the last epoch", (job) => { const losses = epochsOf(job, (one) => one.loss); return losses.length ? fixed(losses[losses.length - 1][1], 5) : none; }, "number"),
    forJobs("Staleness, mean and greatest", (job) => (get(job, "result", "staleness", "pushes") ? `${fixed(job.result.staleness.mean, 2)}, ${count(job.result.staleness.max)}` : none), "number"),
    forJobs("Model digest", (job) => String(r("model_digest")(job) || "").slice(0, 12)),
  ]);
  const lacks = JOBS.flatMap((job, at) => job.lacks.map((text) => `${NAMES[at]}: ${text}`));
  $("lacks").hidden = lacks.length === 0;
  for (const text of lacks) add($("lacks"), "li", text);
}

function showCurves() {
  const series = (points) => JOBS.map((job, at) => ({label: NAMES[at], points: points(job), at})).filter((one) => one.points.length > 0);
  const show = (parent, title, x, all) => { if (all.length) chart(parent, title, x, all); };
  show($("curves"), "Training loss by step", "step", series((job) => curveOf(job, "train/loss")));
  show($("curves"), "Examples/s by step", "step", series((job) => curveOf(job, "train/examples_per_second")));
  show($("curves"), "AUC by epoch", "epoch", series((job) => epochsOf(job, (one) => get(one, "eval", "auc"))));
  show($("curves"), "Log loss of the evaluation by epoch", "epoch", series((job) => epochsOf(job, (one) => get(one, "eval", "log_loss"))));
  show($("curves"), "Training loss by epoch", "epoch", series((job) => epochsOf(job, (one) => one.loss)));
  show($("curves"), "Examples/s by epoch", "epoch", series((job) => epochsOf(job, (one) => (one.seconds > 0 ? one.examples / one.seconds : null))));
  const shown = ["train/loss", "train/examples_per_second", "train/epoch_loss", "eval/auc", "eval/log_loss"];
  const names = [...new Set(JOBS.flatMap((job) => job.curves.map((one) => one.name)))].filter((name) => !shown.includes(name)).slice(0, MOST_CHARTS);
  for (const name of names) {
    const of = JOBS.flatMap((job) => job.curves).find((one) => one.name === name);
    show($("more-curves"), name, of.x === "epoch" ? "epoch" : "step", series((job) => curveOf(job, name)));
  }
  $("no-curves").hidden = $("curves").children.length > 0;
  $("more-curves-details").hidden = $("more-curves").children.length === 0;
}

function showCalibration() {
  const bins = (job) => (Array.isArray(get(job, "result", "calibration_bins")) ? job.result.calibration_bins : []).filter((one) => isNumber(one.probability));
  const series = JOBS.map((job, at) => ({label: NAMES[at], points: bins(job).map((one) => [one.probability, one.positive_rate]), at})).filter((one) => one.points.length);
  $("calibration-section").hidden = series.length === 0;
  if (!series.length) return;
  const greatest = Math.max(...series.flatMap((one) => one.points.flat()));
  chart($("calibration"), "Share of label 1 by predicted probability", "mean prediction", [...series,
    {label: "as predicted", points: [[0, 0], [greatest, greatest]], at: 0, plain: true}],
  {shares: true, y: "share of label 1", read: "The table below has the numbers."});
  const rows = JOBS.flatMap((job, at) => bins(job).map((one, n) => [`${NAMES[at]}, group ${n + 1}`, [fixed(one.probability, 5), fixed(one.positive_rate, 5), count(one.weight)], "number"]));
  table("calibration-table", "Job and group", ["Mean prediction", "Share of label 1", "Weight"], rows);
}

const STAGES = [["read", "Read and parse"], ["dedup", "Unique keys"], ["pull_wait", "Wait for pulls"], ["compute", "Compute"], ["push_wait", "Wait for pushes"]];

function showStages() {
  const stage = (name) => JOBS.map((job) => get(job, "result", "stages", name));
  table("stages-table", "Stage", NAMES, STAGES.map(([name, title]) => [title, stage(name).map(seconds), "number"]));
  const labels = NAMES.map((name) => (name.length > 24 ? `${name.slice(0, 23)}…` : name));
  chart($("stages"), "Seconds by stage", "seconds", [], {read: "The table below has the numbers.",
    bars: {labels, stages: STAGES.map(([name, label]) => ({label, values: stage(name).map((s) => (isNumber(s) ? s : 0))}))}});
}

function showFeatures() {
  const of = (job) => (Array.isArray(get(job, "result", "data", "features")) ? job.result.data.features : []);
  const by = new Map();
  JOBS.forEach((job, at) => { for (const one of of(job)) { if (!by.has(one.name)) by.set(one.name, JOBS.map(() => null)); by.get(one.name)[at] = one; } });
  $("features-section").hidden = by.size === 0;
  const most = (list) => Math.max(...list.map((one) => (one && isNumber(one.missing) ? one.missing : -1)));
  const sorted = [...by.entries()].sort(([a, x], [b, y]) => most(y) - most(x) || (a < b ? -1 : 1));
  const cell = (one) => (one === null ? none : `${percent(one.missing)}${isNumber(one.out_of_vocabulary) ? `, ${percent(one.out_of_vocabulary)} out of vocabulary` : ""}`);
  table("features", "Feature", NAMES, sorted.slice(0, MOST_FEATURES).map(([name, list]) => [name, list.map(cell), "number"]));
  $("features-left-out").hidden = sorted.length <= MOST_FEATURES;
  $("features-left-out").textContent = `${count(sorted.length - MOST_FEATURES)} further features are not shown.`;
}

function showConfig() {
  const maps = JOBS.map((job) => new Map(job.config));
  const paths = [...new Set(maps.flatMap((map) => [...map.keys()]))];
  // A job without a file has no fields that could differ.
  const known = maps.filter((map) => map.size > 0);
  const differ = paths.filter((path) => new Set(known.map((map) => map.get(path))).size > 1);
  $("config-box").hidden = differ.length === 0;
  $("config-same").hidden = differ.length > 0;
  $("config-same").textContent = known.length > 1 ? "The configurations do not differ." : "";
  table("config", "Differs", NAMES, differ.map((path) => [path, maps.map((map) => (map.size === 0 ? none : map.get(path) === undefined ? "not set" : map.get(path)))]));
  JOBS.forEach((job, at) => {
    if (!job.config.length) return;
    const details = add($("configs"), "details");
    add(details, "summary", `Whole configuration of ${NAMES[at]}`);
    const pre = add(details, "pre", job.config.map(([path, value]) => `${path}: ${value}`).join("\n")
      + (job.config_left_out ? `\n# ${count(job.config_left_out)} further fields are left out` : ""));
    pre.tabIndex = 0;
    pre.setAttribute("role", "region");
    pre.setAttribute("aria-label", `Configuration of ${NAMES[at]}`);
  });
}

function showRecovery() {
  const r = (name) => (job) => count(get(job, "result", "recovery", name));
  table("recovery", "", NAMES, [
    ["worker_losses", "Workers lost"], ["pserver_losses", "Pservers lost"], ["scheduler_restarts", "Restarts of the scheduler"],
    ["rollbacks", "Rollbacks"], ["steps_rolled_back", "Steps rolled back"], ["shrinks", "Ranks left out"], ["scalings", "Changes of the number of processes"],
    ["examples_replayed", "Examples trained again"], ["updates_lost", "Updates lost"],
  ].map(([name, title]) => forJobs(title, r(name), "number"))
    .concat([forJobs("Checkpoints", (job) => (get(job, "result", "checkpoints") ? `${count(job.result.checkpoints.made)} made, ${count(job.result.checkpoints.failed)} failed` : none), "number"),
      forJobs("Resumed from", (job) => get(job, "result", "recovery", "resumed_from"))]));
  JOBS.forEach((job, at) => {
    let events = get(job, "result", "recovery", "events");
    const last = get(job, "result", "recovery", "last");
    if (!Array.isArray(events)) events = last ? [{step: null, text: last}] : [];
    if (!events.length) return;
    add($("events"), "h3", NAMES[at]);
    const list = add($("events"), "ul");
    for (const one of events) add(list, "li", `${isNumber(one.step) && one.step > 0 ? `after step ${count(one.step)}: ` : ""}${one.text}`);
  });
}

function showWarnings() {
  JOBS.forEach((job, at) => {
    const warnings = get(job, "result", "warnings");
    if (!Array.isArray(warnings) || !warnings.length) return;
    add($("warnings"), "h3", NAMES[at]);
    const list = add($("warnings"), "ul");
    for (const text of warnings) add(list, "li", text);
  });
  $("warnings-section").hidden = $("warnings").children.length === 0;
}

document.title = `Sluice report: ${NAMES.join(", ")}`.slice(0, 200);
$("made").textContent = `${JOBS.length === 1 ? "1 job" : `${JOBS.length} jobs`}, made ${new Date(DATA.time_s * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;
$("version").textContent = `sluice ${DATA.version}`;
showJobs();
showCurves();
showCalibration();
showStages();
showFeatures();
showConfig();
showRecovery();
showWarnings();
for (const one of drawn) draw(one);
dark.addEventListener("change", () => { for (const one of drawn) draw(one); });
