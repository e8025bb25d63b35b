"use strict";
// Opens the tables of nodes, searches, and gives the keys. Text of the run gets into the page as text alone.
const $ = (what, inside = document) => inside.querySelector(what), $$ = (what, inside = document) => [...inside.querySelectorAll(what)];
const make = (name, more = {}, ...inside) => { const one = Object.assign(document.createElement(name), more); one.append(...inside); return one; };
const held = JSON.parse($("#data").textContent), { texts, columns } = held, lower = texts.map(text => text.toLowerCase());
const graphs = new Map(held.graphs.map(graph => [graph.id, graph])), dialog = $("#graph"), q = $("#q");
const rows = $$("details[id^=c-]").map(details => ({ details, text: details.textContent.toLowerCase(), graphs: $$("a.open", details).map(link => link.textContent) }));
const words = text => text.toLowerCase().split(/\s+/).filter(Boolean);
const column = (graph, name) => graph[name] || [];
let search = null;

function matching(graph, wanted) {
  const found = wanted.map(word => lower.map(text => text.includes(word)));
  return graph.inputs.map((_, node) => found.every(has => columns.some(name => has[column(graph, name)[node]])));
}

function find() {
  const wanted = words(q.value), hits = $("#hits");
  const counts = new Map([...graphs.values()].map(graph => [graph.id, wanted.length ? matching(graph, wanted).filter(Boolean).length : 0]));
  for (const row of rows) row.details.hidden = !wanted.every(word => row.text.includes(word)) && !row.graphs.some(id => counts.get(id));
  hits.hidden = !wanted.length;
  const links = [...counts].filter(([, count]) => count).map(([id, count]) => make("a", { href: "#" + id, textContent: `${id} ${count}`,
    onclick: event => { event.preventDefault(); show(graphs.get(id), q.value); } }));
  hits.replaceChildren(`${rows.filter(row => !row.details.hidden).length} of ${rows.length} compiles; nodes:`, ...(links.length ? links : [" none"]));
}

function show(graph, filter = "") {
  const names = column(graph, "name").map(at => texts[at]), users = names.map(() => []), scroll = $(".scroll", dialog), footer = $("footer", dialog);
  const shown = columns.filter(name => name !== "code" && name !== "kernel" && graph[name]), titles = { op: "op", value: "value", where: "file:line" };
  graph.inputs.forEach((used, node) => used.forEach(one => users[one] && users[one].push(node)));
  const lines = names.map((_, node) => make("tr", { tabIndex: -1, onfocus: () => tell(node) },
    make("td", { className: "dim num", textContent: node }), ...shown.map(name => make("td", { textContent: texts[graph[name][node]], title: texts[graph[name][node]] }))));
  lines.forEach((line, node) => { line.classList.toggle("in", texts[graph.op[node]] === "placeholder"); });
  const links = (title, list) => list.length ? [` ${title}: `, ...list.slice(0, 40).flatMap(node => [make("a", { href: "#" + graph.id, textContent: names[node],
    onclick: event => { event.preventDefault(); go(node); } }), " "]), list.length > 40 ? `and ${list.length - 40} more` : ""] : [];
  function go(node) { lines[node].hidden = false; lines[node].focus(); lines[node].scrollIntoView({ block: "center" }); }
  function tell(node) {
    const at = name => texts[column(graph, name)[node] || 0];
    const place = make("a", { href: "#" + graph.id, textContent: at("where"), onclick: event => { event.preventDefault(); source(at("where")); } });
    footer.replaceChildren(make("div", { className: "mono" }, make("b", { textContent: names[node] }), ` = ${at("op")} ${at("value")} `, ...links("reads", graph.inputs[node].filter(one => one < names.length)),
      ...links("read by", users[node])), make("div", { className: "mono dim" }, [at("module"), at("kernel")].filter(Boolean).join(" · ") + " ", place, " " + at("code")));
  }
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...["#", ...shown].map(name => make("th", { textContent: titles[name] || name })))), make("tbody", {}, ...lines));
  const field = make("input", { type: "search", placeholder: "search nodes", value: filter });
  const inputs = make("button", { textContent: `inputs (${$$(".in", table).length})`, title: "shows the inputs of the graph" }), code = make("button", { textContent: "generated code" });
  const tick = (button, on) => button.setAttribute("aria-pressed", on);
  let withInputs = false;
  function narrow() {
    const wanted = words(field.value), has = matching(graph, wanted);
    let count = 0;
    lines.forEach((line, node) => { line.hidden = !has[node] || (!wanted.length && !withInputs && line.classList.contains("in")); count += !line.hidden; });
    told.textContent = wanted.length ? `${count} of ${graph.total} nodes` : `${graph.total} nodes`;
  }
  field.oninput = narrow;
  inputs.onclick = () => { withInputs = !withInputs; tick(inputs, withInputs); narrow(); };
  code.onclick = () => {
    const on = code.getAttribute("aria-pressed") !== "true";
    tick(code, on);
    scroll.replaceChildren(on ? make("pre", { textContent: graph.code_text }) : table);
  };
  const told = make("span", { className: "dim" }), close = make("button", { textContent: "close (Esc)", className: "close", onclick: () => dialog.close() });
  const cut = [names.length < graph.total ? `the first ${names.length} of ${graph.total} nodes are here; all: graphdbg show ${held.run}/${graph.id}` : "",
    graph.code_left ? `${graph.code_left} lines of generated code are left out; all: graphdbg show ${held.run}/${graph.id} --code` : ""].filter(Boolean);
  $("header", dialog).replaceChildren(make("b", { className: "mono", textContent: graph.id }), told, field, ...($$(".in", table).length ? [inputs] : []), ...(graph.code_text ? [code] : []),
    close, ...cut.map(text => make("p", { className: "dim", textContent: text })));
  scroll.replaceChildren(table);
  footer.replaceChildren(make("span", { className: "dim", textContent: "j k or a click: what a node reads, who reads it, its line" }));
  search = field;
  tick(inputs, false), tick(code, false), narrow();
  if (!dialog.open) dialog.showModal();
  scroll.scrollTop = 0;
  (filter ? field : scroll).focus();
  history.replaceState(null, "", "#" + graph.id);
}

function source(where) {
  const [, file, line] = where.match(/^(.*):(\d+)$/) || [], there = $$(".source").find(one => one.dataset.file === file);
  const row = there && $$("li", there)[line - 1];
  if (!row) return;
  dialog.close();
  there.open = true;
  row.id = "line", location.hash = "line", row.scrollIntoView({ block: "center" });
}

function follow() {
  const name = decodeURIComponent(location.hash.slice(1)), there = document.getElementById(name);
  if (graphs.has(name)) show(graphs.get(name));
  else if (there && there.closest("details")) there.closest("details").open = true, there.scrollIntoView({ block: there.tagName === "DETAILS" ? "start" : "center" });
}

function step(by) {
  const list = dialog.open ? $$("tbody tr", dialog).filter(line => !line.hidden) : rows.filter(row => !row.details.hidden).map(row => $("summary", row.details));
  const here = list.findIndex(one => (dialog.open ? one : one.parentElement).contains(document.activeElement));
  const next = list[here < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(here + by, 0), list.length - 1)];
  if (next) next.focus(), next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", event => {
  const typing = event.target.tagName === "INPUT";
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !dialog.open) {
    const open = document.activeElement.closest("details[open]");
    if (typing || q.value) q.value = "", find(), q.blur();
    else if (open) open.open = false, $("summary", open).focus();
  } else if (event.key === "Enter" && typing) step(1);
  else if (typing) return;
  else if (event.key === "/") (dialog.open ? search : q).focus();
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
  else return;
  if (event.key !== "Escape") event.preventDefault();
});
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
dialog.addEventListener("click", event => { if (event.target === dialog) dialog.close(); });
document.addEventListener("click", event => { const link = event.target.closest("a[href^='#']"); if (link && link.hash === location.hash) follow(); });
q.addEventListener("input", find);
$("nav").hidden = false;
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => $$("details:not(.source)").forEach(one => { one.open = true; }));
follow();
