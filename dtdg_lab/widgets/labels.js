// Names and keys for what Panel's widgets leave without: each has a shadow root of its own, which is looked through when
// it changes. Loaded after visualization's theme.js and before theme.js.

const dlSpoken = (element) => (element?.textContent ?? "").replace(/\s+/g, " ").trim()

// What Python calls a widget that shows no label (labelled() in labels.py), or with "--dl-tip" says of it (tipped())
function dlGiven(host, property = "--dl-label") {
  const given = host ? getComputedStyle(host).getPropertyValue(property).trim() : ""
  return given ? JSON.parse(given) : ""
}

const dlSet = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && element.getAttribute(name) !== String(value)) element.setAttribute(name, value)
  }
}

// Escape gives a slider that is dragged back what it had: the slider is told that the mouse went back, and let go
function dlGiveBack(handle) {
  handle.addEventListener("mousedown", (down) => {
    const tell = (type, buttons) => document.documentElement.dispatchEvent(
      new MouseEvent(type, {clientX: down.clientX, clientY: down.clientY, buttons, bubbles: true}))
    const onKey = (event) => {
      if (event.key !== "Escape") return
      event.preventDefault()
      event.stopPropagation()
      tell("mousemove", 1)
      tell("mouseup", 0)
    }
    document.addEventListener("keydown", onKey, true)
    document.addEventListener("mouseup", () => document.removeEventListener("keydown", onKey, true), {capture: true, once: true})
  })
}

function dlNameSliders(root) {
  for (const handle of root.querySelectorAll(".noUi-handle")) {
    if (!handle.dlGivesBack) {
      handle.dlGivesBack = true
      dlGiveBack(handle)
    }
    const title = root.querySelector(".bk-slider-title"), value = dlSpoken(title?.querySelector(".bk-slider-value"))
    const words = dlSpoken(title).replace(value, "").replace(/[:\s]+$/, "")
    dlSet(handle, {"aria-label": dlGiven(root.host) || words, "aria-valuetext": value || handle.getAttribute("aria-valuenow")})
  }
}

function dlNameFields(root) {
  for (const field of root.querySelectorAll("input, select, textarea")) {
    const label = (field.id && root.querySelector(`label[for="${CSS.escape(field.id)}"]`)) || field.closest("label")
    const words = dlGiven(root.host) || dlSpoken(label || field.nextElementSibling)
    if (words && (!label || (dlGiven(root.host) && field.type !== "checkbox"))) dlSet(field, {"aria-label": words})
    // the arrow keys of a number do what its two small buttons do
    field.parentNode.querySelectorAll(".bk-spin-btn").forEach((button) => {
      const up = button.classList.contains("bk-spin-btn-up")
      dlSet(button, {tabindex: -1, "aria-label": `${words}: ${up ? "more" : "less"}`})
    })
  }
}

function dlNameGroups(root) {
  for (const group of root.querySelectorAll(".bk-btn-group, .bk-input-group.bk-inline")) {
    const words = dlGiven(root.host), buttons = [...group.querySelectorAll(":scope > button")]
    if (words) dlSet(group, {role: "group", "aria-label": words})
    if (words && buttons.length > 1) {
      for (const button of buttons) dlSet(button, {"aria-pressed": button.classList.contains("bk-active")})
    }
  }
  for (const header of root.querySelectorAll("button.card-header")) {
    const body = [...root.children].filter((each) => each !== header && !["STYLE", "LINK"].includes(each.tagName))
    dlSet(header, {"aria-expanded": body.some((each) => each.offsetHeight > 0)})
    header.querySelectorAll("svg").forEach((svg) => dlSet(svg, {"aria-hidden": true}))
  }
}

// Tabs: one of them is in the order of the Tab key, arrows go to its neighbours
function dlNameTabs(root) {
  const list = root.querySelector(".bk-headers-wrapper"), tabs = [...root.querySelectorAll(".bk-tab")]
  if (!list || !tabs.length) return
  dlSet(list, {role: "tablist", "aria-label": dlGiven(root.host) || "Pages"})
  const pages = [...root.children].filter((each) => each.shadowRoot)
  tabs.forEach((tab, index) => {
    const active = tab.classList.contains("bk-active")
    dlSet(tab, {role: "tab", "aria-selected": active, tabindex: active ? 0 : -1})
    if (pages.length === tabs.length) dlSet(pages[index], {role: "tabpanel", "aria-label": dlSpoken(tab)})
  })
  if (list.dlKeys) return
  list.dlKeys = true
  list.addEventListener("keydown", (event) => {
    const all = [...root.querySelectorAll(".bk-tab")], at = all.indexOf(event.target.closest(".bk-tab"))
    const to = {ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: all.length - 1, Enter: at, " ": at}[event.key]
    if (at < 0 || to === undefined) return
    event.preventDefault()
    const tab = all[(to + all.length) % all.length]
    tab.click()
    requestAnimationFrame(() => { dlNameTabs(root); tab.focus() })
  })
}

function dlTip(root) {
  const tip = dlGiven(root.host, "--dl-tip")
  if (!tip) return
  root.host.title = tip
  for (const part of root.querySelectorAll("input, select, textarea, button, .noUi-handle")) dlSet(part, {"aria-description": tip})
}

function dlName(root) {
  dlTip(root)
  dlNameSliders(root)
  dlNameFields(root)
  dlNameGroups(root)
  dlNameTabs(root)
}

// Everything under an element, now and whenever it changes; ``sheet`` is added to every shadow root. Returns what ends it.
function dlFollow(top, sheet) {
  const waiting = new Set(), known = new Map()
  let frame = 0
  const later = (root) => {
    waiting.add(root)
    frame ||= requestAnimationFrame(() => {
      frame = 0
      const now = [...waiting]
      waiting.clear()
      now.forEach(look)
    })
  }
  const look = (root) => {
    const charts = root.querySelector(".dl-grid, .dl-cards") // these name their own, and they change all the time
    if (!known.has(root)) {
      const observer = new MutationObserver(() => later(root))
      known.set(root, observer)
      if (sheet) root.adoptedStyleSheets = [...root.adoptedStyleSheets, sheet]
      if (!charts) observer.observe(root, {childList: true, subtree: true, characterData: true, attributes: true, attributeFilter: ["class"]})
    }
    if (charts) return
    dlName(root)
    for (const element of root.querySelectorAll("*")) if (element.shadowRoot && !known.has(element.shadowRoot)) look(element.shadowRoot)
    for (const [old, observer] of known) if (!old.host.isConnected) { observer.disconnect(); known.delete(old) }
  }
  look(top.shadowRoot)
  return () => { for (const observer of known.values()) observer.disconnect() }
}
