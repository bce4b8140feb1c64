// The launcher's page. It draws what the app says and sends what a person does; nothing is decided here.
"use strict";
(() => {
const $ = id => document.getElementById(id);
const KEY = "opendynamics-launcher";

// What the app has said, by part, and the numbers of that.
let parts = {}, have = {};
// Pictures by their names on the page.
let icons = new Map();

// MARK: Texts

const plural = new Intl.PluralRules("en");
// What is put in keeps its direction to itself.
const t = (text, ...values) =>
  (parts.app?.texts[text] ?? text).replace(/\{(\d)\}/g, (_, i) => `\u2068${values[i]}\u2069`);
const count = (number, one, many) => t(plural.select(number) === "one" ? one : many, number.toLocaleString(language()));
const language = () => parts.app?.language || "en";

function bytes(number) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
  let unit = 0;
  while (number >= 999.5 && unit < units.length - 1) { number /= 1000; unit += 1; }
  const digits = unit > 0 && number < 9.95 ? 1 : 0;
  return new Intl.NumberFormat(language(), {
    style: "unit", unit: units[unit], unitDisplay: unit ? "short" : "long", maximumFractionDigits: digits,
  }).format(number);
}

const percent = part =>
  new Intl.NumberFormat(language(), {style: "percent"}).format(Math.floor(part * 100) / 100);

const when = seconds =>
  new Intl.DateTimeFormat(language(), {dateStyle: "medium", timeStyle: "short"}).format(new Date(seconds * 1000));

const reasons = {
  notLaunchable: "It does not run, and cannot be started.", launching: "It is being started.",
  notProvided: "No app does this.", disabled: "No app does this.",
  panelOpen: "Close the launcher first.", buttonHidden: "The button is hidden.",
  over: "It was over already.", unknown: "It is not there any more.",
};
const sentStates = {
  waiting: "Waits for the other app", held: "Waits: the other app has a new key, which nobody has looked at",
  locked: "Waits until the other app is unlocked", suspended: "Waits until the other app runs",
  noStorage: "Waits: the other app has no room",
};
const arrivingStates = {
  unlock: "Waits until this app is unlocked", resumption: "Waits until this app runs", storage: "Waits for room",
};
const appStates = {
  running: "Running", locked: "Locked", suspended: "Suspended", notRunning: "Not running", hidden: "",
};

// MARK: Drawing

function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && !key.startsWith("aria")) element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

const button = (text, act, properties = {}) => el("button", {type: "button", onclick: act, ...properties}, text);

// Text of an app's or a person's choice: its direction is its own, and ends with it.
const foreign = text => el("bdi", {}, text);

// Sets only what is another: nothing is announced or laid out for what stays.
function put(element, text) { if (element.textContent !== text) element.textContent = text; }
function show(element, isShown) { if (element.hidden === isShown) element.hidden = !isShown; }
function mark(element, name, value) {
  if (value === null || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== `${value}`) element.setAttribute(name, value);
}

// Makes the children of an element those of a list. Rows that stay keep their focus.
function rows(parent, items, key, make, update) {
  const old = parent.rows ?? new Map();
  const now = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  // What goes, goes first: the others stay where they are, and with them the focus.
  const ids = new Set(items.map(key));
  for (const [id, row] of old) if (!ids.has(id)) { row.remove(); old.delete(id); }
  let next = parent.firstElementChild;
  for (const item of items) {
    const id = key(item);
    const row = old.get(id) ?? make(item);
    old.delete(id);
    update(row, item);
    now.set(id, row);
    if (row === next) next = next.nextElementSibling;
    else parent.insertBefore(row, next);
  }
  parent.rows = now;
  // Of a row that was moved the focus is set again; a person whose row is gone goes on from the list's title.
  if (focused && focused !== document.activeElement)
    (focused.isConnected ? focused : parent.closest("section")?.querySelector("[tabindex='-1']"))?.focus();
}

// What is drawn of each app: a letter until its picture is there.
function icon(id, name, picture) {
  const box = el("span", {class: "icon", "aria-hidden": "true"});
  drawIcon(box, id, name, picture);
  return box;
}

function drawIcon(box, id, name, picture) {
  const source = picture && icons.get(picture);
  if (source) {
    if (box.dataset.shown === picture) return;
    box.dataset.shown = picture;
    box.className = "icon has";
    box.replaceChildren(el("img", {src: source, alt: ""}));
    return;
  }
  let hash = 0;
  for (const letter of id) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  box.className = `icon c${hash % 8}`;
  delete box.dataset.shown;
  put(box, (name.match(/[\p{L}\p{N}]/u)?.[0] ?? "?").toUpperCase());
  if (picture) { box.dataset.wants = picture; watcher.observe(box); }
}

let wanted = new Set(), wanting = 0;
const watcher = new IntersectionObserver(entries => {
  for (const {target, isIntersecting} of entries) {
    if (!isIntersecting) continue;
    watcher.unobserve(target);
    if (target.dataset.wants) wanted.add(target.dataset.wants);
  }
  if (wanted.size) { clearTimeout(wanting); wanting = setTimeout(fetchIcons, 30); }
}, {rootMargin: "200px"});

async function fetchIcons() {
  const names = [...wanted].filter(name => !icons.has(name)).slice(0, 64);
  wanted = new Set([...wanted].filter(name => !names.includes(name) && !icons.has(name)));
  const [into, answer] = [icons, names.length ? await ask("/icons", names) : null];
  // A seal may have come between.
  if (!answer || into !== icons) return;
  for (const name of names) if (answer[name]) icons.set(name, "data:image/png;base64," + answer[name]);
  for (const box of document.querySelectorAll(".icon[data-wants]")) {
    if (!icons.has(box.dataset.wants)) continue;
    drawIcon(box, "", "", box.dataset.wants);
    delete box.dataset.wants;
  }
  if (wanted.size) fetchIcons();
}

const appOf = id => parts.apps?.apps.find(app => app.id === id);
const nameOf = id => appOf(id)?.name || id;

// MARK: What is shown when

let standing = "begin", gateSaid = "";
const standings = {
  begin: ["Launcher", "Connecting …"],
  link: ["Launcher", "Open the launcher by its link: the app has said where that is."],
  used: ["The link was used", "Each link leads here once. Open it again: there is a new one in it by now."],
  displaced: ["The launcher is open elsewhere", "Four tabs at a time show it. Reload this one to use it here."],
  over: ["You are logged out", "Open the launcher’s link again to come back."],
  away: ["The app is not there", "The launcher comes back with it."],
  foreign: ["This is not the launcher", "Another program answers at this address. Nothing was sent to it. Open the launcher’s link again."],
};
const gates = {
  notActivated: ["The app is not set up", "Set it up first, in the app itself."],
  blocked: ["The app is blocked", "It cannot be unlocked here."],
  password: ["The app is locked", "Unlock it in the app itself, or where it was started."],
  newPassword: ["The app wants a new password", "Choose it in the app itself, or where it was started."],
  unlockCode: ["The app is locked by its owner", "It asks for an unlock code."],
};

function drawAll() {
  const isShown = standing === "live" && parts.app?.shows === "app" && !!parts.launcher;
  document.documentElement.lang = language();
  document.documentElement.dir = parts.app?.isRightToLeft ? "rtl" : "ltr";
  for (const element of document.querySelectorAll("[data-text]")) put(element, t(element.dataset.text));
  const search = $("search");
  search.placeholder = t("Search apps and actions");
  search.setAttribute("aria-label", t("Search apps and actions"));
  mark($("toast"), "aria-label", t("Message"));
  put($("move"), t("Move"));
  mark($("move"), "aria-label", t("Move the button"));
  const wasShown = !$("base").hidden;
  show($("gate"), !isShown);
  show($("base"), isShown);
  if (!isShown) {
    for (const id of ["panel", "dock", "coach", "places", "sheet", "toast"]) show($(id), false);
    $("base").inert = false;
    const [title, text] = standing !== "live" ? standings[standing] : gates[parts.app?.shows] ?? gates.password;
    put($("gate-title"), t(title));
    put($("gate-text"), t(text));
    put($("gate-owner"), standing === "live" && parts.app?.message || "");
    show($("gate-owner"), $("gate-owner").textContent !== "");
    document.title = t("Launcher");
    if (wasShown && document.hasFocus()) $("gate-title").focus();
    const now = `${$("gate-title").textContent}. ${$("gate-text").textContent}`;
    if (now !== gateSaid) say(now);
    gateSaid = now;
    return;
  }
  gateSaid = "";
  document.title = parts.launcher.staysOpen ? t("Launcher") : `${parts.app.name} – ${t("Launcher")}`;
  put($("name"), parts.app.name);
  if (!wasShown && document.activeElement === $("gate-title")) $("messages-title").focus();
  drawLauncher();
  drawApps();
  drawMessages();
  drawInbox();
}

const draw = {
  app: drawAll,
  launcher: () => parts.launcher && !$("base").hidden ? drawLauncher() : drawAll(),
  apps: () => { if ($("base").hidden) return; drawApps(); drawMessages(); drawInbox(); },
  traffic: () => { if (!$("base").hidden) drawTraffic(); },
  certificates: () => { if (!$("base").hidden) drawSheet(); },
  messages: () => { if (!$("base").hidden) drawMessages(); },
  inbox: () => { if (!$("base").hidden) drawInbox(); },
};

// MARK: Launcher

let movedTo = null;
const orientation = () => innerWidth > innerHeight ? "landscape" : "portrait";

function drawLauncher() {
  const {view, staysOpen, isAnimated, presented, base, sections, actions, quickActions, failed} = parts.launcher;
  const isOpen = view === "open", panel = $("panel");
  // Without an app beneath, the panel is the page.
  document.body.classList.toggle("alone", staysOpen);
  mark(panel, "role", staysOpen ? "main" : "dialog");
  mark(panel, "aria-modal", staysOpen ? null : "true");
  for (const title of panel.querySelectorAll("h2, h3")) mark(title, "aria-level", staysOpen ? title.tagName[1] - 1 : null);
  if (isOpen && panel.hidden) {
    panel.classList.toggle("moves", isAnimated);
    $("search").value = "";
    show(panel, true);
    filter();
    if (document.hasFocus()) $("search").focus({preventScroll: true});
  } else if (!isOpen && !panel.hidden) {
    const hadFocus = panel.contains(document.activeElement);
    show(panel, false);
    if (hadFocus) $("button").focus({preventScroll: true});
  }
  put($("base-name"), base ?? "");
  show($("base-name"), !!base);
  rows($("actions"), [
    ...actions.map(action => ({...action, kind: "action"})),
    ...quickActions.map(action => ({...action, kind: "quickAction"})),
  ], action => action.kind + action.id, action => el("li", {}, button("", chooseAction, {class: "pick"})), (row, action) => {
    const pick = row.firstChild;
    [pick.kind, pick.name, pick.isReady] = [action.kind, action.id, action.isEnabled];
    if (pick.title !== action.title || !pick.firstChild) {
      pick.replaceChildren(foreign(action.title), el("span", {class: "why"}));
      pick.title = action.title;
    }
    put(pick.lastChild, action.isEnabled ? "" : ` – ${t(reasons.notProvided)}`);
    mark(pick, "aria-disabled", action.isEnabled ? null : "true");
    row.text = plain(action.title);
  });
  rows($("sections"), sections, section => section.id, section => el("li", {}, button("", chooseSection, {class: "pick"})), (row, section) => {
    row.firstChild.name = section.id;
    if (row.firstChild.textContent !== section.title) row.firstChild.replaceChildren(foreign(section.title));
    row.text = plain(section.title);
  });
  show($("away"), !parts.launcher.isConnected);
  drawNone();
  put($("failed"), failed ? t("{0} did not open: {1}", nameOf(failed.id), failed.reason) : "");
  show($("failed"), !!failed);
  for (const app of $("apps").children) mark(app.firstChild, "aria-busy", parts.launcher.launching.includes(app.firstChild.name) ? "true" : null);
  filter();
  show($("dock"), view !== "closedWithoutButton" && !staysOpen);
  mark($("button"), "aria-expanded", `${isOpen}`);
  mark($("button"), "aria-label", t(isOpen ? "Close the launcher" : "Open the launcher"));
  show($("move"), !isOpen);
  if (isOpen || view === "closedWithoutButton") show($("places"), false);
  show($("coach"), presented === "coachMark");
  placeDock();
  drawSheet();
  drawCover();
}

// Of what lies over each other only the highest can be used.
function drawCover() {
  const [sheet, places, panel] = [!$("sheet").hidden, !$("places").hidden, !$("panel").hidden];
  $("base").inert = sheet || places || panel;
  $("panel").inert = sheet || places;
  $("dock").inert = $("coach").inert = sheet || places;
}

function placeDock() {
  if (!parts.launcher || $("dock").hidden) return;
  const dock = $("dock");
  const {x, y} = (parts.launcher.view === "closed" && movedTo) || parts.launcher.places[orientation()];
  const margin = 12, size = dock.offsetWidth;
  const left = margin + x * (document.documentElement.clientWidth - size - 2 * margin);
  const top = margin + y * (innerHeight - size - 2 * margin);
  dock.style.left = `${left}px`;
  dock.style.top = `${top}px`;
  dock.toggleAttribute("data-top", y < .3);
  dock.dataset.side = x < .2 ? "left" : x > .8 ? "right" : "middle";
  // What is told does not lie over it.
  $("toast").style.left = x < .5 ? "auto" : "1rem";
  $("toast").style.right = x < .5 ? "1rem" : "auto";
  const coach = $("coach");
  if (coach.hidden) return;
  const width = coach.offsetWidth, height = coach.offsetHeight;
  coach.style.left = `${Math.min(Math.max(margin, left + size / 2 - width / 2), innerWidth - width - margin)}px`;
  coach.style.top = `${y < .5 ? top + size + 48 : Math.max(margin, top - height - 48)}px`;
}

// MARK: Apps

const plain = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

function drawApps() {
  // A name is the app's own word, and another one may have the same.
  const called = new Map();
  for (const {name} of parts.apps?.apps ?? []) called.set(plain(name), (called.get(plain(name)) ?? 0) + 1);
  rows($("apps"), parts.apps?.apps ?? [], app => app.id, app => {
    const name = foreign(app.name), state = el("small");
    const pick = button("", chooseApp, {class: "app pick", tabIndex: -1});
    pick.append(icon(app.id, app.name, app.icon), name, state, el("span", {class: "traffic"}));
    return el("li", {}, pick);
  }, (row, app) => {
    const pick = row.firstChild, [box, name, state] = pick.children;
    if (name.textContent !== app.name) { put(name, app.name); row.text = null; }
    drawIcon(box, app.id, app.name, app.icon);
    pick.name = app.id;
    pick.isReady = app.isLaunchable;
    pick.dataset.state = app.state;
    mark(pick, "aria-disabled", app.isLaunchable ? null : "true");
    mark(pick, "aria-current", app.isInFront ? "true" : null);
    const stands = !app.isLaunchable ? t("Cannot be started") : app.isInFront && app.state === "running" ? "" : t(appStates[app.state]);
    put(state, [called.get(plain(app.name)) > 1 ? app.id : "", app.isInFront ? t("In front") : "", stands].filter(Boolean).join(", "));
    row.text ??= plain(`${app.name} ${app.id}`);
  });
  drawNone();
  drawTraffic();
  filter();
}

function drawNone() {
  const {staysOpen, knowsApps} = parts.launcher ?? {};
  show($("apps-none"), !!staysOpen && knowsApps && !parts.apps?.apps.length);
}

// How many messages an app has on their way: more is not known of other apps.
function drawTraffic() {
  const all = parts.traffic?.apps ?? {};
  for (const {firstChild: pick} of $("apps").children) {
    const ways = all[pick.name];
    if (!ways && !pick.hasTraffic) continue;
    pick.hasTraffic = !!ways;
    rows(pick.lastChild, ["sent", "arriving"].filter(way => ways?.[way]), way => way, way =>
      el("span", {class: "way"}, arrow(way === "sent"), el("span"), el("progress", {max: 1, "aria-hidden": "true"})),
    (row, way) => {
      const {count: number, waiting, bytes: size, done} = ways[way], part = size ? done / size : 0;
      const [, text, bar] = row.children, isMoving = waiting < number;
      const messages = count(number, "{0} message", "{0} messages");
      put(text, [
        t(way === "sent" ? "Sends {0}" : "Receives {0}", messages), isMoving ? percent(part) : "",
        waiting ? count(waiting, "{0} waits", "{0} wait") : "",
      ].filter(Boolean).join(", "));
      if (bar.value !== part) bar.value = part;
      show(bar, isMoving);
    });
  }
}

let filtered = "";
function filter() {
  const words = plain($("search").value).split(/\s+/).filter(Boolean);
  let found = 0;
  for (const [list, part] of [["actions", "actions-part"], ["sections", "sections-part"], ["apps", "apps-part"]]) {
    let shown = 0;
    for (const row of $(list).children) {
      const isShown = words.every(word => row.text.includes(word));
      if (row.hidden === isShown) row.hidden = !isShown;
      if (isShown) shown += 1;
    }
    show($(part), shown > 0);
    found += shown;
  }
  show($("results-none"), found === 0 && words.length > 0);
  const first = [...$("apps").children].find(row => !row.hidden)?.firstChild;
  const current = $("apps").querySelector(".app[tabindex='0']");
  if (!current || current.parentElement.hidden) {
    if (current) current.tabIndex = -1;
    if (first) first.tabIndex = 0;
  }
  const text = words.join(" ");
  if (text !== filtered && !$("panel").hidden) say(text ? count(found, "{0} result", "{0} results") : "");
  filtered = text;
}

function chooseApp(event) {
  const pick = event.currentTarget;
  if (!pick.isReady) return tell(t(reasons.notLaunchable));
  act({kind: "app", id: pick.name});
}
function chooseAction(event) {
  const pick = event.currentTarget;
  if (!pick.isReady) return tell(t(reasons.notProvided));
  act({kind: pick.kind, id: pick.name});
}
function chooseSection(event) { act({kind: "section", id: event.currentTarget.name}); }

// MARK: Messages

const arrow = isSent => {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "arrow");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", isSent ? "M12 20V5m-6 6l6-6 6 6" : "M12 4v15m-6-6l6 6 6-6");
  svg.append(path);
  return svg;
};

function drawMessages() {
  const {sent = [], arriving = [], sentCount = 0, arrivingCount = 0} = parts.messages ?? {};
  const all = [...arriving.map(message => ({...message, isSent: false})), ...sent.map(message => ({...message, isSent: true}))];
  rows($("messages"), all, message => `${message.isSent} ${message.isReply} ${message.app} ${message.request}`, message => {
    const what = el("span", {class: "what"}), facts = el("span", {class: "facts"}), bar = el("progress", {max: 1});
    const cancel = button("", cancelMessage);
    return el("li", {class: "row"}, el("div", {}, arrow(message.isSent), el("span", {class: "grow"}, what), cancel), bar, facts);
  }, (row, message) => {
    const [head, bar, facts] = row.children;
    const name = nameOf(message.app);
    const text = message.isSent
      ? t(message.isReply ? "Reply to {0}" : "To {0}", name) : t(message.isReply ? "Reply from {0}" : "From {0}", name);
    put(head.children[1].firstChild, text);
    put(head.lastChild, t("Cancel"));
    mark(head.lastChild, "aria-label", `${t("Cancel")}: ${text}`);
    row.message = message;
    const isMoving = message.state === "underWay";
    const part = message.bytes ? message.done / message.bytes : 0;
    if (bar.value !== part) bar.value = part;
    show(bar, isMoving);
    mark(bar, "aria-label", text);
    const size = `${count(message.files, "{0} file", "{0} files")}, ${bytes(message.bytes)}`;
    put(facts, isMoving
      ? `${percent(part)} – ${t("{0} of {1}", bytes(message.done), size)}`
      : `${t((message.isSent ? sentStates : arrivingStates)[message.state])} – ${size}`);
  });
  const more = sentCount + arrivingCount - all.length;
  put($("messages-more"), count(more, "and {0} more", "and {0} more"));
  show($("messages-more"), more > 0);
  show($("messages-none"), all.length === 0);
}

function cancelMessage(event) {
  const {isSent, request, app, isReply} = event.currentTarget.closest("li").message;
  act({kind: isSent ? "cancelSent" : "cancelArriving", id: request, app, isReply});
}

// MARK: Inbox

function drawInbox() {
  const {messages = [], count: all = 0} = parts.inbox ?? {};
  const senders = new Map();
  for (const message of messages) {
    if (!senders.has(message.app)) senders.set(message.app, []);
    senders.get(message.app).push(message);
  }
  rows($("inbox"), [...senders], ([app]) => app, ([app]) =>
    el("div", {class: "sender"}, el("h3", {}, icon(app, nameOf(app), appOf(app)?.icon), foreign(""), el("small", {class: "muted"})), el("ul", {class: "rows"})),
  (group, [app, list]) => {
    const [box, name, id] = group.firstChild.children;
    drawIcon(box, app, nameOf(app), appOf(app)?.icon);
    put(name, nameOf(app));
    // A name is the other app's own word, and another one may have the same.
    put(id, nameOf(app) === app ? "" : app);
    rows(group.lastChild, list, message => message.directory, makeMessage, updateMessage);
  });
  put($("inbox-more"), count(all - messages.length, "and {0} older", "and {0} older"));
  show($("inbox-more"), all > messages.length);
  show($("inbox-none"), messages.length === 0);
}

function makeMessage() {
  const remove = button(t("Remove"), askToRemove, {class: "bad"}), all = button(t("Save all"), saveAll);
  const row = el("li", {class: "row"},
    el("div", {}, el("span", {class: "grow"}, el("span", {class: "what"}), " ", el("span", {class: "facts"})), el("span", {class: "buttons"}, all, remove)),
    el("ul", {class: "files"}), el("span", {class: "facts"}));
  return Object.assign(row, {all, remove});
}

function updateMessage(row, message) {
  const [head, list, more] = row.children;
  const [what, , facts] = head.firstChild.childNodes;
  put(what, when(message.date));
  put(facts, `${count(message.files, "{0} file", "{0} files")}, ${bytes(message.bytes)}`);
  row.message = message;
  show(row.all, message.files > 1);
  mark(row.remove, "aria-label", `${t("Remove")}: ${nameOf(message.app)}, ${when(message.date)}`);
  rows(list, message.names, name => name, name => {
    const path = `${message.directory}/${name}`;
    const buttons = el("span", {class: "buttons"}, button(t("Save"), () => act({kind: "saveFile", path}), {"aria-label": `${t("Save")}: ${name}`}));
    if (parts.app.opens) buttons.prepend(button(t("Open"), () => act({kind: "openFile", path}), {"aria-label": `${t("Open")}: ${name}`}));
    return el("li", {}, el("span", {}, foreign(name)), buttons);
  }, () => {});
  const missing = message.files - message.names.length;
  put(more, missing > 0 ? count(missing, "and {0} more", "and {0} more") : "");
  show(more, missing > 0);
}

function saveAll(event) { act({kind: "saveMessage", path: event.currentTarget.closest("li").message.directory}); }

// It is asked for once, where it is chosen.
function askToRemove(event) {
  const remove = event.currentTarget, place = remove.parentElement;
  const {directory: path} = remove.closest("li").message;
  const others = [...place.children];
  const back = () => { place.replaceChildren(...others); remove.focus(); };
  const yes = button(t("Remove for good"), () => act({kind: "removeMessage", path}), {class: "bad"});
  const no = button(t("Keep"), back);
  place.replaceChildren(yes, no);
  no.focus();
  place.onkeydown = event => { if (event.key === "Escape" && yes.isConnected) { event.stopPropagation(); back(); } };
}

// MARK: Settings and certificates

let sheetOf = null, sheetFrom = null;

function drawSheet() {
  const presented = parts.launcher?.presented;
  const isShown = presented === "settings" || presented === "certificates";
  const sheet = $("sheet"), body = $("sheet-body");
  if (isShown && sheet.hidden) sheetFrom = document.activeElement;
  show(sheet, isShown);
  if (!isShown) {
    body.replaceChildren();
    if (sheetOf && sheetFrom?.isConnected) { drawCover(); sheetFrom.focus(); }
    sheetOf = sheetFrom = null;
    return;
  }
  put($("sheet-title"), t(presented === "settings" ? "Settings" : "Certificates"));
  const now = JSON.stringify(presented === "settings" ? parts.launcher.settings : parts.certificates ?? null);
  const isNew = sheetOf?.presented !== presented;
  if (!isNew && sheetOf.now === now) return;
  sheetOf = {presented, now};
  const hadFocus = body.contains(document.activeElement);
  body.replaceChildren(presented === "settings" ? settings() : certificates());
  drawCover();
  if ((isNew || hadFocus) && document.hasFocus()) $("sheet-title").focus();
}

function settings() {
  return el("ul", {class: "settings"}, ...parts.launcher.settings.map(setting => {
    const pick = button("", () => act({kind: "setting", id: setting.kind === "own" ? setting.id : setting.kind}));
    if (setting.icon && setting.tint) {
      const picture = el("i", {"aria-hidden": "true"});
      picture.style.backgroundColor = setting.tint;
      picture.style.maskImage = `url("data:image/png;base64,${setting.icon}")`;
      pick.append(picture);
    } else if (setting.icon) pick.append(el("img", {src: `data:image/png;base64,${setting.icon}`, alt: ""}));
    pick.append(foreign(setting.text));
    return el("li", {}, pick);
  }));
}

function certificates() {
  const known = parts.certificates;
  if (!known) return el("p", {class: "muted"}, t("Reading …"));
  return el("div", {class: "keys"},
    el("p", {}, t("Compare these digits with what the other side shows.")),
    el("div", {}, el("h3", {}, t("This app")), el("code", {}, known.own)),
    ...known.peers.map(peer => el("div", {}, el("h3", {}, foreign(nameOf(peer.app)), ` ${peer.app}`),
      peer.fingerprint ? el("code", {}, peer.fingerprint) : el("p", {class: "warn"}, t("Its record is damaged: no key is trusted.")),
      ...(peer.newFingerprint ? [el("p", {class: "warn"}, t("It has another key now, which is not trusted:")), el("code", {}, peer.newFingerprint)] : []))));
}

// MARK: Telling

let saying = 0;
function say(text) {
  clearTimeout(saying);
  saying = setTimeout(() => put($("status"), text), 150);
}

let toldFrom = null;
function tell(text, isBad) {
  if (document.activeElement !== $("toast-close")) toldFrom = document.activeElement;
  put($("toast-text"), text);
  $("toast").classList.toggle("bad", !!isBad);
  show($("toast"), true);
  say(text);
}
$("toast-close").onclick = () => {
  show($("toast"), false);
  if (toldFrom?.isConnected) toldFrom.focus();
  toldFrom = null;
};

// MARK: What a person does

let lastActive = 0, seals = 0;
async function act(action) {
  const before = seals;
  const outcome = await ask("/do", action);
  // What comes of it after a seal is not told any more.
  if (!outcome || before !== seals) return;
  lastActive = Date.now();
  if (outcome.error) tell(outcome.error, true);
  else if (outcome.saved) tell(t("Saved: {0}", outcome.saved));
  else if (reasons[outcome.ignored]) tell(t(reasons[outcome.ignored]));
}

// Whoever reads, and chooses nothing, is there all the same.
for (const name of ["keydown", "pointerdown", "wheel", "touchmove", "scroll", "focusin", "input"]) {
  addEventListener(name, () => {
    const time = Math.min(60_000, 250 * (parts.app?.sessionTime ?? 60));
    if (standing === "live" && isProved && Date.now() - lastActive > time) act({kind: "active"});
  }, {passive: true, capture: true});
}

$("base-settings").onclick = $("panel-settings").onclick = () => act({kind: "settings"});
$("panel-certificates").onclick = () => act({kind: "certificates"});
$("sheet-close").onclick = () => act({kind: "dismiss"});
$("coach-done").onclick = () => { $("button").focus(); act({kind: "dismiss"}); };
$("leave").onclick = $("panel-leave").onclick = () => leave();
$("search").oninput = filter;

// The button is tapped, or dragged to where it stays.
let drag = null, wasDragged = false;
$("button").onclick = () => { if (!wasDragged) act({kind: "tap"}); };
$("dock").onpointerdown = event => {
  if (event.target === $("move") || event.button !== 0 || parts.launcher?.view !== "closed") return;
  const box = $("dock").getBoundingClientRect();
  drag = {id: event.pointerId, x: event.clientX - box.left, y: event.clientY - box.top, fromX: event.clientX, fromY: event.clientY, hasMoved: false};
};
addEventListener("pointermove", event => {
  if (!drag || event.pointerId !== drag.id || !(event.buttons & 1)) return;
  if (!drag.hasMoved && Math.hypot(event.clientX - drag.fromX, event.clientY - drag.fromY) < 6) return;
  drag.hasMoved = true;
  const size = $("dock").offsetWidth, margin = 12;
  const part = (at, all) => Math.min(1, Math.max(0, (at - margin) / Math.max(1, all - size - 2 * margin)));
  movedTo = {x: part(event.clientX - drag.x, document.documentElement.clientWidth), y: part(event.clientY - drag.y, innerHeight)};
  placeDock();
});
addEventListener("pointerup", event => {
  if (!drag || event.pointerId !== drag.id) return;
  wasDragged = drag.hasMoved;
  drag = null;
  if (wasDragged) place(movedTo);
  // The click of it comes first, if it comes.
  setTimeout(() => { wasDragged = false; });
});
addEventListener("pointercancel", () => { drag = movedTo = null; placeDock(); });

async function place(at) {
  movedTo = at;
  placeDock();
  await act({kind: "move", place: at, orientation: orientation()});
  // The app has said by now where it is.
  setTimeout(() => { movedTo = null; placeDock(); }, 400);
}

// Nine places, for whoever does not drag.
const nine = [0, .5, 1].flatMap(y => [0, .5, 1].map(x => ({x, y})));
const across = ["left", "middle", "right"], down = ["top", "middle", "bottom"];
$("move").onclick = () => {
  const now = parts.launcher.places[orientation()];
  for (const pick of $("places").querySelectorAll("button")) pick.remove();
  nine.forEach((at, i) => {
    const label = t(`${down[at.y * 2]} ${across[at.x * 2]}`);
    const pick = button("", () => { closePlaces(); place(at); }, {
      class: `${"lmr"[at.x * 2]} ${"tmb"[at.y * 2]}`, "aria-label": label, tabIndex: i ? -1 : 0,
    });
    mark(pick, "aria-current", at.x === now.x && at.y === now.y ? "true" : null);
    $("places").append(pick);
  });
  show($("places"), true);
  drawCover();
  ($("places").querySelector("[aria-current]") ?? $("places").querySelector("button")).focus();
};

function closePlaces() {
  show($("places"), false);
  drawCover();
  $("move").focus();
}

// MARK: Keys

// The next one of a grid: rows are told by where they lie.
function step(picks, from, key) {
  const at = picks.indexOf(from);
  const isBack = document.documentElement.dir === "rtl" ? "ArrowRight" : "ArrowLeft";
  if (key === "Home") return picks[0];
  if (key === "End") return picks.at(-1);
  if (key === "ArrowLeft" || key === "ArrowRight") return picks[at + (key === isBack ? -1 : 1)];
  const box = from.getBoundingClientRect(), sign = key === "ArrowDown" ? 1 : -1;
  let best = null, distance = Infinity;
  for (let i = at + sign; picks[i]; i += sign) {
    const other = picks[i].getBoundingClientRect(), rise = sign * (other.top - box.top);
    if (rise < 4) continue;
    const far = rise * 1000 + Math.abs(other.left - box.left);
    if (far < distance) [best, distance] = [picks[i], far];
    else if (rise * 1000 > distance + 1000) break;
  }
  return best;
}

document.addEventListener("keydown", event => {
  const {key, target} = event;
  if (event.isComposing) return;
  if (key === "Escape") {
    if (!$("places").hidden) return closePlaces();
    if (!$("sheet").hidden) return act({kind: "dismiss"});
    if (!$("panel").hidden && $("search").value) { $("search").value = ""; event.preventDefault(); return filter(); }
    if (!$("panel").hidden) return parts.launcher.staysOpen ? show($("toast"), false) : act({kind: "close"});
    if (!$("coach").hidden) return act({kind: "dismiss"});
    return show($("toast"), false);
  }
  if (!$("places").hidden) {
    if (key === "Tab") event.preventDefault();
    const picks = [...$("places").querySelectorAll("button")], at = picks.indexOf(target);
    const steps = {ArrowLeft: at % 3 ? -1 : 0, ArrowRight: at % 3 < 2 ? 1 : 0, ArrowUp: at > 2 ? -3 : 0, ArrowDown: at < 6 ? 3 : 0};
    if (at >= 0 && key in steps) { event.preventDefault(); picks[at + steps[key]].focus(); }
    return;
  }
  // Nothing beneath is reached by tabs, the browser's own parts are.
  if ($("panel").hidden || !$("sheet").hidden) return;
  const isSearch = target === $("search");
  if (isSearch && key === "Enter" && !$("search").value.trim()) return;
  if (isSearch && key === "Enter") {
    $("results").querySelector("section:not([hidden]) li:not([hidden]) .pick")?.click();
    return;
  }
  const isPick = target.classList?.contains("app");
  if (isSearch && key === "ArrowDown" || isPick && /^(Arrow|Home$|End$)/.test(key)) {
    const picks = [...$("apps").children].filter(row => !row.hidden).map(row => row.firstChild);
    const next = isPick ? step(picks, target, key) : picks[0];
    event.preventDefault();
    if (next) {
      const current = $("apps").querySelector(".app[tabindex='0']");
      if (current) current.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    } else if (key === "ArrowUp") $("search").focus();
    return;
  }
  // A letter is for the search, wherever the focus is.
  if (!isSearch && key.length === 1 && key !== " " && !event.ctrlKey && !event.metaKey && !event.altKey) $("search").focus();
});

addEventListener("resize", placeDock);

// MARK: The app's end

const encoder = new TextEncoder();
const hex = buffer => [...new Uint8Array(buffer)].map(byte => byte.toString(16).padStart(2, "0")).join("");
let session = null, isProved = false, stream = null;

function post(path, body, isOurs, signal, keepalive = false) {
  const headers = {"Content-Type": "application/json"};
  if (isOurs) headers["Launcher-Session"] = `${session.id}.${session.secret}`;
  return fetch(path, {
    method: "POST", body: JSON.stringify(body), headers, signal, keepalive,
    cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
  });
}

// Nothing goes to a server that has not shown that it knows this session.
async function ask(path, body) {
  if (!isProved) return null;
  try {
    const answer = await post(path, body, true);
    if (answer.status === 401) end("over");
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

// Whether the server knows the hash of the secret, which does not leave the tab for that.
async function prove() {
  const nonce = hex(crypto.getRandomValues(new Uint8Array(16)));
  let answer;
  try {
    answer = await post("/proof", {id: session.id, nonce}, false);
  } catch {
    return "away";
  }
  if (answer.status === 401) return "over";
  try {
    const {proof} = await answer.json();
    const raw = await crypto.subtle.digest("SHA-256", encoder.encode(session.secret));
    const key = await crypto.subtle.importKey("raw", raw, {name: "HMAC", hash: "SHA-256"}, false, ["sign"]);
    const own = await crypto.subtle.sign("HMAC", key, encoder.encode(`opendynamics launcher\n${location.origin}\n${nonce}`));
    return proof === hex(own) ? "own" : "foreign";
  } catch {
    return "foreign";
  }
}

// Nothing of what the app has said is left.
function forget() {
  // Of the app itself the texts stay, and what it said when it was not shown.
  const app = parts.app?.shows === "app" ? {...parts.app, name: null, message: ""} : parts.app;
  [parts, have] = [app ? {app} : {}, {}];
  [icons, wanted, movedTo, drag] = [new Map(), new Set(), null, null];
  for (const id of ["actions", "sections", "apps", "messages", "inbox"]) { $(id).replaceChildren(); $(id).rows = new Map(); }
  for (const id of ["name", "failed", "base-name", "toast-text", "status", "gate-owner"]) put($(id), "");
  clearTimeout(saying);
  $("sheet-body").replaceChildren();
  $("search").value = "";
  [sheetOf, sheetFrom, toldFrom, filtered] = [null, null, null, ""];
  seals += 1;
}

function stand(now) {
  if (now !== "live") forget();
  standing = now;
  drawAll();
}

function end(now) {
  isProved = false;
  session = null;
  sessionStorage.removeItem(KEY);
  stream?.abort();
  stand(now);
}

// What is shown goes first, whatever the app does.
function leave() {
  const leaving = isProved ? post("/leave", {}, true, undefined, true) : null;
  end("over");
  leaving?.catch(() => {});
}

function take(line) {
  const {part, number, value} = JSON.parse(line);
  have[part] = number;
  if (value === null) delete parts[part];
  else parts[part] = value;
  return {part, isSeal: part === "launcher" && value === null};
}

async function follow() {
  stream = new AbortController();
  const answer = await post("/events", {have}, true, stream.signal);
  if (answer.status === 401) return end("over");
  if (!answer.ok) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    const taken = lines.map(take);
    clearTimeout(lost);
    if (taken.some(({part}) => part === "displaced")) return displace();
    if (taken.some(({isSeal}) => isSeal)) { const numbers = have; forget(); have = numbers; }
    if (standing !== "live" || taken.some(({isSeal}) => isSeal)) { standing = "live"; drawAll(); }
    else for (const {part} of taken) draw[part]?.();
  }
}

const pause = time => new Promise(done => setTimeout(done, time));

// Others need the connections that a browser has: this tab stands still until it is loaded again.
function displace() {
  [isProved, isDisplaced] = [false, true];
  stand("displaced");
}

let lost = 0, isDisplaced = false;
async function live() {
  let wait = 100;
  while (session) {
    const verdict = await prove();
    if (verdict === "over" || verdict === "foreign") return end(verdict);
    if (verdict === "own") {
      isProved = true;
      wait = 100;
      // The app is gone, or the tab has let go of it.
      try { await follow(); } catch (error) { if (!/^(Abort|Type)Error$/.test(error.name) || !(error instanceof DOMException || /fetch|network/i.test(error.message))) console.error(error); }
      isProved = false;
      if (!session || isDisplaced) return;
      // Who does not hear from the app for so long shows nothing of it.
      clearTimeout(lost);
      lost = setTimeout(() => stand("away"), 700);
    } else if (standing === "begin") stand("away");
    await pause(wait);
    wait = Math.min(2 * wait, 10_000);
  }
}

// A tab that is put aside does not hear of a seal.
addEventListener("pagehide", () => { stream?.abort(); stand("away"); });
document.addEventListener("freeze", () => { stream?.abort(); stand("away"); });
addEventListener("pageshow", event => { if (event.persisted) location.reload(); });

async function begin() {
  const token = location.hash.slice(1);
  if (location.hash) history.replaceState(null, "", "/");
  if (token) {
    sessionStorage.removeItem(KEY);
    while (!session) {
      try {
        const answer = await post("/session", {token}, false);
        if (answer.status === 401) return stand("used");
        session = await answer.json();
        sessionStorage.setItem(KEY, JSON.stringify(session));
      } catch {
        stand("away");
        await pause(2000);
      }
    }
  } else {
    try { session = JSON.parse(sessionStorage.getItem(KEY)); } catch { session = null; }
  }
  if (!session) return stand("link");
  await live();
}

addEventListener("hashchange", () => { if (location.hash.length > 1) location.reload(); });
drawAll();
begin();
})();
