// The page of one plan: its data, what is selected, and the views of it. Everything that comes from
// the data reaches the document as text, never as markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);

// ---- what the views share

function element(name, attributes, parent, text) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.append(e);
  return e;
}

const svgSpace = document.querySelector("svg").namespaceURI;
function svgElement(name, attributes, parent) {
  const e = document.createElementNS(svgSpace, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (parent) parent.append(e);
  return e;
}

// Hues of neighbours are far apart: steps of the golden angle.
const hue = kernel => (205 + kernel * 137.508) % 360;
const shorten = (text, most) => text.length > most ? text.slice(0, most - 1) + "\u2026" : text;

function bytesText(n) {
  if (n < 1e3) return `${n} B`;
  if (n < 1e6) return `${(n / 1e3).toFixed(1)} kB`;
  return n < 1e9 ? `${(n / 1e6).toFixed(1)} MB` : `${(n / 1e9).toFixed(1)} GB`;
}
const usText = us => us < 10 ? us.toFixed(1) : us.toFixed(0);
const listText = (parts, most) =>
    parts.slice(0, most).join(", ") + (parts.length > most ? `, \u2026 ${parts.length - most} more` : "");
const kernelsText = list => (list.length === 1 ? "kernel " : "kernels ") + listText(list, 12);

const measured = data.kernels.length > 0 && data.kernels.every(k => k.measured_us !== null);
const timeOf = kernel => measured ? kernel.measured_us : kernel.estimated_us;
const allTime = data.kernels.reduce((sum, k) => sum + timeOf(k), 0);

// ---- tensors: the graph's, and what kernels hand to each other

const keyOf = access => (access.workspace && access.inside ? "inside " : "") + access.tensor;
const tensorOf = new Map(data.tensors.map(t => [t.name, t]));

// A tensor of the graph as views draw it.
function use(name) {
  const t = tensorOf.get(name), shape = t ? `${t.data_type} [${t.dim.join(", ")}]` : "";
  return {key: name, label: shape ? `${name}  ${shape}` : name, role: t ? t.role : "", tip: `${name} ${shape}`};
}
function accessed(access) {
  const {role} = use(access.tensor);
  return {key: keyOf(access), label: `${access.tensor}  ${bytesText(access.bytes)}`,
          role: access.workspace ? "virtual" : role,
          tip: access.inside ? `${access.tensor}, inside ${access.inside}` : use(access.tensor).tip};
}

// ---- what is selected: a kernel, a node or a tensor, in all views at once

const places = new Map();  // view: kind and key: elements
let selection = null;      // {kind, key}
let shownKernel = -1;      // whose source is shown

function remember(view, kind, key, e) {
  if (!places.has(view)) places.set(view, new Map());
  const of = places.get(view), id = `${kind} ${key}`;
  if (!of.has(id)) of.set(id, []);
  of.get(id).push(e);
}
const forget = view => places.delete(view);
const find = (view, kind, key) => (places.get(view)?.get(`${kind} ${key}`) || [])[0];

function clickable(view, kind, key, e) {
  remember(view, kind, key, e);
  e.dataset.kind = kind;
  e.dataset.key = key;
  e.addEventListener("click", () => select(kind, key));
}

// All that belongs to the selection: identifiers as in `places`.
function related() {
  const ids = new Set();
  if (!selection) return ids;
  const add = (kind, key) => ids.add(`${kind} ${key}`);
  const {kind, key} = selection;
  add(kind, key);
  data.kernels.forEach((kernel, k) => {
    const touches = kind === "tensor" && kernel.accesses.some(a => keyOf(a) === key);
    if (kind === "kernel" && k === key) {
      kernel.nodes.forEach(n => add("node", n));
      kernel.accesses.forEach(a => add("tensor", keyOf(a)));
    } else if (touches) {
      add("kernel", k);
    }
  });
  for (const node of data.nodes) {
    const tensors = [...Object.values(node.inputs), ...Object.values(node.outputs)];
    if (kind === "node" && node.name === key) {
      node.kernels.forEach(k => add("kernel", k));
      tensors.forEach(t => add("tensor", t));
    } else if (kind === "tensor" && tensors.includes(key)) {
      add("node", node.name);
    }
  }
  return ids;
}

function refresh() {
  const ids = related(), exact = selection && `${selection.kind} ${selection.key}`;
  document.body.classList.toggle("selecting", selection !== null);
  for (const of of places.values())
    for (const [id, elements] of of)
      for (const e of elements) {
        e.classList.toggle("related", ids.has(id));
        e.classList.toggle("exact", id === exact);
      }
}

// The kernel to show for a selection; the one that is shown, where it belongs to it.
function kernelOf({kind, key}) {
  if (kind === "kernel") return key;
  const kernels = kind === "node" ? (data.nodes.find(n => n.name === key)?.kernels || [])
      : data.kernels.flatMap((kernel, k) => kernel.accesses.some(a => keyOf(a) === key) ? [k] : []);
  return kernels.includes(shownKernel) || kernels.length === 0 ? shownKernel : kernels[0];
}

function select(kind, key) {
  selection = kind === null ? null : {kind, key};
  if (selection) {
    shownKernel = kernelOf(selection);
    if (kind !== "tensor") views.kernels.show(shownKernel);
    const node = kind === "node" ? key : kind === "kernel" ? data.kernels[key].nodes[0] : undefined;
    if (node !== undefined) views.nodes.show(node);
    showRow(shownKernel);
  }
  showKernel(shownKernel, selection);
  refresh();
  const fragment = selection ? `#${kind}=${encodeURIComponent(key)}` : "#";
  history.replaceState(null, "", fragment);
}

// "#kernel=3", "#node=up", "#tensor=h": a link to a selection.
function selectFromLink() {
  const [kind, text] = location.hash.slice(1).split("=", 2);
  if (text === undefined) return;
  let key = text;
  try {
    key = decodeURIComponent(text);
  } catch {
    return;
  }
  if (kind === "kernel" && data.kernels[Number(key)]) select(kind, Number(key));
  if (kind === "node" && data.nodes.some(n => n.name === key)) select(kind, key);
  if (kind === "tensor" && (tensorOf.has(key) || data.buffers.some(b => keyOf({...b, tensor: b.name, workspace: true}) === key)))
    select(kind, key);
}

// ---- the two graphs

const uses = (ports, drawn = name => tensorOf.get(name)?.role !== "scalar") =>
    Object.values(ports).filter(drawn).map(use);

function nodeItem(node) {
  const what = node.mode ? `${node.op} ${node.mode}` : node.op;
  const named = !/ #\d+$/.test(node.name);
  const in_kernels = node.kernels.length ? kernelsText(node.kernels) : "no kernel of its own: others read or write through it";
  return {kind: "node", key: node.name, kernels: node.kernels,
          title: shorten(named ? node.name : node.mode || node.op, 28), lines: named ? [what] : [node.name],
          tip: `${node.name}: ${what}, ${in_kernels}${node.line ? `, line ${node.line}` : ""}`,
          reads: uses(node.inputs), writes: uses(node.outputs)};
}

function kernelItem(kernel, k) {
  const time = usText(timeOf(kernel));
  return {kind: "kernel", key: k, kernels: [k], share: timeOf(kernel) / Math.max(allTime, 1e-9),
          title: `${k}  ${kernel.family}`,
          lines: [shorten(listText(kernel.nodes, 3), 44), `${time} us, ${bytesText(kernel.bytes)}`],
          tip: `kernel ${k}, ${kernel.family}: ${kernel.nodes.join(", ")}`,
          reads: kernel.accesses.filter(a => !a.written).map(accessed),
          writes: kernel.accesses.filter(a => a.written).map(accessed)};
}

// ---- the page

function showTotals() {
  const target = data.architecture || "every GPU from sm_80 on";
  document.title = `${data.graph}: sinter explain`;
  document.querySelector("h1").textContent = data.graph;
  const time = measured ? `${usText(allTime)} us measured, kernel by kernel` :
      `${usText(data.estimated_us)} us estimated on ${data.device}`;
  document.getElementById("totals").textContent =
      `${data.nodes.length} nodes in ${data.kernels.length} kernel${data.kernels.length === 1 ? "" : "s"} ` +
      `for ${target} \u00b7 ${time} \u00b7 ${bytesText(data.bytes)} moved \u00b7 workspace ${bytesText(data.workspace_bytes)}`;
}

function switchTheme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
}

const pane = id => document.getElementById(id);
const views = {};
showTotals();
views.nodes = new GraphPane(pane("nodes"), "nodes", data.nodes.map(nodeItem));
views.kernels = new GraphPane(pane("kernels"), "kernels", data.kernels.map(kernelItem));
showTable();
drawRoofline(pane("roofline"));
drawMemory(pane("memory"));
showCuts();
// The costliest kernel, until another is selected.
shownKernel = data.kernels.reduce((most, kernel, k) => most < 0 || timeOf(kernel) > timeOf(data.kernels[most]) ? k : most, -1);
showKernel(shownKernel, null);
refresh();
selectFromLink();
addEventListener("hashchange", selectFromLink);
document.getElementById("theme").onclick = switchTheme;
addEventListener("keydown", event => {
  if (event.key === "Escape") select(null);
});
