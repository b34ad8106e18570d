// The head of the page. The kernel sends what it shows as JSON (model.content), and receives what a person asks for.
// Python side: header.py. Loaded after labels.js and theme.js.

const TOUR = [
  ["dl-settings", "Settings", "Drag a slider or choose a value. Each group says when it takes effect."],
  ["dl-do-run", "Run", "Starts a run with these settings. It trains while you watch."],
  ["dl-try", "Try", "A click changes just this setting, so you see what it does."],
  ["dl-changes", "Changes", "Every change gets a number here, and the same number in the charts."],
]

// The element of a class anywhere below a root, shadow roots included
function dlFind(root, name) {
  const direct = root.querySelector(`.${name}`)
  if (direct) return direct
  for (const element of root.querySelectorAll("*")) {
    const inside = element.shadowRoot && dlFind(element.shadowRoot, name)
    if (inside) return inside
  }
  return null
}

export function render({model, el}) {
  const tell = (message) => model.send_msg(JSON.stringify(message))
  const name = dlMake("h1"), sub = dlMake("div", {class: "sub"}), who = dlMake("div", {class: "who"})
  const pen = dlMake("button", {type: "button", class: "pen", title: "Rename this run", "aria-label": "Rename this run"}, "✎")
  const word = dlMake("span"), chip = dlMake("span", {class: "dl-chip", role: "status", "aria-live": "polite"}, dlMake("i"), word)
  const bar = dlMake("b"), track = dlMake("div", {class: "track", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "Progress of the run"}, bar)
  const left = dlMake("span"), right = dlMake("span"), progress = dlMake("div", {class: "progress"}, track, dlMake("div", {class: "words"}, left, right))
  const acts = dlMake("div", {class: "acts"}), dots = dlMake("button", {type: "button", class: "dl-dots", title: "More", "aria-label": "More"}, "⋯")
  const head = dlMake("header", {class: "dl-head"}, who, chip, progress, acts)
  const notice = dlMake("div", {class: "dl-notice"})
  who.append(name, pen, sub)
  el.append(dlStyle(), head, notice)
  let content = null, opened = null, copies = false, closed = false // a message reaches all displays: this one asked
  let stopping = null // what was shown when Stop was clicked, until the kernel has answered: it may be busy

  const themes = dlThemes(el)
  dlMenu(dots, head, () => [
    ...Object.entries(THEMES).map(([theme, label]) => [`${theme === themes.chosen() ? "✓ " : ""}Theme: ${label}`, () => themes.choose(theme)]),
    ...(content?.menu ?? []).map(([label, action]) => [label, () => act(action)]),
  ])

  function act(action) {
    if (action === "tour") { tour(0); return }
    if (action === "report") opened = window.open("", "_blank") // now, while the click counts: later it would be a pop-up
    if (action.startsWith("copy_")) copies = true
    if (action === "stop") { stopping = content; draw() }
    tell({action})
  }

  pen.addEventListener("click", () => {
    const field = dlMake("input", {type: "text", "aria-label": "Name of this run", maxlength: 80})
    field.value = content.name
    let isOver = false // leaving the page blurs the field, which would end it again
    const end = () => {
      if (isOver) return
      isOver = true
      field.replaceWith(name)
      pen.hidden = false
    }
    field.addEventListener("keydown", (event) => {
      event.stopPropagation()
      if (event.key !== "Enter" && event.key !== "Escape") return
      event.preventDefault() // else Enter would press the button that gets the focus
      if (event.key === "Enter") tell({name: field.value.trim()})
      end()
      pen.focus()
    })
    field.addEventListener("blur", end)
    name.replaceWith(field)
    pen.hidden = true
    field.select()
    field.focus()
  })

  // Buttons that stay are changed in place, so that the focus and a click in progress stay with them
  function drawButtons(holder, specs, last) {
    const known = new Map([...holder.querySelectorAll("button[data-action]")].map((button) => [button.dataset.action, button]))
    for (const [action, button] of known) if (!specs.some((spec) => spec.action === action)) button.remove()
    for (const {action, label, kind, tip, disabled} of specs) {
      const button = known.get(action) ?? dlMake("button", {type: "button", "data-action": action, onclick: () => act(action)})
      button.className = kind === "link" ? "dl-link" : `dl-button ${kind} dl-do-${action}`
      dlText(button, label)
      dlSay(button, {title: tip || null, "aria-description": tip || null})
      button.disabled = disabled
      known.set(action, button)
    }
    const wanted = specs.map(({action}) => known.get(action)), now = [...holder.querySelectorAll("button[data-action]")]
    if (wanted.some((button, at) => now[at] !== button)) holder.append(...wanted)
    if (last && holder.lastChild !== last) holder.append(last)
  }

  function draw() {
    content = JSON.parse(model.content)
    if (!content) return
    dlText(name, content.name)
    name.title = content.name
    dlText(sub, content.sub)
    pen.hidden = !content.renamable || !name.isConnected
    const isRefused = content.notice?.tone === "bad" && content.notice.first !== stopping?.notice?.first
    if (content.state !== stopping?.state || isRefused) stopping = null
    dlText(word, stopping ? "Stopping" : content.state)
    chip.className = `dl-chip ${stopping ? "care" : content.tone}`
    track.hidden = content.share !== null && content.share < 0
    progress.classList.toggle("wordy", track.hidden)
    track.classList.toggle("unknown", content.share === null)
    bar.style.width = `${100 * Math.max(0, content.share ?? 0)}%`
    dlSay(track, {"aria-valuenow": content.share === null ? null : Math.round(100 * content.share)})
    if (left.dataset.text !== JSON.stringify(content.left)) {
      left.dataset.text = JSON.stringify(content.left)
      left.replaceChildren(...content.left.map(([text, bold]) => bold ? dlMake("b", {}, text) : text))
    }
    dlText(right, content.right)
    drawButtons(acts, stopping ? content.buttons.map((button) => ({...button, disabled: true})) : content.buttons, dots)
    drawNotice(content.notice)
  }

  function drawNotice(said) {
    notice.hidden = !said
    if (!said) { notice.dataset.text = ""; return }
    const text = JSON.stringify([said.tone, said.first, said.rest])
    if (notice.dataset.text !== text) {
      notice.dataset.text = text
      notice.className = `dl-notice ${said.tone}`
      dlSay(notice, {role: said.tone === "bad" ? "alert" : null})
      const words = dlMake("p", {}, dlMake("b", {}, said.first), said.rest ? ` ${said.rest}` : "")
      notice.querySelector("p")?.remove()
      notice.prepend(words)
    }
    drawButtons(notice, said.buttons)
  }

  // Four places of the page, one after the other
  let card = null
  function tour(at) {
    card?.remove()
    card = null
    const top = el.getRootNode().host?.closest("[data-dl-theme]") ?? themes.top()
    const places = TOUR.map(([where, ...words]) => [top?.shadowRoot && dlFind(top.shadowRoot, where), ...words]).filter(([element]) => element)
    if (at >= places.length) return
    const [element, title, words] = places[at]
    element.scrollIntoView({block: "center"})
    const next = dlMake("button", {type: "button", class: "dl-button act", onclick: () => tour(at + 1)}, at + 1 < places.length ? "Next" : "Done")
    const close = () => { card?.remove(); card = null }
    card = dlMake("div", {class: "dl-tour", role: "dialog", "aria-label": title, onkeydown: (event) => { if (event.key === "Escape") close() }},
      dlMake("h2", {}, title), dlMake("p", {}, words),
      dlMake("div", {class: "row"}, dlMake("span", {}, `${at + 1} of ${places.length}`), dlMake("button", {type: "button", class: "dl-link", onclick: close}, "Skip"), next))
    el.append(card)
    const around = element.getBoundingClientRect()
    card.style.left = `${Math.min(window.innerWidth - 320, Math.max(8, around.right + 12))}px`
    card.style.top = `${Math.min(window.innerHeight - 160, Math.max(8, around.top))}px`
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) element.animate?.([{outline: "3px solid transparent"}, {outline: "3px solid #0B57D0"}, {outline: "3px solid transparent"}], {duration: 1600})
    next.focus()
  }

  const details = (title, text) => dlDialog(head, title).append(dlMake("pre", {class: "details"}, text))

  // Where the page may not use the clipboard, as over plain http, the text is shown
  function copy(text) {
    const show = () => details("Copy this text", text)
    if (navigator.clipboard) navigator.clipboard.writeText(text).catch(show)
    else show()
  }

  const onMessage = (event) => {
    if (closed) return
    const message = JSON.parse(event.data ?? event)
    if (message.kind === "copy" && copies) { copies = false; copy(message.text) }
    else if (message.kind === "again") { stopping = null; draw() }
    else if (message.kind === "details") details(message.title, message.text)
    else if (message.kind === "page" && opened) {
      opened.location = URL.createObjectURL(new Blob([message.html], {type: "text/html"}))
      opened = null
    } else if (message.kind === "no page") {
      opened?.close()
      opened = null
    }
  }
  model.on("msg:custom", onMessage)
  model.on("content", draw)
  model.on("remove", () => { closed = true; themes.end() })
  draw()
}
