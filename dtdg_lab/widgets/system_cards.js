// A row of cards; one is chosen. The kernel sends all of them as text (model.cards) and receives the one clicked.
// Python side: system_cards.py.

const CARDS = `
.dl-around { container-type: inline-size; }
.dl-systems { display: grid; grid-template-columns: repeat(6, 1fr); gap: 8px; font: 12px/1.3 Helvetica, Arial, sans-serif; }
@container (max-width: 930px) { .dl-systems { grid-template-columns: repeat(3, 1fr); } }
@container (max-width: 460px) { .dl-systems { grid-template-columns: 1fr; } }
.dl-system { display: grid; grid-template-columns: auto 1fr; gap: 3px 8px; align-content: start; align-items: center; text-align: left; font: inherit; margin: 0; min-width: 0;
  padding: 6px 8px; border: 1px solid var(--dl-field-line, #8a9099); border-radius: 6px; background: var(--dl-page, white); color: var(--dl-text, #24292f); cursor: pointer; }
.dl-system:hover { background: var(--dl-back, #f6f8fa); }
.dl-system[aria-pressed=true] { border-color: var(--dl-act, #0b5cad); box-shadow: inset 0 0 0 1px var(--dl-act, #0b5cad); background: var(--dl-back, #f6f8fa); }
.dl-system[aria-disabled=true] { border-style: dashed; cursor: not-allowed; }
.dl-system[aria-disabled=true] svg { opacity: 0.35; }
.dl-system b { font-size: 14px; }
@container (max-width: 1150px) { .dl-system b { font-size: 12.5px; } .dl-system { padding: 5px 6px; column-gap: 6px; } }
@container (max-width: 1000px) { .dl-system b { font-size: 11px; } }
.dl-system span { grid-column: 1 / -1; color: var(--dl-soft, #57606a); }
`
const SIDE = 5, STEP = 6
const RANKS = ["#0072B2", "#D55E00"]

// Nodes from top to bottom, snapshots from left to right; the characters are those of SystemFamily.sketch
function sketchOf(rows) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
  const width = STEP * Math.max(0, ...rows.map((row) => row.length)), height = STEP * rows.length
  for (const [name, value] of Object.entries({width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true"})) svg.setAttribute(name, value)
  const add = (shape, attributes) => {
    const made = document.createElementNS(svg.namespaceURI, shape)
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
    svg.append(made)
  }
  rows.forEach((row, node) => [...row].forEach((mark, snapshot) => {
    if (mark === " ") return
    const copy = "cd".indexOf(mark), rank = copy >= 0 ? copy : Number(mark), x = snapshot * STEP, y = node * STEP
    add("rect", {x, y, width: SIDE, height: SIDE, rx: 1, fill: mark === "." ? "var(--dl-line, #dfe3e8)" : RANKS[rank % RANKS.length]})
    if (copy >= 0) add("circle", {cx: x + SIDE / 2, cy: y + SIDE / 2, r: 1.4, fill: "white"})
  }))
  return svg
}

export function render({model, el}) {
  const style = document.createElement("style"), around = document.createElement("div"), row = document.createElement("div")
  style.textContent = CARDS
  row.className = "dl-systems"
  row.setAttribute("role", "group")
  row.setAttribute("aria-label", "Systems")
  around.className = "dl-around"
  around.append(row)
  el.append(style, around)
  const buttons = new Map() // kept, so that the focus stays where it is

  function add(name, sketch) {
    const button = document.createElement("button"), title = document.createElement("b"), words = document.createElement("span")
    button.type = "button"
    button.className = "dl-system"
    title.textContent = name
    button.append(sketchOf(sketch), title, words)
    button.addEventListener("click", () => {
      if (button.ariaDisabled !== "true") model.send_msg(JSON.stringify({chosen: name}))
    })
    row.append(button)
    buttons.set(name, button)
    return button
  }
  function draw() {
    for (const {name, idea, sketch, chosen, refused} of JSON.parse(model.cards)) {
      const button = buttons.get(name) ?? add(name, sketch)
      button.setAttribute("aria-pressed", chosen)
      button.setAttribute("aria-disabled", Boolean(refused))
      button.lastChild.textContent = refused ? `Not available. ${refused}` : idea
      button.title = refused || idea
    }
  }
  model.on("cards", draw)
  draw()
}
