// The page: which row is shown, what a key does, and what is on its way to the disk.

import { get, post, start } from "./talk.js";
import * as draw from "./draw.js";

const $ = (id) => document.getElementById(id);
const AHEAD = 5; // rows that are there before they are needed
const WAITS = [400, 900, 2000, 4000, 8000]; // milliseconds after which reasons are asked for again
const MOST_DOUBTFUL = 12; // buttons; more come as these are judged
const PAUSE = 400; // milliseconds without a key after which it is asked what a rule would hide
const ANSWERS = ["normal", "anomaly", "unsure", "skip"];

const tab = crypto.randomUUID ? crypto.randomUUID() : String(Math.random());
const shown = []; // rows that were looked at, in their order
let at = -1; // which of them is on the page
let ahead = []; // rows to come
let fetching = null;
let ended = false;
const undo = [];
let columns = new Map();
let state = null;
let sending = Promise.resolve();
let unsaved = 0;

const who = () => $("who").value.trim() || "somebody";
const current = () => shown[at];

// --- words for everybody ------------------------------------------------------------------

function say(text) {
  $("status").textContent = text;
}

function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// --- rows -----------------------------------------------------------------------------------

function fetchAhead() {
  if (fetching || ended || ahead.length >= AHEAD) return fetching ?? Promise.resolve();
  fetching = get("/api/next", { tab, who: who(), n: AHEAD })
    .then((cards) => {
      ended = !cards.length;
      ahead.push(...cards);
    })
    .catch((failure) => trouble(failure.message))
    .finally(() => {
      fetching = null;
    });
  return fetching;
}

async function forward() {
  if (at < shown.length - 1) {
    at += 1;
  } else {
    if (!ahead.length) await fetchAhead();
    const next = ahead.shift();
    if (!next) {
      if (ended) say("No more rows to judge.");
      return;
    }
    shown.push(next);
    at = shown.length - 1;
  }
  show();
  fetchAhead();
}

function back() {
  if (at > 0) {
    at -= 1;
    show();
  } else {
    say("This is the first row.");
  }
}

async function open(row) {
  $("list").close();
  try {
    const card = await get(`/api/row/${row}`, { who: who() });
    const found = shown.findIndex((one) => one.row === row);
    if (found >= 0) {
      const { kind, source } = shown[found];
      at = found;
      shown[at] = Object.assign(shown[found], card, { kind: card.kind || kind, source });
    } else {
      at = Math.min(at + 1, shown.length);
      shown.splice(at, 0, card);
    }
    show();
  } catch (failure) {
    trouble(failure.message);
  }
}

function show() {
  const card = current();
  if (!card) return;
  const name = `Row ${card.row.toLocaleString("en")}`;
  $("row-title").replaceChildren(name, ...(card.id === null ? [] : [": ", draw.fromData(card.id)]));
  $("row-kind").textContent = card.kind;
  showBeside(card, true, true, true);
  $("note").value = card.note;
  for (const label of ANSWERS) $(label).setAttribute("aria-pressed", String(card.mine === label));
  $("undo").disabled = !undo.length;
  $("previous").disabled = at <= 0;
  window.scrollTo(0, 0);
  askReasons(card, 0);
}

function scores(card) {
  const parts = [];
  if (card.score !== null && card.score !== undefined) parts.push(`anomaly score ${draw.number(card.score)}`);
  if (card.probability !== null && card.probability !== undefined) {
    parts.push(`probability of an anomaly ${draw.percent(card.probability)}`);
  }
  if (card.flagged !== null && card.flagged !== undefined) parts.push(card.flagged ? "flagged" : "not flagged");
  if (card.harmless) parts.push(`harmless by the rule “${card.harmless}”`);
  if (card.label && !card.mine) parts.push(`labelled ${card.label}`);
  return parts.join(", ") || "not scored yet";
}

// Reasons come later than rows; those of a newer fit take the place of older ones.
function askReasons(card, tries) {
  const fits = state?.fits ?? 0;
  if ((card.reasons && card.fits === fits) || tries >= WAITS.length) return;
  setTimeout(async () => {
    if (card !== current()) return;
    try {
      const { reasons, score, probability, flagged, near, answers, disputed, label, series } =
        await get(`/api/row/${card.row}`, { who: who() });
      const news = Boolean(reasons) && JSON.stringify(reasons) !== JSON.stringify(card.reasons);
      // A row that was fetched ahead does not know of labels that have come since.
      const others = news || JSON.stringify(near) !== JSON.stringify(card.near);
      // Drawn again, a series would lose the stretch that somebody is just drawing.
      const otherSeries = JSON.stringify(series) !== JSON.stringify(card.series);
      Object.assign(card, { reasons, score, probability, flagged, near, answers, disputed, label, series, fits });
      if (card === current()) showBeside(card, news, others, otherSeries);
      if (!reasons) askReasons(card, tries + 1);
    } catch {
      // the page says elsewhere that the server does not answer
    }
  }, tries || card.reasons ? WAITS[tries] : 0);
}

function showBeside(card, withCells, withNear, withSeries) {
  $("row-scores").textContent = scores(card);
  $("row-answers").replaceChildren(...draw.answers(card));
  if (withSeries) $("row-series").replaceChildren(...draw.series(card, mark));
  if (withCells) $("row-cells").replaceChildren(...draw.cells(card, columns));
  if (withNear) $("row-near").replaceChildren(draw.near(card, columns, open));
}

// --- answers --------------------------------------------------------------------------------

// A stretch of the series: from and to, in seconds after the row.
function mark(stretch) {
  const card = current();
  if (!card?.series) return;
  card.stretch = stretch;
  $("row-series").replaceChildren(...draw.series(card, mark));
  if (!stretch) say("Your answer is about this row alone.");
  else say(`Your answer is about ${draw.plural(draw.stretchOf(card).length + 1, "row")}.`);
}

function markAround() {
  const half = (current()?.series?.window ?? 0) / 2;
  mark(current()?.stretch ? null : [-half, half]);
}

function widen(factor) {
  const stretch = current()?.stretch;
  if (!stretch) return;
  const middle = (stretch[0] + stretch[1]) / 2;
  mark(stretch.map((end) => middle + factor * (end - middle)));
}

// Answers go one after the other, so that an undo never overtakes what it undoes.
function send(card, label, note, before, others = []) {
  unsaved += 1;
  sending = sending
    .then(() => deliver(card, label, note, before, others))
    .catch((error) => trouble(`Row ${card.row} was not saved. ${error.message}`))
    .finally(() => {
      unsaved -= 1;
    });
}

async function deliver(card, label, note, before, others) {
  const body = { row: card.row, label, note, before, source: card.source, who: who(), others };
  try {
    const saved = await post("/api/answer", body);
    trouble("");
    const ofOthers = card.answers.filter((one) => one.who !== body.who);
    card.answers = label ? [...ofOthers, { who: body.who, label, note }] : ofOthers;
    for (const one of shown) {
      one.series?.rows.forEach((row, j) => {
        if (row === card.row || others.includes(row)) one.series.labels[j] = ["normal", "anomaly"].includes(label) ? label : "";
      });
    }
    const rows = others.length ? `Row ${card.row} and ${draw.plural(others.length, "other")}` : `Row ${card.row}`;
    say(label ? `${rows} saved as ${label}.` : `${rows}: answer taken back.`);
    counts(saved.counts);
  } catch (failure) {
    say(`Row ${card.row} was not saved.`);
    card.mine = before;
    trouble(`Row ${card.row} was not saved. ${failure.message}`);
    if (failure.status === 422) card.mine = (await get(`/api/row/${card.row}`, { who: body.who })).mine;
    const place = shown.indexOf(card);
    if (place >= 0) {
      at = place;
      show();
    }
  }
}

function judge(label) {
  const card = current();
  if (!card) return;
  const note = $("note").value;
  const before = card.mine;
  const others = draw.stretchOf(card);
  undo.push({ card, before, note: card.note, others });
  ahead = ahead.filter((one) => !others.includes(one.row)); // they are answered now
  card.mine = label;
  card.note = note;
  say(`Saving row ${card.row} …`);
  card.stretch = null;
  send(card, label, note, before, others);
  if (again.delete(card.row) && again.size) lookAgain();
  else forward();
}

function takeBack() {
  const last = undo.pop();
  if (!last) {
    say("Nothing to undo.");
    return;
  }
  const { card, before, note, others } = last;
  const now = card.mine;
  card.mine = before;
  card.note = note;
  // The others of a stretch had no label before.
  if (others.length) send(card, "", note, now, others);
  if (before || !others.length) send(card, before, note, others.length ? "" : now);
  at = shown.indexOf(card);
  show();
}

function keepNote() {
  const card = current();
  const note = $("note").value;
  if (!card || note === card.note) return;
  if (card.mine) send(card, card.mine, note, card.mine);
  card.note = note;
}

// --- what stands beside the row -------------------------------------------------------------

function counts(found) {
  if (!found) return;
  const { normal, anomaly, unsure, unlabelled } = found;
  const parts = [draw.plural(normal, "normal", "normal"), draw.plural(anomaly, "anomaly", "anomalies")];
  const ofThese = unsure ? ` (${unsure.toLocaleString("en")} unsure)` : "";
  parts.push(`${unlabelled.toLocaleString("en")} unlabelled${ofThese}`);
  $("counts").textContent = parts.join(", ");
}

async function refresh() {
  try {
    const before = state;
    state = await get("/api/state", { who: who() });
    counts(state.counts);
    $("source").textContent = state.source;
    document.title = `Label ${state.source}`;
    if (JSON.stringify(before?.model) !== JSON.stringify(state.model) || JSON.stringify(before?.counts) !== JSON.stringify(state.counts)) {
      $("model-body").replaceChildren(...draw.model(state.model, state));
    }
    $("progress").textContent = state.progress;
    $("fit").disabled = Boolean(state.progress);
    $("hint").textContent = state.hint;
    showDisputes(state.disputes);
    if (!unsaved) showDoubtful(state.doubtful);
    showRemarks(state);
    if (before && before.fits !== state.fits && current()) askReasons(current(), 0);
    if (!unsaved && $("trouble").dataset.server) {
      delete $("trouble").dataset.server;
      trouble("");
    }
  } catch (failure) {
    $("trouble").dataset.server = "1";
    trouble(failure.message);
  }
}

function showDisputes(rows) {
  const buttons = rows.map((row) => {
    const button = draw.element("button", { type: "button" }, `Row ${row}`);
    button.addEventListener("click", () => open(row));
    return button;
  });
  const content = rows.length ? [draw.element("p", { class: "notice" }, `People disagree about ${draw.plural(rows.length, "row")}:`), ...buttons] : [];
  if ($("disputes").dataset.rows !== String(rows)) $("disputes").replaceChildren(...content);
  $("disputes").dataset.rows = String(rows);
}

// Rows whose label looks wrong; one that was judged again leaves at once.
const again = new Set();

function lookAgain() {
  const [row] = again;
  if (row === undefined) say("No label looks wrong.");
  else open(row);
}

function showDoubtful(doubtful) {
  again.clear();
  for (const { row } of doubtful) again.add(row);
  $("again").hidden = $("doubtful").hidden = !doubtful.length;
  $("again").firstChild.textContent = `Look again: ${doubtful.length} `;
  const text = JSON.stringify(doubtful);
  if ($("doubtful-body").dataset.rows === text) return;
  $("doubtful-body").dataset.rows = text;
  $("doubtful-body").replaceChildren(
    draw.element("p", { class: "small" }, "Fits that had not seen these labels contradict them. Judge the rows again."),
    ...doubtful.slice(0, MOST_DOUBTFUL).map(({ row, percent }) => {
      const button = draw.element("button", { type: "button", class: "small" },
        `Row ${row.toLocaleString("en")}: ${percent}`);
      button.addEventListener("click", () => open(row));
      return button;
    }));
}

function showRemarks(state) {
  const lines = [...state.notes];
  if (state.pool < state.rows) {
    lines.push(`Suggested rows come from ${state.pool.toLocaleString("en")} of ${state.rows.toLocaleString("en")} rows, drawn at random. You can find and label any other row.`);
  }
  const text = lines.join("\n");
  $("remarks").hidden = !lines.length;
  if ($("remarks").dataset.text === text) return;
  $("remarks").dataset.text = text;
  $("remarks-body").replaceChildren(...lines.map((line) => draw.element("p", {}, draw.fromData(line))));
}

// --- finding rows ---------------------------------------------------------------------------

let offset = 0;
let searching = 0;

async function search(from = 0) {
  offset = from;
  const own = ++searching;
  const asked = { q: $("query").value.trim(), order: $("order").value, offset, who: who() };
  try {
    const page = await get("/api/rows", asked);
    if (own !== searching) return; // a later question was asked meanwhile
    const table = draw.listed(page.rows, open);
    if (from) $("matches").append(table);
    else $("matches").replaceChildren(page.rows.length ? table : draw.element("p", {}, "No row matches."));
    $("more").hidden = !page.more;
  } catch (failure) {
    $("matches").replaceChildren(draw.element("p", {}, failure.message));
  }
}

function find() {
  $("list").showModal();
  $("query").focus();
  $("query").select();
  search();
}

// --- the known harmless ---------------------------------------------------------------------

let ruleRow = null;
let typing = null;
let effects = 0;

async function openRule() {
  const card = current();
  if (!card) return;
  ruleRow = card.row;
  try {
    const rule = await get(`/api/rule/of/${card.row}`);
    for (const name of ["where", "name", "until"]) $(`rule-${name}`).value = rule[name];
    $("rule-reason").value = "";
    $("rule-effect").replaceChildren();
    ruleTrouble("");
    $("rule").showModal();
    showEffect();
  } catch (failure) {
    trouble(failure.message);
  }
}

function ruleTrouble(text) {
  $("rule-trouble").textContent = text;
  $("rule-trouble").hidden = !text;
}

// A rule can be saved once it is seen what it would hide.
async function showEffect() {
  const own = ++effects;
  $("rule-save").disabled = true;
  const where = $("rule-where").value.trim();
  if (!where) return;
  try {
    const effect = await get("/api/rule/effect", { where, who: who() });
    if (own !== effects) return; // the condition has changed meanwhile
    ruleTrouble("");
    $("rule-effect").replaceChildren(...draw.effect(effect, ruleRow, openFromRule));
    $("rule-save").disabled = !effect.matching;
  } catch (failure) {
    if (own !== effects) return;
    $("rule-effect").replaceChildren();
    ruleTrouble(failure.message);
  }
}

function openFromRule(row) {
  $("rule").close();
  open(row);
}

async function saveRule(event) {
  event.preventDefault();
  if ($("rule-save").disabled) return;
  const values = ["name", "where", "reason", "until"].map((name) => [name, $(`rule-${name}`).value.trim()]);
  try {
    const { saved, file } = await post("/api/rule", { ...Object.fromEntries(values), by: who() });
    $("rule").close();
    ahead = []; // the rule may match some of these; all others come again
    await post("/api/leave", { tab });
    const card = current();
    if (card?.row === ruleRow) Object.assign(card, await get(`/api/row/${ruleRow}`, { who: who() }), { kind: card.kind, source: card.source });
    show();
    say(`Rule “${saved}” saved in ${file}.`);
  } catch (failure) {
    ruleTrouble(failure.message);
  }
}

// --- keys and buttons -----------------------------------------------------------------------

const KEYS = {
  n: () => judge("normal"),
  a: () => judge("anomaly"),
  u: () => judge("unsure"),
  s: () => judge("skip"),
  z: takeBack,
  ArrowLeft: back,
  ArrowRight: forward,
  w: markAround,
  "+": () => widen(1.5),
  "-": () => widen(1 / 1.5),
  m: () => $("note").focus(),
  v: () => document.body.classList.toggle("mapped"),
  l: lookAgain,
  h: openRule,
  "/": find,
  "?": () => $("help").showModal(),
};

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input:not([readonly]), select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || typing || document.querySelector("dialog[open]")) return;
  const act = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  event.preventDefault();
  if (!event.repeat || event.key.startsWith("Arrow")) act(); // a key held down is one answer
});

for (const label of ANSWERS) $(label).addEventListener("click", () => judge(label));
$("undo").addEventListener("click", takeBack);
$("previous").addEventListener("click", back);
$("following").addEventListener("click", forward);
$("again").addEventListener("click", lookAgain);
$("harmless").addEventListener("click", openRule);
$("rule-close").addEventListener("click", () => $("rule").close());
$("row-cells").addEventListener("click", (event) => event.target.closest(".map") && KEYS.v());
$("rule-form").addEventListener("submit", saveRule);
$("rule-where").addEventListener("input", () => {
  $("rule-save").disabled = true; // until it is seen what the new condition hides
  clearTimeout(typing);
  typing = setTimeout(showEffect, PAUSE);
});
$("open-help").addEventListener("click", () => $("help").showModal());
$("open-list").addEventListener("click", find);
$("query").addEventListener("input", () => search());
$("order").addEventListener("change", () => search());
$("more").addEventListener("click", () => search(offset + 50));
$("fit").addEventListener("click", () => post("/api/fit").then(refresh, (failure) => trouble(failure.message)));
$("note").addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === "Escape") $("note").blur();
});
$("note").addEventListener("change", keepNote);
$("who").addEventListener("change", () => {
  localStorage.setItem("riskad-who", who());
  undo.length = 0; // what can be undone was another person's
  for (const card of [...shown, ...ahead]) {
    const own = card.answers.find((one) => one.who === who());
    Object.assign(card, { mine: own?.label ?? "", note: own?.note ?? "" });
  }
  show();
  refresh();
});
$("invite").addEventListener("click", async () => {
  try {
    $("address").value = (await post("/api/invite")).address;
    $("invitation").hidden = false;
    $("address").focus();
    $("address").select();
  } catch (failure) {
    trouble(failure.message);
  }
});
window.addEventListener("pagehide", () => {
  post("/api/leave", { tab }, { keepalive: true }).catch(() => {}); // others may have the next rows
});
window.addEventListener("beforeunload", (event) => {
  if (unsaved) event.preventDefault();
});

async function begin() {
  const session = await start();
  $("who").value = localStorage.getItem("riskad-who") || session.who;
  columns = new Map(session.columns.map((column) => [column.name, column]));
  await refresh();
  await forward();
  setInterval(() => document.hidden || refresh(), 2000);
}

begin().catch((failure) => trouble(failure.message));
