// Systems and views: chips beside tabs, and while there is no run the systems as cards with a sentence.
// Python side: navigation.py.

const SIDE = 5, STEP = 6
const RANKS = ["#0072B2", "#D55E00"]

// Nodes from top to bottom, snapshots from left to right; the characters are those of SystemFamily.sketch
function sketchOf(rows) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
  const width = STEP * Math.max(0, ...rows.map((row) => row.length)), height = STEP * rows.length
  dlSay(svg, {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": true})
  rows.forEach((row, node) => [...row].forEach((mark, snapshot) => {
    if (mark === " ") return
    const copy = "cd".indexOf(mark), rank = copy >= 0 ? copy : Number(mark), cell = document.createElementNS(svg.namespaceURI, "rect")
    dlSay(cell, {x: snapshot * STEP, y: node * STEP, width: SIDE, height: SIDE, fill: mark === "." ? "var(--dl-line, #dfe3e8)" : RANKS[rank % RANKS.length], opacity: copy >= 0 ? 0.5 : null})
    svg.append(cell)
  }))
  return svg
}

// One of a group is in the order of the Tab key; arrow keys go to its neighbours
function withArrows(group, choose) {
  group.addEventListener("keydown", (event) => {
    const all = [...group.querySelectorAll("button")], at = all.indexOf(event.target)
    const to = {ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: all.length - 1}[event.key]
    if (at < 0 || to === undefined) return
    event.preventDefault()
    const button = all[(to + all.length) % all.length]
    all.forEach((each) => { each.tabIndex = each === button ? 0 : -1 })
    button.focus()
    if (choose) button.click()
  })
}

export function render({model, el}) {
  const tell = (message) => model.send_msg(JSON.stringify(message))
  const systems = dlMake("div", {class: "dl-systems", role: "group", "aria-label": "System"}), heading = dlMake("div", {class: "dl-heading"}, "Systems")
  const views = dlMake("div", {class: "dl-views", role: "tablist", "aria-label": "Views"}), bar = dlMake("nav", {class: "dl-nav"}), around = dlMake("div", {class: "dl-around"})
  el.append(dlStyle(), around)
  withArrows(systems, false)
  withArrows(views, true)
  const chips = new Map(), tabs = new Map() // kept, so that the focus stays where it is
  let idle = null, shownView = ""

  function addSystem(name, sketch) {
    const title = dlMake("b", {}, name), words = dlMake("span")
    const button = dlMake("button", {type: "button", onclick: () => { if (button.ariaDisabled !== "true") tell({chosen: name}) }}, sketchOf(sketch), title, words)
    systems.append(button)
    chips.set(name, button)
    return button
  }

  // At once, for who goes on with the arrow keys
  function select(view) {
    for (const [name, button] of tabs) dlSay(button, {"aria-selected": name === view, tabindex: name === view ? 0 : -1})
  }

  function addView(name) {
    const button = dlMake("button", {type: "button", role: "tab", onclick: () => { select(name); tell({view: name}) }}, name)
    views.append(button)
    tabs.set(name, button)
    return button
  }

  function draw() {
    const content = JSON.parse(model.content)
    if (!content) return
    if (idle !== content.idle) {
      idle = content.idle
      around.classList.toggle("idle", idle)
      bar.replaceChildren(idle ? heading : systems, views)
      around.replaceChildren(bar, ...(idle ? [systems] : []))
    }
    const anyChosen = content.cards.some((card) => card.chosen)
    content.cards.forEach(({name, idea, sketch, chosen, refused}, at) => {
      const button = chips.get(name) ?? addSystem(name, sketch)
      dlSay(button, {"aria-pressed": chosen, "aria-disabled": Boolean(refused), title: refused || idea})
      if (!systems.contains(document.activeElement)) button.tabIndex = chosen || (!anyChosen && at === 0) ? 0 : -1
      dlText(button.lastChild, refused ? `Not available. ${refused}` : idea)
    })
    for (const name of content.views) if (!tabs.has(name)) addView(name)
    if (shownView !== content.view) select(shownView = content.view)
  }
  model.on("content", draw)
  draw()
}
