// Cards with charts. The kernel sends one chart at a time, and the next once this display has acknowledged it (drawing.py); a
// display tells which cards are in view. Python side: chart_cards.py.

const CONFIG = {displayModeBar: false, doubleClick: "reset+autosize"}
const REST = 2, MOST_REST_MS = 2000 // after a drawing, as a multiple of its time: a slow page still answers clicks
const LATER_MS = 100 // between two looks whether a person still aims at a handle
const HEIGHTS = {picture: 330, whole: 330, common: 158, supporting: 150, folded: 220}
const ROWS = ["picture", "whole", "common", "supporting"]
const ASK_MS = 2000 // a page that has just opened may lose its first message
const MOST_ROWS = 200

// Rows of what is drawn, for the table: the trace's name, then its values
function rowsOf({data, layout}) {
  const unit = layout.meta?.card?.unit || "value", isSideways = data.some((trace) => trace.orientation === "h")
  const along = isSideways ? layout.yaxis?.title?.text || "bar" : layout.xaxis?.title?.text || "x"
  const rows = []
  for (const trace of data) {
    if (trace.line?.width === 0 && trace.hoverinfo === "skip") continue // the edge of a band
    const name = trace.name ?? trace.type ?? ""
    if (trace.z) trace.z.forEach((line, row) => line.forEach((z, column) => rows.push([name, trace.x?.[column] ?? column, trace.y?.[row] ?? row, z])))
    else {
      const count = Math.max(trace.x?.length ?? 0, trace.y?.length ?? 0)
      const of = (values, at) => Array.isArray(values) ? values[at] : values
      for (let at = 0; at < count; at++) {
        const [place, value] = trace.orientation === "h" ? [trace.y, trace.x] : [trace.x, trace.y]
        rows.push([name, place?.[at] ?? at, value?.[at] ?? "", of(trace.base, at) ?? of(trace.text, at) ?? ""])
      }
    }
  }
  const head = ["Series", plain(along), unit, data.some((trace) => trace.z) ? "value" : data.some((trace) => trace.base) ? "begins at" : "text"]
  return rows.some((row) => row[3] !== "") ? [head, ...rows] : [head.slice(0, 3), ...rows.map((row) => row.slice(0, 3))]
}

// Title, unit and colour keys as the title of a picture; about as sheet.py does on paper
const SYMBOLS = {line: "━", dash: "╍", dot: "●", box: "■", hatch: "▨", cross: "✕", star: "★", ring: "○", diamond: "◆", "open-diamond": "◇", triangle: "▼"}
function titleOf(title, {unit, keys = []}, dark, width) {
  const soft = dark ? DL_PAGE.dark.soft : DL_PAGE.light.soft
  const lines = [`<b>${title}</b>${unit ? `   <span style="color:${soft}">${unit}</span>` : ""}`]
  let letters = title.length + (unit ?? "").length + 3
  for (const [label, colour, mark] of keys) {
    const key = `<span style="color:${dark ? dlDarkened(colour) : colour}">${SYMBOLS[mark]}</span> ${label}`
    letters += label.length + 6
    if (7 * letters < width) lines[lines.length - 1] += `   ${key}`
    else { lines.push(key); letters = label.length + 3 }
  }
  return lines
}

const plain = (text) => (text ?? "").replace(/<[^>]*>/g, " ")
const shown = (cell) => typeof cell === "number" ? String(Number(cell.toPrecision(5))).replace("-", "−") : plain(String(cell ?? "–"))

function tableOf(rows) {
  const [head, ...body] = rows
  const table = dlMake("table", {class: "dl-table"})
  table.append(dlMake("thead", {}, dlMake("tr", {}, ...head.map((cell) => dlMake("th", {scope: "col"}, cell)))))
  table.append(dlMake("tbody", {}, ...body.slice(0, MOST_ROWS).map((row) => dlMake("tr", {}, ...row.map((cell) => dlMake("td", {}, shown(cell)))))))
  return table
}

class Card {
  constructor(board, spec) {
    this.board = board
    this.spec = spec
    this.figure = null // the newest, in light colours
    this.plot = dlMake("div", {class: "plot dl-chart", role: "img", "data-chart": spec.name})
    this.waits = dlMake("div", {class: "waits"})
    this.area = dlMake("div", {class: "area"}, this.plot, this.waits)
    this.title = dlMake("h2")
    this.unit = dlMake("span", {class: "unit"})
    this.key = dlMake("span", {class: "key"})
    this.push = dlMake("span", {class: "push"})
    this.idea = dlMake("div", {class: "idea"})
    this.caption = dlMake("figcaption", {"data-chart": spec.name})
    this.dots = dlMake("button", {type: "button", class: "dl-dots", title: "Zoom, download, data as a table"}, "⋯")
    this.root = dlMake("figure", {class: `dl-card ${spec.section}`, "data-card": spec.name},
      dlMake("div", {class: "top"}, this.title, this.unit, this.key, this.push), this.dots, this.idea, this.area, this.caption)
    this.handles = dlHandles(this.plot, this.area, (message) => board.tell({...message, chart: spec.name, number: this.number}))
    dlMenu(this.dots, this.root, () => this.items())
    if (spec.section === "picture") this.addFreeze()
    this.say(spec)
  }

  // What is known of the card without a figure
  say(spec) {
    if (spec.run !== this.spec.run) this.forget()
    this.spec = spec
    this.place = spec.height || HEIGHTS[spec.section]
    if (!this.figure) {
      dlText(this.title, spec.title)
      this.area.style.height = this.plot.style.height = `${this.place}px`
    }
    dlText(this.idea, spec.idea ?? "")
    this.idea.hidden = !spec.idea
    this.title.title = spec.help ?? ""
    dlSay(this.dots, {"aria-label": `Options of ${spec.title}`})
    if (this.freeze) {
      dlText(this.ago, spec.ago)
      this.choice.hidden = !spec.run // before a run nothing moves
    }
    this.sayQuestion(spec)
    this.tellName()
  }

  sayQuestion({ask, ask_help, asking}) {
    if (!ask) { this.ask?.remove(); this.ask = null; return }
    if (!this.ask) {
      this.ask = dlMake("button", {type: "button", class: "dl-button", onclick: () => this.board.tell({kind: "asked", chart: this.spec.name})})
      this.push.append(this.ask)
    }
    dlText(this.ask, asking ? "Working …" : ask)
    this.ask.title = ask_help
    this.ask.disabled = asking
  }

  addFreeze() {
    this.ago = dlMake("span", {class: "ago"})
    this.freeze = {}
    const buttons = ["Follow", "Freeze"].map((label) => {
      const button = dlMake("button", {type: "button", onclick: () => this.setFrozen(label === "Freeze")}, label)
      this.freeze[label] = button
      return button
    })
    this.frozen = false
    this.choice = dlMake("span", {class: "seg", role: "group", "aria-label": "Picture"}, ...buttons)
    this.push.append(this.ago, this.choice)
    this.sayFrozen()
  }

  sayFrozen() {
    dlSay(this.freeze.Follow, {"aria-pressed": !this.frozen})
    dlSay(this.freeze.Freeze, {"aria-pressed": this.frozen})
  }

  setFrozen(frozen) {
    if (this.frozen === frozen) return
    this.frozen = frozen
    this.sayFrozen()
    if (!frozen) this.clear() // with what was zoomed to
    this.board.tell({kind: "frozen", chart: this.spec.name, on: frozen})
  }

  items() {
    const items = [["Zoom", () => this.zoom()], ["Save as PNG", () => this.save()], ["Data as a table", () => this.table()]]
    for (const {label, option, value} of this.spec.toggles) {
      items.push([label, () => this.board.tell({kind: "option", chart: this.spec.name, option, value})])
    }
    return this.figure ? items : items.slice(3)
  }

  zoom() {
    const content = dlDialog(this.board.root, this.title.textContent), div = dlMake("div", {role: "img", "aria-label": this.plot.getAttribute("aria-label")})
    div.style.height = "68vh"
    const words = [this.unit, this.key].map((element) => element.cloneNode(true))
    content.append(dlMake("div", {class: "dl-words"}, ...words), div, dlMake("p", {}, this.caption.textContent))
    const {data, layout} = dlFigure(this.figure, dlIsDark(this.board.el))
    Plotly.newPlot(div, structuredClone(data), {...structuredClone(layout), height: undefined, autosize: true}, CONFIG)
  }

  save() {
    const {width} = this.plot.getBoundingClientRect(), dark = dlIsDark(this.board.el)
    const {data, layout} = dlFigure(this.figure, dark)
    const paper = dark ? DL_PAGE.dark.page : "#FFFFFF"
    const lines = titleOf(this.title.textContent, this.figure.layout.meta?.card ?? {}, dark, width), room = 18 + 17 * lines.length, height = this.place + room
    const title = {text: lines.join("<br>"), font: {size: 12.5}, x: 0, xref: "paper", xanchor: "left", y: 1 - 12 / height, yref: "container", yanchor: "top"}
    const titled = {...layout, title, margin: {...layout.margin, t: (layout.margin?.t ?? 20) + room}, paper_bgcolor: paper, plot_bgcolor: paper}
    Plotly.downloadImage({data, layout: titled}, {format: "png", scale: 2, width, height, filename: this.spec.name})
  }

  table() {
    const rows = rowsOf(this.figure), csv = dlMake("button", {type: "button", class: "dl-button", onclick: () => dlSave(`${this.spec.name}.csv`, "text/csv", dlCsv(rows))}, "CSV")
    const content = dlDialog(this.board.root, this.title.textContent, csv)
    content.append(tableOf(rows))
    if (rows.length - 1 > MOST_ROWS) content.append(dlMake("p", {class: "dl-hint"}, `${MOST_ROWS} of ${(rows.length - 1).toLocaleString("en")} rows. The CSV has all.`))
  }

  tellName() {
    const words = [this.title.textContent, this.caption.textContent || this.waits.textContent]
    dlSay(this.plot, {"aria-label": words.filter((text) => text).join(". ") || "Chart"})
  }

  // Draw the newest figure once nobody is about to take a handle
  drawLater(...later) {
    this.later = later
    this.waiting ??= setInterval(() => {
      if (this.later && this.handles.isAimedAt()) return
      clearInterval(this.waiting)
      this.waiting = null
      if (this.later) this.draw(...this.later)
    }, LATER_MS)
  }

  // Show a figure with its caption; what is empty stays a sentence
  draw(figure, caption, number) {
    this.later = null
    this.number = number
    this.figure = figure
    dlText(this.caption, caption)
    const card = figure.layout.meta?.card ?? {}, dark = dlIsDark(this.board.el)
    dlText(this.title, card.title ?? (plain(figure.layout.title?.text) || this.spec.title))
    dlText(this.unit, card.unit ?? "")
    this.drawKey(card.keys ?? [], dark)
    const isEmpty = !figure.data.length
    dlText(this.waits, isEmpty ? figure.layout.annotations?.at(-1)?.text ?? "" : "")
    this.waits.hidden = !isEmpty
    this.place = figure.layout.height ?? (this.spec.height || HEIGHTS[this.spec.section])
    this.area.style.height = this.plot.style.height = `${this.place}px`
    this.tellName()
    if (isEmpty) { this.clear(); return }
    const {data, layout} = dlFigure(figure, dark)
    Plotly.react(this.plot, data, {...layout, title: undefined, height: undefined, autosize: true, font: {...layout.font, family: getComputedStyle(this.root).fontFamily}}, CONFIG)
    // the name of the plot says what is in it; the tester is where texts are measured
    for (const hidden of [this.plot.querySelector(".plot-container"), document.getElementById("js-plotly-tester")]) hidden?.setAttribute("aria-hidden", true)
    this.listen()
    this.handles.place()
    this.plot.dataset.drawn = String(Number(this.plot.dataset.drawn ?? 0) + 1)
  }

  drawKey(keys, dark) {
    const text = JSON.stringify([keys, dark])
    if (this.keyText === text) return
    this.keyText = text
    this.key.replaceChildren(...keys.map(([label, colour, mark]) => {
      const sign = dlMake("i")
      sign.style.setProperty("--key", dark ? dlDarkened(colour) : colour)
      return dlMake("span", {class: mark}, sign, label)
    }))
  }

  listen() {
    if (this.listens) return
    this.listens = true
    this.plot.on("plotly_click", ({points: [point]}) => {
      if (!this.plot.layout?.meta?.clickable) return
      const {x, y, customdata = null} = point
      this.board.tell({kind: "clicked", chart: this.spec.name, x, y, customdata})
    })
    this.plot.on("plotly_clickannotation", ({annotation}) => {
      const number = parseInt(annotation.text.replace(/<[^>]*>/g, ""), 10)
      if (number) window.dispatchEvent(new CustomEvent("dtdg-lab-change", {detail: number}))
    })
    this.plot.on("plotly_relayout", (changed) => {
      if (this.freeze && Object.keys(changed).some((name) => /axis\d*\.range\[0\]$/.test(name))) this.setFrozen(true)
    })
  }

  // Show nothing of the run before
  forget() {
    this.figure = null
    this.clear()
    dlText(this.caption, "")
    dlText(this.waits, "")
    this.drawKey([], false)
    if (this.frozen) { this.frozen = false; this.sayFrozen() }
  }

  // Make the chips that name a change blink
  flash(number) {
    for (const group of this.plot.querySelectorAll("g.annotation")) {
      const [first, last = first] = (group.textContent.match(/\d+/g) ?? []).map(Number)
      if (group.textContent.trim().match(/^\d+([–-]\d+)?$/) && first <= number && number <= last) {
        group.classList.remove("flash")
        void group.getBoundingClientRect()
        group.classList.add("flash")
      }
    }
  }

  resize() {
    if (!this.plot.data || !this.plot.offsetWidth) return
    Promise.resolve(Plotly.Plots.resize(this.plot)).then(() => { if (this.plot.data) this.handles.place() })
  }

  clear() {
    this.later = null
    this.handles.clear()
    if (this.plot.data && window.Plotly) Plotly.purge(this.plot)
    this.listens = false
  }

  remove() {
    this.clear()
    this.root.remove()
  }
}

export function render({model, el}) {
  const display = Math.random().toString(36).slice(2)
  const rows = {}, cards = new Map(), inView = new Set()
  const folded = dlMake("div", {class: "dl-row folded"}), names = dlMake("span"), summary = dlMake("summary", {}, "More charts ", names)
  const fold = dlMake("details", {class: "dl-fold"}, summary, folded)
  const root = dlMake("div", {class: "dl-cards"})
  for (const place of ROWS) root.append(rows[place] = dlMake("div", {class: `dl-row ${place}`}))
  rows.folded = folded
  root.append(fold)
  el.append(dlStyle(), root)
  let closed = false, greeted = false, timer = 0

  const visible = () => document.hidden || !window.Plotly ? [] : [...inView].filter((name) => cards.has(name))
  const board = {root, el, tell: (message) => model.send_msg(JSON.stringify({display, visible: visible(), ...message}))}
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches
  const sayVisible = () => board.tell({kind: "visible", calm})
  const tellVisible = () => { clearTimeout(timer); timer = setTimeout(() => { if (!closed) sayVisible() }, 40) }

  const observer = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) {
      if (isIntersecting) inView.add(target.dataset.card)
      else inView.delete(target.dataset.card)
    }
    tellVisible()
  }, {rootMargin: "60px"})

  // Cards in their order; those that stay keep what is drawn
  function lay() {
    const specs = JSON.parse(model.cards)
    for (const [name, card] of cards) {
      if (!specs.some((spec) => spec.name === name && spec.section === card.spec.section)) { observer.unobserve(card.root); card.remove(); cards.delete(name); inView.delete(name) }
    }
    for (const spec of specs) {
      const known = cards.get(spec.name)
      if (known) known.say(spec)
      else {
        const card = new Card(board, spec)
        cards.set(spec.name, card)
        observer.observe(card.root)
      }
    }
    for (const [place, row] of Object.entries(rows)) {
      const wanted = specs.filter((spec) => spec.section === place).map((spec) => cards.get(spec.name).root)
      if (wanted.length !== row.children.length || wanted.some((each, at) => row.children[at] !== each)) row.replaceChildren(...wanted)
    }
    const more = specs.filter((spec) => spec.section === "folded").map((spec) => spec.title.toLowerCase())
    dlText(names, `(${more.length}: ${more.join(", ")})`)
  }

  // One message: draw it, rest, acknowledge. An urgent one, of what a person drags, is drawn without a rest
  function take({number, chart, figure, caption, urgent}) {
    const card = cards.get(chart)
    const acknowledge = (ms) => { if (!closed) board.tell({kind: "drawn", number, chart, ms}) }
    if (!card || !inView.has(chart) || document.hidden || !window.Plotly) { acknowledge(null); return }
    if (!urgent && card.handles.isAimedAt()) { card.drawLater(figure, caption, number); acknowledge(0); return }
    requestAnimationFrame(() => {
      if (closed) return
      const begun = performance.now()
      // a task that begins once this frame is painted, which often takes longer than the calls, or once they have failed
      setTimeout(() => {
        const ms = performance.now() - begun
        setTimeout(() => acknowledge(ms), urgent ? 0 : Math.min(MOST_REST_MS, REST * ms))
      })
      if (cards.get(chart) === card) card.draw(figure, caption, number)
    })
  }

  const onMessage = (event) => {
    if (closed) return
    const message = JSON.parse(event.data ?? event)
    greeted = true
    if (message.kind === "draw") take(message)
  }
  // those that are hidden are sent again when they come into view
  const onTheme = () => {
    for (const card of cards.values()) {
      if (card.figure && window.Plotly && card.root.offsetWidth) card.draw(card.figure, card.caption.textContent, card.number)
      else card.clear()
    }
  }
  const onFlash = ({detail}) => { for (const card of cards.values()) card.flash(detail) }
  let width = 0
  const resized = new ResizeObserver(() => requestAnimationFrame(() => {
    if (closed || !window.Plotly || root.offsetWidth === width) return
    width = root.offsetWidth
    for (const card of cards.values()) card.resize()
  }))

  model.on("msg:custom", onMessage)
  model.on("cards", lay)
  window.addEventListener("dtdg-lab-theme", onTheme)
  window.addEventListener("dtdg-lab-flash", onFlash)
  document.addEventListener("visibilitychange", tellVisible)
  fold.addEventListener("toggle", tellVisible)
  const asking = setInterval(() => { if (closed || greeted) clearInterval(asking); else if (window.Plotly) sayVisible() }, ASK_MS)
  model.on("remove", () => {
    closed = true
    board.tell({kind: "gone"})
    resized.disconnect()
    observer.disconnect()
    clearInterval(asking)
    window.removeEventListener("dtdg-lab-theme", onTheme)
    window.removeEventListener("dtdg-lab-flash", onFlash)
    document.removeEventListener("visibilitychange", tellVisible)
    for (const card of cards.values()) card.clear()
  })

  const begun = Date.now()
  const begin = () => {
    if (closed) return
    if (window.Plotly && root.isConnected) { resized.observe(root); lay(); tellVisible(); return }
    if (Date.now() - begun > 15000 && !root.querySelector(".dl-problem")) {
      root.prepend(dlMake("div", {class: "dl-problem", role: "alert"}, "Charts can't be drawn on this page. Run the cell that creates the dashboard again."))
    }
    setTimeout(begin, 50)
  }
  lay()
  begin()
}
