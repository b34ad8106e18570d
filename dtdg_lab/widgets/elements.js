// What the components of the page share. Put before their own code by scripts.py, with the style sheets as DL_STYLE.

const dlMake = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value)
    else if (value === true) element.setAttribute(name, "")
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value)
  }
  element.append(...children)
  return element
}

const dlStyle = () => dlMake("style", {}, DL_STYLE)

// Text that did not change is left alone, so that a selection in it stays
const dlText = (element, text) => { if (element.textContent !== text) element.textContent = text }
const dlSay = (element, attributes) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) element.removeAttribute(name)
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value)
  }
}

// A menu under a button; each item is [label, action]. Arrow keys move, Escape closes.
function dlMenu(button, holder, items) {
  let menu = null
  const close = (focus = false) => {
    menu?.remove()
    menu = null
    button.setAttribute("aria-expanded", false)
    document.removeEventListener("pointerdown", outside, true)
    if (focus) button.focus()
  }
  const outside = (event) => { if (!event.composedPath().includes(menu) && !event.composedPath().includes(button)) close() }
  dlSay(button, {"aria-haspopup": "menu", "aria-expanded": false})
  button.addEventListener("click", () => {
    if (menu) { close(); return }
    menu = dlMake("div", {class: "dl-menu", role: "menu"})
    for (const [label, action] of items()) {
      menu.append(dlMake("button", {type: "button", role: "menuitem", onclick: () => { close(true); action() }}, label))
    }
    menu.addEventListener("keydown", (event) => {
      const all = [...menu.children], at = all.indexOf(event.target)
      const to = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1}[event.key]
      if (event.key === "Escape") close(true)
      else if (to !== undefined) all[(to + all.length) % all.length].focus()
      else return
      event.preventDefault()
      event.stopPropagation()
    })
    holder.append(menu)
    button.setAttribute("aria-expanded", true)
    document.addEventListener("pointerdown", outside, true)
    menu.firstChild?.focus()
  })
}

// A dialog above the page; returns where its content goes
function dlDialog(root, title, ...actions) {
  const content = dlMake("div", {class: "content"})
  const dialog = dlMake("dialog", {"aria-label": title},
    dlMake("div", {class: "head"}, dlMake("h2", {}, title), ...actions, dlMake("button", {type: "button", class: "dl-button", onclick: () => dialog.close()}, "Close")), content)
  dialog.addEventListener("close", () => dialog.remove())
  root.append(dialog)
  dialog.showModal()
  return content
}

const dlSave = (name, type, text) => {
  const link = dlMake("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name})
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}

const dlCsv = (rows) => rows.map((row) => row.map((cell) => /[",\n]/.test(String(cell ?? "")) ? `"${String(cell).replaceAll('"', '""')}"` : cell ?? "").join(",")).join("\n") + "\n"

// The theme of the dashboard around an element, as marked by theme.js
function dlIsDark(el) {
  for (let host = el; host; host = host.getRootNode().host) {
    const marked = host.closest("[data-dl-theme]")
    if (marked) return marked.dataset.dlTheme === "dark"
  }
  return false
}
