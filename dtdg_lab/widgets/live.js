// Charts with incremental updates, on the Plotly that pn.extension('plotly') has loaded. The kernel holds the state: a display that
// starts, or finds a gap in the numbering, requests a snapshot; then it gets only patches. Python side: live.py. Loaded after
// visualization's theme.js; the theme is chosen by theme.js beside this file, and charts on a page without it are light.

const CONFIG = {displayModeBar: false, doubleClick: "reset+autosize"}
const DRAG_MS = 80 // between two messages of a handle that is dragged
const QUEUE_LIMIT = 100 // messages kept while the page is hidden or rests, and draws nothing
const REST = 2, MOST_REST_MS = 2000 // between two drawings, as a multiple of the last one's time: a slow page still answers clicks

// Charts live in a shadow root, which the rules that plotly.js puts into the document do not reach
const STYLE = `
.dl-grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(max(min(100%, 300px), 34%), 1fr)); gap: 10px; width: 100%; }
.dl-card { margin: 0; padding: 4px 6px 6px; border: 1px solid var(--dl-line, #dfe3e8); border-radius: 6px; background: var(--dl-page, white); min-width: 0; position: relative; }
.dl-chart { width: 100%; }
.dl-handle { position: absolute; width: 18px; height: 18px; margin: -9px 0 0 -9px; box-sizing: border-box; border: 3px solid var(--dl-handle, #4b2a7b); border-radius: 50%; background: var(--dl-page, white); touch-action: none; z-index: 2; }
.dl-handle:hover, .dl-handle.dl-held { background: var(--dl-handle, #4b2a7b); }
.dl-handle:focus-visible { outline: 3px solid var(--dl-focus, #0b57d0); outline-offset: 2px; }
.dl-caption { font: 13px/1.35 Helvetica, Arial, sans-serif; color: var(--dl-text, #24292f); padding: 2px 6px 0; min-height: 2.7em; }
.dl-problem { font: 14px sans-serif; color: var(--dl-bad, #b3261e); padding: 12px; }
.js-plotly-plot .plotly, .js-plotly-plot .plotly div { direction: ltr; font-family: Helvetica, Arial, sans-serif; margin: 0; padding: 0; }
.js-plotly-plot .plotly svg { overflow: hidden; }
.js-plotly-plot .plotly .main-svg { position: absolute; top: 0; left: 0; pointer-events: none; }
.js-plotly-plot .plotly .main-svg .draglayer { pointer-events: all; }
.js-plotly-plot .plotly .cursor-pointer { cursor: pointer; }
.js-plotly-plot .plotly .cursor-crosshair { cursor: crosshair; }
.js-plotly-plot .plotly .cursor-ew-resize { cursor: ew-resize; }
.js-plotly-plot .plotly .cursor-ns-resize { cursor: ns-resize; }
`

// The theme of the dashboard around an element, as marked by theme.js
function isDark(el) {
  for (let host = el; host; host = host.getRootNode().host) {
    const marked = host.closest("[data-dl-theme]")
    if (marked) return marked.dataset.dlTheme === "dark"
  }
  return false
}

export function render({model, el}) {
  const style = document.createElement("style")
  style.textContent = STYLE
  const grid = document.createElement("div")
  grid.className = "dl-grid"
  el.append(style, grid)
  let names = []
  const cards = {}, charts = {}, captions = {}, handles = {}

  function addCard(name) {
    cards[name] = document.createElement("figure")
    cards[name].className = "dl-card"
    charts[name] = document.createElement("div")
    charts[name].className = "dl-chart"
    charts[name].dataset.chart = name
    charts[name].style.height = `${model.chart_height}px`
    captions[name] = document.createElement("figcaption")
    captions[name].className = "dl-caption"
    captions[name].dataset.chart = name
    charts[name].setAttribute("role", "img")
    charts[name].setAttribute("aria-label", `${name}: nothing drawn yet`)
    cards[name].append(charts[name], captions[name])
    grid.append(cards[name])
  }

  // The accessible name of a chart: its title and its caption
  function tellChart(name) {
    const title = (charts[name].layout?.title?.text ?? name).replace(/<[^>]*>/g, " ")
    charts[name].setAttribute("aria-label", [title, captions[name].textContent].filter((words) => words).join(". "))
  }

  function removeCard(name) {
    if (charts[name].data && window.Plotly) Plotly.purge(charts[name])
    cards[name].remove()
    for (const kept of [cards, charts, captions, handles]) delete kept[name]
  }

  // Points of a figure that can be dragged along an axis (layout.meta.handles); their positions go to the kernel, which
  // draws what it means
  function placeHandles(name) {
    const div = charts[name], wanted = div.layout?.meta?.handles ?? [], dots = handles[name] ?? {}
    handles[name] = dots
    for (const [which, dot] of Object.entries(dots)) {
      if (!wanted.some((spec) => spec.name === which) && !dot.held) { dot.remove(); delete dots[which] }
    }
    for (const spec of wanted) {
      const dot = dots[spec.name] ?? (dots[spec.name] = addHandle(name))
      dot.spec = spec
      if (dot.held) continue // it stays under the pointer
      dot.title = spec.title
      const aria = {label: spec.title, orientation: spec.along === "x" ? "horizontal" : "vertical"}
      for (const [end, value] of [["min", spec.low], ["max", spec.high], ["now", spec[spec.along]]]) aria[`value${end}`] = value - spec.origin
      aria.valuetext = spec.said ?? String(aria.valuenow)
      for (const [what, value] of Object.entries(aria)) dot.setAttribute(`aria-${what}`, value)
      dot.style.cursor = spec.along === "x" ? "ew-resize" : "ns-resize"
      dot.dataset.handle = spec.name
      for (const along of ["x", "y"]) moveHandle(div, dot, along, spec[along])
    }
  }

  const axisOf = (div, along) => div._fullLayout[`${along}axis`]

  function moveHandle(div, dot, along, value) {
    const axis = axisOf(div, along)
    if (along === "x") dot.style.left = `${div.offsetLeft + axis._offset + axis.l2p(value)}px`
    else dot.style.top = `${div.offsetTop + axis._offset + axis.l2p(value)}px`
  }

  function addHandle(name) {
    const div = charts[name], dot = document.createElement("div")
    let sent = 0, at = null
    // measured now, from the figure's own origin: it may have moved on under a pointer that rests
    const measured = () => {
      const {along, low, high} = dot.spec, axis = axisOf(div, along)
      return Math.min(high, Math.max(low, axis.p2l(at[along] - div.getBoundingClientRect()[along] - axis._offset)))
    }
    const tellValue = (value) => {
      sent = Date.now()
      model.send_msg(JSON.stringify({kind: "dragged", handle: dot.spec.name, value: value - dot.spec.origin}))
    }
    const tell = () => tellValue(measured())
    dot.className = "dl-handle"
    dot.tabIndex = 0
    dot.setAttribute("role", "slider")
    dot.addEventListener("keydown", (event) => {
      const {along, low, high, step = (high - low) / 50} = dot.spec
      const steps = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity}
      if (!(event.key in steps) || dot.held) return
      event.preventDefault()
      dot.spec = {...dot.spec, [along]: Math.min(high, Math.max(low, dot.spec[along] + step * steps[event.key]))}
      moveHandle(div, dot, along, dot.spec[along])
      tellValue(dot.spec[along])
    })
    dot.addEventListener("pointerdown", (event) => {
      dot.held = true
      dot.classList.add("dl-held")
      dot.setPointerCapture(event.pointerId)
      event.preventDefault()
    })
    dot.addEventListener("pointermove", (event) => {
      if (!dot.held) return
      at = {x: event.clientX, y: event.clientY}
      moveHandle(div, dot, dot.spec.along, measured())
      if (Date.now() - sent > DRAG_MS) tell()
    })
    const drop = () => {
      if (!dot.held) return
      dot.held = false
      dot.classList.remove("dl-held")
      if (at) tell()
      at = null
      if (charts[name] === div) placeHandles(name) // where the last figure has it, until the next comes
    }
    dot.addEventListener("pointerup", drop)
    dot.addEventListener("pointercancel", drop)
    cards[name].append(dot)
    return dot
  }

  // Cards for these charts, in order; what is drawn in those that stay is kept
  function lay(wanted) {
    for (const name of names) if (!wanted.includes(name)) removeCard(name)
    for (const name of wanted) if (!cards[name]) addCard(name)
    names = [...wanted]
    grid.append(...names.map((name) => cards[name]))
  }
  lay(model.charts)

  let queue = [], frame = 0, rest = 0, number = -1, asked = 0, closed = false
  const ask = () => { number = -1; queue = []; asked = Date.now(); model.send_msg(JSON.stringify({kind: "ready"})) }
  const hasSnapshot = () => queue.some((message) => message.kind === "snapshot")
  const wake = () => {
    clearTimeout(rest)
    frame = rest = 0
    if (queue.length && !document.hidden) schedule()
  }
  const schedule = () => {
    frame ||= requestAnimationFrame(() => {
      const started = performance.now()
      // a task that starts once this frame is painted, which often takes longer than the calls, or once they have failed
      setTimeout(() => { rest = setTimeout(wake, hasSnapshot() ? 0 : Math.min(MOST_REST_MS, REST * (performance.now() - started))) })
      flush()
    })
  }

  const onMessage = (event) => {
    if (closed) return
    queue.push(JSON.parse(event.data ?? event))
    if (queue.length > QUEUE_LIMIT) { queue = []; number = -1 } // hidden for long: restart when visible
    if (rest && hasSnapshot()) wake() // the user requested it
    else if (!document.hidden) schedule()
  }

  // What several messages change, per chart, so that a page that fell behind draws once
  const plan = () => Object.fromEntries(names.map((name) => [name, {figure: null, traces: new Map(), relayout: null}]))
  const asNow = (message) => (message.charts ?? names).join() === names.join()

  function take(todo, message) {
    for (const [name, figure] of Object.entries(message.react ?? {})) todo[name] = {figure, traces: new Map(), relayout: null}
    for (const [name, trace, xs, ys, drop] of message.extend ?? []) {
      const traces = todo[name].traces
      if (!traces.has(trace)) traces.set(trace, {drop: 0, xs: [], ys: []})
      const grown = traces.get(trace)
      const undo = Math.min(drop, grown.xs.length)
      grown.xs.length -= undo
      grown.ys.length -= undo
      grown.drop += drop - undo
      grown.xs.push(...xs)
      grown.ys.push(...ys)
    }
    for (const [name, layout] of Object.entries(message.relayout ?? {})) todo[name].relayout = layout
    for (const [name, text] of Object.entries(message.captions ?? {})) { captions[name].textContent = text; todo[name].captioned = true }
  }

  function flush() {
    if (closed || !window.Plotly) { queue = []; return } // without Plotly: begin() asks again
    const messages = queue
    queue = []
    let todo = plan(), points = 0
    for (const message of messages) {
      if (message.kind === "snapshot") {
        if (!asNow(message)) lay(message.charts)
        todo = plan()
      }
      else if (number < 0) continue // a patch for another display: our snapshot is on its way
      else if (message.number !== number + 1) { ask(); return }
      number = message.number
      points = message.points
      take(todo, message)
    }
    if (number < 0) { if (messages.length && Date.now() - asked > 2000) ask(); return }
    for (const name of names) {
      draw(charts[name], todo[name], points)
      if (todo[name].figure) placeHandles(name)
      if (todo[name].figure || todo[name].relayout || todo[name].captioned) tellChart(name)
    }
  }

  // Where a figure asks for it (layout.meta.clickable), the kernel is notified which of its points was clicked
  function listenToClicks(div) {
    if (div.dlListens) return
    div.dlListens = true
    div.on("plotly_click", ({points: [point]}) => {
      if (!div.layout?.meta?.clickable) return
      const {x, y, customdata = null} = point
      model.send_msg(JSON.stringify({kind: "clicked", chart: div.dataset.chart, x, y, customdata}))
    })
  }

  function draw(div, {figure, traces, relayout}, points) {
    if (figure) div.style.height = `${figure.layout.height ?? model.chart_height}px`
    const shown = figure && dlFigure(figure, isDark(el))
    if (figure) {
      Plotly.react(div, shown.data, {...shown.layout, autosize: true}, CONFIG)
      document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", true) // where it measures texts
    }
    if (figure) listenToClicks(div)
    if (traces.size && div.data) {
      const update = {x: [], y: []}
      for (const [trace, {drop, xs, ys}] of traces) {
        const {x, y} = div.data[trace]
        x.length -= drop
        y.length -= drop
        update.x.push(xs)
        update.y.push(ys)
      }
      Plotly.extendTraces(div, update, [...traces.keys()], points)
    }
    if (relayout && div.data) Plotly.relayout(div, isDark(el) ? dlDarkPart(relayout) : relayout)
    if (figure || traces.size) div.dataset.drawn = String(Number(div.dataset.drawn ?? 0) + 1)
  }

  const onVisible = () => { if (!document.hidden) { if (number < 0) ask(); else schedule() } }
  const resized = new ResizeObserver(() => requestAnimationFrame(() => {
    if (closed || !window.Plotly) return
    for (const [name, div] of Object.entries(charts)) {
      if (!div.data || !div.offsetWidth) continue
      // by the time it has its new size the page may show other charts
      Promise.resolve(Plotly.Plots.resize(div)).then(() => { if (charts[name] === div) placeHandles(name) })
    }
  }))

  const onTheme = () => { if (number >= 0) ask() } // everything is drawn again
  model.on("msg:custom", onMessage)
  window.addEventListener("dtdg-lab-theme", onTheme)
  document.addEventListener("visibilitychange", onVisible)
  model.on("remove", () => {
    closed = true
    resized.disconnect()
    document.removeEventListener("visibilitychange", onVisible)
    window.removeEventListener("dtdg-lab-theme", onTheme)
    for (const div of Object.values(charts)) if (div.data && window.Plotly) Plotly.purge(div)
  })

  // asked again until it is answered: a page that has just opened may lose the question
  const asking = setInterval(() => { if (closed) clearInterval(asking); else if (asked && number < 0 && !document.hidden && !hasSnapshot()) ask() }, 2000)

  const begun = Date.now()
  const begin = () => {
    if (closed) return
    if (window.Plotly && grid.isConnected) { resized.observe(grid); ask(); return }
    if (Date.now() - begun > 15000 && !grid.querySelector(".dl-problem")) {
      const problem = document.createElement("div")
      problem.className = "dl-problem"
      problem.textContent = "Plotly is not loaded in this page: run the cell that creates the Dashboard again."
      grid.prepend(problem)
    }
    setTimeout(begin, 50)
  }
  begin()
}
